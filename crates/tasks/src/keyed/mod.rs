//! Timers that are named by keys. A key has at most one timer. Calls with the key replace, move and cancel its timer.
//!
//! An engine gives its timers ids. Here, the user names them by keys that exist anyway, such as a request's number or a
//! session's name. An entry is a key with a value. A [`Keyed`] calls one handler for all its entries, on the threads of
//! a [`TaskEngine`](crate::TaskEngine).
//!
//! If the value lives in an object of its own, such as a connection, the object can have a
//! [`Timer`](tourbillon::Timer). Such a timer is better: it needs no map, and arming it costs a tenth as much.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon_tasks::DrivenTasks;
//!
//! let mut tasks = DrivenTasks::new()?;
//! let orders = tasks.handle().keyed(|due| println!("{} was not paid: {}", due.key, due.value));
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
//! # Which call wins
//!
//! The map decides, under the lock of the key's shard. The timer of an entry takes the entry out of the map before the
//! handler runs. If another call has replaced, moved or cancelled the entry before that, the map has no entry with the
//! timer's id. Then the handler does not run.
//!
//! So each entry ends in exactly one way. Either its handler runs, or the entry is replaced, cancelled or drained. A
//! replaced, cancelled or drained entry gives its value back, and its handler never begins. No entry outlives its
//! timer.
//!
//! Keys are hashed, compared, cloned and dropped under the lock of their shard. So these operations must not call the
//! same `Keyed`.

mod error;

pub use error::{KeyedError, KeyedErrorKind, MoveError};

use crate::map::LockedMap;
use crate::sync::{Mutex, Patience, StdArc, Weak, ignore_poison};
use crate::task::{Call, IfPresent, Key, Moment, Shot, TaskCore, Tasks};
use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use tourbillon::{Refusal, RescheduleError, TimerId, Timestamp};

/// The outcome of scheduling a value for a key.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "it may have a value"]
#[non_exhaustive]
pub enum Placed<V> {
    /// The key had no entry before. Now it has the new entry.
    New,
    /// The key has the new entry in place of an old entry. The old entry's value is returned here, and the handler does
    /// not run for it.
    Replaced(V),
    /// The key keeps its old entry. The new value is returned here.
    Kept(V),
}

/// A set of timers that are named by keys. Clones share the keys. Dropping the last clone drops the entries without
/// running the handler.
pub struct Keyed<K: Key, V: Send + 'static> {
    shared: StdArc<Shared<K, V>>,
}

/// An entry that is due, as the handler gets it.
#[derive(Debug)]
#[non_exhaustive]
pub struct DueKey<'a, K: Key, V: Send + 'static> {
    /// The entry's key. When the handler runs, the map has no entry for this key, or a newer entry.
    pub key: K,
    /// The entry's value.
    pub value: V,
    /// The moment for which the entry was scheduled.
    pub deadline: Timestamp,
    /// The time between the deadline and the start of the handler.
    pub lateness: Duration,
    /// The `Keyed` to which the entry belonged. The handler may schedule further entries through it. A handler that
    /// holds a clone of its own `Keyed` keeps itself alive for ever.
    pub keyed: &'a Keyed<K, V>,
}

type Handler<K, V> = dyn Fn(DueKey<'_, K, V>) + Send + Sync;

struct Shared<K: Key, V: Send + 'static> {
    tasks: TaskCore,
    entries: LockedMap<K, Pending<V>>,
    handler: Box<Handler<K, V>>,
}

/// The entry of a key: its value and its timer.
struct Pending<V> {
    /// The id of the entry's present timer. If a timer with another id comes due, the entry stays.
    timer: TimerId,
    deadline: Timestamp,
    /// The entry's value. The mutex makes the entry `Sync` even if the value is not. No thread locks it.
    value: Mutex<V>,
}

impl<V> Pending<V> {
    fn into_value(self) -> V {
        ignore_poison(self.value.into_inner())
    }
}

impl Tasks {
    /// Makes a set of timers by key on this engine. Each timer calls `handler` when it is due.
    #[must_use]
    pub fn keyed<K: Key, V: Send + 'static>(
        &self,
        handler: impl Fn(DueKey<'_, K, V>) + Send + Sync + 'static,
    ) -> Keyed<K, V> {
        let shared =
            Shared { tasks: self.core().clone(), entries: LockedMap::new(), handler: Box::new(handler) };
        Keyed { shared: StdArc::new(shared) }
    }
}

