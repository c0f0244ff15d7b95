//! A connection: what its owner has of it, what the map has, and what its timer tells.

use super::{Expired, Limit, Shared};
use crate::handle::Handle;
use crate::sync::{AtomicU32, Ordering, StdArc, Weak, fence};
use crate::task::Key;
use crate::task::{Job, Moment, OnDue};
use crate::tick::Timestamp;
use crate::ticket::TimerId;
use crate::timer::{ArmError, Armed, Timer};
use core::fmt;

/// A connection among [`IdleTimeouts`](super::IdleTimeouts), for its owner. Dropping it takes it out: it does not expire
/// any more, though its callback runs if its expiry has begun.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::uses::Limits;
///
/// let mut tasks = Builder::new().build_driven_tasks()?;
/// let timeouts = tasks.idle_timeouts(Limits::idle(Duration::from_secs(30)), |_expired| unreachable!());
/// let connection = timeouts.insert(17)?;
///
/// // A loop reads the clock once for all that it heard.
/// tasks.advance(Duration::from_secs(20));
/// let now = tasks.now();
/// assert!(connection.touch_at(now));
/// assert_eq!(connection.deadline(), Some(now + Duration::from_secs(30)));
/// assert!(connection.remove());
/// tasks.advance(Duration::from_secs(60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a connection takes it out"]
pub struct Connection<I: Key> {
    pub(super) timer: Timer<Job>,
    /// For its clock, which is nearer than that of `shared`.
    pub(super) engine: Handle<Job>,
    pub(super) course: Course,
    pub(super) end: StdArc<End<I>>,
    pub(super) shared: StdArc<Shared<I>>,
}

impl<I: Key> Connection<I> {
    /// Says that something was heard of it. True: it does not expire before its idle limit from now, or its absolute one.
    /// False: it has expired, or its expiry has begun and goes on; or it was removed, or the engine shut down.
    ///
    /// Reads the engine's clock, which is most of what it costs: a loop that knows the time uses
    /// [`touch_at`](Self::touch_at).
    ///
    /// # Time complexity
    ///
    /// That of [`Timer::arm`].
    #[expect(clippy::must_use_candidate, reason = "who touches need not care whether it was too late")]
    #[inline]
    pub fn touch(&self) -> bool {
        self.touch_at(self.engine.now())
    }

    /// As [`touch`](Self::touch), for something that was heard at `now`. Reads no clock.
    ///
    /// # Time complexity
    ///
    /// That of [`Timer::arm_at`].
    #[expect(clippy::must_use_candidate, reason = "who touches need not care whether it was too late")]
    #[inline]
    pub fn touch_at(&self, now: Timestamp) -> bool {
        let armed = self.timer.arm_at(self.course.deadline(now));
        if armed == Ok(Armed::Pending) {
            // Ordering: Acquire fence. Pairs with `mark` through the timer's state: an arming that came after the run of the
            // expiry finds the connection ended.
            fence(Ordering::Acquire);
            if self.end.is_live() {
                return true;
            }
        }
        self.touched_too_late(armed)
    }

    #[cold]
    fn touched_too_late(&self, armed: Result<Armed, ArmError>) -> bool {
        if armed == Ok(Armed::Running) {
            self.end.let_expire();
        }
        self.timer.disarm();
        false
    }

    /// Takes it out. True: it has not expired and does not. False: it had expired, and its callback has begun or is about to,
    /// or it was removed by its id.
    #[expect(clippy::must_use_candidate, reason = "whether it had expired is often all the same")]
    pub fn remove(self) -> bool {
        self.take_out()
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &I {
        &self.end.id
    }

    /// When it expires if nothing is heard of it; `None` when it has expired or was removed, and after a shutdown.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.timer.deadline().filter(|_| self.end.is_live())
    }

    fn take_out(&self) -> bool {
        // Ordering: Acquire. With `mark`: who found it in the map before it was out has armed its timer, which may be
        // dropped next.
        let is_out = self.end.state.load(Ordering::Acquire) == ENDED;
        !is_out && self.shared.take_out(&self.end, End::may_be_removed).is_some()
    }
}

impl<I: Key> Drop for Connection<I> {
    fn drop(&mut self) {
        // Before the timer goes: who finds the connection in the map may arm it.
        self.take_out();
    }
}

/// A connection, as it is found by its id.
pub(super) struct Link<I: Key> {
    pub(super) timer: TimerId,
    pub(super) course: Course,
    pub(super) end: StdArc<End<I>>,
}

/// The limits of a connection.
#[derive(Clone, Copy)]
pub(super) struct Course {
    /// In nanoseconds.
    pub(super) idle: u64,
    /// The absolute limit.
    pub(super) last: Timestamp,
}

impl Course {
    #[inline]
    pub(super) fn deadline(self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(now.as_nanos().saturating_add(self.idle)).min(self.last)
    }
}

/// In the map, and not armed yet.
const JOINING: u32 = 0;
const LIVE: u32 = 1;
/// In the map still, and its expiry has begun: a touch has said so.
const EXPIRING: u32 = 2;
/// Out of the map.
const ENDED: u32 = 3;

/// What a connection's timer tells.
pub(super) struct End<I: Key> {
    state: AtomicU32,
    /// The absolute limit.
    last: Timestamp,
    pub(super) id: I,
    shared: Weak<Shared<I>>,
}

impl<I: Key> End<I> {
    pub(super) fn new(id: I, last: Timestamp, shared: Weak<Shared<I>>) -> Self {
        Self { state: AtomicU32::new(JOINING), last, id, shared }
    }

    #[inline]
    pub(super) fn is_live(&self) -> bool {
        // Ordering: Relaxed. Ordered by the fence of `touch_at`; others may be late by what races with them.
        self.state.load(Ordering::Relaxed) == LIVE
    }

    /// Lets the connection be touched, unless it has ended before.
    pub(super) fn join(&self) {
        // Ordering: Relaxed. Who passes the handle on orders what matters.
        let _ = self.state.compare_exchange(JOINING, LIVE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Leaves it to its expiry, which has begun: whoever was told so finds that its callback runs.
    pub(super) fn let_expire(&self) {
        // Ordering: Relaxed. The lock of the bucket orders it before whoever takes the connection out later.
        let _ = self.state.compare_exchange(LIVE, EXPIRING, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn may_be_removed(&self) -> bool {
        // Ordering: Relaxed. As above.
        self.state.load(Ordering::Relaxed) != EXPIRING
    }

    /// Has it touched no more; it is out of the map.
    pub(super) fn mark(&self) {
        // Ordering: Release. With `touch_at`.
        self.state.store(ENDED, Ordering::Release);
    }
}

impl<I: Key> OnDue for End<I> {
    fn on_due(&self, moment: &Moment) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Some(id) = shared.take_out(self, |_| true) else { return };
        let &Moment { deadline, lateness, .. } = moment;
        let limit = if deadline >= self.last { Limit::Absolute } else { Limit::Idle };
        (shared.callback)(Expired { id, limit, deadline, lateness });
    }
}

impl<I: Key> fmt::Debug for Connection<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}
