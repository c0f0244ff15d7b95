//! Timers by key: the answers of their calls, that each generation of a key ends in exactly one way, and that nothing
//! is left behind. Mostly on the threadless engine; with threads where calls race with firing.
//!
//! `TOURBILLON_KEYS=10000000 cargo test --release -p tourbillon-tasks --test keyed` is the long run of the test with
//! many keys.

#[path = "../../../tests/support/mod.rs"]
mod support;

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::env;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use support::{Gate, HOUR, Log, MS, Rng, assert_settled, lock, wait_until, within_patience};
use tourbillon::{Builder, Refusal, Timestamp};
use tourbillon_tasks::keyed::{DueKey, Keyed, KeyedErrorKind, MoveError, Placed};
use tourbillon_tasks::{DrivenTasks, IfPresent, Key, TaskEngine, Tasks};

const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

fn ms(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

fn driven() -> DrivenTasks {
    DrivenTasks::new().unwrap()
}

/// The jobs that ran: moment, key, value.
type Ran<K> = Log<(Timestamp, K, u64)>;

/// Keys whose jobs log.
fn logged<K: Key>(tasks: &Tasks) -> (Keyed<K, u64>, Ran<K>) {
    let log = Log::new();
    let (sink, inside) = (log.clone(), tasks.clone());
    let job = move |due: DueKey<'_, K, u64>| sink.push((inside.now(), due.key.clone(), due.value));
    (tasks.keyed(job), log)
}

/// Nothing is left: no key, no timer, not even a ticket.
fn assert_empty<K: Key, V: Send>(keyed: &Keyed<K, V>, tasks: &mut DrivenTasks) {
    assert_eq!((keyed.len(), keyed.is_empty(), keyed.keys().len()), (0, true, 0));
    assert!(keyed.drain().is_empty());
    tasks.turn();
    assert_settled(&tasks.handle().stats());
}

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
    // To an earlier moment, too.
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

/// A key that is due, and whose engine has not turned yet, is still there.
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

/// Keys that are there all the time are in every snapshot once, while others make the map grow and shrink.
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

#[test]
fn a_job_schedules_its_own_key_again() {
    let mut tasks = driven();
    let log = Log::new();
    let sink = log.clone();
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, String, u64>| {
        sink.push((due.deadline, due.lateness, due.value));
        assert!(!due.keyed.contains(&due.key));
        if due.value < 3 {
            let placed = due.keyed.schedule(due.key, 10 * MS, due.value + 1);
            assert_eq!(placed.unwrap(), None);
        }
    });
    keyed.schedule("a".to_owned(), 10 * MS, 1).unwrap();
    tasks.advance(35 * MS);
    assert_eq!(
        log.take(),
        [(ms(10), Duration::ZERO, 1), (ms(20), Duration::ZERO, 2), (ms(30), Duration::ZERO, 3)]
    );
    assert_eq!(tasks.handle().stats().total.panics, 0);
    assert_empty(&keyed, &mut tasks);
}

#[test]
fn a_job_that_panics_costs_its_own_value() {
    let mut tasks = driven();
    let values = Arc::new(());
    let log = Log::new();
    let sink = log.clone();
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, Arc<()>>| {
        sink.push(due.key);
        if due.key.is_multiple_of(2) {
            resume_unwind(Box::new(due.key));
        }
    });
    for key in 0..10 {
        keyed.schedule(key, MS, Arc::clone(&values)).unwrap();
    }
    tasks.advance(MS);
    assert_eq!((log.len(), tasks.handle().stats().total.panics, Arc::strong_count(&values)), (10, 5, 1));
    keyed.schedule(0, MS, Arc::clone(&values)).unwrap();
    tasks.advance(MS);
    assert_eq!(log.len(), 11);
    assert_empty(&keyed, &mut tasks);
}

