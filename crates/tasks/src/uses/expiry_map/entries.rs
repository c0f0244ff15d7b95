//! The entries of a map, and their timers.

use super::lifetime::Lifetime;
use crate::map::LockedMap;
use crate::sync::{AtomicU64, Ordering, StdArc, Weak};
use crate::task::{Job, Key, Moment, OnDue, TaskCore};
use core::time::Duration;
use tourbillon::extend::WhenFull;
use tourbillon::{Refusal, ScheduleError, Timer, Timestamp};

pub(super) type Listener<K, V> = dyn Fn(K, V) + Send + Sync;

pub(super) struct Shared<K: Key, V: Send + Sync + 'static> {
    pub(super) tasks: TaskCore,
    pub(super) lifetime: Lifetime,
    pub(super) entries: LockedMap<K, Slot<K, V>>,
    pub(super) listener: Option<Box<Listener<K, V>>>,
}

/// The entry of a key.
pub(super) struct Slot<K: Key, V: Send + Sync + 'static> {
    pub(super) value: V,
    /// The deadline, in nanoseconds by the true clock. Every reader sees the value before the deadline, and no reader
    /// at or after it.
    deadline: AtomicU64,
    time_to_live: Duration,
    /// Armed for the deadline or an earlier moment.
    timer: Timer<Job>,
    /// The owner of the timer, to which the timer has a weak reference.
    _end: StdArc<End<K, V>>,
}

/// The owner of an entry's timer.
pub(super) struct End<K: Key, V: Send + Sync + 'static> {
    shared: Weak<Shared<K, V>>,
    key: K,
}

/// The outcome of inserting a key.
pub(super) enum Inserted<K, V> {
    New,
    Replaced(V),
    /// The entry that the key had has expired, and the entry's timer is late.
    Outlived(K, V),
}

impl<K: Key, V: Send + Sync + 'static> Shared<K, V> {
    pub(super) fn try_insert(
        self: &StdArc<Self>,
        (key, value): (K, V),
        time_to_live: Duration,
        when_full: WhenFull,
    ) -> Result<Inserted<K, V>, ScheduleError<(K, V)>> {
        let mut entry = self.entries.entry(&key);
        let kind = match entry.get(&key) {
            Some(slot) => {
                let now = self.tasks.now();
                let deadline = now + time_to_live;
                match self.tasks.try_arm(&slot.timer, deadline, when_full) {
                    Ok(_) => {
                        let was_alive = slot.is_alive(&self.tasks, now);
                        slot.deadline = AtomicU64::new(deadline.as_nanos());
                        slot.time_to_live = time_to_live;
                        let old = core::mem::replace(&mut slot.value, value);
                        return Ok(if was_alive {
                            Inserted::Replaced(old)
                        } else {
                            Inserted::Outlived(key, old)
                        });
                    }
                    Err(kind) => kind,
                }
            }
            None => match self.new_slot(&key, time_to_live, when_full) {
                Ok(make) => {
                    entry.insert(key, make(value));
                    return Ok(Inserted::New);
                }
                Err(kind) => kind,
            },
        };
        drop(entry);
        Err(ScheduleError { kind, payload: (key, value) })
    }

    /// Makes an armed timer for a key without an entry. The returned closure makes a slot from it and a value.
    fn new_slot(
        self: &StdArc<Self>,
        key: &K,
        time_to_live: Duration,
        when_full: WhenFull,
    ) -> Result<impl FnOnce(V) -> Slot<K, V> + use<K, V>, Refusal> {
        let end = StdArc::new(End { shared: StdArc::downgrade(self), key: key.clone() });
        let timer = self.tasks.own_timer(StdArc::downgrade(&end) as Weak<dyn OnDue>)?;
        let deadline = self.tasks.now() + time_to_live;
        let _ = self.tasks.try_arm(&timer, deadline, when_full)?;
        let deadline = AtomicU64::new(deadline.as_nanos());
        Ok(move |value| Slot { value, deadline, time_to_live, timer, _end: end })
    }

    /// Calls the listener, if there is one, with an entry that has expired.
    pub(super) fn call_listener(&self, key: K, value: V) {
        if let Some(listener) = &self.listener {
            listener(key, value);
        }
    }
}

impl<K: Key, V: Send + Sync + 'static> Slot<K, V> {
    pub(super) fn deadline(&self) -> Timestamp {
        // Ordering: Relaxed. The lock of the shard publishes the value; a refresh that races with this load may count
        // or not.
        Timestamp::from_nanos(self.deadline.load(Ordering::Relaxed))
    }

    /// Whether the deadline is still to come. `now` may be ahead of the true time. It saves a read of the true clock in
    /// most cases, and only the true clock decides that a deadline has come.
    pub(super) fn is_alive(&self, tasks: &TaskCore, now: Timestamp) -> bool {
        let deadline = self.deadline();
        now < deadline || !tasks.has_come(deadline)
    }

    /// Moves the deadline of an entry whose shard is locked; other threads may do the same under the shared lock. The
    /// timer is armed first. Several refreshes at once may leave the timer armed earlier than the latest deadline,
    /// never later, and the timer's run finds that.
    pub(super) fn refresh(&self, tasks: &TaskCore, now: Timestamp) -> bool {
        let deadline = now + self.time_to_live;
        if tasks.try_arm(&self.timer, deadline, WhenFull::Exceed).is_err() {
            return false;
        }
        // Ordering: Relaxed. The reason is that of the load in `deadline`.
        self.deadline.fetch_max(deadline.as_nanos(), Ordering::Relaxed);
        true
    }
}

impl<K: Key, V: Send + Sync + 'static> OnDue for End<K, V> {
    fn on_due(&self, moment: &Moment<'_>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let has_expired = |slot: &mut Slot<K, V>| {
            let has_expired = !slot.is_alive(&shared.tasks, moment.now());
            if !has_expired {
                // The entry was refreshed or replaced since, or is another entry.
                let _ = shared.tasks.try_arm(&slot.timer, slot.deadline(), WhenFull::Exceed);
            }
            has_expired
        };
        if let Some((key, slot)) = shared.entries.remove_if(&self.key, has_expired) {
            shared.call_listener(key, slot.value);
        }
    }
}
