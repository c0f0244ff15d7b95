//! async-io's `Timer`. In some workloads it is made, polled once and dropped. In others each connection has a timer,
//! which is set and cleared.
//!
//! The first poll registers a timer. Later `set_after` does, which keeps the waker. Each registration puts an operation
//! into a queue with room for a thousand, which the whole process shares, and wakes the thread "async-io". That thread,
//! or a caller that finds the queue full, moves the operations into one map behind a mutex. The caller does not wait
//! for the other thread.
//!
//! A `Timer` is ready if it is polled after its time, even if the reactor has not fired it. Only wakes show what the
//! reactor did. So wakes are counted where a workload needs the number of pending timers. A drop does not show whether
//! the timer was pending.

use super::{Caller, Clock, Connections, Contestant, OnFire, OneShots, Owned, Reads};
use crate::common::Payload;
use async_io::Timer;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

pub(crate) struct AsyncIo;

impl Contestant for AsyncIo {
    const NAME: &'static str = "async-io";
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(_threads: usize, _on_fire: impl OnFire) -> Self {
        Self
    }
}

impl OneShots for AsyncIo {
    type Caller = Maker;

    fn caller(&self) -> Maker {
        Maker
    }
}

pub(crate) struct Maker;

impl Caller for Maker {
    type Id = Timer;
    const KNOWS_WHO_WON: bool = false;

    #[inline]
    fn schedule(&mut self, delay: Duration, _payload: Payload) -> Timer {
        let mut timer = Timer::after(delay);
        register(&mut timer, Waker::noop());
        timer
    }

    #[inline]
    fn cancel(&mut self, timer: Timer) -> bool {
        drop(timer);
        true
    }
}

#[inline]
fn register(timer: &mut Timer, waker: &Waker) {
    let is_pending = Pin::new(timer).poll(&mut Context::from_waker(waker)).is_pending();
    assert!(is_pending, "it is not due yet");
}

impl Owned for AsyncIo {
    type Connections = Timers;

    const DISARMS: bool = true;

    fn connect(&self, count: usize) -> Timers {
        Timers::new(count)
    }

    fn pending(&self, all: &mut [Timers]) -> usize {
        all.iter_mut().map(Timers::pending).sum()
    }
}

pub(crate) struct Timers {
    timers: Vec<Timer>,
    /// Whether the waker of each timer counts wakes. The index is the number of the timer.
    is_counted: Vec<bool>,
    wakes: Arc<Wakes>,
}

/// The number of timers that async-io's reactor has fired.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Timers {
    const FAR: Duration = Duration::from_secs(30 * 24 * 3_600);

    /// Makes `count` timers, and registers each timer once, so that a `set_after` arms it.
    fn new(count: usize) -> Self {
        let timers = (0..count).map(|_| {
            let mut timer = Timer::after(Self::FAR);
            register(&mut timer, Waker::noop());
            timer.clear();
            timer
        });
        Self { timers: timers.collect(), is_counted: vec![false; count], wakes: Arc::default() }
    }

    /// Returns the number of timers that were armed and have not fired after that. The first call gives each armed
    /// timer a waker that counts. The timer keeps the waker.
    fn pending(&mut self) -> usize {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let mut armed = 0;
        for (timer, is_counted) in self.timers.iter_mut().zip(&mut self.is_counted) {
            if timer.will_fire() {
                armed += 1;
                if !*is_counted {
                    register(timer, &waker);
                    *is_counted = true;
                }
            }
        }
        armed - self.wakes.0.load(Ordering::Relaxed)
    }
}

impl Connections for Timers {
    const BYTES_OF_HANDLE: usize = size_of::<Timer>();

    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        self.timers[at as usize].set_after(delay);
    }

    #[inline]
    fn disarm(&mut self, at: u32) {
        self.timers[at as usize].clear();
    }
}
