//! Races of inserts, refreshes, removals and expiries, on real threads.
#![expect(clippy::cast_possible_truncation, reason = "numbers are small")]

use crate::support::{MS, Rng, wait_until, within_patience};
use crate::{is_empty, threads};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::Timestamp;
use tourbillon_tasks::Tasks;
use tourbillon_tasks::uses::{ExpiryMap, Lifetime};

const THREADS: u64 = 2;
const EACH: u64 = 20_000;
const KEYS: u64 = 50;
const TTL: Duration = Duration::from_micros(200);

/// The test's record of each value: the way in which it ended, and its deadline.
struct Book {
    ends: Vec<AtomicUsize>,
    /// The deadline of each value. A deadline is zero until the insert of its value has returned.
    deadlines: Vec<AtomicU64>,
}

impl Book {
    fn new() -> Arc<Self> {
        let count = THREADS * EACH;
        Arc::new(Self {
            ends: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            deadlines: (0..count).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn end(&self, value: u64) {
        self.ends[value as usize].fetch_add(1, Ordering::SeqCst);
    }

    fn count_ended(&self) -> u64 {
        self.ends.iter().map(|count| count.load(Ordering::SeqCst) as u64).sum()
    }
}

/// A value whose drop notes in the book that the value has ended.
struct Value(u64, Arc<Book>);

impl Drop for Value {
    fn drop(&mut self) {
        self.1.end(self.0);
    }
}

fn play(tasks: &Tasks, map: &ExpiryMap<u64, Value>, book: &Arc<Book>, numbers: Range<u64>, refreshes: bool) {
    let mut rng = Rng::new(numbers.start + 1);
    for number in numbers {
        let replaced = map.insert(rng.below(KEYS), Value(number, Arc::clone(book))).unwrap();
        book.deadlines[number as usize].store((tasks.now() + TTL).as_nanos(), Ordering::SeqCst);
        drop(replaced);
        let key = rng.below(KEYS);
        match rng.below(10) {
            0 => drop(map.remove(&key)),
            1..=3 if refreshes => _ = map.refresh(&key),
            4 if rng.chance(1) => map.retain(|key, _| key % 2 == 0),
            4 if rng.chance(1) => map.clear(),
            _ => {
                // This is the true time. `Tasks::now` may be ahead of it.
                let before = Timestamp::from(Instant::now());
                let found = map.read(&key, |value| value.0);
                let deadline = found.map_or(0, |value| book.deadlines[value as usize].load(Ordering::SeqCst));
                assert!(
                    refreshes || deadline == 0 || before.as_nanos() < deadline,
                    "returned after its deadline"
                );
            }
        }
    }
}

fn each_value_ends_once(refreshes: bool) {
    within_patience(move || {
        let (tasks, book) = (threads(), Book::new());
        let expired = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&expired);
        let map = tasks.handle().expiry_map_with_listener(Lifetime::of(TTL), move |_, value: Value| {
            count.fetch_add(1, Ordering::SeqCst);
            drop(value);
        });
        thread::scope(|scope| {
            for n in 0..THREADS {
                let (tasks, map, book) = (&tasks, &map, &book);
                scope.spawn(move || play(tasks.handle(), map, book, n * EACH..(n + 1) * EACH, refreshes));
            }
        });
        wait_until("the last have expired", || map.is_empty() && is_empty(&tasks.handle().stats()));
        wait_until("all values have ended", || book.count_ended() == THREADS * EACH);
        assert!(book.ends.iter().all(|count| count.load(Ordering::SeqCst) == 1));
        assert!(expired.load(Ordering::SeqCst) > 0);
        assert_eq!(tasks.handle().stats().total.panics, 0);
    });
}

#[test]
fn each_value_ends_once_and_is_never_returned_after_its_deadline() {
    each_value_ends_once(false);
}

#[test]
fn each_value_ends_once_however_often_it_is_refreshed() {
    each_value_ends_once(true);
}

#[test]
fn a_refresh_that_answers_true_keeps_its_entry() {
    within_patience(|| {
        let tasks = threads();
        let map = tasks.handle().expiry_map(Lifetime::of(MS));
        let (mut kept, mut lost) = (0, 0);
        for round in 0..300 {
            map.insert(7, round).unwrap();
            // The loop ends near the deadline, and often just past it.
            let until = tasks.handle().now() + (MS - Duration::from_micros(5 * (round % 20)));
            while tasks.handle().now() < until {
                std::hint::spin_loop();
            }
            let before = tasks.handle().now();
            if map.refresh(&7) {
                let found = map.get(&7);
                assert!(found == Some(round) || tasks.handle().now() >= before + MS, "refreshed, and gone");
                kept += 1;
            } else {
                lost += 1;
            }
        }
        assert!(kept > 0, "{kept} kept, {lost} lost");
    });
}

#[test]
fn inserts_race_with_a_shutdown() {
    within_patience(|| {
        for _ in 0..20 {
            let tasks = threads();
            let map = tasks.handle().expiry_map(Lifetime::of(MS));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let refused = (0_u64..).find_map(|n| map.insert(n, n).err()).unwrap();
                    assert_eq!(refused.kind, tourbillon::Refusal::ShutDown);
                    assert!(!map.contains(&refused.payload.0));
                });
                thread::sleep(MS);
                assert!(tasks.handle().shutdown().is_empty());
            });
            assert!(!map.refresh(&0));
            map.clear();
        }
    });
}
