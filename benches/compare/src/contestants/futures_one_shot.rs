//! futures-timer's `Delay` as a timer that is made, polled once and dropped.
//!
//! A new `Delay` is sent to the process's only helper thread, which owns the heap. A drop sends it again for removal.
//! The caller waits for neither. So the figure includes the helper thread's work only as far as that thread takes
//! processor time away. The number of pending timers is not known, and a drop does not show whether the timer was
//! pending.

use super::futures_delay::flush;
use super::{Caller, Clock, Contestant, OnFire, OneShots, Reads};
use crate::common::Payload;
use futures_timer::Delay;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

pub(crate) struct FuturesOneShot;

impl Contestant for FuturesOneShot {
    const NAME: &'static str = "futures-timer";
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(_threads: usize, _on_fire: impl OnFire) -> Self {
        Self
    }

    fn settle(&self, time: Duration) {
        flush();
        thread::sleep(time);
    }
}

impl OneShots for FuturesOneShot {
    type Caller = Maker;

    /// Waits until the helper thread has caught up, and then makes a caller.
    fn caller(&self) -> Maker {
        flush();
        Maker
    }
}

impl Drop for FuturesOneShot {
    fn drop(&mut self) {
        flush();
    }
}

pub(crate) struct Maker;

impl Caller for Maker {
    type Id = Delay;
    const KNOWS_WHO_WON: bool = false;

    #[inline]
    fn schedule(&mut self, delay: Duration, _payload: Payload) -> Delay {
        let mut delay = Delay::new(delay);
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut delay).poll(&mut context).is_pending());
        delay
    }

    #[inline]
    fn cancel(&mut self, delay: Delay) -> bool {
        drop(delay);
        true
    }
}
