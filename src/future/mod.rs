//! Timers to await: [`sleep`], [`timeout`], [`interval`], on any executor.
//!
//! The functions here use one engine for the whole process, which starts with the first of them. An engine of one's own
//! has the same as methods: [`Builder::build_async`] makes it, and [`Builder::build_driven_async`] one on a manual clock,
//! for tests.
//!
//! A future that was never polled has cost a clock read; one that is dropped is disarmed. A task is woken by the shard's
//! own thread, which holds nothing meanwhile. A task that moves is woken where it was polled last.
//!
//! Once its engine is shut down, a sleep whose deadline has not come panics, as does the tick of an interval; `try_wait` and
//! `try_tick` return the error instead, and a timeout always does. Nothing waits in silence for what cannot come.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::future;
//!
//! # fn block_on<F: Future>(future: F) -> F::Output { pollster(future) }
//! # fn pollster<F: Future>(future: F) -> F::Output {
//! #     struct Unpark(std::thread::Thread);
//! #     impl std::task::Wake for Unpark { fn wake(self: std::sync::Arc<Self>) { self.0.unpark(); } }
//! #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
//! #     let mut cx = std::task::Context::from_waker(&waker);
//! #     let mut future = std::pin::pin!(future);
//! #     loop {
//! #         match future.as_mut().poll(&mut cx) {
//! #             std::task::Poll::Ready(output) => return output,
//! #             std::task::Poll::Pending => std::thread::park(),
//! #         }
//! #     }
//! # }
//! block_on(async {
//!     let answer = future::timeout(Duration::from_secs(5), async { 17 }).await;
//!     assert_eq!(answer, Ok(17));
//!     let nothing = future::timeout(Duration::from_millis(2), std::future::pending::<()>()).await;
//!     assert!(nothing.is_err());
//! });
//! ```
//!
//! On a clock that stands still until it is moved:
//!
//! ```
//! use std::pin::pin;
//! use std::task::{Context, Poll, Waker};
//! use std::time::Duration;
//! use tourbillon::Builder;
//!
//! let mut engine = Builder::new().build_driven_async()?;
//! let mut sleep = pin!(engine.handle().sleep(Duration::from_secs(3_600)));
//! let mut cx = Context::from_waker(Waker::noop());
//! assert_eq!(sleep.as_mut().poll(&mut cx), Poll::Pending);
//! engine.advance(Duration::from_secs(3_600));
//! assert_eq!(sleep.as_mut().poll(&mut cx), Poll::Ready(()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod interval;
mod sleep;
mod timeout;

pub use interval::{Interval, MissedTickBehavior, ZeroPeriod};
pub use sleep::{ShutDown, Sleep};
pub use timeout::{Elapsed, ReusableTimeout, Timeout, Within};

use crate::builder::Builder;
use crate::driven::DrivenEngine;
use crate::engine::{Core, Due, Handler, Payload};
use crate::error::BuildError;
use crate::handle::{Engine, Handle};
use crate::sync::{OnceLock, StdArc};
use crate::tick::Timestamp;
use crate::waker::WakerCell;
use core::task::Waker;
use core::time::Duration;
use sleep::Source;

/// What an engine for futures has for a payload: the waker of a task that sleeps.
#[derive(Debug)]
pub struct Wakeup {
    cell: WakerCell,
}

impl Wakeup {
    fn new() -> Self {
        Self { cell: WakerCell::new() }
    }
}

/// Wakes the task that waits for a timer.
fn wake_up() -> Handler<Wakeup> {
    Box::new(|due: Due<'_, Wakeup>, _: &StdArc<Core<Wakeup>>| {
        let wakeup = match &due.payload {
            Payload::Taken(wakeup) => wakeup,
            Payload::Kept(wakeup) => *wakeup,
        };
        if let Some(waker) = wakeup.cell.fire(due.deadline) {
            waker.wake();
        }
    })
}

fn take_waker(wakeup: &Wakeup) -> Option<Waker> {
    wakeup.cell.take()
}

impl Builder {
    /// Starts an engine for futures. Tasks are woken on the shards' threads; what was said of workers and executor does
    /// not apply.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_async(self) -> Result<Engine<Wakeup>, BuildError> {
        let engine = self.inline().build_with(wake_up())?;
        engine.handle().core().wake_at_shutdown(take_waker);
        Ok(engine)
    }

    /// Makes an engine for futures without threads, on a manual clock: see [`build_driven`](Self::build_driven).
    ///
    /// # Errors
    ///
    /// As [`build_driven`](Self::build_driven).
    pub fn build_driven_async(self) -> Result<DrivenEngine<Wakeup>, BuildError> {
        let engine = self.build_driven_with(wake_up())?;
        engine.handle().core().wake_at_shutdown(take_waker);
        Ok(engine)
    }
}

