//! Tests restarts of a runtime after a downtime.

use crate::{Note, World, secs};
use std::time::Duration;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::policy::Misfire;
use tourbillon_durable::state::Phase;
use tourbillon_durable::{Spec, UtcMillis, Verdict};

const HOUR: Duration = Duration::from_secs(3_600);
const MONTH: Duration = Duration::from_secs(30 * 86_400);

#[test]
fn after_a_downtime_each_policy_for_misfires_decides() {
    for downtime in [HOUR, MONTH] {
        let mut world = World::done();
        let policies = [Misfire::Fire, Misfire::Within(secs(60)), Misfire::Within(2 * HOUR)];
        for (number, misfire) in (0..).zip(policies) {
            world.schedule(
                Spec::new(Note(number)).after(secs(10)).key(format!("key {number}")).misfire(misfire),
            );
        }
        world.stop();
        world.clock.advance(downtime);
        world.start(|builder| builder);
        world.settle();
        let (fired, skipped) = if downtime == HOUR { (vec![0, 2], 1) } else { (vec![0], 2) };
        assert_eq!(world.numbers(), fired, "{downtime:?}");
        assert_eq!(world.timers().stats().skipped, skipped);
        let incidents = world.incidents.lock().unwrap().clone();
        assert_eq!(incidents.iter().filter(|incident| incident.contains("Skipped")).count() as u64, skipped);
        assert!(
            incidents.iter().any(|incident| incident.contains("key 1")),
            "the key is named: {incidents:?}"
        );
        world.assert_whole(&[]);
    }
}

#[test]
fn what_is_late_comes_at_the_rate_and_what_is_in_time_at_once() {
    let mut world = World::done();
    for number in 0..500 {
        world.schedule(Spec::new(Note(number)).after(secs(1 + number)));
    }
    world.stop();
    world.clock.advance(MONTH);
    world.start(|builder| builder.catch_up_rate(Some(100)).workers(2));
    for tenth in 1..=70_usize {
        std::thread::sleep(Duration::from_millis(3));
        let delivered = world.seen().len();
        // At the start the rate permits the timers of a tenth of a second.
        assert!(delivered <= 10 * tenth, "{delivered} in {tenth} tenths of a second");
        world.clock.advance(Duration::from_millis(100));
    }
    world.settle();
    assert_eq!(world.numbers(), (0..500).collect::<Vec<_>>());
    world.assert_whole(&[]);
}

/// Tests a runtime with a limit of one late timer a second, on a store that was empty. The limit does not delay timers
/// that are in time.
#[test]
fn a_store_that_was_empty_has_nothing_to_catch_up_with() {
    let world = World::with(|_, _| Verdict::Done, |builder| builder.catch_up_rate(Some(1)));
    world.settle();
    for round in 1..=20 {
        world.schedule(Spec::new(Note(round)));
        world.advance(Duration::from_millis(1));
        assert_eq!(world.seen().len() as u64, round);
    }
}

#[test]
fn a_restart_over_instants_of_a_series_follows_each_policy() {
    // The series has an instant each minute. The process is away over five instants, from second 60 to second 300, and
    // starts again at second 305.
    let cases = [
        (MissedInstants::Skip, Misfire::Fire, vec![60, 360], 4, 0),
        (MissedInstants::Skip, Misfire::Within(secs(10)), vec![360], 4, 1),
        (MissedInstants::All, Misfire::Fire, vec![60, 120, 180, 240, 300, 360], 0, 0),
        (MissedInstants::All, Misfire::Within(secs(10)), vec![300, 360], 0, 4),
    ];
    for (missed, misfire, wanted, instants_skipped, skipped) in cases {
        let mut world = World::done();
        let begin = UtcMillis::from_millis(crate::START - crate::START % 60_000 + 60_000);
        world.clock.set(tourbillon::Timestamp::from_nanos(begin.as_nanos()));
        let cron = Plan::Cron { expression: "* * * * *".into(), zone: "UTC".into(), skip_gaps: false };
        let first = Spec::new(Note(0)).at(begin + secs(60)).key("minutely");
        world.schedule(first.repeat(cron, missed).misfire(misfire));
        world.stop();
        world.clock.advance(secs(305));
        world.start(|builder| builder);
        world.settle();
        let stats = world.timers().stats();
        assert_eq!(
            (stats.instants_skipped, stats.skipped),
            (instants_skipped, skipped),
            "{missed:?} {misfire:?}"
        );
        world.advance(secs(56));
        let seen: Vec<u64> = world
            .seen
            .lock()
            .unwrap()
            .iter()
            .map(|seen| (seen.delivery.scheduled - begin).as_secs())
            .collect();
        assert_eq!(seen, wanted, "{missed:?} {misfire:?}");
        world.assert_whole(&[(Phase::Pending, 1)]);
    }
}
