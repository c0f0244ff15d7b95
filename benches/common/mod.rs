//! Shared parts of the benches: the two traits of contestants, random numbers from seeds, and sizes.
//!
//! All contestants do the same work. Each holds 16-byte payloads, and returns a payload on cancel. Each gets the same
//! delays, uniform between 1 and 60 s, from the same seed.
#![allow(dead_code, unused_imports, reason = "each bench takes what it needs")]

mod chance;
mod churn;
mod limits;
mod ours;
mod pairs;

pub(crate) use chance::Chance;
pub(crate) use churn::Churn;
pub(crate) use limits::{Demand, Limits};
pub(crate) use ours::{OwnNow, ThroughHandle, Wheel64, Wheel256};
pub(crate) use pairs::{FireCount, Length, PairRun, fill, run_pairs};

use std::time::Duration;

pub(crate) type Payload = [u64; 2];

/// Returns a payload made from `n`. A test can check the two halves of the payload against each other.
pub(crate) fn payload(n: u64) -> Payload {
    [n, !n]
}

/// The range of delays for single-threaded contestants, in ticks of 1 ms.
pub(crate) const TICKS: std::ops::Range<u64> = 1_000..60_000;
/// The range of delays for multi-threaded contestants, in nanoseconds.
pub(crate) const NANOS: std::ops::Range<u64> = 1_000_000_000..60_000_000_000;

/// A timer structure for one thread.
pub(crate) trait Timers {
    const NAME: &'static str;
    const LIMITS: Limits = Limits::NONE;
    type Id: Copy;

    /// Makes an empty structure, at tick 0.
    fn new() -> Self;
    /// Arms a timer that is within the structure's limits. A timer whose tick has passed fires at the next tick or
    /// earlier.
    fn schedule(&mut self, tick: u64, payload: Payload) -> Self::Id;
    fn cancel(&mut self, id: Self::Id) -> Option<Payload>;
    /// Moves the structure's position to tick `to`, and calls `fire` with the due timers in any order. No timer may be
    /// early.
    fn expire(&mut self, to: u64, fire: impl FnMut(Payload));
    fn len(&self) -> usize;

    /// Fires the timers that are due at tick `to` or before.
    fn advance(&mut self, to: u64) -> Fired {
        let mut fired = Fired::default();
        self.expire(to, |payload| fired.add(payload));
        fired
    }
}

/// The timers that an advance fired, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fired {
    pub(crate) count: u64,
    pub(crate) checksum: u64,
}

impl Fired {
    #[inline]
    pub(crate) fn add(&mut self, payload: Payload) {
        self.count += 1;
        self.checksum = self.checksum.wrapping_add(payload[0] ^ payload[1].rotate_left(32));
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.count += other.count;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}

impl FromIterator<Payload> for Fired {
    fn from_iter<I: IntoIterator<Item = Payload>>(payloads: I) -> Self {
        let mut fired = Self::default();
        payloads.into_iter().for_each(|payload| fired.add(payload));
        fired
    }
}

/// A timer service that has its own threads. Many threads call the service at the same time.
pub(crate) trait Service: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    const LIMITS: Limits = Limits::NONE;
    type Caller: Caller + Send + 'static;

    fn start(on_fire: impl Fn(Payload) + Send + Sync + 'static) -> Self;
    /// Makes a [`Caller`], by which the calling thread uses the service.
    fn caller(&self) -> Self::Caller;
    fn pending(&self) -> usize;
    /// Returns how often the service's threads slept and woke, if the service counts that.
    fn wakes(&self) -> Option<u64> {
        None
    }
}

/// One thread's access to a [`Service`].
pub(crate) trait Caller {
    type Id: Copy + Send + 'static;

    /// Arms a timer that is due `delay` after now. Reads the clock to learn the present time.
    fn schedule(&mut self, delay: Duration, payload: Payload) -> Self::Id;
    fn cancel(&mut self, id: Self::Id) -> Option<Payload>;

    /// Replaces the deadline of the timer `id` by `delay` after now. If the timer has fired, schedules a new timer.
    #[inline]
    fn reschedule(&mut self, id: Self::Id, delay: Duration, payload: Payload) -> Self::Id {
        self.cancel(id);
        self.schedule(delay, payload)
    }
}

/// Returns whether this run only tests the bench and measures nothing. `cargo test --benches` does not pass `--bench`.
pub(crate) fn is_smoke_test() -> bool {
    let mut measures = false;
    for argument in std::env::args() {
        match argument.as_str() {
            "--test" => return true,
            "--bench" => measures = true,
            _ => {}
        }
    }
    !measures
}

/// Returns the number of iterations to make: `iterations`, the number that Criterion asks for. In a smoke test, returns
/// a number that is large enough to run every part of the bench.
pub(crate) fn at_least_some(iterations: u64) -> u64 {
    if is_smoke_test() { iterations.max(3_000) } else { iterations }
}

/// Returns the numbers of pending timers that benches measure, with their names.
pub(crate) fn populations() -> &'static [(&'static str, usize)] {
    if is_smoke_test() { &[("0", 0), ("tiny", 200)] } else { &[("0", 0), ("10k", 10_000), ("1M", 1_000_000)] }
}
