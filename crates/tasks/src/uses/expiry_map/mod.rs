//! A concurrent map whose entries expire.
//!
//! An entry is never returned at or after its deadline, even if its timer is late. So a reader also checks the clock,
//! which costs about as much as the look-up itself. An entry stays visible until its deadline. The engine has two
//! clocks: a fast clock, which may be a little ahead of the real time, and a true clock, which is never ahead but costs
//! more. Deadlines count from the fast clock. If a deadline has come by the fast clock, the reader asks the true clock,
//! which decides. The memory of an entry is freed when its timer fires, not at the next look-up.
//!
//! Each entry has an owned timer, while an entry of a [`Keyed`](crate::keyed) has a one-shot. A refresh arms the timer
//! ([`Timer::arm`](tourbillon::Timer::arm)) under the shared lock of its shard. So readers that refresh do not exclude
//! each other. A one-shot would have to be scheduled again, under the exclusive lock.
//!
//! The costs were measured on one thread (`benches/uses.rs`), relative to a `Keyed`. A refresh, and an insert that
//! replaces, take two thirds of the time. A million refreshes send one message, a ticket, to the engine's threads. An
//! insert of a new key takes 1.5 times as long, and a removal twice as long. For keys that are inserted once, and
//! neither read nor refreshed, [`Keyed`](crate::keyed) is better.
//!
//! The map bounds the time of entries, not their number or weight. If the values live elsewhere anyway, such as in a
//! connection, a [`Timer`](tourbillon::Timer) beside the value is better.
//!
//! # Races and their endings
//!
//! The map decides which call wins, under the lock of the key's shard. Each inserted value ends in exactly one way: it
//! expires, is replaced, is removed, or is dropped by [`clear`](ExpiryMap::clear), by a `retain` or with the map.
//!
//! - insert x expiry: (a) the insert comes first, and the entry lives on with the new value; (b) the old value expires
//!   first, and the insert finds no entry. If the insert finds an entry whose deadline has passed, the insert itself
//!   makes the old value expire.
//! - refresh x expiry: (a) the refresh returns true, and the entry stays; (b) the refresh returns false, since the
//!   deadline has passed. If a refresh read the clock just before the deadline, it may restore an entry that another
//!   thread found expired.
//! - remove x expiry: either the removal returns the value, or the listener gets it.

mod entries;
mod lifetime;

pub use lifetime::Lifetime;

use crate::map::LockedMap;
use crate::sync::StdArc;
use crate::task::{Key, TaskCore};
use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use entries::{Inserted, Listener, Shared, Slot};
use tourbillon::extend::WhenFull;
use tourbillon::{Refusal, ScheduleError};

/// A concurrent map whose entries expire. Clones refer to the same map. Dropping the last clone drops the entries, and
/// does not call the listener.
///
/// User code that runs under the lock of a shard must not call the same map. This applies to hashing, comparing and
/// cloning keys, to cloning values, and to the closures of [`read`](Self::read) and [`retain`](Self::retain).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::DrivenTasks;
/// use tourbillon_tasks::uses::Lifetime;
///
/// let mut tasks = DrivenTasks::new()?;
/// let half_an_hour = Duration::from_secs(1_800);
/// let sessions = tasks.handle().expiry_map_with_listener(
///     Lifetime::of(half_an_hour).refreshed_on_access(),
///     |token, user| println!("{user} has gone, and so has {token}"),
/// );
///
/// sessions.insert("f00d", "Ada")?;
/// tasks.advance(half_an_hour / 2);
/// assert_eq!(sessions.get("f00d"), Some("Ada"));
/// assert_eq!(sessions.remaining("f00d"), Some(half_an_hour));
/// tasks.advance(half_an_hour);
/// assert_eq!(sessions.get("f00d"), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExpiryMap<K: Key, V: Send + Sync + 'static> {
    shared: StdArc<Shared<K, V>>,
}