impl Handle<Wakeup> {
    /// See [`sleep`].
    pub fn sleep(&self, delay: Duration) -> Sleep {
        self.sleep_until(self.now() + delay)
    }

    /// See [`sleep_until`].
    pub fn sleep_until(&self, deadline: Timestamp) -> Sleep {
        Sleep::new(Source::Given(self.clone()), deadline)
    }

    /// See [`timeout`].
    pub fn timeout<F: IntoFuture>(&self, delay: Duration, future: F) -> Timeout<F::IntoFuture> {
        Timeout::new(future.into_future(), self.sleep(delay))
    }

    /// See [`timeout_at`].
    pub fn timeout_at<F: IntoFuture>(&self, deadline: Timestamp, future: F) -> Timeout<F::IntoFuture> {
        Timeout::new(future.into_future(), self.sleep_until(deadline))
    }

    /// See [`reusable_timeout`].
    #[must_use]
    pub fn reusable_timeout(&self) -> ReusableTimeout {
        ReusableTimeout::new(self.sleep_until(Timestamp::MAX))
    }

    /// See [`interval`].
    ///
    /// # Errors
    ///
    /// When the period is zero.
    pub fn interval(&self, period: Duration) -> Result<Interval, ZeroPeriod> {
        self.interval_at(self.now(), period)
    }

    /// See [`interval_at`].
    ///
    /// # Errors
    ///
    /// When the period is zero.
    pub fn interval_at(&self, start: Timestamp, period: Duration) -> Result<Interval, ZeroPeriod> {
        Interval::new(self.sleep_until(start), period)
    }
}

/// The process's own engine, which starts with the first call: for what takes a handle, and for its statistics.
///
/// # Panics
///
/// Here and in all functions of this module, when the system refuses the threads of that engine.
pub fn global() -> &'static Handle<Wakeup> {
    static GLOBAL: OnceLock<Engine<Wakeup>> = OnceLock::new();
    let engine = GLOBAL.get_or_init(|| match Builder::new().build_async() {
        Ok(engine) => engine,
        Err(error) => panic!("the engine for futures could not be started: {error}"),
    });
    engine.handle()
}

/// The present moment on the clock of the process's engine for futures.
///
/// # Panics
///
/// As [`global`].
#[must_use]
pub fn now() -> Timestamp {
    global().now()
}

/// Completes `delay` from now, or later; never earlier. See [`Sleep`].
///
/// # Panics
///
/// As [`global`].
pub fn sleep(delay: Duration) -> Sleep {
    sleep_until(now() + delay)
}

/// Completes at `deadline`, on the clock of [`now`], or later; never earlier. See [`Sleep`].
///
/// # Panics
///
/// As [`global`].
pub fn sleep_until(deadline: Timestamp) -> Sleep {
    Sleep::new(Source::Global(global()), deadline)
}

/// Gives what `future` gives, or [`Elapsed`] if it has not completed `delay` from now. See [`Timeout`].
///
/// # Panics
///
/// As [`global`].
pub fn timeout<F: IntoFuture>(delay: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future.into_future(), sleep(delay))
}

/// Gives what `future` gives, or [`Elapsed`] if it has not completed at `deadline`. See [`Timeout`].
///
/// # Panics
///
/// As [`global`].
pub fn timeout_at<F: IntoFuture>(deadline: Timestamp, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future.into_future(), sleep_until(deadline))
}

/// A timeout for one future after the other: one for each connection. See [`ReusableTimeout`].
///
/// # Panics
///
/// As [`global`].
#[must_use]
pub fn reusable_timeout() -> ReusableTimeout {
    ReusableTimeout::new(sleep_until(Timestamp::MAX))
}

/// Ticks now, and every `period` from now on. See [`Interval`].
///
/// # Errors
///
/// When the period is zero.
///
/// # Panics
///
/// As [`global`].
pub fn interval(period: Duration) -> Result<Interval, ZeroPeriod> {
    interval_at(now(), period)
}

/// Ticks at `start`, and every `period` from then on. See [`Interval`].
///
/// # Errors
///
/// When the period is zero.
///
/// # Panics
///
/// As [`global`].
pub fn interval_at(start: Timestamp, period: Duration) -> Result<Interval, ZeroPeriod> {
    Interval::new(sleep_until(start), period)
}
