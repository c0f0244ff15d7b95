//! Tasks and keys that affect each other: threads, panics, and entries that replace entries of the same key.

use crate::support::{HOUR, Log, MS, Rng, assert_settled, lock, wait_until, within_patience};
use crate::{SECOND, at, every, keys, seconds};
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Cancel};
use tourbillon_tasks::keyed::{DueKey, Placed};
use tourbillon_tasks::{IfPresent, OnPanic, Repeat, TaskEngine};

#[test]
fn tasks_run_on_the_engines_threads_and_on_no_other_thread() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(1).workers(2)).unwrap();
        let (threads, ran) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(AtomicU64::new(0)));
        let note = || {
            let (threads, ran) = (Arc::clone(&threads), Arc::clone(&ran));
            move || {
                lock(&threads).insert(thread::current().id());
                ran.fetch_add(1, Ordering::Relaxed);
            }
        };
        for n in 0..1_000_u32 {
            tasks.handle().after(MS * (n % 5), note()).unwrap();
            if n % 10 == 0 {
                let run = note();
                tasks.handle().repeat(Repeat::every(MS).times(3), move |_| run()).unwrap();
                let run = note();
                tasks.handle().repeat_in_parallel(Repeat::every(MS).times(3), move |_| run()).unwrap();
            }
        }
        wait_until("all have run", || ran.load(Ordering::Relaxed) == 1_600);
        // The engine has a thread for the shard and a thread for each worker.
        assert!(lock(&threads).len() <= 3, "{} threads", lock(&threads).len());
    });
}

#[test]
fn a_key_has_one_entry_and_the_newest_is_cancelled() {
    let mut tasks = seconds();
    let (keyed, log) = keys(tasks.handle());
    assert_eq!(keyed.schedule(7, 10 * SECOND, 1).unwrap(), None);
    // The key moves into another slot, then into the same slot, and is then cancelled.
    assert_eq!(keyed.schedule(7, 20 * SECOND, 2).unwrap(), Some(1));
    assert_eq!(keyed.schedule(7, 20 * SECOND, 3).unwrap(), Some(2));
    assert_eq!((keyed.len(), keyed.cancel(&7)), (1, Some(3)));
    tasks.advance(100 * SECOND);
    assert_eq!((log.len(), keyed.len()), (0, 0));
    assert_settled(&tasks.handle().stats());
}

#[test]
fn a_job_that_panics_costs_only_itself() {
    let mut tasks = seconds();
    let log = Log::new();
    let (sink, also, third) = (log.clone(), log.clone(), log.clone());
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, u64>| {
        if due.value == 1 {
            resume_unwind(Box::new("a job"));
        }
        sink.push(due.value);
    });
    keyed.schedule(1, SECOND, 1).unwrap();
    keyed.schedule(2, SECOND, 2).unwrap();
    tasks.handle().after(SECOND, || resume_unwind(Box::new("once"))).unwrap();
    tasks.handle().after(SECOND, move || also.push(3)).unwrap();
    let ends = tasks
        .handle()
        .repeat(every(1).on_panic(OnPanic::Stop), |_| resume_unwind(Box::new("again")))
        .unwrap();
    tasks.handle().repeat(every(1).times(2), move |run| third.push(3 + run.number)).unwrap();
    tasks.advance(2 * SECOND);
    assert_eq!(log.take_sorted(), [2, 3, 4, 5]);
    assert_eq!((tasks.handle().stats().total.panics, ends.has_ended()), (3, true));
}

#[test]
fn a_key_whose_hash_panics_costs_its_call() {
    #[derive(Clone, PartialEq, Eq)]
    struct Unhashable(bool);
    impl Hash for Unhashable {
        fn hash<H: Hasher>(&self, _: &mut H) {
            if self.0 {
                resume_unwind(Box::new("no hash"));
            }
        }
    }
    let mut tasks = seconds();
    let log = Log::new();
    let sink = log.clone();
    let keyed = tasks.handle().keyed(move |due: DueKey<'_, Unhashable, u64>| sink.push(due.value));
    keyed.schedule(Unhashable(false), SECOND, 1).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| keyed.schedule(Unhashable(true), SECOND, 2))).is_err());
    tasks.advance(SECOND);
    assert_eq!((log.take(), keyed.len(), tasks.handle().stats().pending), (vec![1], 0, 0));
}

/// A key's entry was replaced, and the old entry's ticket (a request to check a timer) is still in the wheel. The wheel
/// reaches that ticket, in another slot or in the new ticket's slot.
#[test]
fn an_old_generation_does_not_end_the_new_one() {
    let mut tasks = seconds();
    let (keyed, log) = keys(tasks.handle());
    keyed.schedule(7, 10 * SECOND, 1).unwrap();
    tasks.turn();
    assert_eq!(keyed.cancel(&7), Some(1));
    keyed.schedule(7, 30 * SECOND, 2).unwrap();
    keyed.schedule(8, 10 * SECOND, 3).unwrap();
    tasks.turn();
    assert_eq!(keyed.cancel(&8), Some(3));
    keyed.schedule(8, 10 * SECOND, 4).unwrap();
    tasks.advance(20 * SECOND);
    assert_eq!((log.take(), keyed.keys()), (vec![4], vec![7]));
    // The new entry can be replaced, rejected and cancelled.
    assert!(keyed.schedule_at(IfPresent::Reject, 7, at(HOUR), 5).is_err());
    assert_eq!((keyed.schedule(7, SECOND, 6).unwrap(), keyed.cancel(&7)), (Some(2), Some(6)));
    tasks.advance(HOUR);
    assert_eq!((log.len(), keyed.len()), (0, 0));
}

