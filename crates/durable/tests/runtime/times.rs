//! Tests the measurements of a runtime: how late handlers are called, and how long they take.

use super::{Note, START, World, secs};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::{Spec, Times, UtcMillis, Verdict};

fn at(secs: u64) -> UtcMillis {
    UtcMillis::from_millis(START + secs * 1_000)
}

/// Returns the upper bound of each range of times, with the number of measured times in the range. Leaves out ranges
/// without times.
fn bounds(times: &Times) -> Vec<(Duration, u64)> {
    let mut before = 0;
    let mut bounds: Vec<_> = times
        .buckets()
        .map(|(bound, count)| (bound, count - std::mem::replace(&mut before, count)))
        .collect();
    bounds.retain(|(_, count)| *count > 0);
    bounds
}

#[test]
fn lateness_counts_from_the_due_moment_of_the_delivery() {
    let world = World::new(|number, delivery| match (number, delivery.lateness) {
        (2, late) if late == secs(2) => Verdict::Snooze(at(100)),
        (3, late) if late == secs(2) => Verdict::Park("closed".into()),
        _ => Verdict::Done,
    });
    for number in 1..=3 {
        world.schedule(Spec::new(Note(number)).at(at(10)));
    }
    world.schedule(Spec::new(Note(4)).key("moved").at(at(10)));
    super::block_on(world.timers().move_to("moved", at(50))).unwrap();
    world.advance(secs(12));
    let stats = world.timers().stats();
    assert_eq!(bounds(&stats.lateness), [(Duration::from_millis(2_500), 3)]);
    // The moved timer is delivered 9 s late.
    world.advance(secs(47));
    // The snoozed timer is delivered 20 s late, and the parked timer 110 s late.
    world.clock.advance(secs(61));
    assert_eq!(world.timers().unpark_blocking("closed", 9).unwrap(), 1);
    world.settle();
    let lateness = world.timers().stats().lateness;
    let wanted = [(Duration::from_millis(2_500), 3), (secs(10), 1), (secs(30), 1), (secs(300), 1)];
    assert_eq!(bounds(&lateness), wanted);
    assert_eq!((lateness.count, lateness.sum, lateness.max), (6, secs(6 + 9 + 20 + 110), secs(110)));
}

#[test]
fn a_moment_that_has_passed_is_due_at_once_and_not_late() {
    let seen = Arc::<std::sync::Mutex<Vec<_>>>::default();
    let kept = Arc::clone(&seen);
    let world = World::new(move |number, delivery| {
        kept.lock().unwrap().push((number, delivery.scheduled, delivery.due, delivery.lateness));
        Verdict::Done
    });
    world.clock.advance(secs(100));
    world.settle();
    let within = |number, ago: u64| {
        Spec::new(Note(number))
            .misfire(tourbillon_durable::policy::Misfire::Within(secs(60)))
            .at(at(100 - ago))
    };
    world.schedule(Spec::new(Note(1)).at(at(10)));
    world.schedule(within(2, 30));
    world.schedule(within(3, 90));
    world.settle();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by_key(|(number, ..)| *number);
    let zero = Duration::ZERO;
    assert_eq!(seen, [(1, at(10), at(100), zero), (2, at(70), at(70), secs(30))]);
    assert_eq!(world.timers().stats().skipped, 1);
}

#[test]
fn the_time_of_a_handler_ends_with_its_answer() {
    let clock = Arc::<OnceLock<ManualClock>>::default();
    let inside = Arc::clone(&clock);
    // The handler ends within its timeout of 30 s.
    let world = World::new(move |number, _| {
        inside.get().unwrap().advance(secs(number));
        if number == 7 { Verdict::Dead("no".into()) } else { Verdict::Done }
    });
    clock.set(world.clock.clone()).unwrap();
    // Each timer is due when its predecessor has ended.
    let due_now = |number, now| Spec::new(Note(number)).at(at(now));
    for (number, spec) in [(3, due_now(3, 0)), (7, due_now(7, 3)), (20, due_now(20, 10).at_most_once())] {
        world.schedule(spec);
        world.settle();
        assert_eq!(world.seen().last(), Some(&number));
    }
    let stats = world.timers().stats();
    let times = stats.handler_time;
    assert_eq!(bounds(&times), [(secs(5), 1), (secs(10), 1), (secs(30), 1)]);
    assert_eq!((times.count, times.sum, times.max), (3, secs(30), secs(20)));

    let page = stats.prometheus();
    for lines in [
        "# TYPE tourbillon_durable_lateness_seconds histogram\ntourbillon_durable_lateness_seconds_bucket{le=\"0.001\"} 3\n",
        "\ntourbillon_durable_lateness_seconds_count 3\n",
        "\ntourbillon_durable_handler_seconds_bucket{le=\"2.5\"} 0\n\
         tourbillon_durable_handler_seconds_bucket{le=\"5\"} 1\n\
         tourbillon_durable_handler_seconds_bucket{le=\"10\"} 2\n\
         tourbillon_durable_handler_seconds_bucket{le=\"30\"} 3\n",
        "\ntourbillon_durable_handler_seconds_bucket{le=\"86400\"} 3\n\
         tourbillon_durable_handler_seconds_bucket{le=\"+Inf\"} 3\n\
         tourbillon_durable_handler_seconds_sum 30\ntourbillon_durable_handler_seconds_count 3\n",
        "\ntourbillon_durable_handler_seconds_max 20\n",
    ] {
        assert!(page.contains(lines), "{lines}\nis not in\n{page}");
    }
}

#[test]
fn a_handler_that_was_not_called_has_no_time() {
    let world = World::done();
    world
        .schedule(Spec::new(Note(1)).misfire(tourbillon_durable::policy::Misfire::Within(secs(1))).at(at(1)));
    world.advance(secs(60));
    let stats = world.timers().stats();
    assert_eq!((stats.skipped, stats.lateness, stats.handler_time), (1, Times::default(), Times::default()));
}
