//! futures-timer's `Delay` as a timer that is made, polled once and dropped.
//!
//! A new `Delay` is sent to the process's only helper thread, which owns the heap. A drop sends it again for removal.
//! The caller waits for neither. So the figure includes the helper thread's work only as far as that thread takes
//! processor time away. The number of pending timers is not known, and a drop does not show whether the timer was
//! pending.
//!
//! The drop-in of the folder `patch` has the same face, and its timers are ours.

use super::futures_delay::flush;
use super::tasks::Sleeps;
use super::{Caller, Clock, Contestant, OnFire, OneShots, Reads};
use crate::common::Payload;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// The interface of futures-timer, which other crates also provide.
pub(crate) trait DelayFace: Send + Sync + 'static {
    const NAME: &'static str;
    const IS_OURS: bool;
    const READS: Reads;

    type Delay: Future<Output = ()> + Unpin + Send + 'static;

    fn delay(time: Duration) -> Self::Delay;

    /// Waits until the timers' thread has handled all earlier drops of timers.
    fn flush();
}

pub(crate) struct FuturesTimer;
pub(crate) struct FuturesTimerDropIn;

impl DelayFace for FuturesTimer {
    const NAME: &'static str = "futures-timer";
    const IS_OURS: bool = false;
    const READS: Reads = Reads::EachArm(Clock::Instant);

    type Delay = futures_timer::Delay;

    #[inline]
    fn delay(time: Duration) -> futures_timer::Delay {
        futures_timer::Delay::new(time)
    }

    fn flush() {
        flush();
    }
}

impl DelayFace for FuturesTimerDropIn {
    const NAME: &'static str = "futures-timer, the drop-in";
    const IS_OURS: bool = true;
    const READS: Reads = Reads::EachArm(Clock::Tsc);

    type Delay = futures_timer_drop_in::Delay;

    #[inline]
    fn delay(time: Duration) -> futures_timer_drop_in::Delay {
        futures_timer_drop_in::Delay::new(time)
    }

    /// Does nothing, because the timers of this crate need no thread for a drop.
    fn flush() {}
}

pub(crate) struct FuturesOneShot<F: DelayFace = FuturesTimer>(PhantomData<F>);

impl<F: DelayFace> Contestant for FuturesOneShot<F> {
    const NAME: &'static str = F::NAME;
    const READS: Reads = F::READS;
    const IS_OURS: bool = F::IS_OURS;

    fn start(_threads: usize, _on_fire: impl OnFire) -> Self {
        Self(PhantomData)
    }

    fn settle(&self, time: Duration) {
        F::flush();
        thread::sleep(time);
    }
}

impl<F: DelayFace> OneShots for FuturesOneShot<F> {
    type Caller = Maker<F>;

    /// Waits until the helper thread has caught up, and then makes a caller.
    fn caller(&self) -> Maker<F> {
        F::flush();
        Maker(PhantomData)
    }
}

impl<F: DelayFace> Drop for FuturesOneShot<F> {
    fn drop(&mut self) {
        F::flush();
    }
}

pub(crate) struct Maker<F>(PhantomData<F>);

impl<F: DelayFace> Caller for Maker<F> {
    type Id = F::Delay;
    const KNOWS_WHO_WON: bool = false;

    #[inline]
    fn schedule(&mut self, delay: Duration, _payload: Payload) -> F::Delay {
        let mut delay = F::delay(delay);
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut delay).poll(&mut context).is_pending());
        delay
    }

    #[inline]
    fn cancel(&mut self, delay: F::Delay) -> bool {
        drop(delay);
        true
    }
}

/// The delays of futures-timer, or of a crate with the same interface, for tasks on a runtime.
pub(crate) struct Delays<F>(PhantomData<F>);

impl<F: DelayFace> Sleeps for Delays<F> {
    const NAME: &'static str = F::NAME;
    const READS: Reads = F::READS;
    const IS_OURS: bool = F::IS_OURS;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().build().expect("the system gives us threads")
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        F::delay(deadline.saturating_duration_since(Instant::now()))
    }
}
