//! futures-timer's `Delay` beside a future. Both are polled by hand, as a select polls them.

use super::futures_delay::flush;
use super::{Clock, Contestant, OnFire, Reads, Timeouts};
use futures_timer::Delay;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

pub(crate) struct FuturesTimeout;

#[derive(Debug)]
pub(crate) struct Elapsed;

impl Contestant for FuturesTimeout {
    const NAME: &'static str = "futures-timer";
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(_threads: usize, _on_fire: impl OnFire) -> Self {
        Self
    }
}

impl Timeouts for FuturesTimeout {
    type Elapsed = Elapsed;

    #[inline]
    async fn timeout<F: Future<Output: Send> + Send>(
        &self,
        delay: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut delay = Delay::new(delay);
        let mut future = pin!(future);
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => Pin::new(&mut delay).poll(context).map(|()| Err(Elapsed)),
        })
        .await
    }
}

impl Drop for FuturesTimeout {
    fn drop(&mut self) {
        flush();
    }
}
