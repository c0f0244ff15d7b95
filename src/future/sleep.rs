//! A future that completes at a deadline.

#[cfg(feature = "test-util")]
use super::paused::PausedSleep;
use super::source::Source;
use super::wakeup::Wakeup;
use crate::api::timer::Timer;
use crate::base::error::Refusal;
use crate::base::tick::Timestamp;
use crate::lockfree::state::owned::Disarm;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

/// The error of a wait that cannot end: the engine was shut down before the deadline came, or this process is the child
/// of a fork and the engine is in the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutDown(());

impl fmt::Display for ShutDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the engine of this sleep was shut down")
    }
}

impl std::error::Error for ShutDown {}

/// Returns the value of `outcome`. Panics if `outcome` is an error, for callers that cannot return the error.
pub(super) fn unless_shut_down<R>(outcome: Result<R, ShutDown>) -> R {
    match outcome {
        Ok(result) => result,
        Err(shut_down) => panic!("{shut_down}"),
    }
}

/// A future that completes at its deadline, or later by less than a tick and a wake-up. It never completes earlier. A
/// complete sleep stays complete until it is [`reset`](Self::reset).
///
/// A sleep arms a timer only when it is polled, and only if its deadline has not passed by then. A sleep need not be
/// pinned. Dropping a sleep disarms it.
///
/// While the engine is full, a sleep wakes its task again at each poll, so that the task polls again. A shutdown of the
/// engine wakes the task, too.
///
/// # Panics
///
/// A poll panics if the engine was shut down and the deadline has not come: the sleep would wait for ever. A program
/// that drops an engine on which it sleeps has a fault. If a shutdown may come, the program uses
/// [`try_wait`](Self::try_wait), which returns an error instead. A sleep until [`Timestamp::MAX`] does not panic,
/// because it is meant to wait for ever. The module [`future`](super) says when the engines of the process and of tokio
/// runtimes are shut down.
///
/// # Examples
///
/// ```
/// use std::pin::Pin;
/// use std::task::{Context, Poll, Waker};
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let mut engine = Builder::new().driven_futures()?;
/// let mut cx = Context::from_waker(Waker::noop());
/// let mut idle = engine.handle().sleep(Duration::from_secs(30));
/// assert!(Pin::new(&mut idle).poll(&mut cx).is_pending());
///
/// engine.advance(Duration::from_secs(20));
/// idle.reset_after(Duration::from_secs(30));
/// engine.advance(Duration::from_secs(20));
/// assert!(Pin::new(&mut idle).poll(&mut cx).is_pending());
/// engine.advance(Duration::from_secs(10));
/// assert!(Pin::new(&mut idle).poll(&mut cx).is_ready());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    source: Source,
    deadline: Timestamp,
    /// The timer that wakes the task. `None` before the first poll that finds the deadline ahead. It may be a spare, a
    /// timer that an earlier sleep of the thread has left.
    timer: Option<Timer<Wakeup>>,
    /// The deadline for which the timer was armed last. `None` if the timer was never armed, or was disarmed after its
    /// last arming.
    armed_for: Option<Timestamp>,
    /// Whether the deadline was in the future when it was set or checked last. If true, polls only check whether the
    /// timer has fired, and read no clock.
    is_ahead: bool,
    /// The sleep of tokio that stands in for the timer while the clock of the runtime is paused.
    #[cfg(feature = "test-util")]
    paused: Option<PausedSleep>,
}

impl Sleep {
    #[inline]
    pub(super) fn new(source: Source, deadline: Timestamp) -> Self {
        Self {
            source,
            deadline,
            timer: None,
            armed_for: None,
            is_ahead: false,
            #[cfg(feature = "test-util")]
            paused: None,
        }
    }

    /// Makes a sleep that begins now and takes `delay`. The caller polls it at once, so the first poll reads no clock.
    #[inline]
    pub(super) fn begin(source: Source, delay: Duration) -> Self {
        let deadline = source.now() + delay;
        let mut sleep = Self::new(source, deadline);
        sleep.is_ahead = !delay.is_zero();
        sleep
    }

