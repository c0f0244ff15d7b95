//! futures-timer's `Delay`, one for each connection, and reset: it cannot be disarmed.
//!
//! One helper thread for the whole process has the heap; a reset posts the timer to it.

use super::{Clock, Connections, Contestant, Counts, Owned, Reads, wait_for};
use futures_timer::Delay;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

const FAR: Duration = Duration::from_secs(30 * 24 * 3_600);

pub(crate) struct FuturesDelay;

impl Contestant for FuturesDelay {
    const NAME: &'static str = "futures-timer, reset only";
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(_threads: usize) -> Self {
        Self
    }
}

impl Owned for FuturesDelay {
    type Connections = Delays;

    const DISARMS: bool = false;

    fn connect(&self, count: usize) -> Delays {
        let mut delays = Delays((0..count).map(|_| Delay::new(FAR)).collect());
        assert_eq!(delays.elapsed(), 0);
        delays
    }

    fn count(&self, all: &mut [Delays]) -> Counts {
        let fired = all.iter_mut().map(Delays::elapsed).sum();
        let timers: u64 = all.iter().map(|delays| delays.0.len() as u64).sum();
        Counts { pending: timers - fired, fired }
    }
}

impl Drop for FuturesDelay {
    fn drop(&mut self) {
        flush();
    }
}

/// Waits until the helper thread, which outlives the contestant, has got through all that was dropped before.
pub(super) fn flush() {
    wait_for(Delay::new(Duration::from_millis(1)));
}

pub(crate) struct Delays(Vec<Delay>);

impl Delays {
    fn elapsed(&mut self) -> u64 {
        let mut context = Context::from_waker(Waker::noop());
        self.0.iter_mut().filter_map(|delay| Pin::new(delay).poll(&mut context).is_ready().then_some(1)).sum()
    }
}

impl Connections for Delays {
    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        self.0[at as usize].reset(delay);
    }

    #[inline]
    fn disarm(&mut self, _at: u32) {}
}
