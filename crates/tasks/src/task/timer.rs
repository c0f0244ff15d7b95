//! Owned timers that run a closure.

use super::core::TaskCore;
use super::job::{Job, OnDue};
use crate::sync::{StdArc, Weak};
use core::fmt;
use core::time::Duration;
use tourbillon::extend::Moment;
use tourbillon::{ArmError, Armed, Disarm, Refusal, ScheduleError, Timer, Timestamp};

/// A [`Timer`] that runs its own closure. The timer can be armed and disarmed any number of times, and costs as much as
/// a [`Timer`].
///
/// [`Tasks::timer`](crate::Tasks::timer) makes it. Dropping the timer disarms it, even while its closure runs. The drop
/// does not wait for the closure. The closure never runs twice at a time. A closure that owns its own timer keeps both
/// alive for ever.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::DrivenTasks;
///
/// let mut tasks = DrivenTasks::new()?;
/// let timeout = tasks.handle().timer(|| println!("no answer"))?;
/// for _request in 0..1_000 {
///     timeout.arm(Duration::from_secs(5))?;
///     tasks.advance(Duration::from_millis(1));
///     timeout.disarm();
/// }
/// assert_eq!(tasks.handle().stats().owned.posted, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a timer disarms it"]
pub struct TaskTimer {
    timer: Timer<Job>,
    /// The closure, kept alive here. The timer itself has only a weak reference to the closure.
    _action: StdArc<dyn OnDue>,
}

impl TaskTimer {
    pub(crate) fn new<F: Fn() + Send + Sync + 'static>(
        tasks: &TaskCore,
        action: F,
    ) -> Result<Self, ScheduleError<F>> {
        let action = StdArc::new(Action(action));
        match tasks.own_timer(StdArc::downgrade(&action) as Weak<dyn OnDue>) {
            Ok(timer) => Ok(Self { timer, _action: action }),
            Err(kind) => {
                let Action(payload) = StdArc::into_inner(action).expect("nothing else has it");
                Err(ScheduleError { kind, payload })
            }
        }
    }

    /// Makes a timer that calls `action` with the moment of each firing.
    pub(super) fn of(tasks: &TaskCore, action: StdArc<dyn OnDue>) -> Result<Self, Refusal> {
        let timer = tasks.own_timer(StdArc::downgrade(&action))?;
        Ok(Self { timer, _action: action })
    }

    /// Arms the timer for `delay` from now: see [`Timer::arm`].
    ///
    /// # Errors
    ///
    /// See [`Timer::arm`].
    #[inline]
    pub fn arm(&self, delay: Duration) -> Result<Armed, ArmError> {
        self.timer.arm(delay)
    }

    /// Arms the timer for `deadline`: see [`Timer::arm_at`].
    ///
    /// # Errors
    ///
    /// See [`Timer::arm_at`].
    #[inline]
    pub fn arm_at(&self, deadline: Timestamp) -> Result<Armed, ArmError> {
        self.timer.arm_at(deadline)
    }

    /// Disarms the timer, without waiting: see [`Timer::disarm`].
    #[expect(clippy::must_use_candidate, reason = "whether it was armed is often all the same")]
    #[inline]
    pub fn disarm(&self) -> Disarm {
        self.timer.disarm()
    }

    /// Disarms the timer, and waits until its closure has ended: see [`Timer::disarm_and_wait`].
    #[expect(clippy::must_use_candidate, reason = "whether it was armed is often all the same")]
    pub fn disarm_and_wait(&self) -> Disarm {
        self.timer.disarm_and_wait()
    }

    /// Returns the deadline for which the timer is armed: see [`Timer::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.timer.deadline()
    }
}

/// A closure without arguments that a timer calls.
struct Action<F>(F);

impl<F: Fn() + Send + Sync> OnDue for Action<F> {
    fn on_due(&self, _: &Moment<'_>) {
        (self.0)();
    }
}

impl fmt::Debug for TaskTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskTimer").field("deadline", &self.deadline()).finish()
    }
}
