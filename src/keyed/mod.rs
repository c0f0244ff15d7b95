//! Timers by key: one for each key, replaced, moved and cancelled by it.
//!
//! An engine's timers are named by ids that it gives. Here they are named by what the user has anyway: a request's number,
//! a session's name. A [`Keyed`] is a default job for entries of a key and a value, on the threads of a
//! [`TaskEngine`](crate::task::TaskEngine). Where a value has a place of its own that the timer can live in, such as a
//! connection, a [`Timer`](crate::Timer) is better: it needs no map, and is armed for a tenth of the price.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::Builder;
//!
//! let mut tasks = Builder::new().build_driven_tasks()?;
//! let orders = tasks.keyed(|due| println!("{} was not paid: {}", due.key, due.value));
//!
//! assert_eq!(orders.schedule("order 17", Duration::from_secs(60), "2 books")?, None);
//! assert_eq!(orders.schedule("order 17", Duration::from_secs(60), "3 books")?, Some("2 books"));
//! assert_eq!(orders.remaining("order 17"), Some(Duration::from_secs(60)));
//! assert_eq!(orders.cancel("order 17"), Some("3 books"));
//!
//! orders.schedule("order 18", Duration::from_secs(60), "a lamp")?;
//! tasks.advance(Duration::from_secs(60));
//! assert!(orders.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who wins
//!
//! The map decides, under the lock of the key's bucket: the timer of an entry takes it out of the map before the job runs,
//! and finds nothing where a replacing, moving or cancelling call came before, even one that came after the engine had begun
//! with it. So each generation of a key ends in exactly one way: its job runs, or it is replaced, cancelled or drained, and
//! then its value comes back and its job has not begun and does not. No entry outlives its timer.
//!
//! Hashing, comparing, cloning and dropping a key happen under that lock: they must not call the same `Keyed`.

mod error;

pub use error::{KeyedError, KeyedErrorKind, MoveError};

use crate::engine::ignore_poison;
use crate::error::ScheduleErrorKind;
use crate::sync::{Mutex, StdArc, Weak};
use crate::task::{Call, IfPresent, Key, Moment, Shot, Tasks};
use crate::tick::Timestamp;
use crate::ticket::TimerId;
use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use scc::HashMap;
use scc::hash_map::Entry;
use std::collections::HashSet;

/// How scheduling a key ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "it may have a value"]
pub enum Placed<V> {
    /// The key had no entry, and has one now.
    New,
    /// The key has a new entry; here is the old one's value, whose job does not run.
    Replaced(V),
    /// The key has the entry that it had; here is the new value.
    Kept(V),
}

/// Timers by key. Clones are of the same keys; with the last of them the entries go, and their jobs do not run.
pub struct Keyed<K: Key, V: Send + 'static> {
    shared: StdArc<Shared<K, V>>,
}

/// An entry that is due, as its job gets it.
#[derive(Debug)]
#[non_exhaustive]
pub struct DueKey<'a, K: Key, V: Send + 'static> {
    /// Its key, which has no entry any more, or already another one.
    pub key: K,
    /// Its value.
    pub value: V,
    /// The moment it was scheduled for.
    pub deadline: Timestamp,
    /// How long after that the job began.
    pub lateness: Duration,
    /// Where it was, to schedule from the job. A job that holds a clone of its own keeps itself alive for ever.
    pub keyed: &'a Keyed<K, V>,
}

type Handler<K, V> = dyn Fn(DueKey<'_, K, V>) + Send + Sync;

struct Shared<K: Key, V: Send + 'static> {
    tasks: Tasks,
    entries: HashMap<K, Pending<V>>,
    handler: Box<Handler<K, V>>,
}

/// The entry of a key.
struct Pending<V> {
    /// Which generation of the key it is.
    timer: TimerId,
    deadline: Timestamp,
    /// Never locked: only so that values need not be `Sync`.
    value: Mutex<V>,
}

impl<V> Pending<V> {
    fn into_value(self) -> V {
        ignore_poison(self.value.into_inner())
    }
}

impl Tasks {
    /// Timers by key, each of which calls `handler` when it is due, on this engine.
    #[must_use]
    pub fn keyed<K: Key, V: Send + 'static>(
        &self,
        handler: impl Fn(DueKey<'_, K, V>) + Send + Sync + 'static,
    ) -> Keyed<K, V> {
        let shared = Shared { tasks: self.clone(), entries: HashMap::default(), handler: Box::new(handler) };
        Keyed { shared: StdArc::new(shared) }
    }
}

