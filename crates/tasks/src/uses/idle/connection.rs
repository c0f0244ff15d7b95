//! A connection: the part that its owner has, the part that the map has, and the owner of its timer.

use super::life::Life;
use super::{Expired, Limit, Shared};
use crate::sync::{StdArc, Weak};
use crate::task::{Job, Key, Moment, OnDue, Tasks};
use core::fmt;
use tourbillon::extend::WhenFull;
use tourbillon::{Armed, Handle, Refusal, Timer, Timestamp};

/// A connection among [`IdleTimeouts`](super::IdleTimeouts), for its owner. Dropping the connection takes it out: it
/// does not expire any more, though its callback runs if its expiry has begun.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::DrivenTasks;
/// use tourbillon_tasks::uses::Limits;
///
/// let mut tasks = DrivenTasks::new()?;
/// let timeouts = tasks.handle().idle_timeouts(Limits::idle(Duration::from_secs(30)), |_expired| unreachable!());
/// let connection = timeouts.insert(17)?;
///
/// // A loop reads the clock once for all that it heard.
/// tasks.advance(Duration::from_secs(20));
/// let now = tasks.handle().now();
/// assert!(connection.touch_at(now));
/// assert_eq!(connection.deadline(), Some(now + Duration::from_secs(30)));
/// assert!(connection.remove());
/// tasks.advance(Duration::from_secs(60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a connection takes it out"]
pub struct Connection<I: Key> {
    /// The engine, for its clock, which is nearer than that of `shared`.
    pub(super) engine: Handle<Job>,
    pub(super) course: Course,
    pub(super) end: StdArc<End<I>>,
    pub(super) shared: StdArc<Shared<I>>,
    /// Whether the owner has taken the connection out.
    pub(super) was_taken_out: bool,
}

impl<I: Key> Connection<I> {
    /// Records activity now. Returns true if the connection does not expire before its idle limit from now, or its
    /// absolute limit. Returns false if the connection has expired, or its expiry has begun and goes on; or if it was
    /// removed, or the engine was shut down.
    ///
    /// Reads the engine's clock, which is most of the cost. A loop that knows the time uses
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

    /// As [`touch`](Self::touch), for activity at `now`. Reads no clock.
    ///
    /// # Time complexity
    ///
    /// That of [`Timer::arm_at`].
    #[expect(clippy::must_use_candidate, reason = "who touches need not care whether it was too late")]
    #[inline]
    pub fn touch_at(&self, now: Timestamp) -> bool {
        let Some(timer) = self.end.timer() else { return false };
        let armed = timer.arm_at(self.course.deadline(now));
        self.end.life.is_touched(armed, || {
            timer.disarm();
        })
    }

    /// Takes the connection out. Returns true if the connection has not expired and does not expire later. Returns
    /// false if it had expired, and its callback has begun or is about to; or if it was removed by its id.
    #[expect(clippy::must_use_candidate, reason = "whether it had expired is often all the same")]
    pub fn remove(mut self) -> bool {
        self.was_taken_out = true;
        self.take_out()
    }

    /// The connection's id.
    #[must_use]
    pub fn id(&self) -> &I {
        &self.end.id
    }

    /// The moment at which the connection expires without further activity. `None` when it has expired, or its expiry
    /// has begun and goes on, whatever is called afterwards. `None`, too, when it was removed, and after a shutdown.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let deadline = self.end.timer().and_then(Timer::deadline).filter(|_| self.end.life.is_live());
        // The deadline is read first: a shutdown disarms timers after it has begun.
        if deadline.is_none() && !self.shared.tasks.is_shut_down() {
            self.end.life.expire();
        }
        deadline
    }

    fn take_out(&self) -> bool {
        self.shared.take_out(&self.end, Life::may_be_removed).is_some()
    }
}

impl<I: Key> Drop for Connection<I> {
    fn drop(&mut self) {
        // A touch by id that finds the connection in the map may arm the timer. The removal takes the map's lock after
        // that touch, even if the connection is out of the map already; the timer goes with the last reference to
        // `end`.
        if !self.was_taken_out {
            self.take_out();
        }
    }
}

/// The part of a connection that is found by its id.
pub(super) struct Link<I: Key> {
    pub(super) course: Course,
    pub(super) end: StdArc<End<I>>,
}

/// The limits of a connection.
#[derive(Clone, Copy)]
pub(super) struct Course {
    /// The idle limit, in nanoseconds.
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

/// The owner of a connection's timer, which is called when the timer is due. The connection and the map share it.
pub(super) struct End<I: Key> {
    /// The timer, or the reason why there is none: then there is no connection.
    pub(super) timer: Result<Timer<Job>, Refusal>,
    pub(super) life: Life,
    /// The absolute limit.
    last: Timestamp,
    pub(super) id: I,
    shared: Weak<Shared<I>>,
}

impl<I: Key> End<I> {
    pub(super) fn new(
        id: I,
        timer: Result<Timer<Job>, Refusal>,
        last: Timestamp,
        shared: Weak<Shared<I>>,
    ) -> Self {
        Self { timer, life: Life::new(), last, id, shared }
    }

    #[inline]
    fn timer(&self) -> Option<&Timer<Job>> {
        self.timer.as_ref().ok()
    }

    /// Arms the timer under a lock of the map.
    pub(super) fn try_arm_at(&self, tasks: &Tasks, deadline: Timestamp) -> Result<Armed, Refusal> {
        tasks.try_arm(self.timer.as_ref().map_err(|kind| *kind)?, deadline, WhenFull::Exceed)
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
