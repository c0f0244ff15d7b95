//! Races of touches, removals and expiries, on real threads.

#![expect(clippy::cast_possible_truncation, reason = "ids are small")]

use crate::support::{MS, PATIENCE, Rng, wait_until, within_patience};
use crate::{is_empty, threads};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{Refusal, Timestamp};
use tourbillon_tasks::uses::{ConnectErrorKind, Connection, Expired, IdleTimeouts, Limits};

const IDLE: Duration = Duration::from_micros(100);
const THREADS: u64 = 2;
const EACH: u64 = 6_000;

/// The test's record of all connections: the promised lifetimes, and the limits that ended them.
struct Book {
    /// The moment before which each connection must not expire. The connection's last touch that returned true sets it.
    promised: Vec<AtomicU64>,
    expired: Vec<AtomicUsize>,
    /// The limit that each expired connection reached.
    limits: Vec<AtomicU64>,
    removed: AtomicUsize,
}

impl Book {
    fn new() -> Arc<Self> {
        let count = THREADS * EACH;
        Arc::new(Self {
            promised: (0..count).map(|_| AtomicU64::new(0)).collect(),
            expired: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            limits: (0..count).map(|_| AtomicU64::new(u64::MAX)).collect(),
            removed: AtomicUsize::new(0),
        })
    }

    fn promise(&self, id: u64, now: Timestamp) {
        self.promised[id as usize].fetch_max((now + IDLE).as_nanos(), Ordering::SeqCst);
    }

    fn expire(&self, expired: &Expired<u64>) {
        self.limits[expired.id as usize].store(expired.deadline.as_nanos(), Ordering::SeqCst);
        self.expired[expired.id as usize].fetch_add(1, Ordering::SeqCst);
    }

    fn count_expired(&self) -> usize {
        self.expired.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }
}

/// Runs one thread's connections. The thread touches the connections at random, removes them by handle or id, or leaves
/// them to expire.
fn live(timeouts: &IdleTimeouts<u64>, now: impl Fn() -> Timestamp, book: &Book, ids: Range<u64>) {
    let mut rng = Rng::new(ids.start + 1);
    let mut alive: Vec<Connection<u64>> = Vec::new();
    for id in ids {
        alive.push(timeouts.insert(id).unwrap());
        for _ in 0..3 {
            let at = rng.index(alive.len());
            let (connection, moment) = (&alive[at], now());
            let is_alive = match rng.below(3) {
                0 => connection.touch(),
                1 => connection.touch_at(moment),
                _ => timeouts.touch(connection.id()),
            };
            if is_alive {
                book.promise(*connection.id(), moment);
            } else {
                assert!(!alive.swap_remove(at).remove(), "too late for a touch, and not for a removal");
            }
            if alive.is_empty() {
                break;
            }
        }
        if !alive.is_empty() && (rng.chance(10) || alive.len() > 400) {
            let connection = alive.swap_remove(rng.index(alive.len()));
            let was_there =
                if rng.chance(50) { timeouts.remove(connection.id()) } else { connection.remove() };
            book.removed.fetch_add(usize::from(was_there), Ordering::SeqCst);
        }
    }
    wait_until("some have expired", || book.count_expired() > 0);
    for connection in alive {
        book.removed.fetch_add(usize::from(connection.remove()), Ordering::SeqCst);
    }
}

