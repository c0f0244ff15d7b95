//! Tests instants of schedules that pass while no process runs.

use super::{MINUTE, Seen, World, at, clock, each_minute};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::Verdict;
use tourbillon_durable::schedule::{Missed, Overlap, Schedule};
use tourbillon_durable::store::RedbStore;

/// Makes a runtime with a schedule, after a time without the runtime from minute 2 to minute 5.5.
fn after_a_downtime(folder: &Path, schedule: Schedule) -> World {
    let (clock, seen) = (clock(), Seen::default());
    let open =
        || Arc::new(RedbStore::builder().clock(clock.clone()).open(folder.join("timers.redb")).unwrap());
    let world = World::on(clock.clone(), open(), Arc::clone(&seen));
    world.put(schedule);
    world.advance(1);
    world.advance(1);
    assert_eq!(world.minutes(), [1, 2]);
    world.stop();
    clock.advance(Duration::from_millis(3 * MINUTE + MINUTE / 2));
    let world = World::on(clock.clone(), open(), seen);
    world.settle();
    world
}

#[test]
fn a_restart_over_instants_with_missed_skip_leaves_them_out() {
    let folder = tempfile::tempdir().unwrap();
    let world = after_a_downtime(folder.path(), Schedule { missed: Missed::Skip, ..each_minute() });
    assert_eq!(world.minutes(), [1, 2]);
    assert_eq!((world.view().progress.missed, world.events()), (3, vec!["Missed(3)".to_owned()]));
    // The next instant is delivered on time.
    world.clock.advance(Duration::from_secs(30));
    world.settle();
    assert_eq!(world.minutes(), [1, 2, 6]);
}

#[test]
fn a_restart_over_instants_with_missed_once_fires_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let world = after_a_downtime(folder.path(), each_minute());
    assert_eq!(world.minutes(), [1, 2, 5]);
    assert_eq!((world.view().progress.missed, world.events()), (2, vec!["Missed(2)".to_owned()]));
    world.advance(1);
    assert_eq!(world.minutes(), [1, 2, 5, 6]);
}

#[test]
fn a_restart_over_instants_with_missed_all_fires_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let schedule = Schedule { missed: Missed::All, overlap: Overlap::Allow, ..each_minute() };
    let world = after_a_downtime(folder.path(), schedule);
    let mut minutes = world.minutes();
    minutes.sort_unstable();
    assert_eq!(minutes, [1, 2, 3, 4, 5]);
    assert_eq!((world.view().progress.missed, world.events()), (0, vec![]));
    world.advance(1);
    assert_eq!(world.minutes().len(), 6);
}

/// With these rules for overlaps, the occurrences of missed instants come one after another.
#[test]
fn a_restart_over_instants_with_missed_all_fires_each_after_the_end_of_the_one_before() {
    for overlap in [Overlap::Skip, Overlap::QueueOne] {
        let folder = tempfile::tempdir().unwrap();
        let schedule = Schedule { missed: Missed::All, overlap, ..each_minute() };
        let mut world = after_a_downtime(folder.path(), schedule);
        assert_eq!(world.minutes(), [1, 2, 3], "{overlap:?}");
        // The occurrence of minute 4 fails, and is tried again after three seconds.
        let retry = Verdict::Retry { error: "no".into(), after: Some(Duration::from_secs(3)) };
        *world.verdict.lock().unwrap() = Some(retry);
        let second = |world: &World| {
            world.clock.advance(Duration::from_secs(1));
            world.settle();
        };
        second(&world);
        *world.verdict.lock().unwrap() = None;
        second(&world);
        second(&world);
        assert_eq!(world.minutes(), [1, 2, 3, 4], "{overlap:?}");
        // The instants that wait survive a restart.
        let (clock, seen) = (world.clock.clone(), Arc::clone(&world.seen));
        world.stop();
        let path = folder.path().join("timers.redb");
        let store = Arc::new(RedbStore::builder().clock(clock.clone()).open(path).unwrap());
        world = World::on(clock, store, seen);
        for _ in 0..5 {
            second(&world);
        }
        assert_eq!(world.minutes(), [1, 2, 3, 4, 4, 5], "{overlap:?}");
        let progress = world.view().progress;
        assert_eq!((progress.missed, progress.skipped, progress.catch_up), (0, 0, vec![]));
        assert_eq!(world.events(), Vec::<String>::new());
        world.clock.advance(Duration::from_secs(22));
        world.settle();
        assert_eq!(world.minutes(), [1, 2, 3, 4, 4, 5, 6], "{overlap:?}");
    }
}

#[test]
fn the_last_instant_survives_a_restart_before_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let (clock, seen) = (clock(), Seen::default());
    for _ in 0..3 {
        let path = folder.path().join("timers.redb");
        let store = Arc::new(RedbStore::builder().clock(clock.clone()).open(path).unwrap());
        let world = World::on(clock.clone(), store, Arc::clone(&seen));
        if world.schedules.get(&at()).is_err() {
            world.put(each_minute());
        }
        world.advance(1);
        world.stop();
    }
    let minutes: Vec<_> = seen.lock().unwrap().iter().map(|(minute, ..)| *minute).collect();
    assert_eq!(minutes, [1, 2, 3]);
}
