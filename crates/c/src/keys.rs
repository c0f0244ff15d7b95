//! The one-shots of an engine that have keys.
//!
//! The engine decides which call wins, as it does for one-shots by id. A call that replaces, moves or cancels asks the
//! engine, under the lock of the key's stripe. If the timer has fired already, its one-shot stays in the map until its
//! callback takes it out. So the engine's counters are exact: each one-shot is counted as what happened to it. The
//! `Keyed` of `tourbillon_tasks` lets its map decide. This map is for C: it also records which callbacks run.
//!
//! # Invariants
//! K1. A one-shot leaves the map once: by its callback or its event, by a call that replaces or cancels, or by the
//!     shutdown. Each of these holds the lock of the key's stripe. A stripe is one of 64 parts of the map.
//! K2. A timer is scheduled or moved, and its id is stored in the entry, within one critical section. So a timer that
//!     is due finds its one-shot.
//! K3. A one-shot whose timer the engine has cancelled leaves the map in the same critical section. There is one
//!     exception: a shutdown may come while a call replaces or moves a one-shot. The engine has then cancelled the
//!     timer, and refuses to schedule it again. Such a one-shot stays in the map without a timer. The shutdown returns
//!     it, because it locks the stripe after the engine has refused.
//!
//! # Races and their legal endings
//! - cancel, replace or move x fire: (a) the engine cancels or moves the timer, and its callback does not begin. (b)
//!   The timer has fired. Then its callback is called: a cancel finds it running, a move finds nothing pending, and a
//!   schedule replaces nothing. The new one-shot is pending beside it.
//! - shutdown x fire: (a) the engine returns the timer, and the shutdown takes its one-shot out of the map. (b) The
//!   timer has fired, and its callback takes the one-shot. A shutdown in a callback does not wait for it.
//!
//! A call may have to wait for room in a lane, which is a thread's queue to a shard, or for the end of a callback. No
//! call waits under the lock of a stripe, because a callback on a shard's thread may need that lock.
//!
//! # Progress and cost
//! O(1): the lock of one of 64 stripes, a timer, an allocation for the key and one for the timer's closure. A call that
//! replaces or moves a one-shot moves its timer, which keeps its slot and its closure. Each one-shot holds a reference
//! to its stripe. The count of the references lies beside the stripe's lock, which the call takes anyway.

use crate::delivery::Delivery;
use crate::event::{Target, tb_event};
use crate::events;
use crate::status::{Failure, tb_status};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::ffi::CStr;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tourbillon::{Cancel, Refusal, RescheduleError, TimerId, Timestamp};
use tourbillon_tasks::{Moment, Tasks};

const STRIPES: usize = 64;

#[derive(Debug)]
pub(crate) struct Keys {
    hasher: RandomState,
    stripes: Box<[Arc<Stripe>]>,
    /// The number of one-shots that a shutdown has returned, and whose timers the engine has counted as cancelled (K3).
    withdrawn: AtomicU64,
}

#[derive(Debug)]
struct Stripe {
    table: Mutex<Table>,
    delivery: Delivery,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Arc<CStr>, Entry>,
    /// The one-shots that the engine has returned at its shutdown, until the call that shuts it down takes them.
    returned: Vec<(Arc<CStr>, Pending)>,
}

/// The one-shots of a key.
#[derive(Debug, Default)]
struct Entry {
    pending: Option<Pending>,
    /// One-shots that have fired, and whose callbacks have not begun. Another one-shot of the key was scheduled since.
    fired: Vec<(TimerId, Target)>,
    /// The timers of the key whose callbacks have begun and have not returned.
    running: Vec<TimerId>,
}

/// The one-shot of a key that was scheduled last. It has not left the map, but its timer may have fired.
#[derive(Debug)]
struct Pending {
    /// `None` if the engine has cancelled the timer during a shutdown (K3).
    timer: Option<TimerId>,
    deadline: Timestamp,
    target: Target,
}

