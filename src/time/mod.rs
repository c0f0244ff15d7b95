//! The names of `tokio::time`: `use tourbillon::time` in place of `use tokio::time` changes a program's timers to this
//! engine.
//!
//! Inside a tokio runtime, a task of the runtime turns the timers of that runtime's futures; the first future of a
//! runtime spawns it. So these futures are as punctual as tokio's own, while all workers are busy, too. Outside of a
//! runtime the futures use the process's shards, and no runtime is needed. [`shards`] returns the runtime's shards, for
//! engines with handlers.
//!
//! [`Instant`], [`Duration`] and [`MissedTickBehavior`] are tokio's own types. Under tokio's paused clock (`pause`,
//! `#[tokio::test(start_paused = true)]`) all timers of this module and of [`future`](crate::future) follow that clock:
//! this needs the feature `test-util`, as it does in tokio.
//!
//! # Differences from `tokio::time`
//!
//! | | here | `tokio::time` |
//! |---|---|---|
//! | outside of a runtime | the process's shards turn the futures | `sleep`, `timeout` and `interval` panic |
//! | a runtime without `enable_time` | the process's shards turn the futures, after a message of a panic that is caught | they panic |
//! | a future that outlives its runtime | it completes in time | its next poll panics |
//! | the runtime of a future | the one in which it is first polled | the one in which it is made |
//! | [`Sleep`] | is `Unpin` | has to be pinned |
//! | lateness | up to 64 µs more, for the tick of the engine | rounded up to a millisecond |
//!
//! # Examples
//!
//! ```
//! use tourbillon::time::{self, Duration, Instant};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let begin = Instant::now();
//! time::sleep(Duration::from_millis(2)).await;
//! assert!(begin.elapsed() >= Duration::from_millis(2));
//! assert!(time::timeout(Duration::from_millis(2), std::future::pending::<()>()).await.is_err());
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod error;
mod interval;
mod sleep;
mod timeout;

pub use core::time::Duration;
pub use interval::{Interval, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Timeout, timeout, timeout_at};
pub use tokio::time::{Instant, MissedTickBehavior};
#[cfg(feature = "test-util")]
pub use tokio::time::{advance, pause, resume};

use crate::api::shards::Shards;
use crate::future::runtime;

/// Returns the shards of the tokio runtime that the calling thread is in. A task of that runtime turns the shards, and
/// handlers run in that task. Returns `None` outside of a runtime, and in a runtime without a timer.
///
/// With the feature `test-util`, the shards use the runtime's clock. A test may pause that clock.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Fired, time};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let (fired, log) = tokio::sync::oneshot::channel();
/// let fired = std::sync::Mutex::new(Some(fired));
/// let shards = time::shards().expect("inside a runtime");
/// let engine = shards.engine().start(move |timer: Fired<'_, u32>| {
///     fired.lock().unwrap().take().map(|fired| fired.send(timer.payload));
/// })?;
/// engine.handle().schedule(Duration::from_millis(2), 17)?;
/// assert_eq!(log.await, Ok(17));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn shards() -> Option<Shards> {
    runtime::current().map(|place| place.shards().clone())
}
