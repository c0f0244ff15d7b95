//! Stalls, as the statistics count them. The test moves the clock by hand, so all figures are exact.

use crate::support::{Gate, MS, wait_until};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tourbillon::{Builder, Engine, Fired, ManualClock};

/// Makes an engine of two shards on a manual clock. Handlers run inline, and wait at a gate.
pub(crate) fn inline_engine(builder: Builder) -> (Engine<()>, ManualClock, Gate) {
    let (clock, gate) = (ManualClock::new(), Gate::new());
    let hold = gate.clone();
    let builder = builder.shards(2).unpinned().inline().clock(clock.clone());
    (builder.start(move |_| hold.pass()).unwrap(), clock, gate)
}

#[test]
fn a_handler_that_hangs_inline_is_one_stall_of_its_shard() {
    let (engine, clock, gate) = inline_engine(Builder::new());
    engine.handle().use_shard(1);
    engine.handle().schedule(MS, ()).unwrap();
    clock.advance(MS);
    gate.await_arrival();
    assert_eq!(engine.handle().stats().shards[1].behind, Duration::ZERO);
    clock.advance(250 * MS);
    let stats = engine.handle().stats();
    assert_eq!((stats.shards[1].behind, stats.total.behind >= 250 * MS), (250 * MS, true));
    // The shard counts the stall when it turns again.
    assert_eq!(stats.shards[1].stalls, 0);
    gate.open();
    wait_until("the shards have caught up", || engine.handle().stats().total.behind.is_zero());
    let stats = engine.handle().stats();
    assert_eq!((stats.shards[1].stalls, stats.shards[1].worst_stall), (1, 250 * MS));
    assert_eq!(stats.total.stalls, stats.shards.iter().map(|shard| shard.stalls).sum::<u64>());
    assert_eq!(Some(stats.total.worst_stall), stats.shards.iter().map(|shard| shard.worst_stall).max());
}

#[test]
fn a_sleep_beyond_its_end_is_a_stall() {
    let clock = ManualClock::new();
    let builder = Builder::new().shards(1).unpinned().inline().stall_after(20 * MS).clock(clock.clone());
    let engine = builder.start(|_: Fired<'_, ()>| {}).unwrap();
    for (late, stalls) in [(0, 0), (10, 0), (500, 1), (10, 1), (400, 2)] {
        let fired = engine.handle().stats().fired;
        engine.handle().schedule(10 * MS, ()).unwrap();
        wait_until("it is in the wheel", || engine.handle().stats().total.tickets == 1);
        // The shard sleeps, or is about to sleep. The turn under way is another 10 ms late.
        clock.advance((10 + late) * MS);
        wait_until("it has fired", || {
            engine.handle().stats().fired > fired && engine.handle().stats().total.behind.is_zero()
        });
        assert_eq!(engine.handle().stats().total.stalls, stalls, "{late} ms late");
    }
    let worst = engine.handle().stats().total.worst_stall;
    assert!((500 * MS..=510 * MS).contains(&worst), "{worst:?}");
}

/// A turn may use up its budget before it reaches a due timer. The timer is then overdue from its own tick on, not from
/// the turn (a pass of the shard's loop) that fires it.
#[test]
fn a_backlog_is_overdue_since_its_tick() {
    let (clock, gates, calls) = (ManualClock::new(), [Gate::new(), Gate::new()], AtomicUsize::new(0));
    let [first, second] = gates.clone();
    let builder = Builder::new().shards(1).unpinned().inline().clock(clock.clone());
    let engine = builder.start(move |_: Fired<'_, ()>| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => first.pass(),
        30_000 => second.pass(),
        _ => {}
    });
    let engine = engine.unwrap();
    let due = engine.handle().now() + 2 * MS;
    engine.handle().schedule_batch_at((0..40_000).map(|_| (due, ()))).unwrap();
    clock.advance(2 * MS);
    gates[0].await_arrival();
    clock.advance(50 * MS);
    gates[0].open();
    gates[1].await_arrival();
    assert_eq!(engine.handle().stats().total.behind, 50 * MS);
    gates[1].open();
    wait_until("all have fired", || engine.handle().stats().fired == 40_000);
    wait_until("the shard has caught up", || engine.handle().stats().total.behind.is_zero());
}

#[test]
fn the_threshold_is_an_option_with_bounds_and_a_default() {
    let threshold =
        |builder: Builder| builder.driven(|_: Fired<'_, ()>| {}).map(|e| e.handle().stats().stall_after);
    assert_eq!(threshold(Builder::new()).unwrap(), 100 * MS);
    assert_eq!(threshold(Builder::new().tick(MS / 100)).unwrap(), 100 * MS);
    assert_eq!(threshold(Builder::new().tick(50 * MS)).unwrap(), 500 * MS);
    assert_eq!(threshold(Builder::new().stall_after(7 * MS)).unwrap(), 7 * MS);
    let error = threshold(Builder::new().stall_after(Duration::ZERO)).unwrap_err();
    assert_eq!(error.to_string(), "stall_after is 0ns, but must be between 1µs and 86400s");
}
