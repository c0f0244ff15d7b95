//! Wake-ups: none is lost, and none is needless.

use crate::support::{Gate, HOUR, Log, MS, PATIENCE, Rng, recording, wait_until};
use crate::{MICRO, stepped};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Cancel, Clock, Engine, Fired, ManualClock};

/// Guards against fault P5 of other engines: a wake-up was lost: an earlier timer was inserted between the computation
/// of the next deadline and the sleep.
#[test]
fn a_short_timer_wakes_a_shard_that_goes_to_sleep_on_a_long_one() {
    // The short timer comes at any moment between the computation of the next wake-up and the sleep.
    let (sender, fired) = mpsc::channel();
    let engine = Builder::new()
        .tick(MICRO)
        .shards(1)
        .unpinned()
        .inline()
        .start(move |timer| sender.send(timer.payload).unwrap())
        .unwrap();
    engine.handle().schedule(HOUR, u64::MAX).unwrap();
    let mut rng = Rng::new(5);
    for round in 0..3_000 {
        engine.handle().schedule(rng.nanos_below(3 * MICRO), round).unwrap();
        assert_eq!(fired.recv_timeout(PATIENCE), Ok(round));
        for _ in 0..rng.below(400) {
            std::hint::spin_loop();
        }
    }
}

/// Guards against fault P6 of other engines: each insertion of a first timer into a shard took a lock or woke a thread.
#[test]
fn timers_later_than_the_next_wake_up_wake_nobody() {
    let (engine, _clock) = stepped(|_| {});
    for n in 0..10_000 {
        engine.handle().schedule(HOUR + MS * n, u64::from(n)).unwrap();
    }
    assert!(engine.handle().stats().total.unparks <= 1, "{:?}", engine.handle().stats().total);
}

/// Guards against fault P7 of other engines: sharding was off without notice, by a minimum in place of a maximum.
#[test]
fn timers_are_spread_over_the_shards() {
    let clock = ManualClock::new();
    let engine = Builder::new()
        .clock(clock.clone())
        .shards(4)
        .unpinned()
        .inline()
        .start(|_: Fired<'_, u64>| {})
        .unwrap();
    for shard in 0..4 {
        engine.handle().use_shard(shard);
        for n in 0..10 {
            engine.handle().schedule(MS, n).unwrap();
        }
    }
    clock.advance(MS);
    wait_until("all have fired", || engine.handle().stats().fired == 40);
    assert!(engine.handle().stats().shards.iter().all(|shard| shard.fired == 10));
}

/// Guards against fault R3 of other engines: the sum of an instant and a duration overflowed and panicked.
#[test]
fn a_thread_can_sleep_on_the_last_deadline() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Engine::new(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    let id = engine.handle().schedule(Duration::MAX, 0).unwrap();
    engine.handle().schedule(MS, 1).unwrap();
    wait_until("the other one has fired", || log.len() == 1);
    assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(0));
}

/// Guards against fault R5 of other engines: an early deadline was hidden by a coarser or a finer level.
#[test]
fn the_next_expiry_is_never_after_the_first_deadline_of_any_level() {
    let (mut engine, log) = recording(Builder::new());
    let mut rng = Rng::new(5);
    let mut pending = BTreeSet::new();
    for payload in 0..5_000 {
        let delay = MS * u32::try_from(1_u64 << rng.below(20)).unwrap() + rng.nanos_below(300 * MS);
        engine.handle().schedule(delay, payload).unwrap();
        pending.insert((engine.handle().now() + delay, payload));
        let due = engine.next_expiry().unwrap();
        let &(first, _) = pending.first().unwrap();
        assert!(due < first + MS, "{due} for {first}");
        engine.advance(rng.nanos_below(20 * MS));
        for shot in log.take() {
            assert!(pending.remove(&(shot.deadline, shot.payload)));
        }
        assert!(pending.first().is_none_or(|&(first, _)| first + MS > engine.handle().now()));
    }
}

/// Guards against fault R6 of other engines: the next expiry was in the past, and the reactor spun.
#[test]
fn a_shard_with_nothing_due_does_not_turn() {
    let engine = Builder::new().tick(MICRO).shards(1).start(|_: Fired<'_, u64>| {}).unwrap();
    for n in 0..1_000 {
        engine.handle().schedule(HOUR, n).unwrap();
        engine.handle().schedule(10 * MICRO, n).unwrap();
    }
    wait_until("the short ones have fired", || engine.handle().stats().fired == 1_000);
    thread::sleep(20 * MS);
    let turns = engine.handle().stats().total.turns;
    thread::sleep(100 * MS);
    assert!(engine.handle().stats().total.turns - turns <= 1);
}

/// Guards against fault R10 of other engines: the machine was suspended, and relative waits did not count the time.
#[cfg(target_os = "linux")]
#[test]
fn the_boot_clock_is_looked_at_each_second_since_sleeps_stop_in_suspend() {
    use tourbillon::BootClock;

    let clock = BootClock::new();
    let now = clock.now();
    assert!(clock.sleep_for(now, now + HOUR).unwrap() <= Duration::from_secs(1));
    assert_eq!(clock.sleep_for(now, now + MS), Some(MS));
    let (sender, fired) = mpsc::channel();
    let engine = Builder::new()
        .clock(clock)
        .start(move |timer: Fired<'_, u64>| sender.send(timer.engine().now() >= timer.deadline).unwrap())
        .unwrap();
    engine.handle().schedule(3 * MS, 0).unwrap();
    assert_eq!(fired.recv_timeout(PATIENCE), Ok(true));
}

/// Guards against fault R25 of other engines: timers starved while the program's threads did not yield to the timer
/// driver.
#[test]
fn timers_fire_though_the_thread_that_armed_them_never_yields() {
    let fired = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&fired);
    let engine = Engine::new(move |_: Fired<'_, ()>| flag.store(true, Ordering::Relaxed)).unwrap();
    engine.handle().schedule(MS, ()).unwrap();
    let start = Instant::now();
    while !fired.load(Ordering::Relaxed) {
        assert!(start.elapsed() < PATIENCE);
        std::hint::spin_loop();
    }
}

/// Guards against fault R28 of other engines: a lock-free queue spun between threads of two priorities.
#[cfg(target_os = "linux")]
#[test]
fn waiting_for_room_sleeps_instead_of_spinning() {
    // A thread that spins or yields makes no voluntary context switch. A thread that sleeps makes one switch for each
    // sleep.
    let switches_of = |thread: rustix::thread::Pid| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", thread.as_raw_nonzero()));
        let status = status.unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    let gate = Gate::new();
    let at_gate = gate.clone();
    let engine = Builder::new()
        .shards(1)
        .lane_capacity(64)
        .inline()
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload == 0 {
                at_gate.pass();
            }
        })
        .unwrap();
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    gate.await_arrival();
    while engine.handle().try_schedule(HOUR, 1).is_ok() {}
    let waiting = rustix::thread::gettid();
    thread::scope(|scope| {
        scope.spawn(|| {
            let before = switches_of(waiting);
            // The gate opens in any case, so that a failing test ends.
            let start = Instant::now();
            while switches_of(waiting) < before + 50 && start.elapsed() < PATIENCE {
                thread::sleep(MS);
            }
            let sleeps = switches_of(waiting) - before;
            gate.open();
            assert!(sleeps >= 50, "{sleeps} sleeps");
        });
        engine.handle().schedule(HOUR, 2).unwrap();
    });
}