impl<K: Key, V: Send + 'static> Keyed<K, V> {
    /// Schedules `value` for `key`, `delay` from now. An entry that the key has is replaced: its value comes back, and its
    /// job does not run.
    ///
    /// # Errors
    ///
    /// When the engine is full or shut down, as [`Tasks::after`]: the key and the value come back, and the key's entry is
    /// as it was.
    ///
    /// # Time complexity
    ///
    /// O(1): an operation of the map, a timer, its allocation, and the cancel of the timer that is replaced.
    pub fn schedule(&self, key: K, delay: Duration, value: V) -> Result<Option<V>, KeyedError<K, V>> {
        let deadline = self.shared.tasks.now() + delay;
        match self.schedule_at(IfPresent::Replace, key, deadline, value)? {
            Placed::Replaced(value) => Ok(Some(value)),
            Placed::New | Placed::Kept(_) => Ok(None),
        }
    }

    /// Schedules `value` for `key` and `deadline`, in one of the [modes](IfPresent) for a key that has an entry.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule), and with [`Present`](KeyedErrorKind::Present) if the mode says so.
    pub fn schedule_at(
        &self,
        mode: IfPresent,
        key: K,
        deadline: Timestamp,
        value: V,
    ) -> Result<Placed<V>, KeyedError<K, V>> {
        let (mut key, mut value, mut rounds) = (key, value, 0);
        loop {
            let error = match self.shared.try_schedule(mode, key, deadline, value) {
                Ok(Placing { placed, superseded }) => {
                    self.shared.drop_timer(superseded);
                    return Ok(placed);
                }
                Err(error) => error,
            };
            // Nothing is waited for under the lock: the shard may be in a job that wants it.
            let is_full = error.kind == KeyedErrorKind::Refused(ScheduleErrorKind::LaneFull);
            if !is_full || !self.shared.tasks.wait_for_room(&mut rounds) {
                return Err(error);
            }
            (key, value) = (error.key, error.value);
        }
    }

    /// Takes the entry of a key: its value. Afterwards its job has not begun and does not; `None` means that the key had no
    /// entry, or that its job has begun.
    pub fn cancel<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (_, pending) = self.shared.entries.remove_sync(key)?;
        self.shared.drop_timer(Some(pending.timer));
        Some(pending.into_value())
    }

    /// Moves the entry of a key to `delay` from now. Its job has not begun, and begins then.
    ///
    /// # Errors
    ///
    /// When the key has no entry, and when the engine is full or shut down: the entry is as it was then.
    pub fn reschedule<Q: Hash + Eq + ?Sized>(&self, key: &Q, delay: Duration) -> Result<(), MoveError>
    where
        K: Borrow<Q>,
    {
        let (deadline, mut rounds) = (self.shared.tasks.now() + delay, 0);
        loop {
            match self.shared.try_move(key, deadline) {
                Ok(superseded) => {
                    self.shared.drop_timer(Some(superseded));
                    return Ok(());
                }
                Err(MoveError::Refused(ScheduleErrorKind::LaneFull))
                    if self.shared.tasks.wait_for_room(&mut rounds) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a key has an entry.
    #[must_use]
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.shared.entries.contains_sync(key)
    }

    /// When the entry of a key is due.
    #[must_use]
    pub fn deadline<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Timestamp>
    where
        K: Borrow<Q>,
    {
        self.shared.entries.read_sync(key, |_, pending| pending.deadline)
    }

    /// How long the entry of a key still has; zero when it is due and its job has not begun.
    #[must_use]
    pub fn remaining<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        Some(self.deadline(key)? - self.shared.tasks.now())
    }

    /// The keys that have entries: each that had one all the time is there once, others that came or went meanwhile may be.
    ///
    /// # Time complexity
    ///
    /// O(n); others wait for a bucket at a time, not for the whole map.
    #[must_use]
    pub fn keys(&self) -> Vec<K> {
        // A set, for the map tells some keys twice while it is rebuilt.
        let mut keys = HashSet::new();
        self.shared.entries.iter_sync(|key, _| {
            keys.insert(key.clone());
            true
        });
        keys.into_iter().collect()
    }

    /// How many keys have entries.
    ///
    /// # Time complexity
    ///
    /// O(n).
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.entries.len()
    }

    /// Whether no key has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.entries.is_empty()
    }

    /// Takes all entries, as [`cancel`](Self::cancel) does each; also after a shutdown of the engine, when no job runs any
    /// more.
    #[must_use = "the entries whose jobs did not run"]
    pub fn drain(&self) -> Vec<(K, V)> {
        self.shared.drain()
    }
}

/// What became of an entry that was placed.
struct Placing<V> {
    placed: Placed<V>,
    /// The timer of the generation before.
    superseded: Option<TimerId>,
}

