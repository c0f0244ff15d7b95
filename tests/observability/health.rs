//! `Health`, which shows the present state of an engine in a word.

use crate::stalls::inline_engine;
use crate::support::{Gate, HOUR, MS, on_a_thread_that_stays, wait_until};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Condition, Fired, Handle, ManualClock};

const SECOND: Duration = Duration::from_secs(1);

fn await_condition<T: Send>(engine: &Handle<T>, condition: Condition) {
    wait_until(condition.as_str(), || engine.health().condition == condition);
}

/// Waits until the engine's health is `health`. The clock stands still, so the shards soon have nothing to do.
fn await_health<T: Send>(engine: &Handle<T>, health: &str) {
    wait_until(health, || engine.health().to_string() == health);
}

#[test]
fn a_shard_that_hangs_is_late_until_it_turns_again() {
    let (engine, clock, gate) = inline_engine(Builder::new());
    assert!(engine.handle().health().is_healthy());
    engine.handle().use_shard(1);
    engine.handle().schedule(MS, ()).unwrap();
    clock.advance(MS);
    gate.await_arrival();
    clock.advance(100 * MS);
    await_health(engine.handle(), "healthy: 0 of 16777216 slots are in use");
    clock.advance(MS / 2);
    await_health(
        engine.handle(),
        "late: shard 1 is 100.5ms behind, 100 ticks: a handler holds it up, or its core is busy",
    );
    clock.advance(HOUR);
    assert_eq!(engine.handle().health().condition, Condition::Late);
    gate.open();
    await_condition(engine.handle(), Condition::Healthy);
    // The stall is over, and is counted in the statistics.
    assert_eq!(engine.handle().stats().shards[1].stalls, 1);
}

/// A shard with the default clock stalls, and is late in real time.
#[test]
fn a_shard_that_hangs_is_late_in_real_time() {
    let gate = Gate::new();
    let hold = gate.clone();
    let builder = Builder::new().shards(2).unpinned().inline().stall_after(50 * MS);
    let engine = builder.start(move |_| hold.pass()).unwrap();
    engine.handle().use_shard(0);
    engine.handle().schedule(MS, ()).unwrap();
    gate.await_arrival();
    // The test does not wait for any shard: on a busy machine the other shard may also be late.
    wait_until("shard 0 is late", || engine.handle().health().why.starts_with("shard 0 is"));
    gate.open();
    await_condition(engine.handle(), Condition::Healthy);
}

#[test]
fn a_worker_that_hangs_leaves_the_workers_behind() {
    let (clock, gate) = (ManualClock::new(), Gate::new());
    let hold = gate.clone();
    let builder = Builder::new().shards(1).unpinned().workers(1).clock(clock.clone());
    let engine = builder.start(move |_| hold.pass()).unwrap();
    let begin = engine.handle().now();
    // The second timer is in the same chunk as the first. The third timer has a chunk of its own.
    engine.handle().schedule_batch_at([MS, MS, 11 * MS].map(|delay| (begin + delay, ()))).unwrap();
    clock.advance(MS);
    gate.await_arrival();
    clock.advance(10 * MS);
    wait_until("two wait", || engine.handle().stats().total.queued_timers == 2);
    let stats = engine.handle().stats();
    assert_eq!((stats.total.queue_age, stats.total.queued_chunks), (10 * MS, 1));
    await_health(engine.handle(), "healthy: 2 of 16777216 slots are in use");
    clock.advance(91 * MS);
    await_health(
        engine.handle(),
        "workers-behind: due timers that wait for the only worker: 2, the first of shard 0 for 101.0ms",
    );
    gate.open();
    await_condition(engine.handle(), Condition::Healthy);
    let stats = engine.handle().stats();
    assert_eq!((stats.fired, stats.total.queued_timers, stats.total.queue_age), (3, 0, Duration::ZERO));
}

/// Timers wait for a worker, and are then cancelled, postponed, disarmed or dropped. When a worker reaches them, none
/// of them waits any more.
#[test]
fn whatever_becomes_of_what_waits_the_queue_ends_empty() {
    let (clock, gate) = (ManualClock::new(), Gate::new());
    let hold = gate.clone();
    let builder = Builder::new().shards(1).unpinned().workers(1).clock(clock.clone());
    let engine = builder.start(move |_| hold.pass()).unwrap();
    let due = engine.handle().now() + MS;
    let [postponed, disarmed, dropped] = [(); 3].map(|()| engine.handle().timer(()).unwrap());
    engine.handle().schedule_at(due, ()).unwrap();
    clock.advance(MS);
    gate.await_arrival();
    let cancelled = engine.handle().schedule_at(due, ()).unwrap();
    for timer in [&postponed, &disarmed, &dropped] {
        timer.arm_at(due).unwrap();
    }
    clock.advance(MS);
    wait_until("they wait", || engine.handle().stats().total.queued_timers == 4);
    assert!(engine.handle().cancel(cancelled).payload().is_some());
    postponed.arm(HOUR).unwrap();
    disarmed.disarm();
    drop(dropped);
    gate.open();
    wait_until("none waits", || engine.handle().stats().total.queued_timers == 0);
    assert_eq!((engine.handle().stats().total.fired, postponed.is_armed()), (1, true));
    clock.advance(HOUR);
    wait_until("it fires", || {
        engine.handle().stats().owned.fired == 1 && engine.handle().stats().total.queued_timers == 0
    });
}

