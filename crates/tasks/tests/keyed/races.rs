//! Calls that race with firing and with each other. A generation of a key is the time of one entry. Each generation
//! ends in exactly one way.

use crate::support::{HOUR, MS, Rng, assert_settled, lock, wait_until, within_patience};
use crate::{MICRO, SECOND, assert_empty, driven, logged, ms};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;
use tourbillon::{Builder, Refusal, Timestamp};
use tourbillon_tasks::keyed::{DueKey, Keyed, KeyedErrorKind, Placed};
use tourbillon_tasks::{IfPresent, TaskEngine, Tasks};

/// A thousand values are scheduled for one key, one after the other and for the same deadline. Only the last value's
/// job runs.
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

/// A worker already has the job of an entry when the entry is replaced. The job is not run.
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

/// A timer has begun to fire, and reaches the map just after its entry was replaced. The timer leaves the new entry to
/// the new timer. Each value is the deadline of its entry, so that a job knows which timer ran it.
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
                        // Half of the deadlines are as soon as possible. The other half are later, and the job of a
                        // stray timer would come too early.
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

/// The fate of a generation (one value scheduled for a key): its job ran.
const RAN: u8 = 1;
const REPLACED: u8 = 2;
const CANCELLED: u8 = 3;
const DRAINED: u8 = 4;
const REFUSED: u8 = 5;

/// The fate of each generation (one value scheduled for a key). The index is the generation's token.
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

    /// Returns a token that no generation has used yet. Returns `None` when all tokens were used.
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

/// Threads replace, keep, reject, cancel, move, drain and list a few keys while the keys' entries fire. The entries'
/// jobs make the same calls.
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
                        // A call fails for want of room only if its caller would wait for itself.
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

/// Handlers run on the shard's own thread, and lanes (threads' queues to a shard) are always full. A thread that
/// schedules a key waits for room in its lane, while a job on the shard's thread uses the same key.
#[test]
fn each_generation_ends_in_exactly_one_way_inline_with_full_lanes() {
    within_patience(|| {
        stress(Builder::new().tick(20 * MICRO).shards(2).unpinned().inline().lane_capacity(64), 20_000);
    });
}

/// Four threads schedule the same free key at once. Exactly one thread gets the key.
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

/// Entries are scheduled during a shutdown. Each entry has run, or is in the map, or came back with the error.
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
