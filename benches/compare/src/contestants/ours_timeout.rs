//! `tourbillon::future::timeout`. It makes its timer only if the future was polled and is not ready.

use super::{Contestant, OnFire, Reads, Timeouts};
use std::time::Duration;
use tourbillon::future::{self, Elapsed};

pub(crate) struct OursTimeout;

impl Contestant for OursTimeout {
    const NAME: &'static str = "engine, timeout";
    const READS: Reads = Reads::Never;
    const IS_OURS: bool = true;

    fn start(_threads: usize, _on_fire: impl OnFire) -> Self {
        Self
    }
}

impl Timeouts for OursTimeout {
    type Elapsed = Elapsed;

    #[inline]
    fn timeout<F: Future<Output: Send> + Send>(
        &self,
        delay: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + Send {
        future::timeout(delay, future)
    }
}