/// A value is dropped as soon as its job has run, was replaced or cancelled.
#[test]
fn values_are_dropped_when_they_are_done_with() {
    let mut tasks = driven();
    let values = Arc::new(());
    let keyed = tasks.handle().keyed(|_: DueKey<'_, u64, Arc<()>>| {});
    for key in 0..3 {
        keyed.schedule(key, MS, Arc::clone(&values)).unwrap();
    }
    drop(keyed.schedule(0, HOUR, Arc::clone(&values)).unwrap());
    drop(keyed.cancel(&1));
    assert_eq!(Arc::strong_count(&values), 1 + 2);
    tasks.advance(MS);
    assert_eq!(Arc::strong_count(&values), 1 + 1);
    drop(keyed.schedule_at(IfPresent::Keep, 0, ms(1), Arc::clone(&values)).unwrap());
    assert_eq!(Arc::strong_count(&values), 1 + 1);
    drop(keyed);
    assert_eq!((Arc::strong_count(&values), tasks.handle().stats().pending), (1, 0));
}

#[test]
fn values_need_not_be_shared() {
    let mut tasks = driven();
    let log = Log::new();
    let sink = log.clone();
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, Cell<u64>>| sink.push(due.value.get()));
    keyed.schedule(1, MS, Cell::new(17)).unwrap();
    let elsewhere = keyed.clone();
    thread::spawn(move || drop(elsewhere.schedule(2, HOUR, Cell::new(18)))).join().unwrap();
    assert_eq!(keyed.cancel(&2).map(Cell::into_inner), Some(18));
    tasks.advance(MS);
    assert_eq!(log.take(), [17]);
}

#[test]
fn with_the_last_clone_the_entries_go_and_no_job_runs() {
    let mut tasks = driven();
    let (keyed, log) = logged::<u64>(tasks.handle());
    let clone = keyed.clone();
    keyed.schedule(1, MS, 1).unwrap();
    clone.schedule(2, 2 * MS, 2).unwrap();
    drop(keyed);
    tasks.advance(MS);
    assert_eq!((log.len(), clone.keys()), (1, vec![2]));
    drop(clone);
    tasks.advance(SECOND);
    assert_eq!(log.len(), 1);
    assert_settled(&tasks.handle().stats());
    assert_eq!(tasks.handle().stats().cancelled, 1);
}

/// A job is the last to have its keys: they go with it.
#[test]
fn the_last_clone_may_be_dropped_while_a_job_runs() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(1)).unwrap();
        let (gate, values) = (Gate::new(), Arc::new(()));
        let at_gate = gate.clone();
        let keyed = tasks.handle().keyed(move |_: DueKey<'_, u64, Arc<()>>| at_gate.pass());
        keyed.schedule(1, MS, Arc::clone(&values)).unwrap();
        keyed.schedule(2, HOUR, Arc::clone(&values)).unwrap();
        gate.await_arrival();
        drop(keyed);
        gate.open();
        wait_until("the values are gone", || Arc::strong_count(&values) == 1);
        wait_until("the timers are gone", || tasks.handle().stats().pending == 0);
        assert_eq!(tasks.handle().stats().fired, 1);
    });
}

#[test]
fn after_a_shutdown_the_entries_can_be_taken_and_none_be_made() {
    let mut tasks = driven();
    let (keyed, log) = logged::<u64>(tasks.handle());
    keyed.schedule(1, MS, 10).unwrap();
    keyed.schedule(2, HOUR, 20).unwrap();
    keyed.schedule(3, HOUR, 30).unwrap();
    tasks.advance(MS);
    assert!(tasks.handle().shutdown().is_empty(), "they come back by their keys");
    assert_eq!((keyed.len(), keyed.contains(&2), log.take().len()), (2, true, 1));
    let refused = KeyedErrorKind::Refused(Refusal::ShutDown);
    for key in [2, 4] {
        let error = keyed.schedule(key, MS, 99).unwrap_err();
        assert_eq!((error.kind, error.key, error.value), (refused, key, 99));
    }
    assert_eq!(keyed.schedule_at(IfPresent::Keep, 2, ms(1), 99).unwrap(), Placed::Kept(99));
    assert_eq!(keyed.reschedule(&2, MS), Err(MoveError::Refused(Refusal::ShutDown)));
    assert_eq!(keyed.cancel(&2), Some(20));
    assert_eq!((keyed.drain(), keyed.len()), (vec![(3, 30)], 0));
    tasks.advance(SECOND);
    drop(tasks);
    assert_eq!((log.len(), keyed.schedule(5, MS, 1).is_err(), keyed.is_empty()), (0, true, true));
}