/// The result of cancelling the one-shot of a key.
pub(crate) struct Found {
    /// The callback of the cancelled one-shot and its `user`, which the caller owns again. `None` if no one-shot was
    /// pending.
    pub(crate) cancelled: Option<Target>,
    /// Whether callbacks of the key may still be running. False if none was running when the one-shot was cancelled, or
    /// if the call has waited until they returned.
    pub(crate) is_running: bool,
}

/// A one-shot by key that had not fired when the engine was shut down: the event that its callback would have got, and
/// its key.
pub(crate) type Unkeyed = (tb_event, Arc<CStr>);

impl Keys {
    pub(crate) fn new(delivery: &Delivery) -> Self {
        let stripe = || Arc::new(Stripe { table: Mutex::default(), delivery: delivery.clone() });
        let stripes = (0..STRIPES).map(|_| stripe()).collect();
        Self { hasher: RandomState::new(), stripes, withdrawn: AtomicU64::new(0) }
    }

    fn stripe(&self, key: &CStr) -> &Arc<Stripe> {
        let hash = self.hasher.hash_one(key);
        &self.stripes[usize::try_from(hash % STRIPES as u64).unwrap_or_default()]
    }

    /// Schedules a one-shot under `key`. `target` has the callback and the `user` of the new one-shot. If a one-shot
    /// was pending under `key`, replaces it, and returns the callback and the `user` of the old one-shot.
    pub(crate) fn schedule(
        &self,
        tasks: &Tasks,
        key: &CStr,
        deadline: Timestamp,
        target: Target,
    ) -> Result<Option<Target>, Failure> {
        let (stripe, key) = (self.stripe(key), Arc::from(key));
        with_room(tasks, || stripe.place(tasks, &key, deadline, target))
    }

    /// Moves the one-shot that is pending under `key` to another deadline. Fails if no one-shot is pending.
    pub(crate) fn reschedule(&self, tasks: &Tasks, key: &CStr, deadline: Timestamp) -> Result<(), Failure> {
        let stripe = self.stripe(key);
        match with_room(tasks, || stripe.move_to(tasks, key, deadline))? {
            Moved::InPlace => Ok(()),
            Moved::NotPending => {
                Err(Failure::new(tb_status::TB_NOT_PENDING, "the key has no pending one-shot"))
            }
        }
    }

    /// Cancels the pending one-shot of `key`, and returns its callback and `user`. If `and_wait` is true, waits for
    /// running callbacks of the key.
    pub(crate) fn cancel(&self, tasks: &Tasks, key: &CStr, and_wait: bool) -> Found {
        let (cancelled, running) = self.stripe(key).take(tasks, key);
        let is_running = if and_wait {
            // In a callback of this engine the wait returns `Running` at once.
            running
                .into_iter()
                .fold(false, |runs, timer| runs | matches!(tasks.cancel_and_wait(timer), Cancel::Running))
        } else {
            !running.is_empty()
        };
        Found { cancelled, is_running }
    }

    /// Returns the one-shots that had not fired when the engine was shut down. The caller has shut the engine down, and
    /// has called the closures of the timers that the engine has returned.
    pub(crate) fn take_unfired(&self) -> Vec<Unkeyed> {
        let mut unfired = Vec::new();
        for stripe in &self.stripes {
            let withdrawn = stripe.take_unfired(&mut unfired);
            // Ordering: Relaxed. The number is exact once the threads that shut down are done with it.
            self.withdrawn.fetch_add(withdrawn, Ordering::Relaxed);
        }
        unfired
    }

    /// Returns the number of one-shots that were returned by a shutdown, and that the engine counts as cancelled.
    pub(crate) fn withdrawn(&self) -> u64 {
        // Ordering: Relaxed. See `take_unfired`.
        self.withdrawn.load(Ordering::Relaxed)
    }
}

