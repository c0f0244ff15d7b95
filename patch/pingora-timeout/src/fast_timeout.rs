//! Timeouts and sleeps on tourbillon's engine. They need no runtime.

use crate::limit::{Limit, MANAGER};
use crate::timer::TimerStub;
use crate::{Timeout, ToTimeout};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// The time above which tokio's timer measures a [`fast_timeout`], unless the program sets another threshold.
pub const DEFAULT_FAST_TIMEOUT_TO_TOKIO_THRESHOLD: Duration = Duration::from_secs(15 * 60);

/// The value of `THRESHOLD` if there is no threshold.
const NONE: u64 = u64::MAX;

/// The time above which tokio's timer measures a [`fast_timeout`], in whole seconds.
static THRESHOLD: AtomicU64 = AtomicU64::new(DEFAULT_FAST_TIMEOUT_TO_TOKIO_THRESHOLD.as_secs());

/// Sets the time above which tokio's timer measures a [`fast_timeout`], in whole seconds. With `None`, the engine
/// measures all fast timeouts.
///
/// The original crate keeps the timer of a cancelled timeout until the timeout's deadline, so it leaves long timeouts
/// to tokio. In this crate a dropped timeout leaves nothing behind, so `None` suits all programs. If a test pauses
/// tokio's clock, the engine follows that clock with the feature `test-util` of tourbillon.
pub fn set_fast_timeout_to_tokio_threshold(threshold: Option<Duration>) {
    // Ordering: Relaxed. No other data is read through the threshold.
    THRESHOLD.store(threshold.map_or(NONE, |threshold| threshold.as_secs()), Ordering::Relaxed);
}

/// Returns the time above which tokio's timer measures a [`fast_timeout`]; `None` if there is no such time.
pub fn fast_timeout_to_tokio_threshold() -> Option<Duration> {
    // Ordering: Relaxed. As in `set_fast_timeout_to_tokio_threshold`.
    match THRESHOLD.load(Ordering::Relaxed) {
        NONE => None,
        seconds => Some(Duration::from_secs(seconds)),
    }
}

/// Makes a limit of the given time. tokio's timer measures the limit if the time is above the threshold. Otherwise the
/// engine measures the limit.
fn limit(time: Duration) -> Limit {
    match fast_timeout_to_tokio_threshold() {
        Some(threshold) if time.as_secs() > threshold.as_secs() => Limit::Tokio(time),
        _ => Limit::Fast(time),
    }
}

/// A limit that the engine measures.
#[derive(Debug)]
pub struct FastTimeout(Duration);

impl ToTimeout for FastTimeout {
    fn timeout(&self) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>> {
        Box::pin(Limit::Fast(self.0).start())
    }

    fn create(d: Duration) -> Self {
        Self(d)
    }
}

/// A limit that the engine measures, or tokio's timer if the limit is above the threshold: see [`fast_timeout`].
#[derive(Debug)]
pub struct FastOrTokioTimeout(Limit);

impl ToTimeout for FastOrTokioTimeout {
    fn timeout(&self) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>> {
        Box::pin(self.0.start())
    }

    fn create(duration: Duration) -> Self {
        Self(limit(duration))
    }
}

/// Limits the time of `future`: the returned future completes with the output of `future`, or with
/// [`Elapsed`](crate::Elapsed) once `duration` has passed after the first poll that found `future` pending.
///
/// The engine measures the time. A limit above the [threshold](set_fast_timeout_to_tokio_threshold) is measured by
/// tokio's timer, in a runtime with a timer.
///
/// # Examples
///
/// ```
/// use pingora_timeout::timeout;
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let mut shards = Builder::new().driven_shards()?;
/// shards.block_on(async {
///     let answer = timeout(Duration::from_secs(5), async { 17 }).await;
///     assert!(matches!(answer, Ok(17)));
///     let nothing = timeout(Duration::from_secs(5), std::future::pending::<()>()).await;
///     assert!(nothing.is_err());
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fast_timeout<T>(duration: Duration, future: T) -> Timeout<T, FastOrTokioTimeout>
where
    T: Future,
{
    Timeout::new(future, limit(duration))
}

/// Completes `duration` after its first poll, or later by less than a tick of the engine and a wake-up; never earlier.
pub fn fast_sleep(duration: Duration) -> impl Future<Output = ()> {
    // Not an `async fn`, whose future would have room for two timers.
    FastSleep::Ahead(duration)
}

/// A sleep whose time counts from its first poll.
enum FastSleep {
    Ahead(Duration),
    Running(TimerStub),
}

impl Future for FastSleep {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            match this {
                Self::Ahead(time) => *this = Self::Running(MANAGER.register_timer(*time)),
                Self::Running(stub) => return stub.poll_expired(cx),
            }
        }
    }
}

/// Prepares for a fork: see [`TimerManager::pause_for_fork`](crate::timer::TimerManager::pause_for_fork).
pub fn pause_for_fork() {
    MANAGER.pause_for_fork();
}

/// Ends a pause, after the fork: see [`TimerManager::unpause`](crate::timer::TimerManager::unpause).
pub fn unpause() {
    MANAGER.unpause();
}