#[test]
fn of_two_adds_one_succeeds_and_is_found_at_once() {
    within_patience(|| {
        let tasks = TaskEngine::start(Builder::new().shards(2).workers(1)).unwrap();
        let (keyed, _log) = keys(tasks.handle());
        for key in 0..500 {
            let deadline = tasks.handle().now() + HOUR;
            let adds = thread::scope(|scope| {
                let add = |value| {
                    let keyed = &keyed;
                    move || {
                        let is_new = keyed.schedule_at(IfPresent::Reject, key, deadline, value).is_ok();
                        // The key has an entry by now, no matter which thread has added it.
                        assert!(keyed.contains(&key));
                        is_new
                    }
                };
                let other = scope.spawn(add(1));
                let own = add(0)();
                [own, other.join().unwrap()]
            });
            assert_eq!(adds.iter().filter(|&&is_new| is_new).count(), 1);
            assert_eq!(keyed.cancel(&key), Some(u64::from(adds[1])));
        }
    });
}

/// Threads query a key while its entry fires. Each thread gets an answer that was true at some moment, and no firing is
/// lost.
#[test]
fn lookers_do_not_disturb_what_fires() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().tick(Duration::from_micros(50)).shards(1).workers(1)).unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ran);
        let keyed = tasks.handle().keyed(move |_: DueKey<'_, u64, ()>| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut key = 0;
                    while !over.load(Ordering::Relaxed) {
                        key = (key + 1) % 5_000;
                        assert!(keyed.remaining(&key).is_none_or(|remaining| remaining <= 20 * MS));
                        let _ = (keyed.contains(&key), keyed.deadline(&key));
                        if key == 0 {
                            assert!(keyed.keys().len() <= 5_000 && keyed.len() <= 5_000);
                        }
                    }
                });
            }
            let mut rng = Rng::new(4);
            for key in 0..5_000 {
                keyed.schedule(key, rng.nanos_below(20 * MS), ()).unwrap();
            }
            wait_until("all have run", || ran.load(Ordering::Relaxed) == 5_000);
            over.store(true, Ordering::Relaxed);
        });
        assert!(keyed.is_empty());
    });
}

/// All timers are in one slot of the wheel. When the slot is emptied, each timer schedules itself again for the next
/// slot. Several workers run the timers.
#[test]
fn a_hundred_thousand_that_reschedule_themselves_do_not_deadlock() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().shards(1).unpinned().workers(2).lane_capacity(1_024)).unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ran);
        let keyed = tasks.handle().keyed(move |due: DueKey<'_, u64, u64>| {
            count.fetch_add(1, Ordering::Relaxed);
            if due.value > 0 {
                due.keyed.schedule(due.key, MS, due.value - 1).unwrap();
            }
        });
        let deadline = tasks.handle().now() + 20 * MS;
        for key in 0..33_334 {
            assert_eq!(keyed.schedule_at(IfPresent::Reject, key, deadline, 2).unwrap(), Placed::New);
        }
        wait_until("all have run", || ran.load(Ordering::Relaxed) == 3 * 33_334);
        assert!(keyed.is_empty());
    });
}

#[test]
fn everything_can_be_moved() {
    let mut tasks = seconds();
    let (keyed, log) = keys(tasks.handle());
    let sink = log.clone();
    let mut id = tasks.handle().after(10 * SECOND, move || sink.push(100)).unwrap();
    let sink = log.clone();
    let timer = tasks.handle().timer(move || sink.push(200)).unwrap();
    timer.arm(10 * SECOND).unwrap();
    keyed.schedule(1, 10 * SECOND, 300).unwrap();
    let mut rng = Rng::new(6);
    for _ in 0..500 {
        let delay = SECOND * u32::try_from(2 + rng.below(200)).unwrap();
        id = tasks.handle().reschedule(id, delay).unwrap();
        timer.arm(delay).unwrap();
        keyed.reschedule(&1, delay).unwrap();
        tasks.advance(SECOND);
    }
    assert_eq!(log.len(), 0);
    id = tasks.handle().reschedule(id, 5 * SECOND).unwrap();
    timer.arm(5 * SECOND).unwrap();
    keyed.reschedule(&1, 5 * SECOND).unwrap();
    tasks.advance(4 * SECOND);
    assert_eq!(log.len(), 0);
    tasks.advance(SECOND);
    assert_eq!((log.take_sorted(), tasks.handle().cancel(id)), (vec![100, 200, 300], Cancel::Gone));
}
