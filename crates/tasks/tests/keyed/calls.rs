//! The answers of calls on keys.

use crate::support::{HOUR, MS, within_patience};
use crate::{SECOND, assert_empty, driven, logged, ms};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Refusal, Timestamp};
use tourbillon_tasks::keyed::{DueKey, Keyed, KeyedErrorKind, MoveError, Placed};
use tourbillon_tasks::{DrivenTasks, IfPresent, TaskEngine, Tasks};

#[test]
fn a_key_runs_once_at_its_moment() {
    let mut tasks = driven();
    let (keyed, log) = logged::<&str>(tasks.handle());
    assert_eq!(keyed.schedule("a", 10 * MS, 1).unwrap(), None);
    assert_eq!(keyed.schedule_at(IfPresent::Keep, "b", ms(20), 2).unwrap(), Placed::New);
    assert_eq!(keyed.schedule_at(IfPresent::Reject, "c", ms(20), 3).unwrap(), Placed::New);
    assert_eq!((keyed.len(), keyed.contains("a"), keyed.contains("d")), (3, true, false));
    assert_eq!((keyed.deadline("b"), keyed.deadline("d")), (Some(ms(20)), None));
    tasks.advance(10 * MS);
    assert_eq!(log.take(), [(ms(10), "a", 1)]);
    assert_eq!(
        (keyed.contains("a"), keyed.remaining("a"), keyed.remaining("b")),
        (false, None, Some(10 * MS))
    );
    tasks.advance(10 * MS);
    assert_eq!(log.take_sorted(), [(ms(20), "b", 2), (ms(20), "c", 3)]);
    assert_empty(&keyed, &mut tasks);
}

#[test]
fn a_key_that_is_there_is_replaced_kept_or_rejected() {
    let mut tasks = driven();
    let (keyed, log) = logged::<&str>(tasks.handle());
    assert_eq!(keyed.schedule_at(IfPresent::default(), "a", ms(10), 1).unwrap(), Placed::New);
    assert_eq!(keyed.schedule_at(IfPresent::Replace, "a", ms(30), 2).unwrap(), Placed::Replaced(1));
    assert_eq!(keyed.schedule_at(IfPresent::Keep, "a", ms(5), 3).unwrap(), Placed::Kept(3));
    let error = keyed.schedule_at(IfPresent::Reject, "a", ms(5), 4).unwrap_err();
    assert_eq!((error.kind, error.key, error.value), (KeyedErrorKind::Present, "a", 4));
    assert_eq!((keyed.deadline("a"), keyed.len(), tasks.handle().stats().pending), (Some(ms(30)), 1, 1));
    tasks.advance(SECOND);
    assert_eq!(log.take(), [(ms(30), "a", 2)]);
    // The new moment may also be earlier than the old moment.
    assert_eq!(keyed.schedule("a", HOUR, 5).unwrap(), None);
    assert_eq!(keyed.schedule("a", MS, 6).unwrap(), Some(5));
    tasks.advance(2 * HOUR);
    assert_eq!(log.take(), [(ms(1_001), "a", 6)]);
    assert_empty(&keyed, &mut tasks);
    assert_eq!(tasks.handle().stats().cancelled, 2);
}

#[test]
fn a_cancelled_key_gives_its_value_back_and_does_not_run() {
    let mut tasks = driven();
    let (keyed, log) = logged::<&str>(tasks.handle());
    keyed.schedule("a", 10 * MS, 1).unwrap();
    assert_eq!((keyed.cancel("a"), keyed.cancel("a"), keyed.cancel("b")), (Some(1), None, None));
    keyed.schedule("a", 20 * MS, 2).unwrap();
    tasks.advance(15 * MS);
    assert_eq!((log.len(), keyed.contains("a")), (0, true));
    tasks.advance(SECOND);
    assert_eq!(log.take(), [(ms(20), "a", 2)]);
    assert_eq!(keyed.cancel("a"), None);
    assert_empty(&keyed, &mut tasks);
}

