//! The timers of both dependents run on the engine, which counts them. One test at a time: the engine is the process's.

use futures_timer_dependent::{at_the_rate_of, with_retries};
use governor::Quota;
use pollster::block_on;
use std::future::ready;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tourbillon::future::global;

const MS: Duration = Duration::from_millis(1);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a future. Returns its output, the time that it took, and the number of timers that fired for it.
fn observed<F: Future>(future: F) -> (F::Output, Duration, u64) {
    let (before, begin) = (global().stats().owned.fired, Instant::now());
    let output = block_on(future);
    (output, begin.elapsed(), global().stats().owned.fired - before)
}

#[test]
fn the_pauses_between_retries_run_on_the_engine() {
    let _one = ONE_AT_A_TIME.lock();
    let mut calls = 0;
    let request = || {
        calls += 1;
        ready(if calls < 4 { Err(calls) } else { Ok(calls) })
    };
    let (outcome, time, fired) = observed(with_retries(request, 5, 20 * MS));
    assert_eq!((outcome, fired), (Ok(4), 3));
    assert!(time >= 60 * MS, "{time:?}");
}

#[test]
fn the_waits_for_permits_run_on_the_engine() {
    let _one = ONE_AT_A_TIME.lock();
    let quota = Quota::with_period(20 * MS).expect("a period");
    let mut seen = Vec::new();
    let ((), time, fired) = observed(at_the_rate_of(quota, 4, |number| seen.push(number)));
    assert_eq!(seen, [0, 1, 2, 3]);
    // On a loaded machine, a permit may be due before the wait for it begins.
    assert!(fired >= 1, "{fired} timers");
    assert!(time >= 60 * MS, "{time:?}");
}