/// The outcome of moving the one-shot of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// The one-shot is pending at its new deadline.
    InPlace,
    /// The key has no pending one-shot.
    NotPending,
}

/// Repeats `attempt` while the thread's queue to the shard (its lane) is full, and waits between the calls. If this
/// thread may not wait, returns the error of `attempt`.
fn with_room<T>(tasks: &Tasks, mut attempt: impl FnMut() -> Result<T, Refusal>) -> Result<T, Failure> {
    let mut rounds = 0;
    loop {
        match attempt() {
            Err(Refusal::LaneFull) if tasks.await_room(&mut rounds) => {}
            other => return other.map_err(Failure::from),
        }
    }
}

impl Stripe {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a one-shot under a key. Returns the target of the one-shot that it replaces.
    fn place(
        self: &Arc<Self>,
        tasks: &Tasks,
        key: &Arc<CStr>,
        deadline: Timestamp,
        target: Target,
    ) -> Result<Option<Target>, Refusal> {
        let mut table = self.lock();
        if let Some(pending) = table.entries.get_mut(&**key).and_then(|entry| entry.pending.as_mut())
            && pending.move_to(tasks, deadline)? == Moved::InPlace
        {
            return Ok(Some(std::mem::replace(&mut pending.target, target)));
        }
        let timer = Some(self.start_timer(tasks, key, deadline)?);
        let entry = table.entries.entry(Arc::clone(key)).or_default();
        let before = entry.pending.replace(Pending { timer, deadline, target });
        // The timer of the one-shot before has fired, or it could have been moved.
        entry.fired.extend(before.and_then(|before| Some((before.timer?, before.target))));
        Ok(None)
    }

    /// Moves the pending one-shot of a key to another deadline.
    fn move_to(&self, tasks: &Tasks, key: &CStr, deadline: Timestamp) -> Result<Moved, Refusal> {
        let mut table = self.lock();
        match table.entries.get_mut(key).and_then(|entry| entry.pending.as_mut()) {
            Some(pending) => pending.move_to(tasks, deadline),
            None if tasks.is_shut_down() => Err(Refusal::ShutDown),
            None => Ok(Moved::NotPending),
        }
    }