#[test]
fn a_moved_key_runs_at_its_new_moment_alone() {
    let mut tasks = driven();
    let (keyed, log) = logged::<&str>(tasks.handle());
    keyed.schedule("a", 10 * MS, 1).unwrap();
    keyed.reschedule("a", 30 * MS).unwrap();
    tasks.advance(20 * MS);
    assert_eq!((log.len(), keyed.remaining("a")), (0, Some(10 * MS)));
    keyed.reschedule("a", MS).unwrap();
    tasks.advance(SECOND);
    assert_eq!(log.take(), [(ms(21), "a", 1)]);
    assert_eq!(keyed.reschedule("a", MS), Err(MoveError::Absent));
    assert_empty(&keyed, &mut tasks);
    assert_eq!((tasks.handle().stats().scheduled, tasks.handle().stats().cancelled), (3, 2));
}

/// A key is due, and the engine has not turned yet. The key can still be found and cancelled.
#[test]
fn a_key_that_is_due_and_has_not_begun_can_still_be_had() {
    let mut tasks = driven();
    let (keyed, log) = logged::<u32>(tasks.handle());
    for key in 0..4 {
        keyed.schedule(key, 10 * MS, u64::from(key)).unwrap();
    }
    tasks.clock().advance(HOUR);
    assert_eq!((keyed.remaining(&0), keyed.deadline(&0)), (Some(Duration::ZERO), Some(ms(10))));
    assert_eq!((keyed.cancel(&0), keyed.reschedule(&1, 10 * MS)), (Some(0), Ok(())));
    assert_eq!(keyed.schedule(2, 10 * MS, 22).unwrap(), Some(2));
    tasks.turn();
    assert_eq!(log.take(), [(Timestamp::ZERO + HOUR, 3, 3)]);
    tasks.advance(10 * MS);
    assert_eq!(log.take_sorted().iter().map(|ran| (ran.1, ran.2)).collect::<Vec<_>>(), [(1, 1), (2, 22)]);
    assert_empty(&keyed, &mut tasks);
}

#[test]
fn keys_are_borrowed() {
    let tasks = driven();
    let (keyed, _log) = logged::<String>(tasks.handle());
    keyed.schedule("a".to_owned(), MS, 1).unwrap();
    assert!(keyed.contains("a") && keyed.deadline("a").is_some() && keyed.remaining("a").is_some());
    assert_eq!((keyed.reschedule("a", MS), keyed.cancel("a")), (Ok(()), Some(1)));
    let (bytes, _log) = logged::<Vec<u8>>(tasks.handle());
    bytes.schedule(b"a".to_vec(), MS, 1).unwrap();
    assert_eq!(bytes.cancel(b"a".as_slice()), Some(1));
}

#[test]
fn a_snapshot_of_keys_has_each_once() {
    let tasks = driven();
    let (keyed, _log) = logged::<u64>(tasks.handle());
    for key in 0..1_000 {
        keyed.schedule(key, HOUR, key).unwrap();
    }
    let keys = keyed.keys();
    assert_eq!((keys.len(), keys.iter().copied().collect::<BTreeSet<_>>().len()), (1_000, 1_000));
    for key in keys.into_iter().filter(|key| key % 2 == 0) {
        assert_eq!(keyed.cancel(&key), Some(key));
    }
    let mut drained = keyed.drain();
    drained.sort_unstable();
    assert_eq!(drained, (0..1_000).filter(|key| key % 2 == 1).map(|key| (key, key)).collect::<Vec<_>>());
    assert_eq!((keyed.len(), tasks.handle().stats().pending), (0, 0));
}

