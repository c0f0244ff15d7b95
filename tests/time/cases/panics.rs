//! Calls that must panic: their texts, and the places that they blame.

use super::time::{self, Duration, Instant};
use super::{Panicked, current_thread, panic_of, several_threads, standing, text};
use crate::support::{MS, block_on};

const NO_PERIOD: &str = "`period` must be non-zero.";
const NO_RUNTIME: &str = "time cannot be frozen from outside the Tokio runtime";
const PAUSED: &str = "time is already frozen";
const NOT_PAUSED: &str = "time is not frozen";
const SEVERAL_THREADS: &str = "`time::pause()` requires the `current_thread` Tokio runtime. \
                               This is the default Runtime used by `#[tokio::test].";
const TOO_FAR: &str = "overflow when adding duration to instant";

/// Fails unless the panic has the text `text` and blames the caller, which is in this file.
#[track_caller]
fn assert_blames_the_caller(panicked: &Panicked, text: &str) {
    assert_eq!((panicked.text.as_str(), panicked.file.as_str()), (text, file!()));
}

#[test]
fn a_period_of_zero_panics_outside_of_a_runtime_too() {
    let now = Instant::now();
    for panicked in [
        panic_of(|| time::interval(Duration::ZERO)),
        panic_of(|| time::interval_at(now, Duration::ZERO)),
        panic_of(|| current_thread().block_on(async { time::interval(Duration::ZERO) })),
        panic_of(|| current_thread().block_on(async { time::interval_at(now, Duration::ZERO) })),
    ] {
        assert_blames_the_caller(&panicked, NO_PERIOD);
    }
}

#[test]
fn a_second_pause_panics() {
    let twice = || {
        current_thread().block_on(async {
            time::pause();
            time::pause();
        });
    };
    assert_blames_the_caller(&panic_of(twice), PAUSED);
    assert_blames_the_caller(&panic_of(|| standing().block_on(async { time::pause() })), PAUSED);
}

#[test]
fn a_resume_without_a_pause_panics() {
    let once = || current_thread().block_on(async { time::resume() });
    assert_blames_the_caller(&panic_of(once), NOT_PAUSED);
    let twice = || {
        standing().block_on(async {
            time::resume();
            time::resume();
        });
    };
    assert_blames_the_caller(&panic_of(twice), NOT_PAUSED);
}

#[test]
fn an_advance_without_a_pause_panics() {
    for runtime in [current_thread(), several_threads(1)] {
        assert_eq!(panic_of(|| runtime.block_on(time::advance(MS))).text, NOT_PAUSED);
    }
    let resumed = || {
        standing().block_on(async {
            time::resume();
            time::advance(MS).await;
        });
    };
    assert_eq!(panic_of(resumed).text, NOT_PAUSED);
}

#[test]
fn an_advance_past_the_last_instant_panics() {
    let runtime = standing();
    assert_eq!(panic_of(|| runtime.block_on(time::advance(Duration::MAX))).text, TOO_FAR);
    // The clock has not moved and is still paused.
    let _entered = runtime.enter();
    let now = Instant::now();
    runtime.block_on(time::advance(MS));
    assert_eq!(now.elapsed(), MS);
}

#[test]
fn outside_of_a_runtime_the_clock_cannot_be_paused() {
    let pause = || {
        time::pause();
    };
    assert_blames_the_caller(&panic_of(pause), NO_RUNTIME);
    let resume = || {
        time::resume();
    };
    assert_blames_the_caller(&panic_of(resume), NO_RUNTIME);
    assert_eq!(panic_of(|| block_on(time::advance(MS))).text, NO_RUNTIME);
}

#[test]
fn a_runtime_with_several_threads_cannot_be_paused() {
    for workers in [1, 4] {
        let runtime = several_threads(workers);
        let paused = panic_of(|| runtime.block_on(async { time::pause() }));
        assert_blames_the_caller(&paused, SEVERAL_THREADS);
        let task = runtime.block_on(async { tokio::spawn(async { time::pause() }).await });
        assert_eq!(text(&*task.unwrap_err().into_panic()), SEVERAL_THREADS);
    }
}

/// A call on the clock panics in a runtime. The clock can still be used.
#[test]
fn a_panic_of_the_clock_does_no_damage() {
    let runtime = standing();
    for _ in 0..3 {
        assert_eq!(panic_of(|| runtime.block_on(async { time::pause() })).text, PAUSED);
    }
    let _entered = runtime.enter();
    let now = Instant::now();
    runtime.block_on(async { time::sleep(10 * MS).await });
    assert_eq!(now.elapsed(), 10 * MS);
}