    fn start_timer(
        self: &Arc<Self>,
        tasks: &Tasks,
        key: &Arc<CStr>,
        deadline: Timestamp,
    ) -> Result<TimerId, Refusal> {
        let (stripe, key) = (Arc::clone(self), Arc::clone(key));
        let fire = move |moment: Option<&Moment<'_>>| match moment {
            Some(moment) => stripe.fire(key, moment),
            None => stripe.give_back(key),
        };
        tasks.try_at_with(deadline, fire).map_err(|error| error.kind)
    }

    fn fire(&self, key: Arc<CStr>, moment: &Moment<'_>) {
        match &self.delivery {
            Delivery::Call => {
                let Some(target) = self.take_due(&key, moment.id(), true) else { return };
                target.call(&target.event_of(moment).with_key(&key));
                self.end_run(&key, moment.id());
            }
            Delivery::Poll(_) => {
                if let Some(target) = self.take_due(&key, moment.id(), false) {
                    events::put_keyed(target.event_of(moment), key);
                }
            }
        }
    }

    /// Takes out the one-shot of a timer that has fired, and returns its target. If `runs` is true, also records that
    /// the callback of `timer` is running.
    fn take_due(&self, key: &CStr, timer: TimerId, runs: bool) -> Option<Target> {
        let mut table = self.lock();
        let entry = table.entries.get_mut(key)?;
        let target = match entry.pending.take_if(|pending| pending.timer == Some(timer)) {
            Some(due) => due.target,
            None => {
                let at = entry.fired.iter().position(|&(fired, _)| fired == timer)?;
                entry.fired.swap_remove(at).1
            }
        };
        if runs {
            entry.running.push(timer);
        }
        table.forget_if_empty(key);
        Some(target)
    }

    fn end_run(&self, key: &CStr, timer: TimerId) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.get_mut(key) {
            entry.running.retain(|&running| running != timer);
        }
        table.forget_if_empty(key);
    }

    /// Cancels the pending one-shot of `key`, and returns its target. Also returns the timers of the key that have
    /// fired, and whose callbacks have not returned.
    fn take(&self, tasks: &Tasks, key: &CStr) -> (Option<Target>, Vec<TimerId>) {
        let mut table = self.lock();
        let Some(entry) = table.entries.get_mut(key) else { return (None, Vec::new()) };
        let mut begun: Vec<TimerId> = entry.fired.iter().map(|&(timer, _)| timer).collect();
        begun.extend_from_slice(&entry.running);
        let cancelled =
            entry.pending.take_if(|pending| match pending.timer.map(|timer| tasks.cancel(timer)) {
                None | Some(Cancel::Cancelled(())) => true,
                // The shutdown has the timer, and returns the one-shot.
                Some(Cancel::Gone) => false,
                Some(_) => {
                    begun.extend(pending.timer);
                    false
                }
            });
        table.forget_if_empty(key);
        (cancelled.map(|pending| pending.target), begun)
    }

    /// Takes out the pending one-shot of `key`, whose timer the engine has returned at its shutdown.
    fn give_back(&self, key: Arc<CStr>) {
        let mut table = self.lock();
        if let Some(pending) = table.entries.get_mut(&*key).and_then(|entry| entry.pending.take()) {
            table.returned.push((Arc::clone(&key), pending));
        }
        table.forget_if_empty(&key);
    }

    /// Moves the one-shots that had not fired when the engine was shut down to `unfired`. Returns how many of them the
    /// engine had cancelled (K3).
    fn take_unfired(&self, unfired: &mut Vec<Unkeyed>) -> u64 {
        let mut table = self.lock();
        let Table { entries, returned } = &mut *table;
        let before = returned.len();
        entries.retain(|key, entry| {
            let withdrawn = entry.pending.take_if(|pending| pending.timer.is_none());
            returned.extend(withdrawn.map(|pending| (Arc::clone(key), pending)));
            !entry.is_empty()
        });
        let withdrawn = (returned.len() - before) as u64;
        unfired.extend(returned.drain(..).map(|(key, pending)| pending.unfired(key)));
        withdrawn
    }
}

impl Pending {
    /// Moves the one-shot's timer to another deadline. The caller holds the lock of the key's stripe.
    fn move_to(&mut self, tasks: &Tasks, deadline: Timestamp) -> Result<Moved, Refusal> {
        let Some(timer) = self.timer else { return Err(Refusal::ShutDown) };
        match tasks.try_reschedule_at(timer, deadline) {
            Ok(moved) => {
                self.timer = Some(moved);
                self.deadline = deadline;
                Ok(Moved::InPlace)
            }
            Err(RescheduleError::LaneFull) => Err(Refusal::LaneFull),
            // A shutdown has the timer, and returns the one-shot.
            Err(RescheduleError::Gone) if tasks.is_shut_down() => Err(Refusal::ShutDown),
            Err(RescheduleError::Running | RescheduleError::Gone) => Ok(Moved::NotPending),
            Err(error) => {
                self.timer = None;
                Err(if matches!(error, RescheduleError::Forked(_)) {
                    Refusal::Forked
                } else {
                    Refusal::ShutDown
                })
            }
        }
    }

    fn unfired(self, key: Arc<CStr>) -> Unkeyed {
        (self.target.event(0, self.deadline, Duration::ZERO, 1).with_key(&key), key)
    }
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.pending.is_none() && self.fired.is_empty() && self.running.is_empty()
    }
}

impl Table {
    fn forget_if_empty(&mut self, key: &CStr) {
        if self.entries.get(key).is_some_and(Entry::is_empty) {
            self.entries.remove(key);
        }
    }
}