#[test]
fn nine_tenths_of_the_capacity_is_well_and_more_is_full() {
    let mut engine = Builder::new().capacity(10).driven(|_: Fired<'_, u32>| {}).unwrap();
    let owned = engine.handle().timer(0).unwrap();
    for n in 1..9 {
        engine.handle().schedule(SECOND, n).unwrap();
    }
    assert_eq!(engine.handle().health().to_string(), "healthy: 9 of 10 slots are in use");
    engine.handle().schedule(SECOND, 9).unwrap();
    assert_eq!(engine.handle().health().to_string(), "full: 10 of 10 slots are in use");
    engine.advance(SECOND);
    assert_eq!(engine.handle().health().to_string(), "healthy: 1 of 10 slots are in use");
    drop(owned);
}

/// A thread keeps 1/32 of the capacity as a reserve: slots that it has vacated. Other threads cannot use them. A
/// refusal for this reason makes the health `full` for a second.
#[test]
fn a_refusal_for_want_of_a_slot_is_full_for_a_second() {
    let mut engine = Builder::new().capacity(640).driven(|_: Fired<'_, u32>| {}).unwrap();
    let handle = engine.handle();
    let keep_slots = || {
        let ids: Vec<_> = (0..20).map_while(|n| handle.schedule(HOUR, n).ok()).collect();
        ids.iter().skip(1).for_each(|&id| drop(handle.cancel(id)));
    };
    thread::scope(|scope| {
        let mut staying = Vec::new();
        while handle.stats().engine_full == 0 {
            assert!(handle.health().is_healthy(), "{}", handle.health());
            staying.push(on_a_thread_that_stays(scope, keep_slots));
        }
        assert!(handle.len() < 64, "{}", handle.len());
    });
    assert_eq!(
        engine.handle().health().to_string(),
        "full: no slot was left within the last 1s, 1 times in all"
    );
    engine.advance(SECOND);
    assert_eq!(engine.handle().health().condition, Condition::Full);
    engine.advance(MS);
    assert!(engine.handle().health().is_healthy(), "{}", engine.handle().health());
}

#[test]
fn a_full_lane_is_full_for_a_second() {
    let mut engine = Builder::new().lane_capacity(64).driven(|_: Fired<'_, u32>| {}).unwrap();
    let refused = (0..70).filter(|&n| engine.handle().try_schedule(HOUR, n).is_err()).count();
    assert_eq!(refused, 6);
    assert_eq!(
        engine.handle().health().to_string(),
        "full: a lane was full within the last 1s, 6 times in all"
    );
    engine.advance(SECOND + MS);
    assert!(engine.handle().health().is_healthy(), "{}", engine.handle().health());
}

/// `health` shows one cause, the first of these: a late shard, workers that are behind, a full engine. After a shutdown
/// it shows only the shutdown.
#[test]
fn the_first_cause_is_told() {
    let (engine, clock, gate) = inline_engine(Builder::new().capacity(2));
    let due = engine.handle().now() + MS;
    engine.handle().use_shard(0);
    engine.handle().schedule_batch_at([(due, ()), (due, ())]).unwrap();
    assert_eq!(engine.handle().health().condition, Condition::Full);
    clock.advance(MS);
    gate.await_arrival();
    clock.advance(SECOND);
    let stats = engine.handle().stats();
    assert_eq!((stats.shards[0].queued_timers, stats.shards[0].queue_age), (1, SECOND));
    assert_eq!(engine.handle().health().condition, Condition::Late);
    gate.open();
    await_condition(engine.handle(), Condition::Healthy);
    assert!(engine.handle().shutdown().is_empty());
    assert_eq!(engine.handle().health().to_string(), "shut-down: the engine was shut down");
}

/// An engine is shut down while due timers wait. Afterwards no timer waits, and no age grows.
#[test]
fn after_a_shutdown_nothing_waits() {
    let (clock, gate) = (ManualClock::new(), Gate::new());
    let hold = gate.clone();
    let builder = Builder::new().shards(1).unpinned().workers(1).clock(clock.clone());
    let engine = builder.start(move |_| hold.pass()).unwrap();
    engine.handle().schedule_batch([(MS, ()), (MS, ())]).unwrap();
    clock.advance(MS);
    gate.await_arrival();
    let handle = Handle::clone(engine.handle());
    let ending = thread::spawn(move || handle.shutdown().len());
    wait_until("it is shut down", || engine.handle().is_shut_down());
    gate.open();
    assert_eq!(ending.join().unwrap(), 1);
    clock.advance(HOUR);
    let total = engine.handle().stats().total;
    assert_eq!((total.queued_timers, total.queue_age, total.behind), (0, Duration::ZERO, Duration::ZERO));
    assert_eq!(engine.handle().health().condition, Condition::ShutDown);
}

#[test]
fn each_condition_is_one_word() {
    let words =
        [Condition::Healthy, Condition::Full, Condition::WorkersBehind, Condition::Late, Condition::ShutDown];
    let words = words.map(|condition| format!("{condition:>15}"));
    assert_eq!(
        words.each_ref().map(|word| word.trim()),
        ["healthy", "full", "workers-behind", "late", "shut-down"]
    );
    assert!(words.iter().all(|word| word.len() == 15));
}
