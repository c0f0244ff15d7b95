//! Tests snoozed timers, also timers that are delivered at most once.

use super::{Note, START, Seen, World, block_on, secs};
use std::sync::{Arc, Mutex};
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::policy::Policy;
use tourbillon_durable::state::{DeathReason, Phase, State};
use tourbillon_durable::{Ending, Event, Spec, UtcMillis, Verdict};

fn at(secs: u64) -> UtcMillis {
    UtcMillis::from_millis(START + secs * 1_000)
}

/// Makes a runtime whose handler snoozes the first delivery of a timer until `first`, and the second delivery until
/// `second`.
fn snoozing(first: u64, second: u64) -> World {
    let seen = Mutex::new(std::collections::BTreeMap::new());
    World::new(move |_, delivery| {
        let mut seen = seen.lock().unwrap();
        let times = seen.entry(delivery.id).or_insert(0);
        *times += 1;
        match *times {
            1 => Verdict::Snooze(at(first)),
            2 => Verdict::Snooze(at(second)),
            _ => Verdict::Done,
        }
    })
}

#[test]
fn a_snoozed_timer_comes_again_under_its_id_whatever_its_guarantee() {
    for at_most_once in [false, true] {
        let mut world = snoozing(100, 200);
        world.stop();
        let events = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&events);
        world.start(|builder| {
            builder
                .observe(move |event| {
                    if let Event::Ended { ending: Ending::Answered(Verdict::Snooze(_)), phase, due, .. } =
                        event
                    {
                        into.lock().unwrap().push((*phase, *due));
                    }
                })
                .begins_itself("note")
        });
        let spec = Spec::new(Note(1)).key("a").at(at(10)).attempts(1);
        let id = world.schedule(if at_most_once { spec.at_most_once() } else { spec });
        for (moment, due) in [(10, 100), (90, 200)] {
            world.advance(secs(moment));
            let timer = block_on(world.timers().get("a")).unwrap().expect("the snoozed timer is stored");
            assert_eq!((timer.id, timer.due, timer.state), (id, at(due), State::Pending));
            assert_eq!((timer.scheduled, timer.deliveries, timer.failures), (at(10), 0, 0));
        }
        world.advance(secs(99));
        assert_eq!(world.seen().len(), 2, "not before its moment");
        world.advance(secs(1));
        let seen = world.seen.lock().unwrap();
        assert_eq!(seen.len(), 3);
        assert!(
            seen.iter()
                .all(|Seen { delivery, .. }| (delivery.id, delivery.attempt, delivery.delivery) == (id, 1, 1)),
            "{seen:?}"
        );
        drop(seen);
        let stats = world.timers().stats();
        assert_eq!((stats.snoozed, stats.done, stats.released, stats.retried), (2, 1, 0, 0));
        let due = |secs| (Phase::Pending, Some(at(secs)));
        assert_eq!(*events.lock().unwrap(), [due(100), due(200)]);
    }
}

#[test]
fn a_snooze_beyond_the_greatest_age_ends_the_timer() {
    for at_most_once in [false, true] {
        let mut world = snoozing(100, 200);
        world.stop();
        world.start(|builder| builder.begins_itself("note"));
        let policy = Policy { max_age: Some(secs(120)), ..Policy::default() };
        let spec = Spec::new(Note(1)).at(at(10)).policy(policy);
        let id = world.schedule(if at_most_once { spec.at_most_once() } else { spec });
        world.advance(secs(10));
        world.advance(secs(90));
        let timer = block_on(world.timers().get(id)).unwrap().expect("a dead timer is stored");
        assert!(matches!(&timer.state, State::Dead(death) if death.reason == DeathReason::Age), "{timer:?}");
        let stats = world.timers().stats();
        assert_eq!((stats.snoozed, stats.dead, world.seen().len()), (1, 1, 2));
        assert_eq!(world.incidents.lock().unwrap().len(), 1, "its death");
        world.advance(secs(200));
        assert_eq!(world.seen().len(), 2);
    }
}

/// Tests a handler that snoozes after the delivery has begun. The store has the timer no longer, so the snooze has no
/// effect. The next occurrence of a series is stored at the beginning.
#[test]
fn a_snooze_after_the_beginning_brings_no_timer_at_most_once_back() {
    let world = snoozing(25, 26);
    let plan = Plan::Every(10_000);
    world.schedule(Spec::new(Note(1)).key("s").at(at(10)).repeat(plan, MissedInstants::Skip).at_most_once());
    world.advance(secs(10));
    assert_eq!(block_on(world.timers().get("s")).unwrap().map(|timer| timer.scheduled), Some(at(20)));
    assert_eq!(world.count(Phase::Pending), 1);
    world.advance(secs(9));
    assert_eq!((world.seen().len(), world.timers().stats().snoozed), (1, 0));
    world.advance(secs(1));
    assert_eq!(world.seen().len(), 2, "the next occurrence");
}
