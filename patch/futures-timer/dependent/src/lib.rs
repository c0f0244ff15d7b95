//! A program whose pauses and waits are those of backon and governor. Both depend on futures-timer, which the patch in
//! this package's manifest replaces. The program itself names neither futures-timer nor tourbillon.

use backon::{ConstantBuilder, FuturesTimerSleeper, Retryable};
use governor::{Quota, RateLimiter};
use std::time::Duration;

/// Calls `request` until it succeeds, with a pause after each failure, and at most `retries` times more.
///
/// # Errors
///
/// Fails with the error of the last call.
pub async fn with_retries<T, E, F>(
    request: impl FnMut() -> F,
    retries: usize,
    pause: Duration,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let policy = ConstantBuilder::default().with_delay(pause).with_max_times(retries);
    request.retry(policy).sleep(FuturesTimerSleeper).await
}

/// Calls `step` with each number below `steps`, at the pace that the quota admits.
pub async fn at_the_rate_of(quota: Quota, steps: u32, mut step: impl FnMut(u32)) {
    let limiter = RateLimiter::direct(quota);
    for number in 0..steps {
        limiter.until_ready().await;
        step(number);
    }
}