impl<K: Key, V: Send + 'static> Shared<K, V> {
    fn try_schedule(
        self: &StdArc<Self>,
        mode: IfPresent,
        key: K,
        deadline: Timestamp,
        value: V,
    ) -> Result<Placing<V>, KeyedError<K, V>> {
        let refuse = |kind, key, value| Err(KeyedError { kind, key, value });
        match (self.entries.entry_sync(key), mode) {
            (Entry::Vacant(entry), _) => match self.arm(entry.key(), deadline) {
                Ok(timer) => {
                    drop(entry.insert_entry(Pending { timer, deadline, value: Mutex::new(value) }));
                    Ok(Placing { placed: Placed::New, superseded: None })
                }
                Err(kind) => refuse(KeyedErrorKind::Refused(kind), entry.into_key(), value),
            },
            (Entry::Occupied(mut entry), IfPresent::Replace) => match self.arm(entry.key(), deadline) {
                Ok(timer) => {
                    let new = Pending { timer, deadline, value: Mutex::new(value) };
                    let old = core::mem::replace(entry.get_mut(), new);
                    drop(entry);
                    let superseded = Some(old.timer);
                    Ok(Placing { placed: Placed::Replaced(old.into_value()), superseded })
                }
                Err(kind) => refuse(KeyedErrorKind::Refused(kind), entry.key().clone(), value),
            },
            (Entry::Occupied(_), IfPresent::Keep) => {
                Ok(Placing { placed: Placed::Kept(value), superseded: None })
            }
            (Entry::Occupied(entry), IfPresent::Reject) => {
                refuse(KeyedErrorKind::Present, entry.key().clone(), value)
            }
        }
    }

    fn try_move<Q: Hash + Eq + ?Sized>(
        self: &StdArc<Self>,
        key: &Q,
        deadline: Timestamp,
    ) -> Result<TimerId, MoveError>
    where
        K: Borrow<Q>,
    {
        let mut entry = self.entries.get_sync(key).ok_or(MoveError::Absent)?;
        let timer = self.arm(entry.key(), deadline).map_err(MoveError::Refused)?;
        let pending = entry.get_mut();
        pending.deadline = deadline;
        Ok(core::mem::replace(&mut pending.timer, timer))
    }

    /// A timer for the entry of a key, whose bucket is locked: when it is due it finds the entry as it will be then.
    fn arm(self: &StdArc<Self>, key: &K, deadline: Timestamp) -> Result<TimerId, ScheduleErrorKind> {
        let shot = EntryIsDue { shared: StdArc::downgrade(self), key: key.clone() };
        self.tasks.try_shoot(deadline, Box::new(shot)).map_err(|error| error.kind)
    }

    /// Lets go of a timer whose entry has another one, or has gone.
    fn drop_timer(&self, timer: Option<TimerId>) {
        if let Some(timer) = timer {
            // If it is due it finds that its entry has gone.
            drop(self.tasks.cancel(timer));
        }
    }

    fn drain(&self) -> Vec<(K, V)> {
        let mut drained = Vec::new();
        self.entries.iter_mut_sync(|entry| {
            drained.push(entry.consume());
            true
        });
        let give_up = |(key, pending): (K, Pending<V>)| {
            self.drop_timer(Some(pending.timer));
            (key, pending.into_value())
        };
        drained.into_iter().map(give_up).collect()
    }
}

impl<K: Key, V: Send + 'static> Drop for Shared<K, V> {
    fn drop(&mut self) {
        drop(self.drain());
    }
}

/// What the timer of an entry does.
struct EntryIsDue<K: Key, V: Send + 'static> {
    shared: Weak<Shared<K, V>>,
    key: K,
}

impl<K: Key, V: Send + 'static> Shot for EntryIsDue<K, V> {
    fn fire(self: Box<Self>, moment: &Moment) {
        let Some(shared) = self.shared.upgrade() else { return };
        let is_ours = |pending: &mut Pending<V>| pending.timer == moment.id;
        let Some((key, pending)) = shared.entries.remove_if_sync(&self.key, is_ours) else { return };
        let keyed = Keyed { shared };
        let &Moment { deadline, lateness, .. } = moment;
        (keyed.shared.handler)(DueKey {
            key,
            value: pending.into_value(),
            deadline,
            lateness,
            keyed: &keyed,
        });
    }

    fn unfired(self: Box<Self>) -> Option<Call> {
        None
    }
}

impl<K: Key, V: Send + 'static> Clone for Keyed<K, V> {
    fn clone(&self) -> Self {
        Self { shared: StdArc::clone(&self.shared) }
    }
}

impl<K: Key, V: Send + 'static> fmt::Debug for Keyed<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("tasks", &self.shared.tasks).finish_non_exhaustive()
    }
}
