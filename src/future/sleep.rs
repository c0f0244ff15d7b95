//! A future that completes at a deadline.

#[cfg(feature = "test-util")]
use super::paused::PausedSleep;
use super::source::Source;
use super::wakeup::Wakeup;
use crate::api::timer::Timer;
use crate::base::error::Refusal;
use crate::base::tick::Timestamp;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

/// The error of a wait that cannot end: the engine was shut down, or is in the parent of a fork, before the deadline
/// came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutDown(());

impl fmt::Display for ShutDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the engine of this sleep was shut down")
    }
}

impl std::error::Error for ShutDown {}

/// The output of a future that cannot return an error: panics with the error instead.
pub(super) fn unless_shut_down<R>(outcome: Result<R, ShutDown>) -> R {
    match outcome {
        Ok(result) => result,
        Err(shut_down) => panic!("{shut_down}"),
    }
}

/// A future that completes at its deadline, or later by less than a tick and a wake-up; never earlier. Once complete, a
/// sleep stays complete until it is [`reset`](Self::reset).
///
/// A sleep registers nothing before it is first polled, and nothing at all if its deadline has passed by then. A sleep
/// need not be pinned. Dropping a sleep disarms it.
///
/// While its engine is full, a sleep keeps its task polling. A shutdown of the engine wakes the task.
///
/// # Panics
///
/// A poll panics if the engine was shut down and the deadline has not come: the sleep would wait for ever. A program
/// that drops an engine on which it sleeps has a fault. Where a shutdown may come, [`try_wait`](Self::try_wait) returns
/// an error instead. The engine of the process is never shut down. A sleep until [`Timestamp::MAX`] does not panic: it
/// is meant to wait for ever.
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
    /// The timer, made by the first poll that finds the future pending.
    timer: Option<Timer<Wakeup>>,
    /// The deadline for which the timer was armed last, if it may still be armed for it.
    armed_for: Option<Timestamp>,
    /// Whether the deadline was in the future when it was set or checked. From then on the firing of the timer decides,
    /// not the clock.
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

    /// The moment at which the sleep completes.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.has_fired() || self.source.handle().has_come(self.deadline)
    }

    /// Completes when the sleep itself does. This method is for engines that may be shut down during the wait.
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

    /// Gives the sleep another deadline. If the sleep was polled before and has not woken its task since, the task that
    /// polled it last is woken at the new deadline without another poll.
    ///
    /// # Time complexity
    ///
    /// That of [`Timer::arm_at`].
    #[inline]
    pub fn reset(&mut self, deadline: Timestamp) {
        #[cfg(feature = "test-util")]
        if let Some(paused) = &mut self.paused {
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

    /// Like [`reset`](Self::reset), but to `delay` from now.
    #[inline]
    pub fn reset_after(&mut self, delay: Duration) {
        self.reset(self.now() + delay);
    }

    /// Disarms the sleep: it neither completes nor wakes its task until it is [`reset`](Self::reset), except at a
    /// shutdown of its engine. To make a sleep that was never armed, sleep until [`Timestamp::MAX`].
    pub fn disarm(&mut self) {
        self.stop();
        self.put(Timestamp::MAX);
    }

    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        self.source.handle().now()
    }

    /// The length of its engine's tick.
    pub(super) fn tick(&self) -> Duration {
        self.source.handle().tick()
    }

    /// Gives the sleep another deadline. The next poll arms the sleep for that deadline, unless the deadline has
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

    /// Gives the sleep a deadline `delay` from now. The next poll arms the sleep for that deadline.
    #[inline]
    pub(super) fn put_after(&mut self, delay: Duration) {
        self.put(self.now() + delay);
        self.is_ahead = !delay.is_zero();
    }

    /// Disarms the timer: the sleep wakes no task before it is polled again.
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
            return paused.is_elapsed();
        }
        self.timer.as_ref().is_some_and(|timer| timer.payload().cell.has_fired_for(self.deadline))
    }

    /// The timer, made now if there is none. While the engine is full, the task is woken to poll again.
    fn timer_or_wake(&mut self, cx: &mut Context<'_>) -> Option<&Timer<Wakeup>> {
        if self.timer.is_none() {
            match Timer::new(self.source.handle().core(), Wakeup::new()) {
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
        if !self.is_ahead {
            if self.source.handle().has_come(self.deadline) {
                return Poll::Ready(Ok(()));
            }
            self.is_ahead = true;
        }
        #[cfg(feature = "test-util")]
        if let Some(paused) = self.paused_sleep() {
            return paused.poll(cx).map(Ok);
        }
        let deadline = self.deadline;
        let is_armed = self.armed_for == Some(deadline);
        let Some(timer) = self.timer_or_wake(cx) else {
            return if self.source.handle().is_shut_down() {
                self.poll_without_engine()
            } else {
                Poll::Pending
            };
        };
        // Before the check of the timer: a shutdown that comes after the check finds the waker.
        timer.payload().cell.register(cx.waker());
        if !is_armed {
            let _ = timer.arm_at(deadline);
            self.armed_for = Some(deadline);
        }
        let is_shut = self.timer.as_ref().is_some_and(Timer::is_shut);
        if self.has_fired() {
            return Poll::Ready(Ok(()));
        }
        if is_shut { self.poll_without_engine() } else { Poll::Pending }
    }

    /// The sleep of tokio that stands in for the timer. It begins now if the runtime's clock is paused and no timer is
    /// armed.
    #[cfg(feature = "test-util")]
    fn paused_sleep(&mut self) -> Option<&mut PausedSleep> {
        let may_begin =
            self.armed_for.is_none() && self.deadline != Timestamp::MAX && self.source.is_runtime();
        if self.paused.is_none() && may_begin {
            self.paused = PausedSleep::begin(self.deadline);
        }
        self.paused.as_mut()
    }

    /// The result of a poll when the engine fires no more timers.
    #[cold]
    fn poll_without_engine(&self) -> Poll<Result<(), ShutDown>> {
        if self.deadline == Timestamp::MAX {
            Poll::Pending
        } else if self.source.handle().has_come(self.deadline) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Ready(Err(ShutDown(())))
        }
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
