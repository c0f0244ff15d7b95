//! Timers to await: [`sleep`], [`timeout`], [`interval`], on any executor.
//!
//! The functions of this module use the [current](crate::Shards::current) shards: the shards that the calling thread
//! has [entered](crate::Shards::enter), or else the process's own shards, which start with the first call. With the
//! feature `tokio`, a thread inside a tokio runtime uses shards that a task of that runtime turns (see the module
//! `time`). The handle that [`Shards::futures`] returns has the same functions as methods. A program may also make an
//! engine for futures with threads of its own ([`Builder::start_futures`]).
//!
//! [`Shards::futures`]: crate::Shards::futures
//! [`Builder::start_futures`]: crate::Builder::start_futures
//!
//! Making a sleep with a delay reads the clock. A timeout reads no clock before its future is pending. Nothing more
//! happens before the future is polled. Dropping a future disarms it, and its timer stays with the thread for the
//! thread's next future: up to 256 timers, or 1/4,096 of the engine's capacity if that is less.
//!
//! The thread that runs the shard wakes the tasks. A waker may use the engine, but the waker holds up the shard while
//! it runs, and a thread that shuts the engine down waits for the waker. A future that moves to another task wakes the
//! task that polled it last.
//!
//! Once its engine is shut down, a sleep whose deadline has not come panics, as does the tick of an interval.
//! `try_wait` and `try_tick` return an error instead, and a timeout always returns an error. No future waits silently
//! for an event that cannot come.
//!
//! The engine of a tokio runtime ends with the runtime. The runtime's tasks must not take this for a timeout, so their
//! futures stay pending for a second, in which the runtime drops the tasks. A task whose poll blocks its thread for
//! longer, and then waits for a future, learns of the shutdown. A thread of `spawn_blocking` that blocks on a future
//! learns of the shutdown one to two seconds later, and holds up the end of the runtime for that time. The destructor
//! of a task must not block its thread on a future: it may wait for ever, since nothing fires while the runtime drops
//! its tasks. The same is true of tokio's futures.
//!
//! The process's own engine is shut down only if the program calls [`shutdown`](crate::Handle::shutdown) on the handle
//! that [`global`] returns. That is final: no other engine takes its place. The same is true of the handle of a tokio
//! runtime's shards while the runtime goes on.
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
//! With a clock that stands still until the program moves it:
//!
//! ```
//! use std::pin::pin;
//! use std::task::{Context, Poll, Waker};
//! use std::time::Duration;
//! use tourbillon::Builder;
//!
//! let mut engine = Builder::new().driven_futures()?;
//! let mut sleep = pin!(engine.handle().sleep(Duration::from_secs(3_600)));
//! let mut cx = Context::from_waker(Waker::noop());
//! assert_eq!(sleep.as_mut().poll(&mut cx), Poll::Pending);
//! engine.advance(Duration::from_secs(3_600));
//! assert_eq!(sleep.as_mut().poll(&mut cx), Poll::Ready(()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block_on;
#[cfg(feature = "tokio")]
mod ended;
mod engine;
mod interval;
#[cfg(feature = "test-util")]
mod paused;
#[cfg(feature = "tokio")]
pub(crate) mod runtime;
mod sleep;
mod source;
mod timeout;
mod turning;
mod wakeup;

pub use block_on::NeverWoken;
pub use interval::{Interval, ZeroPeriod};
pub use sleep::{ShutDown, Sleep};
pub use source::global;
pub use timeout::{Elapsed, ReusableTimeout, Timeout, Within};
#[cfg(all(test, tourbillon_loom))]
pub(crate) use turning::Bell;
pub use wakeup::Wakeup;

use crate::api::handle::Handle;
use crate::base::tick::Timestamp;
use core::time::Duration;
use source::{Source, current, outside_of_runtimes};
use timeout::End;

impl Handle<Wakeup> {
    /// Returns a future that completes `delay` from now: see [`sleep`].
    pub fn sleep(&self, delay: Duration) -> Sleep {
        self.sleep_until(self.now() + delay)
    }

    /// Returns a future that completes at `deadline`: see [`sleep_until`].
    pub fn sleep_until(&self, deadline: Timestamp) -> Sleep {
        Sleep::new(Source::Given(self.clone()), deadline)
    }

    /// Limits the time for which `future` may be pending: see [`timeout`].
    pub fn timeout<F: IntoFuture>(&self, delay: Duration, future: F) -> Timeout<F::IntoFuture> {
        Timeout::new(future.into_future(), Some(Source::Given(self.clone())), End::After(delay))
    }