#[test]
fn a_job_shuts_its_engine_down() {
    within_patience(|| {
        let tasks = TaskEngine::new().unwrap();
        let (inside, log) = (tasks.handle().clone(), Log::new());
        let sink = log.clone();
        let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, u64>| {
            let unfired = inside.shutdown().len();
            sink.push((unfired, due.keyed.schedule(due.key, MS, 1).is_err(), due.keyed.drain()));
        });
        // In this order: the first job shuts the engine down.
        keyed.schedule(2, HOUR, 2).unwrap();
        keyed.schedule(1, MS, 1).unwrap();
        wait_until("it is shut down", || log.len() == 1);
        assert_eq!(log.take(), [(0, true, vec![(2, 2)])]);
    });
}

/// An entry that is replaced or moved keeps its slot. The key's old entry is looked for before a free slot.
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

/// Refused: key and value come back, and the entry is as it was.
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

/// A key whose hash or comparison panics when its thorns say so.
#[derive(Clone, Debug)]
struct Thorny(u64, Arc<Thorns>);

#[derive(Debug, Default)]
struct Thorns {
    hash: AtomicBool,
    eq: AtomicBool,
}

impl PartialEq for Thorny {
    fn eq(&self, other: &Self) -> bool {
        if self.1.eq.load(Ordering::Relaxed) {
            resume_unwind(Box::new("eq"));
        }
        self.0 == other.0
    }
}

impl Eq for Thorny {}

impl Hash for Thorny {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.1.hash.load(Ordering::Relaxed) {
            resume_unwind(Box::new("hash"));
        }
        // All in few buckets, so that they are compared.
        (self.0 % 2).hash(state);
    }
}

/// The call panics, the map is whole, and nothing is locked.
#[test]
fn keys_whose_hash_or_comparison_panics_cost_the_call_that_used_them() {
    within_patience(|| {
        let (mut tasks, thorns) = (driven(), Arc::new(Thorns::default()));
        let key = |n| Thorny(n, Arc::clone(&thorns));
        let values = Arc::new(());
        let ran = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ran);
        let keyed = tasks.handle().keyed(move |_: DueKey<'_, Thorny, Arc<()>>| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        for n in 0..10 {
            keyed.schedule(key(n), MS, Arc::clone(&values)).unwrap();
        }
        for thorn in [&thorns.hash, &thorns.eq] {
            thorn.store(true, Ordering::Relaxed);
            let panics = |f: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
            panics(&|| drop(keyed.schedule(key(1), MS, Arc::clone(&values))));
            panics(&|| drop(keyed.cancel(&key(1))));
            panics(&|| assert!(keyed.reschedule(&key(1), HOUR).is_err()));
            panics(&|| assert!(keyed.contains(&key(1))));
            thorn.store(false, Ordering::Relaxed);
        }
        assert_eq!((keyed.len(), tasks.handle().stats().pending, Arc::strong_count(&values)), (10, 10, 11));
        drop(keyed.cancel(&key(1)).expect("it is there"));
        tasks.advance(SECOND);
        assert_eq!((ran.load(Ordering::Relaxed), Arc::strong_count(&values)), (9, 1));
        assert_empty(&keyed, &mut tasks);
    });
}