impl<K: Key, V: Send + 'static> Keyed<K, V> {
    /// Schedules `value` for `key`, `delay` from now. If the key has an entry, replaces the entry and returns its
    /// value. The handler does not run for the replaced entry.
    ///
    /// # Errors
    ///
    /// Fails if the engine is full or shut down, as [`Tasks::after`] does. The error returns the key and the value, and
    /// the key's entry is unchanged.
    ///
    /// # Time complexity
    ///
    /// O(1): a map operation, and a new timer with its allocation. A call that replaces an entry moves the entry's
    /// timer instead of making a new one.
    pub fn schedule(&self, key: K, delay: Duration, value: V) -> Result<Option<V>, KeyedError<K, V>> {
        let deadline = self.shared.tasks.now() + delay;
        match self.schedule_at(IfPresent::Replace, key, deadline, value)? {
            Placed::Replaced(value) => Ok(Some(value)),
            Placed::New | Placed::Kept(_) => Ok(None),
        }
    }

    /// Schedules `value` for `key` at `deadline`. If the key has an entry already, `mode` decides whether the old or
    /// the new entry stays.
    ///
    /// # Errors
    ///
    /// Fails as [`schedule`](Self::schedule) does. Also fails with [`Present`](KeyedErrorKind::Present) if the key has
    /// an entry and the mode is [`IfPresent::Reject`].
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
                Ok(placed) => return Ok(placed),
                Err(error) => error,
            };
            // The thread's queue to the shard is full. The call waits without a lock, because the shard's thread may
            // run a handler that needs the lock.
            let is_full = error.kind == KeyedErrorKind::Refused(Refusal::LaneFull);
            if !is_full || !self.shared.tasks.await_room(&mut rounds) {
                return Err(error);
            }
            (key, value) = (error.key, error.value);
        }
    }

    /// Removes the entry of a key, and returns its value. The handler never runs for that entry. Returns `None` if the
    /// key has no entry, or if the entry's handler has begun.
    pub fn cancel<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (_, pending) = self.shared.entries.remove_if(key, |_| true)?;
        self.shared.drop_timer(pending.timer);
        Some(pending.into_value())
    }

    /// Moves the entry of a key to `delay` from now. Once the handler has begun, the entry cannot be moved any more.
    ///
    /// # Errors
    ///
    /// Fails if the key has no entry, or if the engine is full or shut down. After an error, the entry is unchanged.
    pub fn reschedule<Q: Hash + Eq + ?Sized>(&self, key: &Q, delay: Duration) -> Result<(), MoveError>
    where
        K: Borrow<Q>,
    {
        self.reschedule_at(key, self.shared.tasks.now() + delay)
    }

    /// Works as [`reschedule`](Self::reschedule), but takes an absolute moment.
    ///
    /// # Errors
    ///
    /// See [`reschedule`](Self::reschedule).
    pub fn reschedule_at<Q: Hash + Eq + ?Sized>(&self, key: &Q, deadline: Timestamp) -> Result<(), MoveError>
    where
        K: Borrow<Q>,
    {
        let mut rounds = 0;
        loop {
            match self.shared.try_move(key, deadline) {
                Ok(()) => return Ok(()),
                Err(MoveError::Refused(Refusal::LaneFull)) if self.shared.tasks.await_room(&mut rounds) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether a key has an entry.
    #[must_use]
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.shared.entries.contains(key)
    }

    /// Returns the deadline of a key's entry; `None` if the key has no entry.
    #[must_use]
    pub fn deadline<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Timestamp>
    where
        K: Borrow<Q>,
    {
        self.shared.entries.read(key, |pending| pending.deadline)
    }

    /// Returns the time until a key's entry is due. Returns zero if the entry is due and its handler has not begun.
    /// Returns `None` if the key has no entry.
    #[must_use]
    pub fn remaining<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        Some(self.deadline(key)? - self.shared.tasks.now())
    }

    /// Returns the keys that have entries, each once. A key that has an entry during the whole call is included. A key
    /// whose entry is inserted or removed during the call may be included.
    ///
    /// # Time complexity
    ///
    /// O(n). Other threads wait for one shard of the map at a time, not for the whole map.
    #[must_use]
    pub fn keys(&self) -> Vec<K> {
        let mut keys = Vec::new();
        self.shared.entries.for_each(|key, _| keys.push(key.clone()));
        keys
    }

    /// Returns the number of keys that have entries.
    ///
    /// # Time complexity
    ///
    /// O(s) in the number `s` of the map's shards, which is 256.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.entries.len()
    }

    /// Returns whether no key has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.entries.is_empty()
    }

    /// Removes and returns all entries, as [`cancel`](Self::cancel) does for one key. Also works after a shutdown of
    /// the engine, when no handler runs any more.
    #[must_use = "the entries whose jobs did not run"]
    pub fn drain(&self) -> Vec<(K, V)> {
        self.shared.drain(Patience::Endless)
    }
}

