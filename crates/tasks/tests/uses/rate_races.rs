//! Races for permits, on real threads. The bound holds no matter which threads take the permits, and closures never run
//! early.

use crate::support::{Log, Rng, wait_until, within_patience};
use crate::threads;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Refusal, Timestamp};
use tourbillon_tasks::Tasks;
use tourbillon_tasks::uses::{Acquired, Rate};

const INTERVAL: Duration = Duration::from_micros(50);
const BURST: u32 = 8;
const EACH: u32 = 2_000;

/// Asserts that permits granted at `moments` keep the bound of the rate.
fn assert_bounded(moments: &[Timestamp]) {
    let burst = usize::try_from(BURST).unwrap();
    for (first, last) in moments.iter().zip(moments.iter().skip(burst)) {
        assert!(*last - *first >= INTERVAL, "{burst} permits and one more from {first} to {last}");
    }
}

#[test]
fn threads_that_acquire_get_no_more_permits_than_the_time_allows() {
    within_patience(|| {
        let tasks = threads();
        let limiter = tasks.handle().rate_limiter(Rate::every(INTERVAL).burst(BURST)).unwrap();
        let start = Instant::now();
        let acquire = || {
            let mut permits = 0;
            while permits < EACH {
                match limiter.acquire() {
                    Acquired::Now => permits += 1,
                    Acquired::NotBefore(_) => thread::yield_now(),
                }
            }
        };
        let acquire = &acquire;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(acquire);
            }
        });
        let least = INTERVAL * (4 * EACH - BURST);
        assert!(start.elapsed() >= least, "{:?}, and {least:?} would be within the bound", start.elapsed());
    });
}

#[test]
fn closures_of_many_threads_wait_for_different_moments_and_run_once_and_never_early() {
    within_patience(|| {
        let tasks = threads();
        let limiter = tasks.handle().rate_limiter(Rate::every(INTERVAL).burst(BURST)).unwrap();
        let (moments, runs) = (Log::new(), Log::new());
        let wait = |seed: u32| {
            let mut rng = Rng::new(seed.into());
            for n in 0..EACH {
                if rng.chance(50) {
                    moments.push((limiter.reserve(), None));
                    continue;
                }
                let (sink, clock) = (runs.clone(), Tasks::clone(tasks.handle()));
                let id = limiter.run_when_due(move || sink.push(((seed, n), clock.now()))).unwrap();
                // The deadline is `None` if the closure has begun.
                if let Some(moment) = tasks.handle().deadline(id) {
                    moments.push((moment, Some((seed, n))));
                }
            }
        };
        let wait = &wait;
        thread::scope(|scope| {
            for seed in 1..=4 {
                scope.spawn(move || wait(seed));
            }
        });
        let accepted = tasks.handle().stats().scheduled;
        wait_until("all have run", || runs.len() as u64 >= accepted);
        let (moments, seen) = (moments.take_sorted(), runs.take_sorted());
        assert_bounded(&moments.iter().map(|&(moment, _)| moment).collect::<Vec<_>>());
        let runs: BTreeMap<_, _> = seen.iter().copied().collect();
        assert_eq!((seen.len() as u64, runs.len()), (accepted, seen.len()), "each once");
        let known: Vec<_> =
            moments.iter().filter_map(|&(moment, closure)| Some((moment, runs[&closure?]))).collect();
        assert!(!known.is_empty());
        for (moment, ran) in known {
            assert!(ran >= moment, "ran at {ran}, for {moment}");
        }
    });
}

#[test]
fn a_shutdown_ends_waits_one_way_or_the_other() {
    within_patience(|| {
        for seed in 0..20 {
            let tasks = threads();
            let limiter = tasks.handle().rate_limiter(Rate::every(INTERVAL).burst(BURST)).unwrap();
            let runs = Log::new();
            let (accepted, returned) = thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let mut accepted = 0;
                    for _ in 0..EACH {
                        let sink = runs.clone();
                        match limiter.run_when_due(move || sink.push(())) {
                            Ok(_) => accepted += 1,
                            Err(error) => assert_eq!(error.kind, Refusal::ShutDown),
                        }
                    }
                    accepted
                });
                thread::sleep(Rng::new(seed).nanos_below(Duration::from_millis(2)));
                let returned = tasks.handle().shutdown().len();
                (waits.join().unwrap(), returned)
            });
            assert_eq!(runs.len() + returned, accepted, "seed {seed}");
        }
    });
}
