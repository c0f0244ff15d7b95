//! Tests instants of a schedule that come before the last occurrence has ended.

use super::{MINUTE, NOON, World, each_minute};
use std::time::Duration;
use tourbillon_durable::schedule::{Overlap, Schedule};
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