    /// Limits the time of `future` by `deadline`: see [`timeout_at`].
    pub fn timeout_at<F: IntoFuture>(&self, deadline: Timestamp, future: F) -> Timeout<F::IntoFuture> {
        Timeout::new(future.into_future(), Some(Source::Given(self.clone())), End::At(deadline))
    }

    /// Makes a timeout that limits one future after the other: see [`reusable_timeout`].
    #[must_use]
    pub fn reusable_timeout(&self) -> ReusableTimeout {
        ReusableTimeout::new(self.sleep_until(Timestamp::MAX))
    }

    /// Returns an interval that ticks now, and every `period` from now on: see [`interval`].
    ///
    /// # Errors
    ///
    /// Fails if the period is zero.
    pub fn interval(&self, period: Duration) -> Result<Interval, ZeroPeriod> {
        self.interval_at(self.now(), period)
    }

    /// Returns an interval that ticks at `start`, and every `period` from then on: see [`interval_at`].
    ///
    /// # Errors
    ///
    /// Fails if the period is zero.
    pub fn interval_at(&self, start: Timestamp, period: Duration) -> Result<Interval, ZeroPeriod> {
        Interval::new(self.sleep_until(start), period)
    }
}

/// Returns the present moment on the clock of the engine that this module's functions use.
///
/// # Panics
///
/// Panics as [`global`] does.
#[must_use]
pub fn now() -> Timestamp {
    current().now()
}

/// Returns a future that completes `delay` from now, or later; never earlier. See [`Sleep`].
///
/// # Panics
///
/// Panics as [`global`] does.
pub fn sleep(delay: Duration) -> Sleep {
    let source = current();
    let deadline = source.now() + delay;
    Sleep::new(source, deadline)
}

/// Returns a future that completes `delay` from now. No task of a runtime turns its timer.
pub(crate) fn sleep_outside_of_runtimes(delay: Duration) -> Sleep {
    let source = outside_of_runtimes();
    let deadline = source.now() + delay;
    Sleep::new(source, deadline)
}

/// Returns a future that completes at `deadline` on the clock of [`now`], or later; never earlier. See [`Sleep`].
///
/// # Panics
///
/// Panics as [`global`] does.
pub fn sleep_until(deadline: Timestamp) -> Sleep {
    Sleep::new(current(), deadline)
}

/// Returns a future that completes at `deadline`, a moment of tokio's clock, or later; never earlier. On an engine with
/// another clock, the future waits for as long as `deadline` is away when this function is called. See [`Sleep`].
///
/// # Panics
///
/// Panics as [`global`] does.
#[cfg(feature = "tokio")]
pub fn sleep_until_instant(deadline: tokio::time::Instant) -> Sleep {
    let source = current();
    let deadline = source.moment_of(deadline);
    Sleep::new(source, deadline)
}

/// Returns a future that completes with the output of `future`, or with [`Elapsed`] once `future` has been pending for
/// `delay`. The delay counts from the first poll that finds `future` pending, so a future that is ready reads no clock.
/// [`timeout_at`] counts from another moment. See [`Timeout`].
///
/// # Panics
///
/// A poll panics as [`global`] does.
pub fn timeout<F: IntoFuture>(delay: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future.into_future(), None, End::After(delay))
}

/// Returns a future that completes with the output of `future`. If `future` has not completed at `deadline`, the
/// returned future completes with [`Elapsed`]. See [`Timeout`].
///
/// # Panics
///
/// A poll panics as [`global`] does.
pub fn timeout_at<F: IntoFuture>(deadline: Timestamp, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future.into_future(), None, End::At(deadline))
}

/// Makes a timeout that limits one future after the other, for example the requests of a connection. See
/// [`ReusableTimeout`].
///
/// # Panics
///
/// Panics as [`global`] does.
#[must_use]
pub fn reusable_timeout() -> ReusableTimeout {
    ReusableTimeout::new(sleep_until(Timestamp::MAX))
}

/// Returns an interval that ticks now, and every `period` from now on. See [`Interval`].
///
/// # Errors
///
/// Fails if the period is zero.
///
/// # Panics
///
/// Panics as [`global`] does.
pub fn interval(period: Duration) -> Result<Interval, ZeroPeriod> {
    interval_at(now(), period)
}

/// Returns an interval that ticks at `start`, and every `period` from then on. See [`Interval`].
///
/// # Errors
///
/// Fails if the period is zero.
///
/// # Panics
///
/// Panics as [`global`] does.
pub fn interval_at(start: Timestamp, period: Duration) -> Result<Interval, ZeroPeriod> {
    Interval::new(sleep_until(start), period)
}
