//! Tests schedules at local times that a day lacks or has twice, and on days that a month lacks.

use super::{MINUTE, NOON, World, cron};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::Plan;
use tourbillon_durable::schedule::Schedule;

#[test]
fn a_clock_change_moves_a_nightly_schedule_once() {
    let world = World::new();
    // On the 29th of March 2026 the clocks in Zurich skip 2:30, so it counts as 1:00 UTC. On the 30th, 2:30 is 0:30
    // UTC.
    world.put(cron("30 2 * * *", "Europe/Zurich"));
    world.advance(13 * 60);
    world.advance(23 * 60 + 29);
    assert_eq!(world.minutes(), [13 * 60]);
    world.advance(1);
    assert_eq!(world.minutes(), [13 * 60, 36 * 60 + 30]);
}

#[test]
fn a_night_without_the_time_is_left_out_if_the_schedule_says_so() {
    let world = World::new();
    let plan = Plan::Cron { expression: "30 2 * * *".into(), zone: "Europe/Zurich".into(), skip_gaps: true };
    world.put(Schedule::new(plan));
    world.advance(36 * 60 + 29);
    assert_eq!((world.minutes(), world.view().progress.missed), (vec![], 0));
    world.advance(1);
    assert_eq!(world.minutes(), [36 * 60 + 30], "0:30 UTC on the 30th");
}

#[test]
fn a_local_time_that_comes_twice_gets_one_occurrence_at_the_first() {
    let world = World::new();
    // On the 25th of October 2026, Zurich has 2:30 twice: at 0:30 UTC and at 1:30 UTC.
    let first = UtcMillis::from_millis(1_792_888_200_000);
    assert_eq!(first.to_string(), "2026-10-25T00:30:00.000Z");
    let minutes = (first.as_millis() - NOON) / MINUTE;
    let start = Some(UtcMillis::from_millis(first.as_millis() - 60 * MINUTE));
    world.put(Schedule { start, ..cron("30 2 * * *", "Europe/Zurich") });
    world.advance(minutes - 1);
    assert!(world.minutes().is_empty());
    world.advance(1);
    world.advance(60);
    world.advance(23 * 60);
    assert_eq!(world.minutes(), [minutes]);
    world.advance(60);
    assert_eq!(world.minutes(), [minutes, minutes + 25 * 60]);
}

#[test]
fn a_short_month_has_its_last_day_or_none() {
    let monthly = |last_if_short| {
        let zone = "UTC".into();
        Schedule::new(Plan::Monthly { day: 31, second: 0, zone, last_if_short, skip_gaps: false })
    };
    let next = |schedule: Schedule| -> Vec<String> {
        let shown = schedule.preview(UtcMillis::from_millis(NOON), UtcMillis::from_millis(NOON), 3).unwrap();
        shown.iter().map(|one| one.instant.unwrap().to_string()[..10].to_owned()).collect()
    };
    assert_eq!(next(monthly(true)), ["2026-03-31", "2026-04-30", "2026-05-31"]);
    assert_eq!(next(monthly(false)), ["2026-03-31", "2026-05-31", "2026-07-31"]);
}
