//! The engine's public interface, on a manual clock if time matters.

mod support;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use support::{MS, wait_until};
use tourbillon::{Builder, Cancel, Engine, Handle, ManualClock};

#[test]
fn a_timer_fires_after_its_delay_and_not_before() {
    let (sender, fired) = mpsc::channel();
    let engine = Engine::new(move |timer| {
        sender.send((timer.payload, timer.deadline, timer.engine().now())).unwrap();
    })
    .unwrap();
    engine.handle().schedule(Duration::from_millis(20), 1).unwrap();
    engine.handle().schedule(Duration::from_millis(10), 2).unwrap();
    engine.handle().schedule(Duration::ZERO, 3).unwrap();
    let mut order = Vec::new();
    for _ in 0..3 {
        let (payload, deadline, now) = fired.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(now >= deadline);
        order.push(payload);
    }
    // The order is not defined, since two workers run the timers.
    order.sort_unstable();
    assert_eq!(order, [1, 2, 3]);
    assert_eq!(engine.handle().stats().fired, 3);
}

#[test]
fn a_cancelled_timer_gives_its_payload_back_and_does_not_fire() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&log);
    let mut engine = Builder::new().driven(move |timer| sink.lock().unwrap().push(timer.payload)).unwrap();
    let one = engine.handle().schedule(Duration::from_secs(1), "one").unwrap();
    let two = engine.handle().schedule(Duration::from_secs(2), "two").unwrap();
    assert_eq!(engine.handle().len(), 2);
    assert_eq!(engine.handle().remaining(two), Some(Duration::from_secs(2)));
    assert_eq!(engine.handle().cancel(one), Cancel::Cancelled("one"));
    assert_eq!(engine.handle().cancel(one), Cancel::Gone);
    engine.advance(Duration::from_secs(3));
    assert_eq!(*log.lock().unwrap(), ["two"]);
    assert_eq!(engine.handle().cancel(two), Cancel::Gone);
    assert!(engine.handle().is_empty());
}

/// A ticket (an entry in the wheel) names its slot's generation by 16 bits. A stale ticket that outlives 65,536
/// generations looks like the ticket of the slot's present timer. Then the present timer's deadline decides.
#[test]
fn a_stale_ticket_that_matches_by_chance_fires_nothing_early() {
    const MS: Duration = Duration::from_millis(1);
    let mut engine = Builder::new().driven(|timer| assert!(timer.payload == "last")).unwrap();
    let stale = engine.handle().schedule(10 * MS, "first").unwrap();
    engine.turn();
    assert_eq!(engine.handle().cancel(stale), Cancel::Cancelled("first"));
    for reuse in 1..1 << 16 {
        let id = engine.handle().schedule(3_600_000 * MS, "one of many").unwrap();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled("one of many"));
        if reuse % 10_000 == 0 {
            engine.turn();
        }
    }
    let last = engine.handle().schedule(3_600_000 * MS, "last").unwrap();
    let (stale, last) = (stale.to_bits(), last.to_bits());
    assert_eq!((stale & 0xff_ffff, (stale >> 24) + (1 << 16)), (last & 0xff_ffff, last >> 24));

    engine.advance(1_000 * MS);
    assert_eq!((engine.handle().stats().fired, engine.handle().len()), (0, 1));
    engine.advance(3_600_000 * MS);
    assert_eq!((engine.handle().stats().fired, engine.handle().len()), (1, 0));
    assert_eq!(engine.handle().stats().total.panics, 0);
}

/// Requests come one after the other. Each request's timer has ended before its shard sees it. The shard sleeps until
/// the first timer would have been due, and later timers do not wake it.
#[test]
fn a_timer_that_ended_unseen_spares_later_ones_the_wake() {
    let second = Duration::from_secs(1);
    let (entered, has_entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let handler = move |_: tourbillon::Fired<'_, u32>| {
        entered.send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
    };
    let engine = Builder::new().shards(1).inline().start(handler).unwrap();
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    has_entered.recv().unwrap();
    // The shard is busy with the handler.
    let unseen = engine.handle().schedule(60 * second, 1).unwrap();
    assert_eq!(engine.handle().cancel(unseen), Cancel::Cancelled(1));
    release.send(()).unwrap();
    while engine.handle().stats().total.stale_tickets == 0 {
        std::thread::yield_now();
    }
    // In this time the shard goes to sleep.
    std::thread::sleep(Duration::from_millis(100));

    let unparks = || engine.handle().stats().total.unparks;
    let before = unparks();
    engine.handle().schedule(61 * second, 2).unwrap();
    assert_eq!(unparks(), before, "due later than it sleeps");
    engine.handle().schedule(30 * second, 3).unwrap();
    assert_eq!(unparks(), before + 1, "due earlier than it sleeps");
}

#[test]
fn homes_go_round_over_more_shards_than_cores() {
    // Each shard gets two threads, although the threads come one after the other.
    let clock = ManualClock::new();
    let builder = Builder::new().shards(8).unpinned().inline().clock(clock.clone());
    let engine = builder.start(|_: tourbillon::Fired<'_, ()>| {}).unwrap();
    for _ in 0..16 {
        let handle = Handle::clone(engine.handle());
        std::thread::spawn(move || handle.schedule(MS, ()).unwrap()).join().unwrap();
    }
    clock.advance(MS);
    wait_until("all have fired", || engine.handle().stats().fired == 16);
    assert!(engine.handle().stats().shards.iter().all(|shard| shard.fired == 2));
}

#[test]
fn a_thread_chooses_its_shard_for_itself() {
    let mut engine = Builder::new().shards(3).driven(|_: tourbillon::Fired<'_, ()>| {}).unwrap();
    let handle = engine.handle();
    let owned = handle.timer(()).unwrap();
    handle.use_shard(1);
    handle.schedule(MS, ()).unwrap();
    // The choice is only for the calling thread. Another thread goes to the shard that it would otherwise use.
    std::thread::scope(|scope| drop(scope.spawn(|| handle.schedule(MS, ()).unwrap())));
    handle.use_shard(5);
    handle.schedule(MS, ()).unwrap();
    handle.schedule_batch([(MS, ()), (MS, ())]).unwrap();
    owned.arm(MS).unwrap();
    engine.advance(MS);
    let fired: Vec<u64> = engine.handle().stats().shards.iter().map(|shard| shard.fired).collect();
    assert_eq!(fired, [1, 1, 4]);
}
