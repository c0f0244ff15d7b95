//! Tests series of timers: the first occurrence, and the occurrences after it.

use super::{DAY, Note, World, block_on, secs};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::state::Phase;
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Changed, Rejection, Spec, Timers, UtcMillis, Verdict};

/// The moment 2026-01-15T12:00:00Z, in milliseconds since the start of 1970.
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

/// Lets the time `span` pass in steps of `step`. Returns the scheduled instants of the delivered occurrences.
fn delivered(world: &World, span: Duration, step: Duration) -> Vec<String> {
    let end = world.now() + span;
    while world.now() < end {
        world.advance(step);
    }
    world.seen.lock().unwrap().iter().map(|seen| seen.delivery.scheduled.to_string()).collect()
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

#[test]
fn a_series_goes_on_from_its_scheduled_instants() {
    let mut world = World::done();
    let spec = Spec::new(Note(1)).after(secs(60)).key("minutely");
    world.schedule(spec.repeat(Plan::Every(60_000), MissedInstants::Skip));
    for _ in 0..5 {
        world.advance(secs(61));
    }
    assert_eq!(world.seen().len(), 5);
    let preview = block_on(world.timers().preview("minutely", 10)).unwrap();
    assert_eq!(preview.len(), 10);
    assert!(preview.windows(2).all(|pair| pair[1] - pair[0] == secs(60)));
    world.stop();
    world.clock.advance(secs(600));
    world.start(|builder| builder);
    world.settle();
    assert_eq!(world.seen().len(), 6, "the late one, once");
    assert_eq!(world.timers().stats().instants_skipped, 9 + 1 - 1);
    world.advance(secs(60));
    assert_eq!(world.seen().len(), 7);
    let scheduled: Vec<UtcMillis> =
        world.seen.lock().unwrap().iter().map(|seen| seen.delivery.scheduled).collect();
    assert!(
        scheduled.windows(2).all(|pair| (pair[1] - pair[0]).as_secs().is_multiple_of(60)),
        "{scheduled:?}"
    );
    assert_eq!(block_on(world.timers().pause("minutely")).unwrap(), Changed::Changed);
    world.advance(secs(600));
    assert_eq!(world.seen().len(), 7);
    assert_eq!(block_on(world.timers().resume("minutely")).unwrap(), Changed::Changed);
    world.settle();
    assert_eq!(world.seen().len(), 8);
    assert!(matches!(world.timers().cancel_blocking("minutely").unwrap(), Cancelled::Cancelled(_)));
    world.advance(DAY);
    assert_eq!(world.seen().len(), 8);
}

#[test]
fn each_instant_that_was_missed_may_have_its_occurrence() {
    let mut world = World::done();
    let spec = Spec::new(Note(1)).after(secs(60)).repeat(Plan::Every(60_000), MissedInstants::All);
    world.schedule(spec);
    world.stop();
    world.clock.advance(secs(601));
    world.start(|builder| builder);
    world.settle();
    assert_eq!(world.seen().len(), 10);
    let ids: std::collections::BTreeSet<TimerId> =
        world.seen.lock().unwrap().iter().map(|seen| seen.delivery.id).collect();
    assert_eq!(ids.len(), 10);
}

#[test]
fn a_series_whose_zone_is_gone_does_not_end_unseen() {
    use tourbillon_durable::state::{DeathReason, State};
    for is_once in [false, true] {
        let world = World::done();
        let daily =
            |zone: &str| Plan::Cron { expression: "0 9 * * *".into(), zone: zone.into(), skip_gaps: false };
        let spec = Spec::new(Note(1)).after(DAY).repeat(daily("UTC"), MissedInstants::Skip);
        let id = world.schedule(if is_once { spec.at_most_once() } else { spec });
        let Ok(Cancelled::Cancelled(mut timer)) = world.timers().cancel_blocking(id) else {
            panic!("it was pending")
        };
        timer.series.as_mut().unwrap().plan = daily("Europe/Nowhere");
        block_on(world.store.import(vec![*timer])).unwrap();
        world.advance(DAY + secs(1));
        // The dead timer stays, and could be delivered again. So a delivery at most once does not begin.
        assert_eq!(world.seen().len(), usize::from(!is_once));
        let timer = block_on(world.timers().get(id)).unwrap().unwrap();
        assert!(matches!(&timer.state, State::Dead(death) if death.reason == DeathReason::Plan), "{timer:?}");
        assert_eq!((world.timers().stats().dead, world.timers().stats().running), (1, 0));
    }
}

/// Tests an occurrence that fails or is snoozed after its series was paused. The occurrence counts as usual, although
/// it is parked until the series is resumed.
#[test]
fn an_occurrence_whose_series_is_paused_during_its_delivery_counts_as_usual() {
    for snoozes in [false, true] {
        let pause = Arc::<Mutex<Option<Timers>>>::default();
        let (pauses, tomorrow) = (Arc::clone(&pause), UtcMillis::from_millis(JANUARY) + DAY);
        let world = World::new(move |_, _| {
            let Some(timers) = pauses.lock().unwrap().take() else { return Verdict::Done };
            assert!(matches!(block_on(timers.pause("series")), Ok(Changed::Changed)));
            match snoozes {
                true => Verdict::Snooze(tomorrow),
                false => Verdict::Retry { error: "not now".into(), after: None },
            }
        });
        world.clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(JANUARY).as_nanos()));
        world.settle();
        *pause.lock().unwrap() = Some(world.timers().clone());
        world.schedule(series(Plan::every(secs(60))));
        world.advance(secs(61));
        let stats = world.timers().stats();
        let (snoozed, retried) = (u64::from(snoozes), u64::from(!snoozes));
        assert_eq!((stats.snoozed, stats.retried, stats.done), (snoozed, retried, 0));
        assert_eq!(world.count(Phase::Parked), 1);
    }
}
