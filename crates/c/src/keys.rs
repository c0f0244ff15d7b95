//! The one-shots of an engine that have keys.
//!
//! The map decides which call wins. Each entry stores the id of its timer. A due timer takes the entry out only if the
//! entry stores the timer's own id. The `Keyed` of `tourbillon_tasks` works in the same way. This map is for C: it also
//! records which callbacks run, and it can be closed.
//!
//! # Invariants
//! K1. An entry's target leaves the map once: by its timer, by a call that replaces or cancels, or by the shutdown.
//!     Each of these holds the lock of the key's stripe. A stripe is one of 64 parts of the map.
//! K2. A timer is scheduled, and its id is stored in the entry, within one critical section. So a timer that is due
//!     finds its entry.
//! K3. Nothing is put into a closed stripe. After the engine has ended, the shutdown closes and empties each stripe
//!     within one critical section: it returns the targets that were placed before, and later schedules are refused.
//!
//! A call may have to wait for room in a lane, which is a thread's queue to a shard, or for the end of a callback. No
//! call waits under the lock of a stripe, because a callback on a shard's thread may need that lock.
//!
//! # Progress and cost
//! O(1): the lock of one of 64 stripes, a timer, an allocation for the key and one for the timer's closure. Each
//! one-shot holds a reference to its stripe. The count of the references lies beside the stripe's lock, which the call
//! takes anyway.

use crate::delivery::Delivery;
use crate::event::{Target, tb_event};
use crate::events;
use crate::status::{Failure, tb_status};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::ffi::CStr;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tourbillon::{Cancel, Refusal, TimerId, Timestamp};
use tourbillon_tasks::{Moment, Tasks};

const STRIPES: usize = 64;

#[derive(Debug)]
pub(crate) struct Keys {
    hasher: RandomState,
    stripes: Box<[Arc<Stripe>]>,
}

#[derive(Debug)]
struct Stripe {
    table: Mutex<Table>,
    delivery: Delivery,
}

#[derive(Debug, Default)]
struct Table {
    is_closed: bool,
    entries: HashMap<Arc<CStr>, Entries>,
}

/// The pending one-shot of a key, and the key's running callbacks.
#[derive(Debug, Default)]
struct Entries {
    pending: Option<Pending>,
    /// The timers of the key whose callbacks have begun and have not returned.
    running: Vec<TimerId>,
}

#[derive(Debug)]
struct Pending {
    timer: TimerId,
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
        Self { hasher: RandomState::new(), stripes: (0..STRIPES).map(|_| stripe()).collect() }
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
        let replaced = with_room(tasks, || stripe.place(tasks, &key, deadline, target))?;
        Ok(replaced.map(|old| {
            abandon(tasks, old.timer);
            old.target
        }))
    }

    /// Moves the one-shot that is pending under `key` to another deadline. Fails if no one-shot is pending.
    pub(crate) fn reschedule(&self, tasks: &Tasks, key: &CStr, deadline: Timestamp) -> Result<(), Failure> {
        let stripe = self.stripe(key);
        match with_room(tasks, || stripe.move_to(tasks, key, deadline))? {
            Some(superseded) => {
                abandon(tasks, superseded);
                Ok(())
            }
            None => Err(Failure::new(tb_status::TB_NOT_PENDING, "the key has no pending one-shot")),
        }
    }

    /// Cancels the pending one-shot of `key`, and returns its callback and `user`. If `and_wait` is true, waits for
    /// running callbacks of the key.
    pub(crate) fn cancel(&self, tasks: &Tasks, key: &CStr, and_wait: bool) -> Found {
        let (pending, running) = self.stripe(key).take(key);
        let is_running = if and_wait {
            // In a callback of this engine the wait returns `Running` at once.
            running
                .into_iter()
                .fold(false, |runs, timer| runs | matches!(tasks.cancel_and_wait(timer), Cancel::Running))
        } else {
            !running.is_empty()
        };
        let cancelled = pending.map(|pending| {
            abandon(tasks, pending.timer);
            pending.target
        });
        Found { cancelled, is_running }
    }

    /// Returns the one-shots that are pending, and makes later calls of [`schedule`](Self::schedule) and
    /// [`reschedule`](Self::reschedule) fail. The caller must have shut the engine down before.
    pub(crate) fn close(&self) -> Vec<Unkeyed> {
        self.stripes.iter().flat_map(|stripe| stripe.close()).collect()
    }
}

