//! Threads that repeatedly schedule a timer and cancel it, while others are pending.

use super::{Caller, Chance, Payload, Service, payload};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// The length of a run: a time, or a number of schedule + cancel pairs for each thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    Pairs(u64),
    Time(Duration),
}

/// The number of schedule + cancel pairs between two readings of the clock.
const BURST: u64 = 256;
/// The number of schedule + cancel pairs that each thread makes before the measurement.
const WARM_UP: u64 = 1_024;

/// The measurements from all threads of a run of schedule + cancel pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairRun {
    pub(crate) pairs: u64,
    /// The sum of all threads' times, divided by the number of all pairs. A thread's time includes its waits.
    pub(crate) nanos_per_pair: f64,
}

/// A handler that counts how many timers have fired.
#[derive(Clone, Debug, Default)]
pub(crate) struct FireCount(Arc<AtomicU64>);

impl FireCount {
    pub(crate) fn on_fire(&self) -> impl Fn(Payload) + Send + Sync + 'static {
        let count = Arc::clone(&self.0);
        move |payload| {
            assert_eq!(payload[0], !payload[1]);
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until each of `scheduled` timers has fired or is pending. Fails if a timer is lost.
    pub(crate) fn check(&self, service: &impl Service, scheduled: usize) {
        let start = Instant::now();
        loop {
            let fired = usize::try_from(self.0.load(Ordering::Relaxed)).expect("a count");
            let accounted = service.pending() + fired;
            if accounted == scheduled {
                return;
            }
            // A timer that is firing right now is in neither count, or in both counts.
            assert!(start.elapsed() < Duration::from_secs(5), "{accounted} timers of {scheduled}");
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Schedules `count` timers from the calling thread and lets the service settle.
pub(crate) fn fill<S: Service>(service: &S, count: usize, delays: &Range<u64>, settle: Duration) {
    let mut caller = service.caller();
    let mut chance = Chance::new(count as u64);
    for n in 0..count as u64 {
        caller.schedule(Duration::from_nanos(chance.within(delays)), payload(n));
    }
    thread::sleep(settle);
}

/// Runs schedule + cancel pairs from `threads` threads at the same time.
pub(crate) fn run_pairs<S: Service>(
    service: &S,
    threads: usize,
    delays: &Range<u64>,
    length: Length,
) -> PairRun {
    let barrier = Barrier::new(threads);
    let runs: Vec<(u64, Duration)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads as u64)
            .map(|seed| {
                let barrier = &barrier;
                scope.spawn(move || run_thread(service, seed, delays, length, barrier))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it checks its pairs")).collect()
    });
    let pairs = runs.iter().map(|run| run.0).sum();
    let time: Duration = runs.iter().map(|run| run.1).sum();
    PairRun { pairs, nanos_per_pair: time.as_secs_f64() * 1e9 / pairs as f64 }
}

fn run_thread<S: Service>(
    service: &S,
    seed: u64,
    delays: &Range<u64>,
    length: Length,
    barrier: &Barrier,
) -> (u64, Duration) {
    let mut caller = service.caller();
    let mut chance = Chance::new(seed);
    let delays: Vec<Duration> = (0..1_024).map(|_| Duration::from_nanos(chance.within(delays))).collect();
    let mut burst = |from: u64, count: u64| {
        let at = usize::try_from(from).unwrap_or(0);
        for n in 0..count {
            let payload = payload(from + n);
            let delay = delays[at.wrapping_add(usize::try_from(n).unwrap_or(0)) % delays.len()];
            let id = caller.schedule(delay, payload);
            assert_eq!(caller.cancel(id), Some(payload));
        }
    };
    burst(0, WARM_UP);
    barrier.wait();
    let start = Instant::now();
    let mut done = 0;
    let time = loop {
        let count = match length {
            Length::Pairs(pairs) => BURST.min(pairs - done),
            Length::Time(_) => BURST,
        };
        burst(done, count);
        done += count;
        let elapsed = start.elapsed();
        let is_over = match length {
            Length::Pairs(pairs) => done == pairs,
            Length::Time(time) => elapsed >= time,
        };
        if is_over {
            break elapsed;
        }
    };
    (done, time)
}