/// The timer's own look-up panics: that is counted, and the entry waits to be cancelled.
#[test]
fn a_key_whose_hash_panics_when_it_is_due_can_still_be_cancelled() {
    let (mut tasks, thorns) = (driven(), Arc::new(Thorns::default()));
    let keyed = tasks.handle().keyed(|_: DueKey<'_, Thorny, u64>| {});
    let key = Thorny(1, Arc::clone(&thorns));
    keyed.schedule(key.clone(), MS, 7).unwrap();
    thorns.hash.store(true, Ordering::Relaxed);
    tasks.advance(MS);
    thorns.hash.store(false, Ordering::Relaxed);
    assert_eq!((tasks.handle().stats().total.panics, tasks.handle().stats().pending), (1, 0));
    assert_eq!((keyed.cancel(&key), keyed.schedule(key, MS, 8).unwrap()), (Some(7), None));
    tasks.advance(MS);
    assert_empty(&keyed, &mut tasks);
}

/// A value, or a key, that uses its own map as it is dropped, wherever that is.
#[test]
fn nothing_of_the_users_is_dropped_under_a_lock() {
    struct Returns(u64, Arc<OnceLock<Keyed<u64, Returns>>>, Log<u64>);
    impl Drop for Returns {
        fn drop(&mut self) {
            let keyed = self.1.get().expect("it is there");
            assert!(!keyed.contains(&1_000));
            drop(keyed.cancel(&(self.0 + 1)));
            self.2.push(self.0);
        }
    }
    within_patience(|| {
        let (mut tasks, place, log) = (driven(), Arc::new(OnceLock::new()), Log::new());
        let keyed = tasks.handle().keyed(|due: DueKey<'_, u64, Returns>| drop(due.value));
        place.set(keyed.clone()).ok().unwrap();
        let schedule = |n: u64| keyed.schedule(n, MS, Returns(n, Arc::clone(&place), log.clone())).unwrap();
        for n in 0..20 {
            assert!(schedule(n).is_none());
        }
        // Each drop cancels the next key.
        drop(keyed.cancel(&10));
        assert_eq!(log.take_sorted(), (10..20).collect::<Vec<u64>>());
        drop(schedule(5));
        assert_eq!(log.take_sorted(), [5, 6, 7, 8, 9]);
        drop(
            keyed
                .schedule_at(IfPresent::Keep, 0, ms(1), Returns(0, Arc::clone(&place), log.clone()))
                .unwrap(),
        );
        assert_eq!(log.take_sorted(), [0, 1, 2, 3, 4, 5]);
        drop(schedule(2));
        tasks.advance(MS);
        assert_eq!(keyed.len(), 0);
        drop(keyed.drain());
        assert_eq!(log.take_sorted(), [0, 2]);
    });
}

/// Twenty generations of one key in one tick, all due: one job.
#[test]
fn of_a_key_that_is_replaced_again_and_again_the_last_one_runs() {
    let mut tasks = driven();
    let (keyed, log) = logged::<u64>(tasks.handle());
    for value in 0..1_000 {
        let before = keyed.schedule(7, 10 * MS, value).unwrap();
        assert_eq!(before, value.checked_sub(1));
        if value % 100 == 99 {
            tasks.turn();
        }
    }
    tasks.advance(SECOND);
    assert_eq!(log.take(), [(ms(10), 7, 999)]);
    assert_empty(&keyed, &mut tasks);
    assert_eq!((tasks.handle().stats().fired, tasks.handle().stats().cancelled), (1, 999));
}

/// The job of an earlier generation has been handed to a worker when the key is replaced: it is not run.
#[test]
fn a_generation_that_a_worker_already_has_can_still_be_replaced() {
    within_patience(|| {
        let jobs = Arc::new(Mutex::new(Vec::new()));
        let queue = Arc::clone(&jobs);
        let clock = tourbillon::ManualClock::new();
        let executor = move |job: tourbillon::Job| lock(&queue).push(job);
        let tasks =
            TaskEngine::start(Builder::new().clock(clock.clone()).shards(1).executor(executor)).unwrap();
        let (keyed, log) = logged::<u64>(tasks.handle());
        for key in 0..4 {
            keyed.schedule(key, 10 * MS, key).unwrap();
        }
        clock.advance(10 * MS);
        wait_until("a worker has them", || !lock(&jobs).is_empty());
        assert_eq!(keyed.schedule(0, MS, 100).unwrap(), Some(0));
        assert_eq!((keyed.cancel(&1), keyed.reschedule(&2, MS)), (Some(1), Ok(())));
        let run = || std::mem::take(&mut *lock(&jobs)).into_iter().for_each(tourbillon::Job::run);
        run();
        assert_eq!(log.take(), [(ms(10), 3, 3)]);
        clock.advance(10 * MS);
        wait_until("the rest has run", || {
            run();
            log.len() == 2
        });
        assert_eq!(log.take_sorted(), [(ms(20), 0, 100), (ms(20), 2, 2)]);
        assert!(keyed.is_empty());
    });
}

/// The timer of an earlier generation has begun, and comes to the map as its key is replaced: it leaves the new entry
/// to the new one's timer. Each value knows its deadline.
#[test]
fn a_timer_that_begins_as_its_key_is_replaced_leaves_the_new_entry_alone() {
    within_patience(|| {
        let tick = 20 * MICRO;
        let tasks = TaskEngine::start(Builder::new().tick(tick).shards(1).unpinned().workers(2)).unwrap();
        let (ran, strays) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (count, stray) = (Arc::clone(&ran), Arc::clone(&strays));
        let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, Timestamp>| {
            count.fetch_add(1, Ordering::Relaxed);
            stray.fetch_add(u64::from(due.deadline != due.value), Ordering::Relaxed);
        });
        let (begin, replaced) = (Instant::now(), AtomicU64::new(0));
        thread::scope(|scope| {
            for seed in 0..2 {
                let (keyed, tasks, replaced) = (&keyed, &tasks, &replaced);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    while begin.elapsed() < 700 * MS {
                        // Now and then as soon as possible, otherwise later, so that a stray job would run at once.
                        let delay = if rng.chance(50) { rng.nanos_below(2 * tick) } else { 50 * tick };
                        let deadline = tasks.handle().now() + delay;
                        let placed = keyed.schedule_at(IfPresent::Replace, rng.below(2), deadline, deadline);
                        if matches!(placed.unwrap(), Placed::Replaced(_)) {
                            replaced.fetch_add(1, Ordering::Relaxed);
                        }
                        (0..rng.below(300)).for_each(|_| std::hint::spin_loop());
                    }
                });
            }
        });
        wait_until("no key is left", || keyed.is_empty());
        assert!(ran.load(Ordering::Relaxed) > 0 && replaced.load(Ordering::Relaxed) > 0);
        assert_eq!(strays.load(Ordering::Relaxed), 0);
    });
}

