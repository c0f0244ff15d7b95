//! Clocks like those of suspended, throttled or broken machines. They jump forward, step back, stand still, or run
//! slow. With such a clock no timer is early or lost, and no shard turns without end.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use support::{HOUR, Log, MS, Rng, assert_settled, wait_until};
use tourbillon::{Builder, Clock, Engine, Fired, SystemClock, Timestamp};

/// The system's clock, with its time changed by a function.
struct Bent<F>(F);

impl<F: Fn(Timestamp) -> Timestamp + Send + Sync> Clock for Bent<F> {
    fn now(&self) -> Timestamp {
        (self.0)(SystemClock::new().now())
    }
}

fn bent(f: impl Fn(Timestamp) -> Timestamp + Send + Sync + 'static) -> Builder {
    Builder::new().clock(Bent(f)).shards(2).workers(1).unpinned()
}

/// Returns a function that sets a time forward or back by a number of nanoseconds, which it reads from `nanos`.
fn set_by(nanos: &Arc<AtomicU64>, back: bool) -> impl Fn(Timestamp) -> Timestamp + Send + Sync + 'static {
    let nanos = Arc::clone(nanos);
    move |true_time| {
        let by = Duration::from_nanos(nanos.load(Ordering::SeqCst));
        if back { true_time - by } else { true_time + by }
    }
}

/// Makes an engine that logs the payloads of its firings. Its handler checks that no timer is early by the engine's
/// clock.
fn recording(builder: Builder) -> (Engine<u64>, Log<u64>) {
    let log = Log::new();
    let sink = log.clone();
    let engine = builder.start(move |timer: Fired<'_, u64>| {
        assert!(timer.engine().has_come(timer.deadline));
        sink.push(timer.payload);
    });
    (engine.unwrap(), log)
}

fn assert_nothing_panicked(engine: &Engine<u64>) {
    assert_eq!(engine.handle().stats().total.panics, 0, "a handler found itself early");
}

/// Waits for `time`. Returns the number of turns that all shards made during the wait.
fn turns_in(time: Duration, engine: &Engine<u64>) -> u64 {
    let before = engine.handle().stats().total.turns;
    thread::sleep(time);
    engine.handle().stats().total.turns - before
}

