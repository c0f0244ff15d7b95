//! A future or async-io's `Timer`, whichever is ready first, in async-io's `block_on`. Its documentation limits a
//! future in this way.
//!
//! The first poll of the timer's side makes the timer, after the poll of the future. So a future that is ready costs no
//! timer and no read of a clock.

use super::{Contestant, OnFire, Reads, Timeouts};
use async_io::Timer;
use futures_lite::FutureExt;
use std::thread;
use std::time::Duration;

pub(crate) struct AsyncIoTimeout;

#[derive(Debug)]
pub(crate) struct Elapsed;

impl Contestant for AsyncIoTimeout {
    const NAME: &'static str = "async-io";
    const READS: Reads = Reads::Never;

    fn start(_threads: usize, _on_fire: impl OnFire) -> Self {
        Self
    }

    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        let threads: Vec<_> = jobs.into_iter().map(|job| thread::spawn(|| async_io::block_on(job))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a job's own checks hold")).collect()
    }
}

impl Timeouts for AsyncIoTimeout {
    type Elapsed = Elapsed;

    #[inline]
    async fn timeout<F: Future<Output: Send> + Send>(
        &self,
        delay: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let output = async { Ok(future.await) };
        let elapsed = async {
            Timer::after(delay).await;
            Err(Elapsed)
        };
        output.or(elapsed).await
    }
}
