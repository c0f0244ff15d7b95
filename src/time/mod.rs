//! The names of `tokio::time`: `use tourbillon::time` in place of `use tokio::time` changes a program's timers to this
//! engine.
//!
//! Inside a tokio runtime, a task of the runtime turns the timers of that runtime's futures. The first future of a
//! runtime spawns that task. So these futures are as punctual as tokio's own while all workers are busy, too. Outside
//! of a runtime the futures use the [current](crate::Shards::current) shards, and no runtime is needed. [`shards`]
//! returns the runtime's shards, for engines with handlers.
//!
//! [`Instant`] and [`MissedTickBehavior`] are tokio's own types. With the feature `test-util`, as in tokio, the futures
//! of this module and of [`future`](crate::future) that are first polled in a runtime follow that runtime's clock,
//! which a test may pause (`pause`, `#[tokio::test(start_paused = true)]`). While the clock is paused, such a future
//! waits by a sleep of tokio, which a shutdown of the engine does not end before its deadline.
//!
//! # Differences from `tokio::time`
//!
//! | | here | `tokio::time` |
//! |---|---|---|
//! | outside of a runtime | the futures work | `sleep`, `timeout` and `interval` panic |
//! | a runtime without `enable_time` | the futures work as outside; the panic hook reports a panic that is caught. If panics abort, the process ends | they panic |
//! | the runtime of a future | the runtime in which the future is first polled | the runtime in which the future is made |
//! | a future that was polled in a runtime that has ended since | panics, with another text | panics |
//! | a thread of `spawn_blocking` that waits for a future while the runtime ends | the future panics one to two seconds later | it panics at once |
//! | the task that turns the timers | counts among the runtime's tasks | there is none |
//! | [`Sleep`] and [`Timeout`] | are `Unpin` if the inner future is | have to be pinned |
//! | [`Sleep::is_elapsed`] after the first poll | by the clock | once the runtime's driver has seen the deadline |
//! | rounding | a deadline is rounded up to 64 µs, then to tokio's millisecond | to the millisecond |
//! | [`error::Elapsed`], `Sleep`, `Timeout`, `Interval` | types of their own | |
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

/// The shards of the tokio runtime that the calling thread is in: a task of that runtime turns them, and handlers run
/// in that task. `None` outside of a runtime, and where the runtime has no timer.
///
/// The timers of these shards end with the runtime: afterwards no handler runs. With the feature `test-util`, the clock
/// of these shards is the runtime's, which a test may pause.
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
    runtime::shards()
}