#[test]
fn after_a_jump_of_an_hour_what_is_due_fires_once_and_nothing_else() {
    const DUE: u64 = 1_000;
    const LATER: u64 = 100;
    let ahead = Arc::new(AtomicU64::new(0));
    let (engine, log) = recording(bent(set_by(&ahead, false)));
    let mut rng = Rng::new(5);
    let owned: Vec<_> = (DUE..DUE + LATER).map(|n| engine.handle().timer(n).unwrap()).collect();
    for n in 0..DUE {
        engine.handle().schedule(MS * 40 + rng.nanos_below(HOUR - MS * 40), n).unwrap();
    }
    for timer in &owned {
        timer.arm(MS * 40 + rng.nanos_below(HOUR - MS * 40)).unwrap();
    }
    for n in 0..LATER {
        engine.handle().schedule(2 * HOUR, u64::MAX - n).unwrap();
    }
    ahead.store(u64::try_from(HOUR.as_nanos()).unwrap(), Ordering::SeqCst);
    wait_until("what is due has fired", || log.len() as u64 >= DUE + LATER);
    // A timer that fired twice or too soon is in the log by now.
    engine.handle().schedule(MS, u64::MAX / 2).unwrap();
    wait_until("another has fired", || log.len() as u64 > DUE + LATER);
    let fired: Vec<u64> = (0..DUE + LATER).chain([u64::MAX / 2]).collect();
    assert_eq!(log.take_sorted(), fired);
    assert_nothing_panicked(&engine);
    assert_eq!(engine.handle().shutdown().len() as u64, LATER);
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_clock_that_stands_still_fires_nothing_and_its_shards_sleep() {
    let stands = Arc::new(AtomicU64::new(0));
    let at = Arc::clone(&stands);
    let clock = move |true_time| match at.load(Ordering::SeqCst) {
        0 => true_time,
        nanos => Timestamp::from_nanos(nanos),
    };
    let (engine, log) = recording(bent(clock));
    // The loop ends at the start of a tick.
    let now = engine.handle().now().as_nanos();
    stands.store(now - now % 1_000_000, Ordering::SeqCst);
    for n in 1..=50 {
        engine.handle().schedule(5 * MS, n).unwrap();
    }
    // If each shard sleeps for 5 ms repeatedly, that is 80 turns.
    let turns = turns_in(200 * MS, &engine);
    assert!(turns < 400, "{turns} turns while the clock stood still");
    assert_eq!(log.len(), 0);
    stands.store(0, Ordering::SeqCst);
    wait_until("all have fired", || log.len() == 50);
    assert_nothing_panicked(&engine);
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_clock_that_steps_back_is_waited_for_asleep() {
    let behind = Arc::new(AtomicU64::new(0));
    let (engine, log) = recording(bent(set_by(&behind, true)));
    let start = Instant::now();
    for n in 0..100 {
        engine.handle().schedule(100 * MS, n).unwrap();
    }
    behind.store(150_000_000, Ordering::SeqCst);
    let turns = turns_in(140 * MS, &engine);
    assert!(turns < 200, "{turns} turns while the clock caught up");
    engine.handle().schedule(Duration::ZERO, 100).unwrap();
    wait_until("all have fired", || log.len() == 101);
    assert!(start.elapsed() >= 250 * MS);
    assert_nothing_panicked(&engine);
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_clock_of_half_the_speed_fires_nothing_early_and_each_timer_once() {
    let begin = SystemClock::new().now();
    let (engine, log) = recording(bent(move |true_time| begin + (true_time - begin) / 2));
    let mut rng = Rng::new(6);
    let delays: Vec<Duration> = (0..2_000).map(|_| rng.nanos_below(100 * MS)).collect();
    let start = Instant::now();
    for (n, &delay) in (0..).zip(&delays) {
        engine.handle().schedule(delay, n).unwrap();
    }
    let turns = turns_in(250 * MS, &engine);
    // Each sleep ends half-way. So each tick with timers takes some ten sleeps of each shard.
    assert!(turns < 4_000, "{turns} turns at half the speed");
    wait_until("all have fired", || log.len() == 2_000);
    assert!(start.elapsed() >= 2 * *delays.iter().max().unwrap());
    assert_eq!(log.take_sorted(), (0..2_000).collect::<Vec<u64>>());
    assert_nothing_panicked(&engine);
    assert_settled(&engine.handle().stats());
}

/// The clock steps back inside a handler that also starts an engine. The shard was about to sleep for a short time. The
/// shard checks for new engines only before a long sleep, so its short sleep must not become long.
#[test]
fn a_clock_that_steps_back_in_a_turn_lets_no_shard_oversleep() {
    let back = Arc::new(AtomicU64::new(0));
    let clock = Bent(set_by(&back, true));
    let shards = Builder::new().clock(clock).shards(1).unpinned().inline().start_shards().unwrap();
    let (joined, set) = (Arc::new(Mutex::new(None)), shards.clone());
    let (join, log) = (Arc::clone(&joined), Log::new());
    let sink = log.clone();
    let engine = shards.engine().inline().start(move |timer: Fired<'_, u64>| {
        if timer.payload == 1 {
            back.store(u64::try_from(HOUR.as_nanos()).unwrap(), Ordering::SeqCst);
            let sink = sink.clone();
            let other = set.engine().inline().start(move |timer: Fired<'_, u64>| sink.push(timer.payload));
            *join.lock().unwrap() = Some(other.unwrap());
        }
    });
    let engine = engine.unwrap();
    // A tick has two timers, one after the other. The sleep after the first timer lasts until the next tick.
    let now = engine.handle().now();
    let next = |ticks: u32| now + 5 * MS + ticks * MS;
    engine.handle().schedule_at(next(0), 1).unwrap();
    engine.handle().schedule_at(next(1), 2).unwrap();
    wait_until("it has joined", || joined.lock().unwrap().is_some());
    let begin = Instant::now();
    joined.lock().unwrap().as_ref().unwrap().handle().schedule(Duration::ZERO, 3).unwrap();
    wait_until("it has fired", || log.len() == 1);
    assert!(begin.elapsed() < Duration::from_secs(10));
}
