//! Reads and changes schedules in a store. No process overwrites another process's change.
//!
//! # Decisions of other processes
//!
//! Each state of a schedule is a timer of its own, and a decision is the delivery of this timer. A process may decide
//! by a timer that another process replaces or cancels at the same time. The decision then stores no new state of the
//! schedule, but it may still store occurrences. So a change waits for the end of the decision. Several changes may
//! follow each other during a single decision, and each of them must wait:
//!
//! | event | the timer of the schedule | its `formers` |
//! |---|---|---|
//! | process 1 begins a decision | A, leased | |
//! | process 2 changes the schedule, and waits for A | B | A |
//! | process 3 changes the schedule, and waits for A, too | C | A, B |
//! | the decision stores its occurrences, and the delivery of A ends | C | A, B |
//! | both changes return | C | A, B |
//! | the next change or decision finds neither A nor B in the store | D | C after a change, none after a decision |
//!
//! A timer that was replaced is stored as long as its delivery goes on, or until its lease is reaped. A lease that has
//! expired counts as the end of the delivery, because its process has died or stands still. After a step of the store's
//! clock past the end of the lease, this is wrong: the process may still store occurrences. A longer wait would not
//! help, because a reap may end the lease at the same moment. A decision stores its occurrences together with its new
//! state. So after the new state, nobody needs to wait for the decision. The exception is a store without transactions:
//! there the decision stores its occurrences after its new state, which has the decision's timer among its `formers`.
//!
//! If such a change replaces the timer while a decision stores its occurrences, the occurrences are stored and the
//! decision's result is not. The decision then notes its result in the changed state, before its delivery ends:
//! `ScheduleRunner::note_decided` after a transaction, and `ScheduleRunner::note_stored` in a store without
//! transactions, where the changed state has the instants in [`Progress::storing`]. A delivery that finds instants
//! there begins to complete the decision only when no former timer's delivery goes on.
//!
//! Within a process, the lock of the schedule excludes a decision during a change. So a change does not wait for the
//! deliveries of this process's own runtimes. Such a delivery may still wait for a thread, and would hold up the
//! handler that makes the change.

