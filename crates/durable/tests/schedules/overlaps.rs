//! Tests instants of a schedule that come before the last occurrence has ended.

use super::{MINUTE, NOON, World, at, each_minute, template};
use std::time::Duration;
use tourbillon_durable::policy::Policy;
use tourbillon_durable::schedule::{Missed, Overlap, Schedule, Template};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::Op;
use tourbillon_durable::{UtcMillis, Verdict};

#[test]
fn an_overlap_is_skipped_and_reported_and_the_plan_goes_on() {
    let world = World::new();
    world.put(each_minute());
    // The occurrence of minute 1 fails, and is tried again at minutes 2.5 and 4.
    *world.verdict.lock().unwrap() = Some(Verdict::Retry { error: "no".into(), after: None });
    world.advance(1);
    world.advance(1);
    assert_eq!(world.minutes(), [1]);
    assert_eq!((world.view().progress.skipped, world.events()), (1, vec!["Skipped(1)".to_owned()]));
    *world.verdict.lock().unwrap() = None;
    world.clock.advance(Duration::from_secs(30));
    world.settle();
    assert_eq!(world.minutes(), [1, 1]);
    world.clock.advance(Duration::from_secs(30));
    world.settle();
    assert_eq!(world.minutes(), [1, 1, 3]);
}

#[test]
fn overlaps_are_allowed_where_the_schedule_says_so() {
    let world = World::new();
    world.put(Schedule { overlap: Overlap::Allow, ..each_minute() });
    *world.verdict.lock().unwrap() = Some(Verdict::Dead("no".into()));
    world.advance(1);
    *world.verdict.lock().unwrap() = Some(Verdict::Retry { error: "no".into(), after: Some(Duration::MAX) });
    world.advance(1);
    world.advance(1);
    assert_eq!(world.minutes(), [1, 2, 3]);
    assert_eq!(world.view().progress.skipped, 0);
}

#[test]
fn one_overlap_waits_for_the_end_of_the_occurrence_and_further_ones_are_skipped() {
    let world = World::new();
    world.put(Schedule { overlap: Overlap::QueueOne, ..each_minute() });
    let retry = Verdict::Retry { error: "no".into(), after: Some(Duration::from_secs(150)) };
    *world.verdict.lock().unwrap() = Some(retry);
    world.advance(1);
    *world.verdict.lock().unwrap() = None;
    world.advance(1);
    world.advance(1);
    assert_eq!(world.minutes(), [1]);
    let view = world.view();
    assert_eq!(view.progress.queued, Some(UtcMillis::from_millis(NOON + 2 * MINUTE)));
    assert_eq!((view.progress.skipped, world.events()), (1, vec!["Skipped(1)".to_owned()]));
    // The occurrence of minute 1 ends at 3.5.
    world.clock.advance(Duration::from_secs(30));
    world.settle();
    // The schedule sees this after a sixtieth of its age at the latest.
    world.clock.advance(Duration::from_secs(3));
    world.settle();
    assert_eq!(world.minutes(), [1, 1, 2]);
    world.clock.advance(Duration::from_secs(27));
    world.settle();
    assert_eq!(world.minutes(), [1, 1, 2, 4]);
}

#[test]
fn a_dead_occurrence_holds_nothing_up() {
    let world = World::new();
    world.put(each_minute());
    *world.verdict.lock().unwrap() = Some(Verdict::Dead("no".into()));
    world.advance(1);
    world.advance(1);
    assert_eq!((world.minutes(), world.view().progress.skipped), (vec![1, 2], 0));
}

/// The occurrence of minute 1 waits for a retry, and is moved to a later moment.
#[test]
fn a_moved_occurrence_is_still_under_way_and_keeps_its_instant() {
    let world = World::new();
    world.put(each_minute());
    *world.verdict.lock().unwrap() = Some(Verdict::Retry { error: "no".into(), after: None });
    world.advance(1);
    let id = world.view().progress.last_occurrence.unwrap();
    let later = UtcMillis::from_millis(NOON + 4 * MINUTE + 1);
    drop(
        pollster::block_on(world.store.apply(vec![Op::Move(id.into(), later)], Default::default())).unwrap(),
    );
    *world.verdict.lock().unwrap() = None;
    for _ in 0..3 {
        world.advance(1);
    }
    assert_eq!((world.minutes(), world.view().progress.skipped), (vec![1], 3));
    world.clock.advance(Duration::from_secs(1));
    world.settle();
    world.advance(1);
    assert_eq!(world.minutes(), [1, 1, 5]);
}

/// The occurrence of minute 1 comes late, and its age counts from then. It dies, and is replayed.
#[test]
fn a_late_occurrence_has_its_retries_and_a_replayed_one_keeps_its_instant() {
    let world = World::new();
    let policy = Policy { max_age: Some(Duration::from_secs(100)), attempts: 2, ..template().policy };
    let schedule = Schedule { missed: Missed::All, overlap: Overlap::Allow, ..each_minute() };
    world.schedules.put(&at(), schedule, Template { policy, ..template() }).unwrap();
    *world.verdict.lock().unwrap() = Some(Verdict::Retry { error: "no".into(), after: None });
    world.advance(10);
    let dead = || pollster::block_on(world.store.counts()).unwrap().of(Phase::Dead);
    world.clock.advance(Duration::from_secs(50));
    world.settle();
    assert_eq!(dead(), 0, "the first retry comes after 90 seconds");
    world.clock.advance(Duration::from_secs(45));
    world.settle();
    assert!(dead() >= 10);
    *world.verdict.lock().unwrap() = None;
    let before = world.seen.lock().unwrap().len();
    let first = world.seen.lock().unwrap().iter().find(|(minute, ..)| *minute == 1).unwrap().2;
    drop(pollster::block_on(world.store.apply(vec![Op::Replay(first)], Default::default())).unwrap());
    world.advance(1);
    assert!(world.minutes()[before..].contains(&1), "{:?}", world.minutes());
}
