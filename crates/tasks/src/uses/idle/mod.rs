//! Connections that expire when they are silent for too long.
//!
//! Of all timers, an idle timeout is moved most and fires least. A [`Connection`] has its own
//! [`Timer`](tourbillon::Timer). [`Connection::touch`] is a [`Timer::arm`](tourbillon::Timer::arm) and two comparisons.
//! [`IdleTimeouts::touch`] finds the connection by its id, through a map. It is for callers that have only the id, and
//! costs about twice as much.
//!
//! A plain [`Timer`](tourbillon::Timer) inside the connection needs no map. It is enough if no connection is looked up
//! by an id, and if there is no maximum age.
//!
//! # Races and their endings
//!
//! The map decides, under the lock of the id's shard, how a connection ends: it expires, or it is removed or dropped.
//! The expiry takes the connection out of the map, and then calls the callback. If a removal came first, the expiry
//! finds nothing.
//!
//! - touch x expiry: (a) the touch returns true, and the connection does not expire before the new deadline; (b) the
//!   touch returns false. Then the expiry had begun. The callback runs, has run or is about to, and no removal prevents
//!   it any more.
//! - remove or drop x expiry: (a) `remove` returns true, and the callback does not run for the connection; (b) `remove`
//!   returns false: the callback runs, has run or is about to. `remove` does not wait for the callback.
//! - deadline x expiry: (a) `deadline` returns the deadline in force; (b) `deadline` returns `None`, in the cases in
//!   which a touch returns false.
//! - touch x remove: a touch that came before the removal is forgotten, a touch that comes after it returns false.
//! - touch x touch: the deadline that was stored last is in force, as with [`Timer::arm`](tourbillon::Timer::arm).
//! - touch by id x insert: before `insert` has returned, the touch may return false.
//! - insert x expiry of the same id: while the connection that expires is in the map, the insert is refused.

mod connection;
mod entries;
pub(crate) mod life;
mod limits;

pub use connection::Connection;
pub use limits::{Expired, Limit, Limits};

use super::error::{ConnectError, ConnectErrorKind};
use crate::map::LockedMap;
use crate::sync::{StdArc, Weak};
use crate::task::{Key, OnDue, TaskCore};
use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use entries::{Callback, End, Link, Shared};
use limits::Bounds;
use tourbillon::{Armed, Refusal};

/// Connections by id, each with an idle limit and a maximum age. Clones share the connections. Connections still expire
/// after the last clone is dropped.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::DrivenTasks;
/// use tourbillon_tasks::uses::Limits;
///
/// let mut tasks = DrivenTasks::new()?;
/// let limits = Limits::idle(Duration::from_secs(30)).max_age(Duration::from_secs(3_600));
/// let timeouts = tasks.handle().idle_timeouts(limits, |expired| println!("close {}: {:?}", expired.id, expired.limit));
///
/// let connection = timeouts.insert("10.0.0.1:4711")?;
/// for _message in 0..100 {
///     tasks.advance(Duration::from_secs(29));
///     assert!(connection.touch());
/// }
/// tasks.advance(Duration::from_secs(30));
/// assert!(!connection.touch() && timeouts.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IdleTimeouts<I: Key> {
    shared: StdArc<Shared<I>>,
}

impl<I: Key> IdleTimeouts<I> {
    pub(super) fn new(tasks: &TaskCore, limits: Limits, callback: Box<Callback<I>>) -> Self {
        let (tasks, connections) = (tasks.clone(), LockedMap::new());
        Self { shared: StdArc::new(Shared { tasks, limits, connections, callback }) }
    }

    /// Inserts a connection whose last activity is now.
    ///
    /// # Errors
    ///
    /// Fails if a connection has this id, or if the engine is full or shut down. The error returns the id. A connection
    /// that has the id already is unchanged.
    ///
    /// # Time complexity
    ///
    /// O(1): an owned timer, its arming, two allocations and a map operation.
    pub fn insert(&self, id: I) -> Result<Connection<I>, ConnectError<I>> {
        self.insert_with(id, self.shared.limits)
    }

