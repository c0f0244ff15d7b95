//! The entries of an expiry map, with their timers.

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

/// The map's entry for a key: the value, its deadline and its timer.
pub(super) struct Slot<K: Key, V: Send + Sync + 'static> {
    pub(super) value: V,
    /// The deadline, as the nanoseconds of a [`Timestamp`]. The engine's true clock, which is never ahead of the real
    /// time, decides whether the deadline has come. Every reader before the deadline sees the value. No reader at or
    /// after the deadline sees the value.
    deadline: AtomicU64,
    time_to_live: Duration,
    /// The timer that removes the expired entry. It is armed for `deadline` or an earlier moment.
    timer: Timer<Job>,
    /// The handler of `timer`, kept alive here. The timer itself has only a weak reference to its handler.
    _expiry: StdArc<Expiry<K, V>>,
}

/// The handler of an entry's timer. When the timer fires, the handler removes the entry from the map if the entry has
/// expired. Otherwise the handler arms the timer again, for the entry's new deadline.
pub(super) struct Expiry<K: Key, V: Send + Sync + 'static> {
    shared: Weak<Shared<K, V>>,
    key: K,
}

pub(super) enum Inserted<K, V> {
    New,
    Replaced(V),
    /// The key had an expired entry, which its late timer had not removed yet. The new value has replaced this entry.
    /// The fields are the key and the expired value.
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

    /// Makes and arms a timer for a key that has no entry. Returns a closure that makes the key's entry from this timer
    /// and a value.
    fn new_slot(
        self: &StdArc<Self>,
        key: &K,
        time_to_live: Duration,
        when_full: WhenFull,
    ) -> Result<impl FnOnce(V) -> Slot<K, V> + use<K, V>, Refusal> {
        let expiry = StdArc::new(Expiry { shared: StdArc::downgrade(self), key: key.clone() });
        let timer = self.tasks.own_timer(StdArc::downgrade(&expiry) as Weak<dyn OnDue>)?;
        let deadline = self.tasks.now() + time_to_live;
        let _ = self.tasks.try_arm(&timer, deadline, when_full)?;
        let deadline = AtomicU64::new(deadline.as_nanos());
        Ok(move |value| Slot { value, deadline, time_to_live, timer, _expiry: expiry })
    }

    pub(super) fn call_listener(&self, key: K, value: V) {
        if let Some(listener) = &self.listener {
            listener(key, value);
        }
    }
}

impl<K: Key, V: Send + Sync + 'static> Slot<K, V> {
    pub(super) fn deadline(&self) -> Timestamp {
        // Ordering: Relaxed. The shard's lock publishes the value. If a refresh races with this load, the old and the
        // new deadline are both right.
        Timestamp::from_nanos(self.deadline.load(Ordering::Relaxed))
    }

    /// Returns whether the entry's deadline is still to come. `now` is a moment of the engine's fast clock
    /// ([`TaskCore::now`]), which may be a little ahead of the real time. If `now` is before the deadline, the entry is
    /// alive. Otherwise the method reads the engine's true clock ([`TaskCore::has_come`]). The true clock is never
    /// ahead of the real time, but a reading costs more.
    pub(super) fn is_alive(&self, tasks: &TaskCore, now: Timestamp) -> bool {
        let deadline = self.deadline();
        now < deadline || !tasks.has_come(deadline)
    }

    /// Moves the entry's deadline to `now` plus the entry's time to live. The caller must hold the lock of the entry's
    /// shard. A reader's lock suffices, so several threads may refresh at once. The timer is armed before the deadline
    /// is stored. After concurrent refreshes, the timer may be armed for an earlier moment than the deadline, but never
    /// for a later moment. A timer that fires too early is armed again.
    pub(super) fn refresh(&self, tasks: &TaskCore, now: Timestamp) -> bool {
        let deadline = now + self.time_to_live;
        if tasks.try_arm(&self.timer, deadline, WhenFull::Exceed).is_err() {
            return false;
        }
        // Ordering: Relaxed, for the same reason as the load in `deadline`.
        self.deadline.fetch_max(deadline.as_nanos(), Ordering::Relaxed);
        true
    }
}

impl<K: Key, V: Send + Sync + 'static> OnDue for Expiry<K, V> {
    fn on_due(&self, moment: &Moment<'_>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let has_expired = |slot: &mut Slot<K, V>| {
            let has_expired = !slot.is_alive(&shared.tasks, moment.now());
            if !has_expired {
                // The entry was refreshed or replaced, or belongs to a later insertion.
                let _ = shared.tasks.try_arm(&slot.timer, slot.deadline(), WhenFull::Exceed);
            }
            has_expired
        };
        if let Some((key, slot)) = shared.entries.remove_if(&self.key, has_expired) {
            shared.call_listener(key, slot.value);
        }
    }
}
