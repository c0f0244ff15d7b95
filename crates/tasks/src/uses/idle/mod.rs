//! Connections that are closed when they are silent for too long.
//!
//! An idle timeout is the timer that is moved most and fires least. A [`Connection`] has a [`Timer`](tourbillon::Timer)
//! of its own, and [`Connection::touch`] is [`Timer::arm`](tourbillon::Timer::arm) with a comparison before and another
//! one after it. [`IdleTimeouts::touch`] does the same by id, through a map, for about twice the price. It is for
//! callers that have nothing but the id.
//!
//! If connections are not looked up by an id and there is no absolute limit, a [`Timer`](tourbillon::Timer) that is
//! kept in the connection does as well, without the map.
//!
//! # Races and their endings
//!
//! The map decides, under the lock of the id's shard, how a connection ends: it expires, or it is removed or dropped.
//! The expiry takes the connection out of the map and then calls the callback; the expiry finds nothing where a removal
//! came before.
//!
//! - touch x expiry: (a) the touch returns true, and the connection does not expire before the new deadline; (b) the
//!   touch returns false: the expiry had begun, the callback runs, has run or is about to, and no removal prevents the
//!   callback any more.
//! - remove or drop x expiry: (a) `remove` returns true, and the callback does not run for the connection; (b) `remove`
//!   returns false: the callback runs, has run or is about to. `remove` does not wait for the callback.
//! - deadline x expiry: (a) `deadline` returns the deadline in force; (b) it returns `None`, as a touch returns false.
//! - touch x remove: a touch that came before the removal is forgotten, a touch that comes after it returns false.
//! - touch x touch: the deadline that was stored last is in force, as with [`Timer::arm`](tourbillon::Timer::arm).
//! - touch by id x insert: before `insert` has returned, the touch may return false.
//! - insert x expiry of the same id: while the connection that expires is in the map, the insert is refused.

mod connection;
pub(crate) mod life;

pub use connection::Connection;

use super::error::{ConnectError, ConnectErrorKind};
use crate::map::LockedMap;
use crate::sync::{StdArc, Weak};
use crate::task::{Key, OnDue, Tasks};
use connection::{Course, End, Link};
use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use life::Life;
use tourbillon::{Armed, Refusal, Timestamp};

/// The limits of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    idle: Duration,
    absolute: Duration,
}

impl Limits {
    /// The connection expires when it was silent for `idle`.
    #[must_use]
    pub const fn idle(idle: Duration) -> Self {
        Self { idle, absolute: Duration::MAX }
    }

    /// The connection expires `absolute` after it was inserted at the latest, whatever its activity.
    #[must_use]
    pub const fn absolute(self, absolute: Duration) -> Self {
        Self { absolute, ..self }
    }
}

/// The limit that a connection has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The idle limit: the connection was silent.
    Idle,
    /// The absolute limit: the connection was old.
    Absolute,
}

/// A connection that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired<I> {
    /// The connection's id, which another connection may have by now.
    pub id: I,
    /// The limit that the connection reached; the absolute one if it reached both at the same moment.
    pub limit: Limit,
    /// The moment at which the connection reached the limit.
    pub deadline: Timestamp,
    /// The time from the deadline to the start of the callback.
    pub lateness: Duration,
}

/// Connections by id, each with an idle limit and an absolute one. Clones share the connections, which keep their
/// limits when the last clone is dropped.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::DrivenTasks;
/// use tourbillon_tasks::uses::Limits;
///
/// let mut tasks = DrivenTasks::new()?;
/// let limits = Limits::idle(Duration::from_secs(30)).absolute(Duration::from_secs(3_600));
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

type Callback<I> = dyn Fn(Expired<I>) + Send + Sync;

struct Shared<I: Key> {
    tasks: Tasks,
    limits: Limits,
    connections: LockedMap<I, Link<I>>,
    callback: Box<Callback<I>>,
}

impl Tasks {
    /// Makes a set of connections with these limits, on this engine. `on_expired` runs on a worker, once for each
    /// connection that reaches a limit. For an event loop, see [`idle_batches`](Self::idle_batches).
    ///
    /// A callback that has a clone of the `IdleTimeouts`, or a connection, keeps them alive for ever.
    #[must_use]
    pub fn idle_timeouts<I: Key>(
        &self,
        limits: Limits,
        on_expired: impl Fn(Expired<I>) + Send + Sync + 'static,
    ) -> IdleTimeouts<I> {
        let (tasks, connections, callback) = (self.clone(), LockedMap::new(), Box::new(on_expired));
        IdleTimeouts { shared: StdArc::new(Shared { tasks, limits, connections, callback }) }
    }
}