impl<K: Key, V: Send + 'static> Shared<K, V> {
    fn try_schedule(
        self: &StdArc<Self>,
        mode: IfPresent,
        key: K,
        deadline: Timestamp,
        value: V,
    ) -> Result<Placed<V>, KeyedError<K, V>> {
        let mut entry = self.entries.entry(&key);
        let kind = match (entry.get(&key), mode) {
            (None, _) => match self.arm(&key, deadline) {
                Ok(timer) => {
                    entry.insert(key, Pending { timer, deadline, value: Mutex::new(value) });
                    return Ok(Placed::New);
                }
                Err(kind) => KeyedErrorKind::Refused(kind),
            },
            (Some(pending), IfPresent::Replace) => match self.move_timer(pending, &key, deadline) {
                Ok(()) => {
                    let old = core::mem::replace(&mut pending.value, Mutex::new(value));
                    return Ok(Placed::Replaced(ignore_poison(old.into_inner())));
                }
                Err(kind) => KeyedErrorKind::Refused(kind),
            },
            (Some(_), IfPresent::Keep) => return Ok(Placed::Kept(value)),
            (Some(_), IfPresent::Reject) => KeyedErrorKind::Present,
        };
        drop(entry);
        Err(KeyedError { kind, key, value })
    }

    fn try_move<Q: Hash + Eq + ?Sized>(
        self: &StdArc<Self>,
        key: &Q,
        deadline: Timestamp,
    ) -> Result<(), MoveError>
    where
        K: Borrow<Q>,
    {
        let mut entry = self.entries.entry(key);
        let (key, pending) = entry.get_with_key(key).ok_or(MoveError::Absent)?;
        self.move_timer(pending, key, deadline).map_err(MoveError::Refused)
    }

    /// Moves the timer of an entry. The caller holds the lock of the entry's shard. The timer keeps its memory slot, so
    /// even a full engine can move it. A timer that is already due cannot be moved, so the entry gets a new timer. The
    /// old timer then finds another timer's id in the entry, and leaves the entry alone.
    fn move_timer(
        self: &StdArc<Self>,
        pending: &mut Pending<V>,
        key: &K,
        deadline: Timestamp,
    ) -> Result<(), Refusal> {
        pending.timer = match self.tasks.try_move(pending.timer, deadline) {
            Ok(timer) => timer,
            Err(RescheduleError::Running | RescheduleError::Gone) => self.arm(key, deadline)?,
            Err(RescheduleError::LaneFull) => return Err(Refusal::LaneFull),
            Err(RescheduleError::Forked(_)) => return Err(Refusal::Forked),
            Err(_) => return Err(Refusal::ShutDown),
        };
        pending.deadline = deadline;
        Ok(())
    }

    /// Makes a timer for a key. The caller holds the lock of the key's shard. When the timer is due, its job looks up
    /// the entry that the key has by then.
    fn arm(self: &StdArc<Self>, key: &K, deadline: Timestamp) -> Result<TimerId, Refusal> {
        let shot = EntryIsDue { shared: StdArc::downgrade(self), key: key.clone() };
        self.tasks.try_shoot(deadline, Box::new(shot)).map_err(|error| error.kind)
    }

    /// Cancels a timer whose entry is gone. If the timer is due already, its job finds no entry and does nothing.
    fn drop_timer(&self, timer: TimerId) {
        drop(self.tasks.handle().cancel(timer));
    }

    fn drain(&self, patience: Patience) -> Vec<(K, V)> {
        let give_up = |(key, pending): (K, Pending<V>)| {
            self.drop_timer(pending.timer);
            (key, pending.into_value())
        };
        self.entries.take_all(patience).into_iter().map(give_up).collect()
    }
}

impl<K: Key, V: Send + 'static> Drop for Shared<K, V> {
    fn drop(&mut self) {
        drop(self.drain(self.tasks.patience()));
    }
}

/// The job of an entry's timer: it takes the entry out and calls the handler.
struct EntryIsDue<K: Key, V: Send + 'static> {
    shared: Weak<Shared<K, V>>,
    key: K,
}

impl<K: Key, V: Send + 'static> Shot for EntryIsDue<K, V> {
    fn fire(self: Box<Self>, moment: &Moment<'_>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let is_ours = |pending: &mut Pending<V>| pending.timer == moment.id();
        let Some((key, pending)) = shared.entries.remove_if(&self.key, is_ours) else { return };
        let keyed = Keyed { shared };
        let (deadline, lateness) = (moment.deadline, moment.lateness());
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
