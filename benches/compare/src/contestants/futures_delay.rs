//! futures-timer's `Delay`, one for each connection. It is reset, and cannot be disarmed.
//!
//! One helper thread for the whole process owns the heap. A reset sends the timer to that thread.

use super::{Clock, Connections, Contestant, OnFire, Owned, Reads, wait_for};
use futures_timer::Delay;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const FAR: Duration = Duration::from_secs(30 * 24 * 3_600);

pub(crate) struct FuturesDelay;

impl Contestant for FuturesDelay {
    const NAME: &'static str = "futures-timer";
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(_threads: usize, _on_fire: impl OnFire) -> Self {
        Self
    }
}

impl Owned for FuturesDelay {
    type Connections = Delays;

    const DISARMS: bool = false;

    fn connect(&self, count: usize) -> Delays {
        let mut delays = Delays((0..count).map(|_| Delay::new(FAR)).collect());
        assert_eq!(delays.pending(), count);
        delays
    }

    fn pending(&self, all: &mut [Delays]) -> usize {
        all.iter_mut().map(Delays::pending).sum()
    }
}

impl Drop for FuturesDelay {
    fn drop(&mut self) {
        flush();
    }
}

/// Waits until the helper thread of futures-timer has handled all earlier drops. The thread outlives the contestant.
pub(super) fn flush() {
    wait_for(Delay::new(Duration::from_millis(1)));
}

pub(crate) struct Delays(Vec<Delay>);

impl Delays {
    fn pending(&mut self) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let polled = self.0.iter_mut().map(|delay| Pin::new(delay).poll(&mut context));
        polled.filter(Poll::is_pending).count()
    }
}

impl Connections for Delays {
    const BYTES_OF_HANDLE: usize = size_of::<Delay>();

    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        self.0[at as usize].reset(delay);
    }

    #[inline]
    fn disarm(&mut self, _at: u32) {}
}
