//! A manual clock that several threads move. No step is lost, and each step wakes the shards whose timers are due by
//! then.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use support::{MS, wait_until, within_patience};
use tourbillon::{Builder, Clock, Engine, Fired, ManualClock, Timestamp};

const THREADS: u32 = 8;
const SHARDS: usize = 4;

/// Moves the clock from several threads at the same time. Each thread makes `each` steps of a tick.
fn step(clock: &ManualClock, each: u32) {
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..each).for_each(|_| clock.advance(MS)));
        }
    });
}

fn after_steps(each: u32) -> Timestamp {
    Timestamp::ZERO + MS * THREADS * each
}

/// Makes an engine on `clock`, and a counter of the fired timers.
fn counting(clock: &ManualClock) -> (Engine<()>, Arc<AtomicU64>) {
    let fired = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&fired);
    let handler = move |_: Fired<'_, ()>| _ = count.fetch_add(1, Ordering::SeqCst);
    let builder = Builder::new().clock(clock.clone()).shards(SHARDS).unpinned().inline();
    (builder.start(handler).unwrap(), fired)
}

/// Steps the clock to the deadline of a timer on each shard. The timers must fire without a further step.
fn steps_fire_what_is_due_at_the_last(each: u32) {
    let clock = ManualClock::new();
    let (engine, fired) = counting(&clock);
    for shard in 0..SHARDS {
        engine.handle().use_shard(shard);
        engine.handle().schedule_at(after_steps(each), ()).unwrap();
    }
    step(&clock, each);
    assert_eq!(clock.now(), after_steps(each));
    wait_until("the timer of each shard has fired", || fired.load(Ordering::SeqCst) == SHARDS as u64);
}

#[test]
fn steps_of_several_threads_add_up() {
    let clock = ManualClock::new();
    step(&clock, 1_000);
    assert_eq!(clock.now(), after_steps(1_000));
}

#[test]
fn each_subscriber_sees_the_last_step() {
    within_patience(|| {
        let clock = ManualClock::new();
        let seen: Vec<Arc<AtomicU64>> = (0..SHARDS).map(|_| Arc::new(AtomicU64::new(0))).collect();
        for latest in &seen {
            let (latest, clock) = (Arc::clone(latest), clock.clone());
            // This subscriber imitates a shard: it reads the clock when it is called.
            Clock::subscribe(
                &clock.clone(),
                Box::new(move || {
                    latest.fetch_max(clock.now().as_nanos(), Ordering::SeqCst);
                    true
                }),
            );
        }
        step(&clock, 1_000);
        let last = after_steps(1_000).as_nanos();
        assert!(seen.iter().all(|latest| latest.load(Ordering::SeqCst) == last), "{seen:?}");
    });
}

#[test]
fn a_shard_that_sleeps_wakes_at_the_last_of_many_steps() {
    within_patience(|| steps_fire_what_is_due_at_the_last(1_000));
}

#[test]
fn no_step_of_many_short_runs_is_slept_through() {
    within_patience(|| (0..200).for_each(|_| steps_fire_what_is_due_at_the_last(5)));
}

#[test]
fn an_engine_that_is_made_between_two_steps_wakes_too() {
    within_patience(|| {
        let clock = ManualClock::new();
        thread::scope(|scope| {
            let stepper = scope.spawn(|| (0..2_000).for_each(|_| clock.advance(MS)));
            for _ in 0..20 {
                let (engine, fired) = counting(&clock);
                engine.handle().schedule(Duration::ZERO, ()).unwrap();
                wait_until("it has fired", || {
                    if stepper.is_finished() {
                        clock.advance(MS);
                    }
                    fired.load(Ordering::SeqCst) == 1
                });
            }
        });
    });
}
