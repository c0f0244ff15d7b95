//! A connection, as its owner holds it.

use super::entries::{End, Shared};
use super::life::Life;
use super::limits::Bounds;
use crate::sync::{Patience, StdArc};
use crate::task::{Job, Key};
use core::fmt;
use tourbillon::{Handle, Timer, Timestamp};

/// The owner's handle of a connection in [`IdleTimeouts`](super::IdleTimeouts). Dropping this handle removes the
/// connection, which then never expires. If the expiry has already begun, the callback still runs.
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
/// // An event loop reads the clock once, and uses this moment for all connections that were active.
/// tasks.advance(Duration::from_secs(20));
/// let now = tasks.handle().now();
/// assert!(connection.touch_at(now));
/// assert_eq!(connection.deadline(), Some(now + Duration::from_secs(30)));
/// assert!(connection.remove());
/// tasks.advance(Duration::from_secs(60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the handle removes the connection"]
pub struct Connection<I: Key> {
    /// A handle of the engine, through which a touch reads the clock. `shared` also has a handle, but a touch would
    /// have to follow a pointer to that handle.
    pub(super) engine: Handle<Job>,
    pub(super) bounds: Bounds,
    pub(super) end: StdArc<End<I>>,
    pub(super) shared: StdArc<Shared<I>>,
    /// Whether the owner of this handle has already removed the connection.
    pub(super) was_taken_out: bool,
}

impl<I: Key> Connection<I> {
    /// Records activity now. Returns true if the touch came in time: the connection then lives until it is idle for its
    /// limit again, or reaches its maximum age. Returns false if the connection has expired or was removed, if its
    /// expiry has begun and cannot be stopped, or if the engine was shut down.
    ///
    /// Reading the engine's clock is most of the cost of the call. A loop that knows the time should call
    /// [`touch_at`](Self::touch_at).
    ///
    /// # Time complexity
    ///
    /// The same as for [`Timer::arm`].
    #[expect(clippy::must_use_candidate, reason = "who touches need not care whether it was too late")]
    #[inline]
    pub fn touch(&self) -> bool {
        self.touch_at(self.engine.now())
    }

    /// Works as [`touch`](Self::touch), for activity at `now`. Does not read the clock.
    ///
    /// # Time complexity
    ///
    /// The same as for [`Timer::arm_at`].
    #[expect(clippy::must_use_candidate, reason = "who touches need not care whether it was too late")]
    #[inline]
    pub fn touch_at(&self, now: Timestamp) -> bool {
        let Some(timer) = self.end.timer() else { return false };
        let armed = timer.arm_at(self.bounds.deadline(now));
        self.end.life.is_touched(armed, || {
            timer.disarm();
        })
    }

    /// Removes the connection. Returns true if the connection has not expired and never will. Returns false if the
    /// connection was removed by its id, or if it has expired, so that its callback has begun or is about to begin.
    #[expect(clippy::must_use_candidate, reason = "whether it had expired is often all the same")]
    pub fn remove(mut self) -> bool {
        self.was_taken_out = true;
        self.take_out(Patience::Endless)
    }

    /// Returns the connection's id.
    #[must_use]
    pub fn id(&self) -> &I {
        &self.end.id
    }

    /// Returns the moment at which the connection expires without further activity. Returns `None` if the connection
    /// has expired or was removed, if its expiry has begun and cannot be stopped, or if the engine was shut down.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let deadline = self.end.timer().and_then(Timer::deadline).filter(|_| self.end.life.is_live());
        // A shutdown makes `is_shut_down` true before it disarms the timers. So the deadline is read first, and the
        // shutdown is checked afterwards. Otherwise a disarmed timer could be mistaken for an expiry.
        if deadline.is_none() && !self.shared.tasks.is_shut_down() {
            self.end.life.expire();
        }
        deadline
    }

    fn take_out(&self, patience: Patience) -> bool {
        self.shared.take_out(&self.end, patience, Life::may_be_removed).is_some()
    }
}

impl<I: Key> Drop for Connection<I> {
    fn drop(&mut self) {
        // A touch by id that finds the connection in the map may arm the timer. This removal takes the map's lock after
        // that touch, even if the connection is already out of the map. So the touch ends before the last reference to
        // `end` drops the timer.
        if !self.was_taken_out {
            self.take_out(self.shared.tasks.patience());
        }
    }
}

impl<I: Key> fmt::Debug for Connection<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}