/// Some keys have entries all the time, while other keys make the map grow and shrink. Every snapshot has each of the
/// permanent keys once.
#[test]
fn a_snapshot_misses_and_repeats_no_key_while_the_map_is_rebuilt() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).unpinned()).unwrap();
        let keyed = tasks.handle().keyed(|_: DueKey<'_, u64, ()>| {});
        for key in 0..500 {
            keyed.schedule(key, HOUR, ()).unwrap();
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for key in 1_000..6_000 {
                        keyed.schedule(key, HOUR, ()).unwrap();
                    }
                    for key in 1_000..6_000 {
                        assert_eq!(keyed.cancel(&key), Some(()));
                    }
                }
            });
            let (mut missing, mut doubled) = (0, 0);
            let begin = Instant::now();
            while begin.elapsed() < 300 * MS {
                let mut stable: Vec<u64> = keyed.keys().into_iter().filter(|&key| key < 1_000).collect();
                stable.sort_unstable();
                let once = stable.iter().collect::<BTreeSet<_>>().len();
                missing += 500 - once;
                doubled += stable.len() - once;
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!((missing, doubled), (0, 0), "keys missing, keys twice");
        });
        assert_eq!(keyed.len(), 500);
    });
}

/// An entry that is replaced or moved keeps its slot. The map looks for the key's old entry before it looks for a free
/// slot.
#[test]
fn on_a_full_engine_an_entry_is_replaced_and_moved_in_place() {
    let mut tasks = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    let (keyed, log) = logged::<&str>(tasks.handle());
    keyed.schedule("a", MS, 1).unwrap();
    let error = keyed.schedule("new", MS, 9).unwrap_err();
    assert_eq!(error.kind, KeyedErrorKind::Refused(Refusal::EngineFull));
    assert_eq!((error.key, error.value, keyed.len()), ("new", 9, 1));
    assert_eq!(keyed.schedule("a", 20 * MS, 2).unwrap(), Some(1));
    assert_eq!(
        keyed.schedule_at(IfPresent::Reject, "a", ms(1), 3).unwrap_err().kind,
        KeyedErrorKind::Present
    );
    assert_eq!(keyed.schedule_at(IfPresent::Keep, "a", ms(1), 3).unwrap(), Placed::Kept(3));
    keyed.reschedule("a", 30 * MS).unwrap();
    assert_eq!((keyed.deadline("a"), tasks.handle().stats().pending), (Some(ms(30)), 1));
    tasks.advance(SECOND);
    assert_eq!(log.take(), [(ms(30), "a", 2)]);
    keyed.schedule("new", MS, 9).unwrap();
}

/// A refused call returns key and value, and the entry is unchanged.
#[test]
fn what_is_refused_comes_back_and_leaves_the_entry_as_it_was() {
    fn refuse(tasks: &Tasks, keyed: &Keyed<String, u64>, kind: Refusal) {
        let before = (keyed.deadline("a"), keyed.len(), tasks.stats().pending);
        for key in ["a", "new"] {
            let error = keyed.schedule(key.to_owned(), MS, 9).unwrap_err();
            assert_eq!((error.kind, error.value), (KeyedErrorKind::Refused(kind), 9));
            assert_eq!((error.key.as_str(), error.to_string()), (key, kind.to_string()));
        }
        assert_eq!(keyed.reschedule("a", MS), Err(MoveError::Refused(kind)));
        assert_eq!(keyed.reschedule("new", MS), Err(MoveError::Absent));
        assert_eq!((keyed.deadline("a"), keyed.len(), tasks.stats().pending), before);
    }
    let mut crowded = DrivenTasks::start(Builder::new().lane_capacity(64)).unwrap();
    let (keyed, log) = logged::<String>(crowded.handle());
    keyed.schedule("a".to_owned(), 10 * MS, 1).unwrap();
    while crowded.handle().after(HOUR, || {}).is_ok() {}
    refuse(crowded.handle(), &keyed, Refusal::LaneFull);
    crowded.advance(SECOND);
    assert_eq!(log.take(), [(ms(10), "a".to_owned(), 1)]);
    keyed.schedule("a".to_owned(), 10 * MS, 2).unwrap();
}
