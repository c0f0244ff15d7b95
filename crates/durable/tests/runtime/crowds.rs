//! Tests timers that are late or due together: grace, the rate of catching up, and the shares of namespaces.

use super::{Note, World, eventually, secs};
use std::time::Duration;
use tourbillon_durable::Spec;
use tourbillon_durable::policy::Misfire;
use tourbillon_durable::state::Phase;

#[test]
fn a_late_delivery_is_skipped_beyond_its_grace_and_counted() {
    let mut world = World::done();
    let specs =
        |number, misfire| Spec::new(Note(number)).after(secs(10)).key(format!("k{number}")).misfire(misfire);
    world.schedule(specs(1, Misfire::Fire));
    world.schedule(specs(2, Misfire::Within(secs(60))));
    world.schedule(specs(3, Misfire::Within(secs(3_600))));
    world.stop();
    world.clock.advance(secs(1_000));
    world.start(|builder| builder);
    world.settle();
    let seen = world.numbers();
    assert_eq!(seen, [1, 3]);
    assert_eq!(world.timers().stats().skipped, 1);
    let incidents = world.incidents.lock().unwrap().join("\n");
    assert!(incidents.contains("Skipped") && incidents.contains("k2"), "{incidents}");
    assert_eq!(world.count(Phase::Pending), 0);
}

#[test]
fn a_herd_is_claimed_no_faster_than_it_is_handled() {
    let world = World::done();
    for number in 0..20_000 {
        world.schedule(Spec::new(Note(number)).after(secs(10)));
    }
    world.advance(secs(11));
    assert_eq!(world.seen().len(), 20_000);
    let distinct: std::collections::BTreeSet<u64> = world.seen().into_iter().collect();
    assert_eq!(distinct.len(), 20_000);
}

#[test]
fn after_a_downtime_timers_come_at_the_rate_and_the_longest_due_first() {
    let mut world = World::done();
    for number in 0..1_000 {
        world.schedule(Spec::new(Note(number)).after(secs(1 + number)));
    }
    world.stop();
    world.clock.advance(secs(10_000));
    world.start(|builder| builder.catch_up_rate(Some(100)).workers(1));
    eventually(|| world.seen().len() == 10);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(world.seen().len(), 10, "a tenth of a second's worth");
    for _ in 0..100 {
        world.clock.advance(Duration::from_millis(100));
        std::thread::sleep(Duration::from_millis(2));
    }
    eventually(|| {
        world.clock.advance(Duration::from_millis(10));
        world.seen().len() == 1_000
    });
    world.settle();
    assert_eq!(world.seen(), (0..1_000).collect::<Vec<_>>());
}

#[test]
fn after_a_downtime_each_namespace_has_the_rate_for_itself_and_timers_in_time_wait_for_none() {
    let mut world = World::done();
    let number = |nth: u64, namespace: u64| 1_000 * namespace + nth;
    for nth in 0..150 {
        for (namespace, name) in (1..).zip(["a", "b"]) {
            world.schedule(Spec::new(Note(number(nth, namespace))).namespace(name).after(secs(1_000)));
        }
    }
    world.schedule(Spec::new(Note(3_000)).namespace("c").after(secs(9_999)));
    world.stop();
    world.clock.advance(secs(10_000));
    world.start(|builder| builder.in_turn().catch_up_rate(Some(100)));
    let seen = |namespace: u64| world.seen().iter().filter(|number| **number / 1_000 == namespace).count();
    let counts = || [1, 2, 3].map(seen);
    eventually(|| counts() == [10, 10, 1]);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(counts(), [10, 10, 1], "a tenth of a second's worth each, and what is in time");
    eventually(|| {
        world.clock.advance(Duration::from_millis(50));
        std::thread::sleep(Duration::from_millis(2));
        counts() == [150, 150, 1]
    });
}

/// Tests timers beyond a namespace's share. A runtime claims such timers once earlier timers of the namespace have
/// ended. The runtime does so even if all earlier timers were too late, so that no handler was called.
#[test]
fn timers_beyond_a_share_are_claimed_though_no_handler_of_the_others_is_called() {
    let mut world = World::done();
    world.stop();
    for number in 0..100 {
        world.start(|builder| builder.in_turn());
        world.schedule(Spec::new(Note(number)).after(secs(1)).misfire(Misfire::Within(secs(60))));
        world.stop();
    }
    world.clock.advance(secs(3_600));
    world.start(|builder| builder.in_turn());
    world.settle();
    assert_eq!((world.seen().len(), world.count(Phase::Pending)), (0, 0), "all are too late");
}

#[test]
fn a_namespace_with_many_timers_has_its_share_of_the_handlers_and_all_come() {
    let mut world = World::done();
    world.stop();
    world.start(|builder| builder.in_turn());
    for number in 0..200 {
        let namespace = if number % 20 == 0 { "other" } else { "herd" };
        world.schedule(Spec::new(Note(number)).namespace(namespace).after(secs(1)));
    }
    world.advance(secs(2));
    let seen = world.numbers();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}
