//! Reads and changes schedules in a store. No process overwrites another process's change.

use super::key::{ScheduleKey, namespace_of};
use super::stored::{Stored, wake_of};
use super::words::{ScheduleEvent, ScheduleFault, ScheduleView, SchedulesPage};
use crate::executor::block_on;
use crate::id::TimerId;
use crate::state::Phase;
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

/// The function of the program that is called for each event of a schedule.
pub(super) type Observe = dyn Fn(&ScheduleKey, &ScheduleEvent) + Send + Sync;

pub(super) struct ScheduleStore {
    pub(super) store: Arc<dyn TimerStore>,
    locks: [Mutex<()>; LOCKS],
    /// The lock for creating schedules in a namespace with a limit on their number. A thread takes this lock before the
    /// schedule's own lock.
    pub(super) room: Mutex<()>,
    observe: Option<Box<Observe>>,
}

impl ScheduleStore {
    pub(super) fn new(store: Arc<dyn TimerStore>, observe: Option<Box<Observe>>) -> Self {
        Self { store, locks: [const { Mutex::new(()) }; LOCKS], room: Mutex::new(()), observe }
    }

    pub(super) fn lock(&self, at: &ScheduleKey) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        at.hash(&mut hasher);
        #[expect(clippy::cast_possible_truncation, reason = "the rest of a division by a small number")]
        let lock = (hasher.finish() % LOCKS as u64) as usize;
        self.locks[lock].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, at: &ScheduleKey, event: &ScheduleEvent) {
        if let Some(observe) = &self.observe {
            observe(at, event);
        }
    }

    pub(super) fn apply(&self, ops: Vec<Op>, durability: Durability) -> Result<Vec<Outcome>, StoreError> {
        block_on(self.store.apply(ops, durability))
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
        let filter = Filter {
            namespace: Some(namespace_of(namespace)),
            // Even an empty prefix is given. A list by prefix has the order of keys, and leaves out former timers of
            // schedules whose delivery goes on.
            key_prefix: Some(key_prefix.into()),
            ..Filter::default()
        };
        let page = block_on(self.store.list(filter, cursor, limit))?;
        let now = self.store.now();
        let schedules = page.timers.iter().filter_map(|timer| {
            let at = ScheduleKey::new(namespace, timer.key.clone()?);
            Some(Stored::read(timer).ok()?.view(at, wake_of(timer), now))
        });
        Ok(SchedulesPage { schedules: schedules.collect(), next: page.next })
    }

    /// Waits until the delivery of a schedule's former timer has ended. The delivery may run in this process and may
    /// need the schedule's lock, so the caller must not hold this lock.
    fn await_end(&self, former: TimerId) -> Result<(), StoreError> {
        let begun = Instant::now();
        // A timer that was withdrawn while it was leased stays stored until its delivery ends.
        while block_on(self.store.get(former.into()))?.is_some() {
            if begun.elapsed() > SETTLING {
                let message = "another process has begun a decision of the schedule, and has not ended it";
                // The change itself is stored. Errors of other kinds would say that the call has had no effect.
                return Err(StoreError::new(StoreErrorKind::Unknown, message));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Changes a schedule as [`replace`](Self::replace) does, and waits for a decision under way in another process.
    pub(super) fn change(
        &self,
        at: &ScheduleKey,
        change: impl Fn(UtcMillis) -> Result<(Stored, IfPresent), ScheduleFault>,
    ) -> Result<ScheduleView, ScheduleFault> {
        let (view, former) = self.replace(at, change)?;
        self.await_decision(former)?;
        Ok(view)
    }

    /// Waits for the end of a decision, if `former` is a schedule's former timer whose delivery had begun, and if
    /// another process may have begun it. The caller must hold no lock.
    pub(super) fn await_decision(&self, former: Option<TimerId>) -> Result<(), StoreError> {
        // In a store of one process, the lock of the schedule has excluded a decision.
        former.filter(|_| self.store.is_shared()).map_or(Ok(()), |former| self.await_end(former))
    }

    /// Stores the schedule that `change` computes, with the moment of its next decision. If another process changes the
    /// schedule at the same time, calls `change` again. Returns the schedule, and its former timer if the delivery of
    /// that timer had begun.
    pub(super) fn replace(
        &self,
        at: &ScheduleKey,
        change: impl Fn(UtcMillis) -> Result<(Stored, IfPresent), ScheduleFault>,
    ) -> Result<(ScheduleView, Option<TimerId>), ScheduleFault> {
        let _lock = self.lock(at);
        for _ in 0..TURNS {
            let now = self.store.now();
            let (stored, mode) = change(now)?;
            let wake = stored.wake(at, now);
            let outcomes = self.apply(vec![stored.op(at, wake, mode)], Durability::PowerLoss)?;
            let former = match outcomes.first() {
                Some(Outcome::Created(_)) => None,
                Some(Outcome::Replaced { old, was: Phase::Leased, .. }) => Some(*old),
                Some(Outcome::Replaced { .. }) => None,
                // Another process has changed the schedule since `change` has read it.
                _ => continue,
            };
            return Ok((stored.view(at.clone(), wake, now), former));
        }
        Err(contended().into())
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