#[test]
fn each_connection_ends_once_and_never_before_it_may() {
    within_patience(|| {
        let (tasks, book) = (threads(), Book::new());
        let ledger = Arc::clone(&book);
        let timeouts =
            tasks.handle().idle_timeouts(Limits::idle(IDLE), move |expired| ledger.expire(&expired));
        thread::scope(|scope| {
            for n in 0..THREADS {
                let (timeouts, tasks, book) = (&timeouts, &tasks, &book);
                scope.spawn(move || live(timeouts, || tasks.handle().now(), book, n * EACH..(n + 1) * EACH));
            }
        });
        let removed = book.removed.load(Ordering::SeqCst);
        wait_until("the last have expired", || book.count_expired() + removed == (THREADS * EACH) as usize);
        assert!(book.expired.iter().all(|count| count.load(Ordering::SeqCst) <= 1));
        assert!(timeouts.is_empty(), "{} left", timeouts.len());
        assert!(
            book.count_expired() > 0 && removed > 0,
            "{} expired, {removed} removed",
            book.count_expired()
        );
        for (limit, promised) in book.limits.iter().zip(&book.promised) {
            let (limit, promised) = (limit.load(Ordering::SeqCst), promised.load(Ordering::SeqCst));
            assert!(limit >= promised, "expired before what a touch had promised");
        }
        wait_until("the timers are gone", || is_empty(&tasks.handle().stats()));
        assert_eq!(tasks.handle().stats().total.panics, 0);
    });
}

#[test]
fn the_owners_touch_and_anothers_removal_race() {
    within_patience(|| {
        const COUNT: u64 = 500;
        let tasks = threads();
        let timeouts = tasks.handle().idle_timeouts(Limits::idle(PATIENCE), |_: Expired<u64>| {});
        thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..COUNT {
                    while !timeouts.remove(&id) {
                        thread::yield_now();
                    }
                }
            });
            for id in 0..COUNT {
                let connection = timeouts.insert(id).unwrap();
                while connection.touch() {
                    thread::yield_now();
                }
                assert!(!connection.touch() && !timeouts.contains(&id) && !connection.remove());
            }
        });
        wait_until("the timers are gone", || is_empty(&tasks.handle().stats()));
        assert_eq!(tasks.handle().stats().owned.fired, 0);
    });
}

#[test]
fn a_batch_that_wakes_a_loop_brings_all_that_expired() {
    within_patience(|| {
        let tasks = threads();
        let (sender, wakes) = mpsc::channel();
        let (timeouts, batch) =
            tasks.handle().idle_batches(Limits::idle(MS), move || sender.send(()).unwrap());
        const COUNT: u64 = 5_000;
        let mut expired = Vec::new();
        let mut turns = 0;
        let connections: Vec<_> = (0..COUNT).map(|id| timeouts.insert(id).unwrap()).collect();
        while expired.len() < connections.len() {
            // If no wake comes, no connection has expired, or the wake was lost.
            wakes.recv_timeout(PATIENCE).expect("a wake");
            batch.drain(&mut expired);
            turns += 1;
        }
        let mut ids: Vec<u64> = expired.iter().map(|expired| expired.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..COUNT).collect::<Vec<_>>());
        assert!(turns <= COUNT);
    });
}

#[test]
fn inserts_and_touches_race_with_a_shutdown() {
    within_patience(|| {
        let mut most = 0;
        for _ in 0..20 {
            let tasks = threads();
            let timeouts = tasks.handle().idle_timeouts(Limits::idle(MS), |_: Expired<u64>| {});
            let alive = thread::scope(|scope| {
                let inserter = scope.spawn(|| {
                    let mut alive = Vec::new();
                    for id in 0.. {
                        match timeouts.insert(id) {
                            Ok(connection) => alive.push(connection),
                            Err(error) => {
                                assert_eq!(error.id, id);
                                assert_eq!(error.kind, ConnectErrorKind::Refused(Refusal::ShutDown));
                                assert!(!timeouts.contains(&id));
                                break;
                            }
                        }
                    }
                    alive
                });
                wait_until("some are there", || !timeouts.is_empty());
                assert!(tasks.handle().shutdown().is_empty());
                inserter.join().unwrap()
            });
            most = most.max(alive.len());
            assert_eq!(alive.iter().filter(|connection| connection.touch()).count(), 0);
            drop(alive);
            assert!(timeouts.is_empty());
        }
        assert!(most > 0, "no round had a connection");
    });
}
