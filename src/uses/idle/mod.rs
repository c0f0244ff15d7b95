//! Connections that are closed when nothing is heard of them.
//!
//! An idle timeout is the timer that is moved most and fires least. A [`Connection`] has a [`Timer`](crate::Timer) of its
//! own, and [`Connection::touch`] is [`Timer::arm`](crate::Timer::arm) with a comparison before and another one after it. By
//! id the same is done through a map, for about twice the price: [`IdleTimeouts::touch`] is for who has nothing but the id.
//!
//! Where nobody asks for a connection by its id and there is no absolute limit, a [`Timer`](crate::Timer) that is kept in
//! the connection does as well, without the map.
//!
//! # Races and their endings
//!
//! The map decides, under the lock of the id's shard, how a connection ends: it expires, or it is removed or dropped. Its
//! expiry takes it out of the map and then calls the callback; it finds nothing where a removal came before.
//!
//! - touch x expiry: (a) the touch answers true, and the connection does not expire before the new deadline; (b) it answers
//!   false: the expiry had begun, the callback runs, has run or is about to, and no removal prevents it any more.
//! - remove or drop x expiry: (a) `remove` answers true, and the callback does not run for it; (b) it answers false: the
//!   callback runs, has run or is about to. It is not waited for.
//! - deadline x expiry: (a) the deadline in force; (b) `None`: as a touch that answers false.
//! - touch x remove: a touch that came before is forgotten, one that comes after answers false.
//! - touch x touch: the deadline that was stored last is in force, as with [`Timer::arm`](crate::Timer::arm).
//! - touch by id x insert: before `insert` has returned the touch may answer false.
//! - insert x expiry of the same id: before the connection that expires is out of the map the insert is refused.

mod connection;
pub(crate) mod life;

pub use connection::Connection;

use super::error::{ConnectError, ConnectErrorKind};
use crate::engine::Rearmed;
use crate::error::ScheduleErrorKind;
use crate::map::LockedMap;
use crate::sync::{StdArc, Weak};
use crate::task::Key;
use crate::task::{OnDue, Tasks};
use crate::tick::Timestamp;
use connection::{Course, End, Link};
use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use life::Life;

/// How long a connection may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    idle: Duration,
    absolute: Duration,
}

impl Limits {
    /// It expires when nothing was heard of it for `idle`.
    #[must_use]
    pub const fn idle(idle: Duration) -> Self {
        Self { idle, absolute: Duration::MAX }
    }

    /// It expires `absolute` after it was inserted at the latest, whatever is heard of it.
    #[must_use]
    pub const fn absolute(self, absolute: Duration) -> Self {
        Self { absolute, ..self }
    }
}

/// Which limit a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Nothing was heard of it.
    Idle,
    /// It was old.
    Absolute,
}

/// A connection that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired<I> {
    /// Its id, which another connection may have by now.
    pub id: I,
    /// The limit that it came to; at the same moment it is the absolute one.
    pub limit: Limit,
    /// When it came to it.
    pub deadline: Timestamp,
    /// How long after that the callback began.
    pub lateness: Duration,
}

/// Connections by id, each with an idle limit and an absolute one. Clones are of the same connections, which keep their
/// limits when the last clone has gone.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::uses::Limits;
///
/// let mut tasks = Builder::new().build_driven_tasks()?;
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
    /// Connections with these limits, on this engine; `on_expired` runs on a worker, once for each that comes to one. For an
    /// event loop: [`idle_batches`](Self::idle_batches).
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
    /// Inserts a connection that was heard of now.
    ///
    /// # Errors
    ///
    /// When there is a connection with this id, and when the engine is full or shut down. The id comes back; a connection
    /// that has it is as it was.
    ///
    /// # Time complexity
    ///
    /// O(1): an owned timer, which is armed, two allocations and an operation of the map.
    pub fn insert(&self, id: I) -> Result<Connection<I>, ConnectError<I>> {
        self.insert_with(id, self.shared.limits)
    }

    /// As [`insert`](Self::insert), with limits of its own.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn insert_with(&self, id: I, limits: Limits) -> Result<Connection<I>, ConnectError<I>> {
        let shared = &self.shared;
        let now = shared.tasks.now();
        let course = Course { idle: (Timestamp::ZERO + limits.idle).as_nanos(), last: now + limits.absolute };
        let end = StdArc::new(End::new(id.clone(), course.last, StdArc::downgrade(shared)));
        let present = |id| Err(ConnectError { kind: ConnectErrorKind::Present, id });
        let refused = |kind, id| Err(ConnectError { kind: ConnectErrorKind::Refused(kind), id });
        let timer = match shared.tasks.own_timer(StdArc::downgrade(&end) as Weak<dyn OnDue>) {
            Ok(timer) => timer,
            // Even where there is no slot for another connection: the id has one.
            Err(_) if shared.connections.contains(&id) => return present(id),
            Err(kind) => return refused(kind, id),
        };
        let link = Link { timer: timer.id(), course, end: StdArc::clone(&end) };
        {
            let mut entry = shared.connections.entry(&id);
            if entry.get(&id).is_some() {
                drop(entry);
                return present(id);
            }
            entry.insert(id, link);
        }
        // Nobody else arms it before it is live. It may wait for its shard, so not under the lock of the shard.
        let armed = timer.arm_at(course.deadline(now));
        end.life.join();
        let (engine, shared) = (timer.engine(), StdArc::clone(shared));
        let connection = Connection { timer, engine, course, end, shared, was_taken_out: false };
        match armed {
            Ok(_) => Ok(connection),
            Err(_) => refused(ScheduleErrorKind::ShutDown, connection.id().clone()),
        }
    }

    /// As [`Connection::touch`], by id; false too when there is no connection with this id.
    ///
    /// # Time complexity
    ///
    /// O(1): an operation of the map more than [`Connection::touch`].
    pub fn touch<Q: Hash + Eq + ?Sized>(&self, id: &Q) -> bool
    where
        I: Borrow<Q>,
    {
        let Shared { tasks, connections, .. } = &*self.shared;
        let now = tasks.now();
        let touch = |Link { timer, course, end }: &Link<I>| {
            // While the shard is locked its timer is not dropped, and its expiry, if it has begun, waits.
            if !end.life.is_live() {
                return false;
            }
            let armed = tasks.try_arm(*timer, course.deadline(now), true);
            if armed == Rearmed::Running {
                end.life.expire();
            }
            armed == Rearmed::Pending
        };
        connections.read(id, touch).unwrap_or(false)
    }

    /// As [`Connection::remove`], by id; false too when there is no connection with this id. Its handle's owner finds it
    /// gone.
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

    /// How many connections there are.
    ///
    /// # Time complexity
    ///
    /// O(shards of the map), which are 256.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.connections.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.connections.is_empty()
    }
}

impl<I: Key> Shared<I> {
    /// Takes a connection out of the map if it `may_be`: its id, for who was first.
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