/// The fates of a generation.
const RAN: u8 = 1;
const REPLACED: u8 = 2;
const CANCELLED: u8 = 3;
const DRAINED: u8 = 4;
const REFUSED: u8 = 5;

/// The fate of each generation, by its token.
struct Fates {
    fates: Vec<AtomicU8>,
    next: AtomicUsize,
    twice: AtomicU64,
    early: AtomicU64,
}

impl Fates {
    fn new(generations: usize) -> Self {
        let fates = (0..generations).map(|_| AtomicU8::new(0)).collect();
        Self { fates, next: AtomicUsize::new(0), twice: AtomicU64::new(0), early: AtomicU64::new(0) }
    }

    /// A token that nobody had.
    fn take(&self) -> Option<usize> {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        (token < self.fates.len()).then_some(token)
    }

    fn end(&self, token: usize, fate: u8) {
        if self.fates[token].swap(fate, Ordering::Relaxed) != 0 {
            self.twice.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn of(&self, fate: u8) -> usize {
        self.fates.iter().filter(|&counted| counted.load(Ordering::Relaxed) == fate).count()
    }
}

/// Threads replace, keep, reject, cancel, move, drain and list a few hot keys while they fire. Jobs do the same.
fn stress(builder: Builder, generations: usize) {
    const KEYS: u64 = 6;
    let fates = Arc::new(Fates::new(generations));
    let tasks = TaskEngine::start(builder).unwrap();
    let (job_fates, inside) = (Arc::clone(&fates), tasks.handle().clone());
    let act = |fates: &Fates, keyed: &Keyed<u64, usize>, rng: &mut Rng, tasks: &Tasks| -> bool {
        let key = rng.below(KEYS);
        let delay = rng.nanos_below(200 * MICRO);
        match rng.below(20) {
            0..10 => {
                let Some(token) = fates.take() else { return false };
                let mode = [IfPresent::Replace, IfPresent::Replace, IfPresent::Keep, IfPresent::Reject]
                    [rng.index(4)];
                match keyed.schedule_at(mode, key, tasks.now() + delay, token) {
                    Ok(Placed::New) => {}
                    Ok(Placed::Replaced(before)) => fates.end(before, REPLACED),
                    Ok(Placed::Kept(own)) => {
                        assert_eq!((mode, own), (IfPresent::Keep, token));
                        fates.end(own, REFUSED);
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => {
                        assert_eq!((error.key, error.value), (key, token));
                        // A call is refused for want of room only if its caller would wait for itself.
                        assert_ne!(error.kind, KeyedErrorKind::Refused(Refusal::EngineFull));
                        fates.end(token, REFUSED);
                    }
                }
            }
            10..14 => {
                if let Some(token) = keyed.cancel(&key) {
                    fates.end(token, CANCELLED);
                }
            }
            14..18 => drop(keyed.reschedule(&key, delay)),
            18 => {
                if rng.chance(20) {
                    keyed.drain().into_iter().for_each(|(_, token)| fates.end(token, DRAINED));
                }
            }
            _ => {
                assert!(keyed.keys().into_iter().all(|key| key < KEYS));
                let _ = (keyed.contains(&key), keyed.remaining(&key), keyed.len());
            }
        }
        true
    };
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, usize>| {
        job_fates.end(due.value, RAN);
        if inside.now() < due.deadline {
            job_fates.early.fetch_add(1, Ordering::Relaxed);
        }
        let mut rng = Rng::new(due.value as u64);
        if rng.chance(30) {
            act(&job_fates, due.keyed, &mut rng, &inside);
        }
    });
    thread::scope(|scope| {
        for seed in 0..4 {
            let (fates, keyed, tasks) = (&fates, &keyed, tasks.handle());
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while act(fates, keyed, &mut rng, tasks) {
                    for _ in 0..rng.below(100) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
    });
    wait_until("no key is left", || keyed.is_empty());
    wait_until("the engine is at rest", || {
        tasks.handle().stats().pending == 0 && !tasks.handle().is_shut_down()
    });
    drop(tasks.handle().shutdown());
    assert_settled(&tasks.handle().stats());
    let [ran, replaced, cancelled, drained, refused] =
        [RAN, REPLACED, CANCELLED, DRAINED, REFUSED].map(|fate| fates.of(fate));
    assert_eq!((fates.twice.load(Ordering::Relaxed), fates.early.load(Ordering::Relaxed)), (0, 0));
    assert_eq!(fates.of(0), 0, "generations without an end");
    assert_eq!(ran + replaced + cancelled + drained + refused, generations);
    for (name, count) in
        [("ran", ran), ("replaced", replaced), ("cancelled", cancelled), ("drained", drained)]
    {
        assert!(count > 0, "none {name}");
    }
    assert_eq!((keyed.drain().len(), tasks.handle().stats().total.panics), (0, 0));
}

#[test]
fn each_generation_ends_in_exactly_one_way() {
    within_patience(|| stress(Builder::new().tick(20 * MICRO).shards(2).unpinned().workers(2), 60_000));
}

/// On the shard's own thread, with lanes that are always full: a thread that schedules waits for a shard whose job
/// wants the same key.
#[test]
fn each_generation_ends_in_exactly_one_way_inline_with_full_lanes() {
    within_patience(|| {
        stress(Builder::new().tick(20 * MICRO).shards(2).unpinned().inline().lane_capacity(64), 20_000);
    });
}

/// One key, four threads that each want it for themselves: exactly one has it.
#[test]
fn of_many_that_want_a_free_key_one_gets_it() {
    within_patience(|| {
        let tasks = TaskEngine::new().unwrap();
        let keyed = tasks.handle().keyed(|_: DueKey<'_, u64, u64>| {});
        for round in 0..300 {
            let mode = if round % 2 == 0 { IfPresent::Reject } else { IfPresent::Keep };
            let deadline = tasks.handle().now() + HOUR;
            let placed = thread::scope(|scope| {
                let keyed = &keyed;
                let calls =
                    [0, 1, 2, 3].map(|n| scope.spawn(move || keyed.schedule_at(mode, 7, deadline, n)));
                calls.map(|call| call.join().unwrap())
            });
            let winners: Vec<usize> = (0..4).filter(|&n| matches!(placed[n], Ok(Placed::New))).collect();
            assert_eq!(winners.len(), 1, "{placed:?}");
            assert_eq!(keyed.cancel(&7), Some(winners[0] as u64));
        }
    });
}

/// Entries that race with a shutdown: each ran, or is in the map, or came back with the error.
#[test]
fn entries_that_race_with_a_shutdown_are_all_accounted_for() {
    within_patience(|| {
        for round in 0..20 {
            let tasks =
                TaskEngine::start(Builder::new().tick(50 * MICRO).shards(2).unpinned().workers(2)).unwrap();
            let (ran, accepted) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
            let count = Arc::clone(&ran);
            let keyed = tasks.handle().keyed(move |_: DueKey<'_, u64, ()>| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            thread::scope(|scope| {
                for seed in 0..3 {
                    let (keyed, accepted) = (&keyed, &accepted);
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed);
                        for n in 0.. {
                            match keyed.schedule(n * 3 + seed, rng.nanos_below(2 * MS), ()) {
                                Ok(before) => {
                                    assert_eq!(before, None);
                                    accepted.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(error) => {
                                    let refused = KeyedErrorKind::Refused(Refusal::ShutDown);
                                    assert_eq!(error.kind, refused);
                                    return;
                                }
                            }
                        }
                    });
                }
                thread::sleep(MS * (round % 4));
                drop(tasks.handle().shutdown());
            });
            let left = keyed.drain().len() as u64;
            assert_eq!(ran.load(Ordering::Relaxed) + left, accepted.load(Ordering::Relaxed), "round {round}");
            assert_settled(&tasks.handle().stats());
        }
    });
}

/// By chance against a map, on the threadless engine, where every answer is known.
#[test]
fn calls_by_chance_agree_with_a_plain_model() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut tasks = driven();
        let (keyed, log) = logged::<u64>(tasks.handle());
        let mut model = HashMap::<u64, (Timestamp, u64)>::new();
        for value in 0..400 {
            let key = rng.below(5);
            let delay = MS * u32::try_from(rng.below(30)).unwrap();
            let deadline = tasks.handle().now() + delay;
            match rng.below(6) {
                0 => {
                    let before = model.insert(key, (deadline, value)).map(|(_, value)| value);
                    assert_eq!(keyed.schedule(key, delay, value).unwrap(), before);
                }
                1 => {
                    let mode = [IfPresent::Keep, IfPresent::Reject][rng.index(2)];
                    let is_new = !model.contains_key(&key);
                    model.entry(key).or_insert((deadline, value));
                    let placed = keyed.schedule_at(mode, key, deadline, value);
                    match (is_new, mode) {
                        (true, _) => assert_eq!(placed.unwrap(), Placed::New),
                        (false, IfPresent::Keep) => assert_eq!(placed.unwrap(), Placed::Kept(value)),
                        (false, _) => assert_eq!(placed.unwrap_err().value, value),
                    }
                }
                2 => assert_eq!(keyed.cancel(&key), model.remove(&key).map(|(_, value)| value)),
                3 => {
                    let moved = model.get_mut(&key).map(|entry| entry.0 = deadline);
                    assert_eq!(keyed.reschedule(&key, delay), moved.ok_or(MoveError::Absent));
                }
                4 if rng.chance(10) => {
                    let mut drained = keyed.drain();
                    drained.sort_unstable();
                    let mut expected: Vec<(u64, u64)> =
                        model.drain().map(|(key, entry)| (key, entry.1)).collect();
                    expected.sort_unstable();
                    assert_eq!(drained, expected);
                }
                _ => {
                    // Jobs that are due at once run before the clock moves.
                    let before = tasks.handle().now();
                    tasks.advance(MS);
                    let now = tasks.handle().now();
                    for (at, key, value) in log.take() {
                        let (deadline, expected) = model.remove(&key).expect("an entry");
                        assert_eq!((value, at), (expected, deadline.max(before)), "seed {seed}");
                    }
                    assert!(model.values().all(|&(deadline, _)| deadline > now), "seed {seed}");
                }
            }
            let (deadline, remaining) = (keyed.deadline(&key), keyed.remaining(&key));
            assert_eq!(deadline, model.get(&key).map(|entry| entry.0), "seed {seed}");
            assert_eq!(remaining, deadline.map(|deadline| deadline - tasks.handle().now()));
            assert_eq!(
                (keyed.len(), tasks.handle().stats().pending),
                (model.len(), model.len() as u64),
                "seed {seed}"
            );
        }
    }
}