    /// Works as [`insert`](Self::insert), but sets other limits for this connection.
    ///
    /// # Errors
    ///
    /// See [`insert`](Self::insert).
    pub fn insert_with(&self, id: I, limits: Limits) -> Result<Connection<I>, ConnectError<I>> {
        let shared = &self.shared;
        let now = shared.tasks.now();
        let bounds = Bounds::new(limits, now);
        let end = StdArc::new_cyclic(|end: &Weak<End<I>>| {
            let timer = shared.tasks.own_timer(Weak::clone(end) as Weak<dyn OnDue>);
            End::new(id.clone(), timer, bounds.last, StdArc::downgrade(shared))
        });
        let present = |id| Err(ConnectError { kind: ConnectErrorKind::Present, id });
        let refused = |kind, id| Err(ConnectError { kind: ConnectErrorKind::Refused(kind), id });
        let timer = match &end.timer {
            Ok(timer) => timer,
            // If the engine is full and the id has a connection, the connection is the reported reason.
            Err(_) if shared.connections.contains(&id) => return present(id),
            Err(kind) => return refused(*kind, id),
        };
        {
            let mut entry = shared.connections.entry(&id);
            if entry.get(&id).is_some() {
                drop(entry);
                return present(id);
            }
            entry.insert(id, Link { bounds, end: StdArc::clone(&end) });
        }
        // No other thread arms the timer before the connection is live. The arming may wait for the engine, so it is
        // not done under the lock of the map's shard.
        let armed = timer.arm_at(bounds.deadline(now));
        end.life.join();
        let (engine, shared) = (timer.engine(), StdArc::clone(shared));
        let connection = Connection { engine, bounds, end, shared, was_taken_out: false };
        match armed {
            Ok(_) => Ok(connection),
            Err(_) => refused(Refusal::ShutDown, connection.id().clone()),
        }
    }

    /// Records activity of the connection with this id. Returns the same value as [`Connection::touch`], or false if no
    /// connection has this id.
    ///
    /// # Time complexity
    ///
    /// O(1): [`Connection::touch`] and a map operation.
    pub fn touch<Q: Hash + Eq + ?Sized>(&self, id: &Q) -> bool
    where
        I: Borrow<Q>,
    {
        let Shared { tasks, connections, .. } = &*self.shared;
        let now = tasks.now();
        let touch = |Link { bounds, end }: &Link<I>| {
            // While the map's shard is locked, the timer cannot be dropped. An expiry that has begun waits for the
            // lock.
            if !end.life.is_live() {
                return false;
            }
            let armed = end.try_arm_at(tasks, bounds.deadline(now));
            if armed == Ok(Armed::Running) {
                end.life.expire();
            }
            armed == Ok(Armed::Pending)
        };
        connections.read(id, touch).unwrap_or(false)
    }

    /// Removes the connection with this id. Returns the same value as [`Connection::remove`], or false if no connection
    /// has this id. Afterwards, the methods `touch` and `remove` of the connection's [handle](Connection) return false.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, id: &Q) -> bool
    where
        I: Borrow<Q>,
    {
        let may_be = |link: &mut Link<I>| link.end.life.may_be_removed();
        let removed = self.shared.connections.remove_if(id, may_be);
        removed.inspect(|(_, link)| link.end.life.end()).is_some()
    }

    /// Returns whether a connection has this id.
    #[must_use]
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, id: &Q) -> bool
    where
        I: Borrow<Q>,
    {
        self.shared.connections.contains(id)
    }

    /// Returns the number of connections.
    ///
    /// # Time complexity
    ///
    /// O(s) in the number `s` of the map's shards, which is 256.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.connections.len()
    }

    /// Returns whether there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.connections.is_empty()
    }
}

impl<I: Key> Clone for IdleTimeouts<I> {
    fn clone(&self) -> Self {
        Self { shared: StdArc::clone(&self.shared) }
    }
}

impl<I: Key> fmt::Debug for IdleTimeouts<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleTimeouts").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}
