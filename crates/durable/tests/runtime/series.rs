//! The first occurrence of a series.

use super::*;

/// 2026-01-15T12:00:00Z.
const JANUARY: u64 = 1_768_478_400_000;

fn world() -> World {
    let world = World::done();
    world.clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(JANUARY).as_nanos()));
    world.settle();
    world
}

fn series(plan: Plan) -> Spec<Note> {
    Spec::new(Note(1)).key("series").repeat(plan, MissedInstants::Skip)
}

/// The instants for which the occurrences of this time were delivered.
fn delivered(world: &World, span: Duration, step: Duration) -> Vec<String> {
    let end = UtcMillis::from_nanos(tourbillon::Clock::now(&world.clock).as_nanos()) + span;
    while UtcMillis::from_nanos(tourbillon::Clock::now(&world.clock).as_nanos()) < end {
        world.advance(step);
    }
    world.seen.lock().unwrap().iter().map(|(_, delivery, _)| delivery.scheduled.to_string()).collect()
}

#[test]
fn a_series_begins_at_the_first_instant_of_its_plan() {
    let plans = [
        (Plan::cron("0 9 1 * *", "UTC").unwrap(), ["2026-02-01T09:00:00.000Z", "2026-03-01T09:00:00.000Z"]),
        (
            Plan::monthly(31, 9 * 3_600, "Europe/Zurich").unwrap(),
            ["2026-01-31T08:00:00.000Z", "2026-02-28T08:00:00.000Z"],
        ),
        (Plan::every(20 * DAY), ["2026-02-04T12:00:00.001Z", "2026-02-24T12:00:00.001Z"]),
    ];
    for (plan, instants) in plans {
        let world = world();
        world.schedule(series(plan.clone()));
        world.settle();
        assert_eq!(world.seen(), [0; 0], "{plan:?}: not at once");
        assert_eq!(delivered(&world, 46 * DAY, DAY / 2)[..2], instants, "{plan:?}");
    }
}

#[test]
fn a_moment_that_was_chosen_is_that_of_the_first_occurrence() {
    let world = world();
    world.schedule(series(Plan::cron("0 9 1 * *", "UTC").unwrap()).after(secs(60)));
    let delivered = delivered(&world, 20 * DAY, DAY / 2);
    assert_eq!(delivered, ["2026-01-15T12:01:00.001Z", "2026-02-01T09:00:00.000Z"]);
}

#[test]
fn a_series_that_ends_before_its_first_instant_is_refused() {
    let world = world();
    let until = |plan, end| {
        let spec = Spec::new(Note(1)).repeat_until(plan, MissedInstants::Skip, UtcMillis::from_millis(end));
        world.timers().schedule_blocking(spec)
    };
    for (plan, first) in [
        (Plan::cron("0 9 16 * *", "UTC").unwrap(), JANUARY + 21 * 3_600_000),
        (Plan::every(secs(60)), JANUARY + 60_001),
    ] {
        let refused = until(plan.clone(), first - 1).unwrap_err();
        assert!(matches!(refused.reason, Rejection::NoInstant), "{plan:?}: {:?}", refused.reason);
        assert_eq!(refused.payload, Note(1));
        until(plan, first).unwrap();
    }
    assert!(matches!(until(Plan::every(Duration::MAX), u64::MAX).unwrap_err().reason, Rejection::NoInstant));
    world.advance(DAY);
    assert_eq!(world.seen().len(), 2, "each has one instant");
}

#[test]
fn plans_that_cannot_be_followed_are_not_made() {
    assert!(Plan::cron("0 99 * * *", "UTC").is_err());
    assert!(Plan::cron("0 9 * * *", "Europe/Nowhere").unwrap_err().is_about_zone());
    assert!(Plan::monthly(0, 0, "UTC").is_err());
    assert!(Plan::monthly(1, 86_400, "UTC").is_err());
    let Plan::Cron { skip_gaps, .. } = Plan::cron("30 2 * * *", "Europe/Zurich").unwrap().without_gaps()
    else {
        panic!("it is cron's")
    };
    assert!(skip_gaps);
    assert_eq!(Plan::every(Duration::ZERO), Plan::Every(1));
}
