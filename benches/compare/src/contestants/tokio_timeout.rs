//! `tokio::time::timeout`. It registers its timer only if the future was polled and is not ready.

use super::tokio_runtime::TokioRuntime;
use super::{Clock, Contestant, OnFire, Reads, Timeouts};
use std::time::Duration;
use tokio::time::error::Elapsed;

pub(crate) struct TokioTimeout(TokioRuntime);

impl Contestant for TokioTimeout {
    const NAME: &'static str = "tokio, timeout";
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(threads: usize, _on_fire: impl OnFire) -> Self {
        Self(TokioRuntime::start(threads))
    }

    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        self.0.run(jobs)
    }
}

impl Timeouts for TokioTimeout {
    type Elapsed = Elapsed;

    #[inline]
    fn timeout<F: Future<Output: Send> + Send>(
        &self,
        delay: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + Send {
        tokio::time::timeout(delay, future)
    }
}
