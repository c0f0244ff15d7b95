//! Statistics and memory: owned and scheduled timers are counted separately, and the tickets of dropped timers are
//! freed.

use crate::support::{HOUR, MS, assert_settled, recording};
use crate::{SECOND, at};
use std::time::Duration;
use tourbillon::{Builder, Cancel, Disarm, DrivenEngine};

#[test]
fn the_books_of_both_kinds_are_kept_apart() {
    let (mut engine, log) = recording(Builder::new());
    let stats = |engine: &DrivenEngine<u64>| {
        let stats = engine.handle().stats();
        assert_eq!(
            stats.scheduled,
            stats.cancelled + stats.fired + stats.returned + stats.pending,
            "a scheduled timer has two ends, or none: {stats:?}"
        );
        assert_eq!(
            stats.total.fired,
            stats.fired + stats.owned.fired,
            "firings of both kinds are not the sum of the shards"
        );
        stats
    };
    let timers: Vec<_> = (0..10).map(|n| engine.handle().timer(n).unwrap()).collect();
    let ids: Vec<_> = (0..10).map(|n| engine.handle().schedule(SECOND, 100 + n).unwrap()).collect();
    assert_eq!(
        (stats(&engine).owned.alive, stats(&engine).owned.posted),
        (10, 0),
        "timers that were made are counted as armed, or not at all"
    );
    for timer in &timers {
        timer.arm(SECOND).unwrap();
    }
    assert_eq!(
        (stats(&engine).owned.posted, stats(&engine).scheduled, engine.handle().len()),
        (10, 10, 10),
        "armings and schedules are not counted apart"
    );
    for timer in &timers[..5] {
        timer.arm(2 * SECOND).unwrap();
    }
    assert_eq!(timers[5].disarm(), Disarm::Disarmed);
    assert_eq!(engine.handle().cancel(ids[0]), Cancel::Cancelled(100));
    engine.advance(SECOND);
    let now = stats(&engine);
    assert_eq!(
        (now.scheduled, now.cancelled, now.fired, now.pending),
        (10, 1, 9, 0),
        "owned timers are among the scheduled ones"
    );
    assert_eq!(
        (now.owned.fired, now.owned.postponed, now.owned.posted, now.owned.alive),
        (4, 5, 10, 10),
        "scheduled timers are among the owned ones, or looks are not counted"
    );
    assert_eq!(
        (now.total.tickets, now.total.stale_tickets),
        (5, 2),
        "tickets in the wheel, stale ones that were dropped"
    );
    assert!(engine.handle().is_empty(), "owned timers are among the pending ones");
    // The new deadlines are earlier than the queued tickets, so new tickets are posted.
    for timer in &timers[..5] {
        timer.arm(MS).unwrap();
    }
    assert_eq!(
        (stats(&engine).owned.posted, stats(&engine).scheduled),
        (15, 10),
        "earlier deadlines posted no tickets, or are counted as schedules"
    );
    engine.advance(SECOND);
    let now = stats(&engine);
    assert_eq!(
        (now.owned.fired, now.owned.postponed, now.total.tickets),
        (9, 5, 0),
        "firings, looks or tickets of owned timers"
    );
    assert_eq!(now.total.stale_tickets, 7, "the tickets of replaced deadlines were not dropped");
    drop(timers);
    let now = stats(&engine);
    assert_eq!((now.owned.alive, now.pending, now.scheduled), (0, 0, 10), "dropped timers are counted");
    assert_eq!(log.take().len(), 18, "a timer fired without a count, or a count has no firing");
    assert!(engine.handle().shutdown().is_empty(), "an owned timer is returned");
    assert_settled(&engine.handle().stats());
}

#[test]
fn tickets_of_dropped_timers_go_though_their_deadlines_are_far() {
    let (mut engine, _log) = recording(Builder::new());
    for n in 0..300_000 {
        let timer = engine.handle().timer(n).unwrap();
        timer.arm(HOUR + Duration::from_millis(n)).unwrap();
        if n % 100 == 0 {
            engine.turn();
        }
    }
    engine.turn();
    let stats = engine.handle().stats();
    assert!(stats.total.tickets <= 65_536 + 4_096 + 2, "tickets of dropped timers pile up: {stats:?}");
}

#[test]
fn tickets_of_dropped_timers_go_though_their_slot_is_armed_for_the_same_deadline_again() {
    // Connections come and go one after the other. All have the same deadline, the hour of closing.
    let (mut engine, _log) = recording(Builder::new());
    let closing = at(10 * HOUR);
    for n in 0..300_000 {
        let timer = engine.handle().timer(n).unwrap();
        timer.arm_at(closing).unwrap();
        engine.turn();
    }
    let stats = engine.handle().stats();
    assert!(
        stats.total.tickets <= 65_536 + 4_096 + 2,
        "tickets of dropped timers pile up: {}",
        stats.total.tickets
    );
}