/// Keys come and go by the million, a third fired, a third cancelled and a third replaced before: no entry and no timer
/// is left, and the map has given its memory back.
#[test]
fn no_entry_is_left_behind_of_millions_of_keys() {
    let keys: u64 = match env::var("TOURBILLON_KEYS") {
        Ok(keys) => keys.parse().expect("TOURBILLON_KEYS is a number of keys"),
        Err(_) => 300_000,
    };
    let capacity = u32::try_from(2 * keys + 1_000).expect("fewer keys");
    let mut tasks = DrivenTasks::start(Builder::new().capacity(capacity)).unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ran);
    let keyed = tasks.handle().keyed(move |_: DueKey<'_, u64, u64>| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let begin = Instant::now();
    let note = |phase: &str| {
        if env::var_os("TOURBILLON_KEYS").is_some() {
            eprintln!("{phase}: {:?}, {} MiB resident", begin.elapsed(), resident_mib());
        }
    };
    note("empty");
    for key in 0..keys {
        assert_eq!(
            keyed.schedule(key, MS * 100 + MS * u32::try_from(key % 1_000).unwrap(), key).unwrap(),
            None
        );
        if key % 32_768 == 0 {
            tasks.turn();
        }
    }
    note("scheduled");
    assert_eq!((keyed.len() as u64, tasks.handle().stats().pending), (keys, keys));
    for key in 0..keys {
        match key % 3 {
            0 => assert_eq!(keyed.cancel(&key), Some(key)),
            1 => assert_eq!(keyed.schedule(key, MS * 50, key + 1).unwrap(), Some(key)),
            _ => {}
        }
        if key % 32_768 == 0 {
            tasks.turn();
        }
    }
    note("cancelled and replaced");
    let left = keys - keys.div_ceil(3);
    assert_eq!((keyed.len() as u64, tasks.handle().stats().pending), (left, left));
    tasks.advance(2 * SECOND);
    note("fired");
    assert_eq!(ran.load(Ordering::Relaxed), left);
    assert_empty(&keyed, &mut tasks);
    assert_eq!(tasks.handle().stats().total.tickets, 0);
    note("empty again");
}

fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok()).unwrap_or(0) / 1_024
}