use super::Progress;
use super::key::{ScheduleKey, namespace_of};
use super::progress::SLACK;
use super::stored::{Stored, failure_of, wake_of};
use super::words::{ScheduleEvent, ScheduleFault, ScheduleView, SchedulesPage};
use crate::executor::block_on;
use crate::id::TimerId;
use crate::state::{LONGEST_LEASE, Phase, State};
use crate::store::{
    Cursor, Durability, Filter, IfPresent, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use crate::timer::Timer;
use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::hash::DefaultHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_words::UtcMillis;

/// The number of locks for schedules. The hash of a schedule's name selects its lock, so only one thread of this
/// process changes a schedule at a time.
const LOCKS: usize = 64;
/// The greatest number of attempts to change a schedule. An attempt fails if another process changes the schedule
/// first.
pub(super) const TURNS: usize = 64;
/// The longest time for which a change of a schedule waits for the end of a delivery that makes occurrences of this
/// schedule. During this time, the change checks every [`LOOK`] whether the delivery has ended.
const SETTLING: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// The greatest number of schedules in a page, when all schedules are read page by page.
pub(super) const LIST: u32 = 200;

/// The function of the program that is called for each event of a schedule.
pub(super) type Observe = dyn Fn(&ScheduleKey, &ScheduleEvent) + Send + Sync;

pub(super) struct ScheduleStore {
    pub(super) store: Arc<dyn TimerStore>,
    locks: [Mutex<()>; LOCKS],
    /// The lock for creating schedules in a namespace with a limit on their number. A thread takes this lock before the
    /// schedule's own lock.
    pub(super) room: Mutex<()>,
    /// The incarnations of the runtimes that deliver schedules by this value.
    runtimes: Mutex<Vec<u64>>,
    observe: Option<Box<Observe>>,
}

impl ScheduleStore {
    pub(super) fn new(store: Arc<dyn TimerStore>, observe: Option<Box<Observe>>) -> Self {
        Self {
            store,
            locks: [const { Mutex::new(()) }; LOCKS],
            room: Mutex::new(()),
            runtimes: Mutex::default(),
            observe,
        }
    }

    pub(super) fn lock(&self, at: &ScheduleKey) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        at.hash(&mut hasher);
        #[expect(clippy::cast_possible_truncation, reason = "the rest of a division by a small number")]
        let lock = (hasher.finish() % LOCKS as u64) as usize;
        self.locks[lock].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a runtime with this incarnation delivers schedules by this value. The incarnation stays after the
    /// runtime's end. It is random, so no runtime of another process has it.
    pub(super) fn add_runtime(&self, incarnation: u64) {
        self.runtimes.lock().unwrap_or_else(PoisonError::into_inner).push(incarnation);
    }

    pub(super) fn tell(&self, at: &ScheduleKey, event: &ScheduleEvent) {
        if let Some(observe) = &self.observe {
            observe(at, event);
        }
    }

    /// Tells the observer how many instants were left out as missed and as skipped.
    pub(super) fn tell_left_out(&self, at: &ScheduleKey, (missed, skipped): (u64, u64)) {
        if missed > 0 {
            self.tell(at, &ScheduleEvent::Missed(missed));
        }
        if skipped > 0 {
            self.tell(at, &ScheduleEvent::Skipped(skipped));
        }
    }

    pub(super) fn apply(&self, ops: Vec<Op>, durability: Durability) -> Result<Vec<Outcome>, StoreError> {
        block_on(self.store.apply(ops, durability))
    }

    /// Returns the operation that stores a schedule as a new timer, due at `wake`. `mode` decides whether the new timer
    /// may replace the schedule's old timer.
    pub(super) fn op(
        &self,
        stored: &Stored,
        at: &ScheduleKey,
        wake: Option<UtcMillis>,
        mode: IfPresent,
    ) -> Op {
        Op::Place(Box::new(self.state(stored, at, wake)), mode)
    }

    /// Returns a new timer that stores a schedule, due at `wake`. The timer's id is in the part of the store that has
    /// the schedule's key. So a part that is away stops no change of a schedule of another part.
    pub(super) fn state(&self, stored: &Stored, at: &ScheduleKey, wake: Option<UtcMillis>) -> Timer {
        stored.timer(self.store.fresh_id(&namespace_of(&at.namespace), Some(&at.key)), at, wake)
    }

    /// Returns a timer that stores a schedule, for another attempt of a decision at the moment `due`. `former` is the
    /// schedule's timer before. The decision is late since the moment for which it was scheduled.
    pub(super) fn attempt(&self, stored: &Stored, at: &ScheduleKey, former: &Timer, due: UtcMillis) -> Timer {
        Timer { scheduled: former.scheduled.min(former.due), ..self.state(stored, at, Some(due)) }
    }

    /// Stores a new `state` of a schedule, and returns whether it is stored. If the store's answer is lost, reads the
    /// schedule to find out. A loss of power may then take back the state.
    pub(super) fn keep(
        &self,
        at: &ScheduleKey,
        state: Timer,
        mode: IfPresent,
        durability: Durability,
    ) -> Result<bool, StoreError> {
        let id = state.id;
        match self.apply(vec![Op::Place(Box::new(state), mode)], durability) {
            Ok(outcomes) => Ok(has_replaced(&outcomes)),
            Err(error) if self.is_present(at, id, &error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the timer `id` stores the schedule, although the call that has stored it has failed with this
    /// error.
    pub(super) fn is_present(&self, at: &ScheduleKey, id: TimerId, error: &StoreError) -> bool {
        error.kind() == StoreErrorKind::Unknown && self.load(at).is_ok_and(|(timer, _)| timer.id == id)
    }

    /// Reads a schedule, and returns it with the timer that stores it.
    pub(super) fn load(&self, at: &ScheduleKey) -> Result<(Timer, Stored), ScheduleFault> {
        at.is_valid().then_some(()).ok_or(ScheduleFault::Key)?;
        let timer = block_on(self.store.get(at.address()))?.ok_or(ScheduleFault::NotFound)?;
        let stored = Stored::read(&timer)?;
        Ok((timer, stored))
    }

    pub(super) fn list(
        &self,
        namespace: &str,
        key_prefix: &str,
        cursor: Option<Cursor>,
        limit: u32,
    ) -> Result<SchedulesPage, StoreError> {
        let page = block_on(self.store.list(by_key(namespace, key_prefix), cursor, limit))?;
        let now = self.store.now();
        let schedules = page.timers.iter().filter_map(|timer| {
            let at = ScheduleKey::new(namespace, timer.key.clone()?);
            Some(Stored::read(timer).ok()?.view(at, wake_of(timer), failure_of(timer), now))
        });
        Ok(SchedulesPage { schedules: schedules.collect(), next: page.next })
    }

    /// Returns the number of schedules in a namespace.
    pub(super) fn number_in(&self, namespace: &str) -> Result<u64, StoreError> {
        let (least, greatest) = self.bounds_of_number(namespace)?;
        if least == greatest { Ok(least) } else { self.keys_in(namespace) }
    }

    /// Returns true if a namespace has `number` schedules or more.
    pub(super) fn has_number(&self, namespace: &str, number: u64) -> Result<bool, StoreError> {
        let (least, greatest) = self.bounds_of_number(namespace)?;
        Ok(least >= number || greatest >= number && self.keys_in(namespace)? >= number)
    }

    /// Returns the least and the greatest possible number of schedules in a namespace. The numbers differ while
    /// schedules make decisions: a leased timer is either a schedule, or the former timer of a schedule.
    fn bounds_of_number(&self, namespace: &str) -> Result<(u64, u64), StoreError> {
        let counts = block_on(self.store.counts())?;
        let timers = namespace_of(namespace);
        let count = |phase| counts.by_namespace.get(&(timers.clone(), phase)).copied().unwrap_or(0);
        // A dead timer has lost its key, so no call finds it as a schedule.
        let least = count(Phase::Pending) + count(Phase::Parked);
        Ok((least, least + count(Phase::Leased)))
    }

    /// Counts the schedules of a namespace one by one. Former timers of schedules have lost their keys.
    fn keys_in(&self, namespace: &str) -> Result<u64, StoreError> {
        let (mut number, mut cursor) = (0, None);
        loop {
            let page = block_on(self.store.list(by_key(namespace, ""), cursor, LIST))?;
            number += page.timers.len() as u64;
            cursor = page.next;
            if cursor.is_none() {
                return Ok(number);
            }
        }
    }

    /// Reads a schedule as [`load`](Self::load) does, for a change. The returned schedule has the timer that stores it
    /// among its `formers`.
    pub(super) fn load_to_change(&self, at: &ScheduleKey) -> Result<(Timer, Stored), ScheduleFault> {
        let (timer, mut stored) = self.load(at)?;
        // In a store of one process, the lock of the schedule excludes a decision.
        if self.store.is_shared() {
            self.forget_ended(&mut stored.formers);
            stored.formers.push(timer.id);
        }
        Ok((timer, stored))
    }

    /// Removes those of a schedule's former timers whose deliveries have ended.
    pub(super) fn forget_ended(&self, formers: &mut Vec<TimerId>) {
        // A timer that cannot be read stays. So a schedule goes on while the part of the store with this timer is away.
        formers.retain(|former| self.goes_on(*former).unwrap_or(true));
    }

    /// Returns whether the delivery of a schedule's former timer may still store occurrences.
    fn goes_on(&self, former: TimerId) -> Result<bool, StoreError> {
        // A timer that was withdrawn while it was leased stays stored until its delivery ends.
        Ok(match block_on(self.store.get(former.into()))?.map(|timer| timer.state) {
            // The lock of the schedule has excluded a decision of this process. A delivery that waits for the lock, or
            // for a worker, finds the schedule's new timer, and does nothing. Nobody must wait for it, because the
            // caller itself may be a handler on the worker.
            Some(State::Leased(lease)) => {
                let runtimes = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner);
                let now = self.store.now();
                // If the clock was ahead when the lease began, its end may be years away.
                let lasts = now < lease.until && lease.until - now <= LONGEST_LEASE;
                lasts && !runtimes.contains(&lease.token.incarnation)
            }
            other => other.is_some(),
        })
    }

    /// Changes a schedule as [`replace`](Self::replace) does, and waits for decisions under way in other processes.
    pub(super) fn change(
        &self,
        at: &ScheduleKey,
        change: impl Fn(UtcMillis) -> Result<(Stored, IfPresent), ScheduleFault>,
    ) -> Result<ScheduleView, ScheduleFault> {
        let (view, formers) = self.replace(at, change)?;
        self.await_decisions(&formers)?;
        Ok(view)
    }

    /// Waits until the deliveries of a schedule's former timers have ended, if other processes may have begun them. A
    /// delivery may run in this process and may need the schedule's lock, so the caller must hold no lock.
    pub(super) fn await_decisions(&self, formers: &[TimerId]) -> Result<(), StoreError> {
        // In a store of one process, the lock of the schedule has excluded a decision.
        if !self.store.is_shared() {
            return Ok(());
        }
        let begun = Instant::now();
        for former in formers {
            // The change itself is stored. Errors of other kinds would say that the call has had no effect.
            let unknown = |error| StoreError::caused_by(StoreErrorKind::Unknown, error);
            while self.goes_on(*former).map_err(unknown)? {
                if begun.elapsed() > SETTLING {
                    let message =
                        "another process has begun a decision of the schedule, and has not ended it";
                    return Err(StoreError::new(StoreErrorKind::Unknown, message));
                }
                std::thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Stores the schedule that `change` computes, with the moment of its next decision. If another process changes the
    /// schedule at the same time, calls `change` again. Returns the schedule, and its former timers whose deliveries
    /// may go on.
    pub(super) fn replace(
        &self,
        at: &ScheduleKey,
        change: impl Fn(UtcMillis) -> Result<(Stored, IfPresent), ScheduleFault>,
    ) -> Result<(ScheduleView, Vec<TimerId>), ScheduleFault> {
        let _lock = self.lock(at);
        for _ in 0..TURNS {
            let now = self.store.now();
            let (stored, mode) = change(now)?;
            let wake = stored.wake(at, now);
            let outcomes = self.apply(vec![self.op(&stored, at, wake, mode)], Durability::PowerLoss)?;
            let mut formers = stored.formers.clone();
            match outcomes.first() {
                Some(Outcome::Created(_)) => {}
                Some(Outcome::Replaced { old, was, .. }) => {
                    formers.retain(|former| former != old);
                    formers.extend((*was == Phase::Leased).then_some(*old));
                }
                // Another process has changed the schedule since `change` has read it.
                _ => continue,
            }
            return Ok((stored.view(at.clone(), wake, None, now), formers));
        }
        Err(contended().into())
    }

    /// Changes the counters of a schedule whose occurrences are stored already, or notes these occurrences. Returns
    /// false if the schedule has been removed since then, and nothing is changed. A loss of power may take back the
    /// change.
    pub(super) fn count(
        &self,
        at: &ScheduleKey,
        change: impl Fn(&mut Stored),
    ) -> Result<bool, ScheduleFault> {
        for _ in 0..TURNS {
            let (timer, mut stored) = match self.load_to_change(at) {
                Err(ScheduleFault::NotFound) => return Ok(false),
                loaded => loaded?,
            };
            change(&mut stored);
            let mode = IfPresent::ReplaceOnly(timer.id);
            if self.keep(at, self.state(&stored, at, wake_of(&timer)), mode, Durability::ProcessCrash)? {
                return Ok(true);
            }
        }
        Err(contended().into())
    }

    /// Forgets the last occurrence of a schedule if a clock that was ahead has put it off. Otherwise this occurrence
    /// would hold up the schedule until a moment that the clock reaches only much later. `timer` is the timer of the
    /// schedule `before` a change, and `progress` the progress after it.
    ///
    /// A put-off that the occurrence's backoff does not explain may also be a wish of the handler. Nobody can tell the
    /// two apart, and a run too many is better than a schedule that stands still for years.
    pub(super) fn forget_put_off(
        &self,
        at: &ScheduleKey,
        timer: &Timer,
        before: &Stored,
        progress: &mut Progress,
        now: UtcMillis,
    ) -> Result<(), StoreError> {
        if progress.ahead == before.progress.ahead && !before.is_put_off(at, timer, now) {
            return Ok(());
        }
        let Some(id) = progress.last_occurrence else { return Ok(()) };
        if let Some(last) = block_on(self.store.get(id.into()))? {
            let pause = last.policy.backoff.pause(last.id, last.failures);
            if last.state == State::Pending && last.due > now + pause + SLACK {
                progress.last_occurrence = None;
            }
        }
        Ok(())
    }

    /// Removes a schedule. Returns its former timers whose deliveries may go on, or `None` if there was no such
    /// schedule.
    pub(super) fn remove(&self, at: &ScheduleKey) -> Result<Option<Vec<TimerId>>, ScheduleFault> {
        let _lock = self.lock(at);
        for _ in 0..TURNS {
            let (only, mut formers) = match self.load_to_change(at) {
                Ok((timer, stored)) => (Some(timer.id), stored.formers),
                Err(ScheduleFault::NotFound) => return Ok(None),
                // An unreadable record is removed, whatever its timer's id is.
                Err(ScheduleFault::Store(error)) if error.kind() == StoreErrorKind::Corrupt => {
                    (None, Vec::new())
                }
                Err(fault) => return Err(fault),
            };
            let outcomes = self.apply(vec![Op::Cancel(at.address(), only)], Durability::PowerLoss)?;
            match outcomes.first() {
                // Another process has changed the schedule since it was read.
                Some(Outcome::NotFound) if only.is_some() => continue,
                Some(Outcome::NotFound) => return Ok(None),
                Some(Outcome::InFlight(former)) if !formers.contains(former) => formers.push(*former),
                Some(Outcome::InFlight(_)) => {}
                _ => formers.retain(|former| Some(*former) != only),
            }
            return Ok(Some(formers));
        }
        Err(contended().into())
    }
}

/// Returns the filter of the schedules in a namespace whose keys begin with `key_prefix`.
fn by_key(namespace: &str, key_prefix: &str) -> Filter {
    Filter {
        namespace: Some(namespace_of(namespace)),
        // Even an empty prefix is given. A list by prefix has the order of keys, and leaves out former timers of
        // schedules whose delivery goes on.
        key_prefix: Some(key_prefix.into()),
        ..Filter::default()
    }
}

/// Returns the error of a change that failed at each attempt because other processes changed the schedule first.
pub(super) fn contended() -> StoreError {
    // This kind of error is transient, so callers may try again.
    StoreError::new(StoreErrorKind::Io, format!("others changed the schedule during {TURNS} attempts"))
}

/// Returns true if the last operation of a call of [`apply`](ScheduleStore::apply) has stored the schedule's timer.
/// `outcomes` holds the outcomes of all operations of this call, in their order.
pub(super) fn has_replaced(outcomes: &[Outcome]) -> bool {
    matches!(outcomes.last(), Some(Outcome::Created(_) | Outcome::Replaced { .. }))
}
