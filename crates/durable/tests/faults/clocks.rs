//! Tests clocks that step, and local times that come twice or never.

use crate::{Note, World, secs};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::state::Phase;
use tourbillon_durable::{Spec, UtcMillis};

const DAY: u64 = 86_400;

fn step(clock: &ManualClock, now: UtcMillis, by: i64) {
    let stepped = now.as_millis().saturating_add_signed(by * 1_000);
    clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(stepped).as_nanos()));
}

/// Tests due moments under steps of the store's clock. A step forward makes timers due. A step back delays timers.
/// Timers that are made after a step back are delivered in time.
#[test]
fn steps_of_the_clock_make_nothing_early_and_lose_nothing() {
    for by in [3_600, -3_600, 86_400, -86_400] {
        let world = World::done();
        world.clock.advance(secs(2 * DAY));
        let before = world.now();
        world.schedule(Spec::new(Note(0)).after(secs(7_200)));
        world.schedule(Spec::new(Note(1)).at(before + secs(30)));
        world.advance(secs(10));
        step(&world.clock, world.now(), by);
        world.settle();
        world.schedule(Spec::new(Note(2)).after(secs(5)));
        world.advance(secs(6));
        let seen = world.numbers();
        match by {
            3_600 => assert_eq!(seen, [1, 2]),
            86_400 => assert_eq!(seen, [0, 1, 2]),
            _ => assert_eq!(seen, [2], "in time, although the clock has gone back"),
        }
        world.advance(secs(2 * DAY));
        assert_eq!(world.numbers(), [0, 1, 2]);
        world.assert_whole(&[]);
    }
}

/// Tests that a handler keeps its delivery over a step of the clock. Leases and timeouts do not depend on steps.
#[test]
fn a_step_takes_no_delivery_from_its_handler() {
    for by in [3_600, -3_600, 86_400, -86_400] {
        let gate = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let open = std::sync::Arc::clone(&gate);
        let called = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let calls = std::sync::Arc::clone(&called);
        let clock = ManualClock::new();
        clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(crate::START).as_nanos()));
        // The runtime sleeps by the system's monotonic clock, as it does by default.
        let store = tourbillon_durable::store::MemoryStore::new(clock.clone());
        let durable = tourbillon_durable::Durable::builder(store)
            .lease(secs(3))
            .blocking_handler(move |_: Note, _| {
                calls.store(true, std::sync::atomic::Ordering::SeqCst);
                while !open.load(std::sync::atomic::Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
            .start()
            .unwrap();
        let timers = durable.handle();
        timers.schedule_blocking(Spec::new(Note(0)).timeout(secs(60))).unwrap();
        clock.advance(Duration::from_millis(1));
        crate::eventually(|| called.load(std::sync::atomic::Ordering::SeqCst));
        step(&clock, timers.timer_store().now(), by);
        // This time has several renewals. Leases are reaped after each of them.
        std::thread::sleep(Duration::from_millis(3_600));
        gate.store(true, std::sync::atomic::Ordering::SeqCst);
        crate::eventually(|| timers.stats().done == 1);
        let stats = durable.shutdown(secs(10));
        assert_eq!((stats.delivered, stats.leases_lost), (1, 0), "{by}");
    }
}

#[test]
fn series_keep_local_time_over_gaps_and_overlaps() {
    // Each row has a zone, and a cron expression for a time within the gap. Then follow two moments in UTC: a day
    // before the gap, and a day before the overlap.
    let zones = [
        ("Europe/Zurich", "30 2 * * *", "2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"),
        ("America/New_York", "30 2 * * *", "2026-03-07T12:00:00Z", "2026-10-31T12:00:00Z"),
        ("America/Santiago", "30 0 * * *", "2026-09-05T12:00:00Z", "2026-04-04T12:00:00Z"),
        ("Africa/Cairo", "30 0 * * *", "2026-04-23T12:00:00Z", "2026-10-29T12:00:00Z"),
        ("Asia/Beirut", "30 0 * * *", "2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T06:00:00Z", "2026-04-04T06:00:00Z"),
    ];
    for (zone, expression, gap, overlap) in zones {
        for (skip_gaps, begin) in [(false, gap), (true, gap), (false, overlap), (true, overlap)] {
            let begin: tourbillon_calendar::jiff::Timestamp = begin.parse().unwrap();
            let world = World::done();
            let start = UtcMillis::from_millis(begin.as_millisecond().try_into().unwrap());
            world.clock.set(tourbillon::Timestamp::from_nanos(start.as_nanos()));
            let plan = Plan::Cron { expression: expression.into(), zone: zone.into(), skip_gaps };
            let first = plan.next_after(start).unwrap();
            world.schedule(Spec::new(Note(0)).at(first).key("daily").repeat(plan, MissedInstants::Skip));
            for _ in 0..4 * 48 {
                world.advance(secs(1_800));
            }
            let zone_of = tourbillon_calendar::jiff::tz::TimeZone::get(zone).unwrap();
            let local: Vec<String> = world
                .seen
                .lock()
                .unwrap()
                .iter()
                .map(|seen| {
                    let moment = i64::try_from(seen.delivery.scheduled.as_millis()).unwrap();
                    let moment = tourbillon_calendar::jiff::Timestamp::from_millisecond(moment).unwrap();
                    moment.to_zoned(zone_of.clone()).strftime("%d %H:%M").to_string()
                })
                .collect();
            let days: std::collections::BTreeSet<&str> = local.iter().map(|text| &text[..2]).collect();
            // Each day has one delivery. An overlap adds none, and a gap leaves out a day only with `skip_gaps`.
            let left_out = usize::from(skip_gaps && begin == gap.parse().unwrap());
            assert_eq!(local.len(), 4 - left_out, "{zone} {skip_gaps} {local:?}");
            assert_eq!(days.len(), local.len(), "{zone} {skip_gaps} {local:?}");
            assert!(world.seen.lock().unwrap().iter().all(|seen| seen.delivery.lateness <= secs(1_800)));
            world.assert_whole(&[(Phase::Pending, 1)]);
        }
    }
}