impl<K: Key, V: Send + Sync + 'static> ExpiryMap<K, V> {
    pub(super) fn new(tasks: &TaskCore, lifetime: Lifetime, listener: Option<Box<Listener<K, V>>>) -> Self {
        let (tasks, entries) = (tasks.clone(), LockedMap::new());
        Self { shared: StdArc::new(Shared { tasks, lifetime, entries, listener }) }
    }

    /// Inserts an entry that lives for the map's time to live. Returns the value that the new value replaces.
    ///
    /// # Errors
    ///
    /// Fails if the engine is full or shut down. The error returns key and value, and the key's entry is unchanged.
    ///
    /// # Time complexity
    ///
    /// O(1): a map operation, and an arming. For a key without an entry, also an owned timer and its two allocations.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, ScheduleError<(K, V)>> {
        self.insert_for(key, value, self.shared.lifetime.time_to_live)
    }

    /// Works as [`insert`](Self::insert), but sets a time to live for this entry. Refreshes of the entry use this time,
    /// too.
    ///
    /// # Errors
    ///
    /// See [`insert`](Self::insert).
    pub fn insert_for(
        &self,
        key: K,
        value: V,
        time_to_live: Duration,
    ) -> Result<Option<V>, ScheduleError<(K, V)>> {
        let (shared, mut new, mut rounds, mut when_full) = (&self.shared, (key, value), 0, WhenFull::Fail);
        loop {
            match shared.try_insert(new, time_to_live, when_full) {
                Ok(Inserted::New) => return Ok(None),
                Ok(Inserted::Replaced(value)) => return Ok(Some(value)),
                Ok(Inserted::Outlived(key, value)) => {
                    shared.call_listener(key, value);
                    return Ok(None);
                }
                // The thread's queue to the shard is full. The call waits without a lock, because the shard's thread
                // may need the lock to expire an entry.
                Err(ScheduleError { kind: Refusal::LaneFull, payload }) if when_full == WhenFull::Fail => {
                    if !shared.tasks.await_room(&mut rounds) {
                        when_full = WhenFull::Exceed;
                    }
                    new = payload;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the value of a key, or `None` if the key has no entry or the entry has expired.
    ///
    /// # Time complexity
    ///
    /// O(1): the look-up and a clock read. If each access restarts an entry's time to live, also an arming, as in
    /// [`refresh`](Self::refresh).
    #[must_use]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.read(key, V::clone)
    }

    /// Calls `f` with the value of a key, and returns the result of `f`. Returns `None` if the value has expired.
    /// Readers do not exclude each other.
    pub fn read<Q: Hash + Eq + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let Shared { tasks, lifetime, entries, .. } = &*self.shared;
        let read = |slot: &Slot<K, V>| {
            let now = tasks.now();
            slot.is_alive(tasks, now).then(|| {
                if lifetime.is_refreshed {
                    slot.refresh(tasks, now);
                }
                f(&slot.value)
            })
        };
        entries.read(key, read).flatten()
    }

    /// Restarts the time to live of a key's entry. Returns false if the key has no live entry, or if the engine was
    /// shut down.
    ///
    /// # Time complexity
    ///
    /// O(1): the look-up, a clock read and an arming.
    pub fn refresh<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let Shared { tasks, entries, .. } = &*self.shared;
        let refresh = |slot: &Slot<K, V>| {
            let now = tasks.now();
            slot.is_alive(tasks, now) && slot.refresh(tasks, now)
        };
        entries.read(key, refresh).unwrap_or(false)
    }

    /// Removes the entry of a key, and returns its value; `None` if the key has no entry or the entry has expired. Does
    /// not call the listener.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let Shared { tasks, entries, .. } = &*self.shared;
        let (_, slot) = entries.remove_if(key, |slot| slot.is_alive(tasks, tasks.now()))?;
        Some(slot.value)
    }

    /// Returns whether a key has an entry that has not expired. The call does not refresh the entry.
    #[must_use]
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let Shared { tasks, entries, .. } = &*self.shared;
        entries.read(key, |slot| slot.is_alive(tasks, tasks.now())).unwrap_or(false)
    }

    /// Returns the time until a key's entry expires; `None` if the key has no live entry. The time may be zero in the
    /// last microseconds of an entry. The call does not refresh the entry.
    #[must_use]
    pub fn remaining<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        let Shared { tasks, entries, .. } = &*self.shared;
        let remaining = |slot: &Slot<K, V>| {
            let now = tasks.now();
            slot.is_alive(tasks, now).then(|| slot.deadline() - now)
        };
        entries.read(key, remaining).flatten()
    }

    /// Returns the keys whose entries have not expired, each once. A key that has such an entry during the whole call
    /// is included. A key whose entry is inserted or removed during the call may be included.
    ///
    /// # Time complexity
    ///
    /// O(n). Other threads wait for one shard of the map at a time, not for the whole map.
    #[must_use]
    pub fn keys(&self) -> Vec<K> {
        let Shared { tasks, entries, .. } = &*self.shared;
        let (mut keys, now) = (Vec::new(), tasks.now());
        entries.for_each(|key, slot| {
            if slot.is_alive(tasks, now) {
                keys.push(key.clone());
            }
        });
        keys
    }

    /// Returns the number of entries. The number includes expired entries whose timers are late.
    ///
    /// # Time complexity
    ///
    /// O(s) in the number `s` of the map's shards, which is 256.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.entries.len()
    }

    /// Returns whether the map has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.entries.is_empty()
    }

    /// Drops the entries that have not expired and for which `keep` returns false. Does not call the listener.
    ///
    /// # Time complexity
    ///
    /// O(n), as for [`keys`](Self::keys).
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let tasks = &self.shared.tasks;
        let now = tasks.now();
        self.take_out(|key, slot| slot.is_alive(tasks, now) && !keep(key, &slot.value));
    }

    /// Drops all entries, expired or not. Does not call the listener.
    ///
    /// # Time complexity
    ///
    /// O(n), as for [`keys`](Self::keys).
    pub fn clear(&self) {
        self.take_out(|_, _| true);
    }

    /// Removes the entries for which `is_wanted` returns true, and drops them after the map's locks are released.
    fn take_out(&self, is_wanted: impl FnMut(&K, &Slot<K, V>) -> bool) {
        drop(self.shared.entries.extract_if(is_wanted));
    }
}

impl<K: Key, V: Send + Sync + 'static> Clone for ExpiryMap<K, V> {
    fn clone(&self) -> Self {
        Self { shared: StdArc::clone(&self.shared) }
    }
}

impl<K: Key, V: Send + Sync + 'static> fmt::Debug for ExpiryMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiryMap").field("lifetime", &self.shared.lifetime).finish_non_exhaustive()
    }
}