impl<I: Key> IdleTimeouts<I> {
    /// Inserts a connection whose last activity is now.
    ///
    /// # Errors
    ///
    /// Fails when there is a connection with this id, and when the engine is full or shut down. The error returns the
    /// id. A connection that has the id already is unchanged.
    ///
    /// # Time complexity
    ///
    /// O(1): an owned timer, which is armed, two allocations and an operation of the map.
    pub fn insert(&self, id: I) -> Result<Connection<I>, ConnectError<I>> {
        self.insert_with(id, self.shared.limits)
    }

    /// As [`insert`](Self::insert), with limits for this connection.
    ///
    /// # Errors
    ///
    /// See [`insert`](Self::insert).
    pub fn insert_with(&self, id: I, limits: Limits) -> Result<Connection<I>, ConnectError<I>> {
        let shared = &self.shared;
        let now = shared.tasks.now();
        let course = Course { idle: (Timestamp::ZERO + limits.idle).as_nanos(), last: now + limits.absolute };
        let end = StdArc::new_cyclic(|end: &Weak<End<I>>| {
            let timer = shared.tasks.own_timer(Weak::clone(end) as Weak<dyn OnDue>);
            End::new(id.clone(), timer, course.last, StdArc::downgrade(shared))
        });
        let present = |id| Err(ConnectError { kind: ConnectErrorKind::Present, id });
        let refused = |kind, id| Err(ConnectError { kind: ConnectErrorKind::Refused(kind), id });
        let timer = match &end.timer {
            Ok(timer) => timer,
            // Even if there is no slot for another connection, the reason is that the id has a connection.
            Err(_) if shared.connections.contains(&id) => return present(id),
            Err(kind) => return refused(*kind, id),
        };
        {
            let mut entry = shared.connections.entry(&id);
            if entry.get(&id).is_some() {
                drop(entry);
                return present(id);
            }
            entry.insert(id, Link { course, end: StdArc::clone(&end) });
        }
        // No other thread arms the timer before the connection is live. The arming may wait for its shard, so it is not
        // made under the lock of the shard.
        let armed = timer.arm_at(course.deadline(now));
        end.life.join();
        let (engine, shared) = (timer.engine(), StdArc::clone(shared));
        let connection = Connection { engine, course, end, shared, was_taken_out: false };
        match armed {
            Ok(_) => Ok(connection),
            Err(_) => refused(Refusal::ShutDown, connection.id().clone()),
        }
    }

    /// As [`Connection::touch`], by id. Returns false, too, when there is no connection with this id.
    ///
    /// # Time complexity
    ///
    /// O(1): [`Connection::touch`] and an operation of the map.
    pub fn touch<Q: Hash + Eq + ?Sized>(&self, id: &Q) -> bool
    where
        I: Borrow<Q>,
    {
        let Shared { tasks, connections, .. } = &*self.shared;
        let now = tasks.now();
        let touch = |Link { course, end }: &Link<I>| {
            // While the map's shard is locked, the connection's timer is not dropped, and the connection's expiry, if
            // it has begun, waits.
            if !end.life.is_live() {
                return false;
            }
            let armed = end.try_arm_at(tasks, course.deadline(now));
            if armed == Ok(Armed::Running) {
                end.life.expire();
            }
            armed == Ok(Armed::Pending)
        };
        connections.read(id, touch).unwrap_or(false)
    }

    /// As [`Connection::remove`], by id. Returns false, too, when there is no connection with this id. The owner of the
    /// connection's handle finds the connection gone.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, id: &Q) -> bool
    where
        I: Borrow<Q>,
    {
        let may_be = |link: &mut Link<I>| link.end.life.may_be_removed();
        let removed = self.shared.connections.remove_if(id, may_be);
        removed.inspect(|(_, link)| link.end.life.end()).is_some()
    }

    /// Whether there is a connection with this id.
    #[must_use]
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, id: &Q) -> bool
    where
        I: Borrow<Q>,
    {
        self.shared.connections.contains(id)
    }

    /// The number of connections.
    ///
    /// # Time complexity
    ///
    /// O(shards of the map), which are 256.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.connections.len()
    }

    /// Whether there is no connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.connections.is_empty()
    }
}

impl<I: Key> Shared<I> {
    /// Takes a connection out of the map if it `may_be` taken out. Returns its id to the caller that took it out first.
    fn take_out(&self, end: &End<I>, may_be: impl FnOnce(&Life) -> bool) -> Option<I> {
        let is_it = |link: &mut Link<I>| core::ptr::eq(&*link.end, end) && may_be(&end.life);
        end.life.take_out(|| self.connections.remove_if(&end.id, is_it)).map(|(id, _)| id)
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