    /// Returns the moment at which the sleep completes.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Returns whether the deadline has passed.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.has_fired() || self.source.handle().has_come(self.deadline)
    }

    /// Completes when the sleep completes. If the engine is shut down during the wait, this method returns an error,
    /// where a poll of the sleep panics.
    ///
    /// # Errors
    ///
    /// Fails if the engine was shut down before the deadline came.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::task::{Context, Poll, Waker};
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// let engine = Builder::new().driven_futures()?;
    /// let mut sleep = engine.handle().sleep(Duration::from_secs(1));
    /// drop(engine);
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert!(matches!(std::pin::pin!(sleep.try_wait()).poll(&mut cx), Poll::Ready(Err(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn try_wait(&mut self) -> Result<(), ShutDown> {
        poll_fn(|cx| self.poll_elapsed(cx)).await
    }

    /// Replaces the sleep's deadline. If a task has polled the sleep and was not woken yet, the sleep wakes the task at
    /// the new deadline, without another poll.
    ///
    /// # Time complexity
    ///
    /// The same as [`Timer::arm_at`].
    #[inline]
    pub fn reset(&mut self, deadline: Timestamp) {
        #[cfg(feature = "test-util")]
        if let Some(paused) = self.paused.as_mut().filter(|_| deadline != Timestamp::MAX) {
            paused.reset(deadline);
            self.deadline = deadline;
            return;
        }
        self.put(deadline);
        if let Some(timer) = &self.timer {
            let is_armed = timer.arm_at(deadline).is_ok();
            self.armed_for = Some(deadline);
            if !is_armed && let Some(waker) = timer.payload().cell.take() {
                // The poll finds that the engine was shut down.
                waker.wake();
            }
        }
    }

    /// Returns the moment on the engine's clock at which `instant`, a moment of tokio's clock, comes. The result is a
    /// deadline for [`reset`](Self::reset). It is before [`Timestamp::MAX`].
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn moment_of(&self, instant: tokio::time::Instant) -> Timestamp {
        self.source.moment_of(instant)
    }

    /// Replaces the sleep's deadline by the moment `delay` from now, as [`reset`](Self::reset) does.
    #[inline]
    pub fn reset_after(&mut self, delay: Duration) {
        self.reset(self.now() + delay);
    }

    /// Disarms the sleep. Until it is [`reset`](Self::reset), the sleep neither completes nor wakes its task. Only a
    /// shutdown of the engine wakes the task. To make a sleep that is disarmed from the start, sleep until
    /// [`Timestamp::MAX`].
    pub fn disarm(&mut self) {
        self.stop();
        self.put(Timestamp::MAX);
    }

    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        self.source.now()
    }

    pub(super) fn tick(&self) -> Duration {
        self.source.handle().tick()
    }

    /// Replaces the sleep's deadline, without arming the timer. The next poll arms the timer if the deadline has not
    /// passed.
    #[inline]
    pub(crate) fn put(&mut self, deadline: Timestamp) {
        self.deadline = deadline;
        self.is_ahead = false;
        if let Some(timer) = &self.timer {
            timer.payload().cell.forget();
        }
        #[cfg(feature = "test-util")]
        drop(self.paused.take());
    }

    /// Replaces the sleep's deadline by the moment `delay` from now, without arming the timer. The next poll arms the
    /// timer.
    #[inline]
    pub(super) fn put_after(&mut self, delay: Duration) {
        self.put(self.now() + delay);
        self.is_ahead = !delay.is_zero();
    }

    /// Disarms the timer, so that the sleep wakes no task before it is polled again.
    #[inline]
    pub(super) fn stop(&mut self) {
        #[cfg(feature = "test-util")]
        drop(self.paused.take());
        if self.armed_for.take().is_some()
            && let Some(timer) = &self.timer
        {
            timer.disarm();
        }
    }

    fn has_fired(&self) -> bool {
        #[cfg(feature = "test-util")]
        if let Some(paused) = &self.paused {
            return paused.is_over();
        }
        self.timer.as_ref().is_some_and(|timer| timer.payload().cell.has_fired_for(self.deadline))
    }

    /// Returns the sleep's timer, and makes the timer at the first call. If the engine is full, returns `None` and
    /// wakes the task, so that the task polls again.
    fn timer_or_wake(&mut self, cx: &mut Context<'_>) -> Option<&Timer<Wakeup>> {
        if self.timer.is_none() {
            let core = self.source.handle().core();
            let spare = Timer::take_spare(core, self.deadline);
            match spare.map_or_else(|| Timer::new(core, Wakeup::new()), Ok) {
                Ok(timer) => self.timer = Some(timer),
                Err(error) if matches!(error.kind, Refusal::ShutDown | Refusal::Forked) => {}
                Err(_full) => {
                    self.is_ahead = false;
                    cx.waker().wake_by_ref();
                }
            }
        }
        self.timer.as_ref()
    }

    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ShutDown>> {
        if self.has_fired() {
            return Poll::Ready(Ok(()));
        }
        // Before the clock is looked at: a deadline that a test has moved the clock past is over for tokio's sleeps
        // only when the runtime looks at its timers.
        #[cfg(feature = "test-util")]
        if let Some(paused) = self.paused_sleep() {
            return paused.poll(cx).map(Ok);
        }
        if !self.is_ahead {
            if self.source.handle().has_come(self.deadline) {
                return Poll::Ready(Ok(()));
            }
            self.is_ahead = true;
        }
        let deadline = self.deadline;
        let is_armed = self.armed_for == Some(deadline);
        let Some(timer) = self.timer_or_wake(cx) else {
            return if self.source.handle().is_shut_down() {
                self.poll_without_engine(cx)
            } else {
                Poll::Pending
            };
        };
        // The waker is registered before the timer is checked: a shutdown that comes after the check finds the waker.
        timer.payload().cell.register(cx.waker());
        if !is_armed {
            let _ = timer.arm_at(deadline);
            self.armed_for = Some(deadline);
        }
        let is_shut = self.timer.as_ref().is_some_and(Timer::is_shut);
        if self.has_fired() {
            return Poll::Ready(Ok(()));
        }
        if is_shut { self.poll_without_engine(cx) } else { Poll::Pending }
    }

    /// Returns the sleep of tokio that stands in for the timer. It begins now if the clock of the runtime is paused and
    /// the timer is not armed for this deadline.
    #[cfg(feature = "test-util")]
    fn paused_sleep(&mut self) -> Option<&mut PausedSleep> {
        let is_armed = self.armed_for == Some(self.deadline);
        let may_begin = !is_armed && self.deadline != Timestamp::MAX && self.source.is_runtime();
        if self.paused.is_none() && may_begin {
            self.paused = PausedSleep::begin(self.deadline);
            if self.paused.is_some()
                && self.armed_for.take().is_some()
                && let Some(timer) = &self.timer
            {
                timer.disarm();
            }
        }
        self.paused.as_mut()
    }

    /// Returns the result of a poll when the engine fires no timers any more.
    #[cold]
    fn poll_without_engine(&self, cx: &Context<'_>) -> Poll<Result<(), ShutDown>> {
        if self.deadline == Timestamp::MAX || self.source.stays_pending(cx.waker()) {
            Poll::Pending
        } else if self.source.handle().has_come(self.deadline) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Ready(Err(ShutDown(())))
        }
    }
}

/// Disarms the sleep, and leaves its timer for the thread's next sleep.
impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(timer) = self.timer.take() else { return };
        let has_fired = self.armed_for.is_some() && timer.disarm() != Disarm::Disarmed;
        if timer.is_held() {
            return;
        }
        let cell = &timer.payload().cell;
        cell.forget();
        // A spare must not keep the task alive. The waker is dropped last, because its drop is the program's code.
        let waker = cell.take();
        timer.keep(self.armed_for.unwrap_or(self.deadline), has_fired);
        drop(waker);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().poll_elapsed(cx).map(unless_shut_down)
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
