//! hierarchical_hash_wheel_timer's timer with its own thread, which calls closures. Ids are consecutive numbers here.
//! They are cheaper than the UUIDs of the crate's example.
//!
//! Schedules and cancels are messages in an unbounded channel, which the thread takes one by one. The caller does not
//! wait for the thread. It pays for the thread only as far as that takes processor time away. Scheduling reads no
//! clock: a delay counts from the moment at which the thread takes the message. A cancel does not show whether the
//! timer was pending. Once the thread has handled all earlier messages, the number of closures is the number of pending
//! timers.
//!
//! A cancel drops the closure, and leaves an entry in the wheel until its deadline. A storm of cancels fills the
//! memory. So the contestant gives up before it uses up the machine's memory.
//!
//! The crate cuts a delay to whole milliseconds, and counts it from the wheel's last tick. So a timer fires up to 2 ms
//! early, contrary to the documentation. To correct this, the delay is rounded up here, and a tick is added.

use super::handlers::Handlers;
use super::{Caller, Contestant, OnFire, OneShots, Reads};
use crate::common::Payload;
use crate::process::{cannot, resident};
use hierarchical_hash_wheel_timer::thread_timer::{TimerRef, TimerWithThread};
use hierarchical_hash_wheel_timer::{ClosureTimer, OneShotClosureState, PeriodicClosureState, Timer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

type OneShot = OneShotClosureState<u64>;
type Periodic = PeriodicClosureState<u64>;

pub(crate) struct HashWheelTimer {
    timer: TimerWithThread<u64, OneShot, Periodic>,
    handlers: Handlers,
    callers: AtomicU64,
}

impl HashWheelTimer {
    /// Waits until the timer thread has handled all earlier messages.
    fn flush(&self) {
        let (done, wait) = mpsc::channel();
        // A closure without a delay is called at once, and its id is not used.
        self.timer.timer_ref().schedule_action_once(u64::MAX, Duration::ZERO, move |_| {
            done.send(()).expect("it is waited for");
        });
        wait.recv().expect("the thread calls it");
    }
}

impl Contestant for HashWheelTimer {
    const NAME: &'static str = "hierarchical_hash_wheel_timer";
    const READS: Reads = Reads::Never;

    fn start(_threads: usize, on_fire: impl OnFire) -> Self {
        let timer = TimerWithThread::new().expect("the system gives us threads");
        Self { timer, handlers: Handlers::new(on_fire), callers: AtomicU64::new(0) }
    }

    fn settle(&self, time: Duration) {
        self.flush();
        thread::sleep(time);
    }
}

impl OneShots for HashWheelTimer {
    type Caller = Sender;

    /// Waits until the timer thread has caught up, and then makes a caller.
    fn caller(&self) -> Sender {
        self.flush();
        let caller = self.callers.fetch_add(1, Ordering::Relaxed);
        Sender {
            timer: self.timer.timer_ref(),
            handlers: self.handlers.clone(),
            next_id: caller << COUNT_BITS,
        }
    }

    fn pending(&self) -> Option<usize> {
        self.flush();
        Some(self.handlers.timers())
    }
}

impl Drop for HashWheelTimer {
    fn drop(&mut self) {
        self.timer.shutdown_async().expect("it only sends");
    }
}

pub(crate) struct Sender {
    timer: TimerRef<u64, OneShot, Periodic>,
    handlers: Handlers,
    next_id: u64,
}

/// Returns `delay` plus nearly two ticks. The timer rounds delays to ticks, and would otherwise be early at some
/// moments within a tick.
#[inline]
fn not_early(delay: Duration) -> Duration {
    const NEARLY_TWO_TICKS: Duration = Duration::from_nanos(1_999_999);
    delay + NEARLY_TWO_TICKS
}

/// The number of low bits of an id that number a caller's timers. The high bits number the callers.
const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// The resident memory, in bytes, at which the contestant gives up. The contestant checks its memory after each
/// `LOOK_AFTER` timers.
const MOST_RESIDENT: u64 = 12_000_000_000;
const LOOK_AFTER: u64 = 1 << 18;

#[cold]
fn look(ids: u64) {
    if resident().is_some_and(|resident| resident > MOST_RESIDENT) {
        let millions = ids as f64 * 1e-6;
        cannot(&format!(
            "gave up: over 12 GB resident after {millions:.0} million timers, most of them cancelled"
        ));
    }
}

impl Caller for Sender {
    type Id = u64;
    const KNOWS_WHO_WON: bool = false;

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if id.is_multiple_of(LOOK_AFTER) {
            look(id & COUNT);
        }
        let on_fire = self.handlers.of_timer();
        self.timer.schedule_action_once(id, not_early(delay), move |_| on_fire(payload));
        id
    }

    #[inline]
    fn cancel(&mut self, id: u64) -> bool {
        self.timer.cancel(&id);
        true
    }
}