/// Cancels a timer that no longer belongs to a key. If the timer is due already, its callback does nothing.
fn abandon(tasks: &Tasks, timer: TimerId) {
    drop(tasks.cancel(timer));
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

    fn place(
        self: &Arc<Self>,
        tasks: &Tasks,
        key: &Arc<CStr>,
        deadline: Timestamp,
        target: Target,
    ) -> Result<Option<Pending>, Refusal> {
        let mut table = self.lock();
        if table.is_closed {
            return Err(Refusal::ShutDown);
        }
        let timer = self.start_timer(tasks, key, deadline)?;
        let entries = table.entries.entry(Arc::clone(key)).or_default();
        Ok(entries.pending.replace(Pending { timer, deadline, target }))
    }

    /// Replaces the timer of a key's pending one-shot by a timer with another deadline. Returns the old timer, or
    /// `None` if no one-shot is pending.
    fn move_to(
        self: &Arc<Self>,
        tasks: &Tasks,
        key: &CStr,
        deadline: Timestamp,
    ) -> Result<Option<TimerId>, Refusal> {
        let mut table = self.lock();
        if table.is_closed {
            return Err(Refusal::ShutDown);
        }
        let Some((key, _)) = table.entries.get_key_value(key) else { return Ok(None) };
        let key = Arc::clone(key);
        let Some(pending) = table.entries.get_mut(&key).and_then(|entries| entries.pending.as_mut()) else {
            return Ok(None);
        };
        let timer = self.start_timer(tasks, &key, deadline)?;
        pending.deadline = deadline;
        Ok(Some(std::mem::replace(&mut pending.timer, timer)))
    }

    fn start_timer(
        self: &Arc<Self>,
        tasks: &Tasks,
        key: &Arc<CStr>,
        deadline: Timestamp,
    ) -> Result<TimerId, Refusal> {
        let (stripe, key) = (Arc::clone(self), Arc::clone(key));
        let fire = move |moment: Option<&Moment<'_>>| {
            // A timer that the shutdown returns must do nothing here, since the shutdown takes the target from the
            // entry.
            if let Some(moment) = moment {
                stripe.fire(key, moment);
            }
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

    /// Removes the pending one-shot of `key`, and returns its target. If `runs` is true, also records that the callback
    /// of `timer` is running. Returns `None` and changes nothing if `timer` is no longer the timer of the pending
    /// one-shot.
    fn take_due(&self, key: &CStr, timer: TimerId, runs: bool) -> Option<Target> {
        let mut table = self.lock();
        let entries = table.entries.get_mut(key)?;
        let due = entries.pending.take_if(|pending| pending.timer == timer)?;
        if runs {
            entries.running.push(timer);
        }
        table.forget_if_empty(key);
        Some(due.target)
    }

    fn end_run(&self, key: &CStr, timer: TimerId) {
        let mut table = self.lock();
        if let Some(entries) = table.entries.get_mut(key) {
            entries.running.retain(|&running| running != timer);
        }
        table.forget_if_empty(key);
    }

    /// Removes the pending one-shot of `key`, and returns it. Also returns the timers of the key whose callbacks are
    /// running.
    fn take(&self, key: &CStr) -> (Option<Pending>, Vec<TimerId>) {
        let mut table = self.lock();
        let Some(entries) = table.entries.get_mut(key) else { return (None, Vec::new()) };
        let taken = (entries.pending.take(), entries.running.clone());
        table.forget_if_empty(key);
        taken
    }

    fn close(&self) -> Vec<Unkeyed> {
        let mut table = self.lock();
        table.is_closed = true;
        let entries = std::mem::take(&mut table.entries);
        let give_back = |(key, entries): (Arc<CStr>, Entries)| {
            let Pending { deadline, target, .. } = entries.pending?;
            Some((target.event(0, deadline, Duration::ZERO, 1).with_key(&key), key))
        };
        entries.into_iter().filter_map(give_back).collect()
    }
}

impl Table {
    fn forget_if_empty(&mut self, key: &CStr) {
        if self
            .entries
            .get(key)
            .is_some_and(|entries| entries.pending.is_none() && entries.running.is_empty())
        {
            self.entries.remove(key);
        }
    }
}
