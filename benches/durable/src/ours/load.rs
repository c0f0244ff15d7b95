//! Calls to a store: one after the other, many at a time, and in batches.

use super::Failure;
use super::deliveries::Payload;
use super::figures::Pace;
use super::tools::key;
use hdrhistogram::Histogram;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tourbillon_durable::store::Durability;
use tourbillon_durable::{Spec, Timers, UtcMillis};

pub(super) async fn create(
    timers: &Timers,
    n: usize,
    due: u64,
    durability: Durability,
) -> Result<(), Failure> {
    let spec =
        Spec::new(Payload::new(n, due)).key(key(n)).at(UtcMillis::from_millis(due)).durability(durability);
    timers.schedule(spec).await?;
    Ok(())
}

/// Makes `total` calls of `call`. At most `count` calls run at a time.
pub(super) async fn waiting<F, R>(count: usize, total: usize, call: F) -> Result<Pace, Failure>
where
    F: Fn(usize) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let callers = (0..count).map(|_| {
        let (next, call) = (Arc::clone(&next), call.clone());
        tokio::spawn(async move {
            let mut times = Histogram::<u64>::new(3)?;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= total {
                    return Ok::<_, Failure>(times);
                }
                let start = Instant::now();
                call(index).await?;
                times.record(u64::try_from(start.elapsed().as_nanos())?)?;
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut times = Histogram::<u64>::new(3)?;
    for caller in callers {
        times.add(caller.await??)?;
    }
    Ok(Pace::of(total, begin.elapsed(), &times))
}

/// Creates the timers with the numbers from `from` to below `to`, in batches of 1,000. Each batch begins after the end
/// of the batch before.
pub(super) async fn fill(
    timers: &Timers,
    (from, to): (usize, usize),
    durability: Durability,
    mut due: impl FnMut() -> u64,
) -> Result<(), Failure> {
    for batch in (from..to).step_by(1_000) {
        let calls = (batch..to.min(batch + 1_000)).map(|n| {
            let (timers, due) = (timers.clone(), due());
            tokio::spawn(async move { create(&timers, n, due, durability).await })
        });
        let calls: Vec<_> = calls.collect();
        for call in calls {
            call.await??;
        }
    }
    Ok(())
}
