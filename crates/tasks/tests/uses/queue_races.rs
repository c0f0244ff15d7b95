//! Races of pushes, removals, resets, receivers and the end, on real threads.
#![expect(clippy::cast_possible_truncation, reason = "numbers are small")]

use crate::polling::block_on;
use crate::support::{Gate, MS, PATIENCE, Rng, wait_until, within_patience};
use crate::{SECOND, is_empty, item, threads};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::future::timeout;
use tourbillon::{Builder, Refusal};
use tourbillon_tasks::uses::{DelayQueue, Delayed, DueItem, PushErrorKind, TryRecvError};
use tourbillon_tasks::{TaskEngine, Tasks};

const EACH: u64 = 8_000;
const LONGEST: Duration = Duration::from_micros(400);

/// The number of times that each item of the queue was received.
struct Book(Vec<AtomicUsize>);

impl Book {
    fn new(items: u64) -> Self {
        Self((0..items).map(|_| AtomicUsize::new(0)).collect())
    }

    fn note(&self, item: u64) {
        self.0[item as usize].fetch_add(1, Ordering::SeqCst);
    }

    fn assert_each_once(&self) {
        for (item, count) in self.0.iter().enumerate() {
            assert_eq!(count.load(Ordering::SeqCst), 1, "item {item}");
        }
    }
}

/// Pushes the items of `items` into the queue, and removes some items or moves their deadlines.
fn push_and_meddle(queue: &DelayQueue<u64>, book: &Book, items: std::ops::Range<u64>) {
    let mut rng = Rng::new(items.start + 1);
    let mut ids: Vec<Delayed> = Vec::new();
    for item in items {
        ids.push(queue.push(rng.nanos_below(LONGEST), item).unwrap());
        let id = ids[rng.index(ids.len())];
        match rng.below(4) {
            0 => queue.remove(id).into_iter().for_each(|item| book.note(item)),
            1 => _ = queue.reset(id, rng.nanos_below(LONGEST)),
            _ => {}
        }
        if ids.len() > 20 {
            ids.clear();
        }
    }
}

fn receive_all(queue: &DelayQueue<u64>, book: &Book) {
    loop {
        match queue.recv_timeout(Duration::from_micros(100)).map(item) {
            Ok(item) => book.note(item),
            Err(TryRecvError::Empty) => queue.recv().map(item).into_iter().for_each(|item| book.note(item)),
            Err(TryRecvError::Closed) => return,
        }
    }
}

#[test]
fn each_item_is_received_or_taken_back_once() {
    within_patience(|| {
        let (tasks, book) = (threads(), Book::new(2 * EACH));
        let queue = tasks.handle().delay_queue();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| receive_all(&queue, &book));
            }
            let pushers: Vec<_> = (0..2)
                .map(|n| {
                    let (queue, book) = (&queue, &book);
                    scope.spawn(move || push_and_meddle(queue, book, n * EACH..(n + 1) * EACH))
                })
                .collect();
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            wait_until("all are received", || queue.is_empty());
            assert!(queue.close().is_empty());
        });
        book.assert_each_once();
        drop(queue);
        wait_until("the timer is gone", || is_empty(&tasks.handle().stats()));
        assert_eq!(tasks.handle().stats().total.panics, 0);
    });
}

/// Pushes items one after the other, and ends the queue at some moment. No item is lost.
fn the_end_loses_nothing(
    end: fn(&Tasks, &DelayQueue<u64>) -> Vec<u64>,
    is_expected: fn(PushErrorKind) -> bool,
) {
    within_patience(move || {
        for round in 0..40 {
            let tasks = threads();
            let (queue, book) = (tasks.handle().delay_queue(), Book::new(2_000));
            thread::scope(|scope| {
                let receiver = scope.spawn(|| {
                    receive_all(&queue, &book);
                    // A queue that has ended stays ended.
                    thread::yield_now();
                    assert_eq!(queue.try_recv().map(item), Err(TryRecvError::Closed));
                });
                let pusher = scope.spawn(|| {
                    for item in 0..2_000 {
                        if let Err(refused) = queue.push(Duration::from_micros(item % 100), item) {
                            assert!(is_expected(refused.kind), "{:?}", refused.kind);
                            book.note(refused.item);
                        }
                    }
                });
                thread::sleep(Duration::from_micros(25 * round));
                end(tasks.handle(), &queue).into_iter().for_each(|item| book.note(item));
                receiver.join().unwrap();
                pusher.join().unwrap();
            });
            queue.close().into_iter().for_each(|item| book.note(item));
            book.assert_each_once();
            assert!(queue.is_empty());
        }
    });
}

#[test]
fn a_close_loses_nothing() {
    the_end_loses_nothing(|_, queue| queue.close(), |kind| kind == PushErrorKind::Closed);
}

#[test]
fn a_shutdown_loses_nothing() {
    let shut_down = |tasks: &Tasks, _: &DelayQueue<u64>| {
        assert!(tasks.shutdown().is_empty());
        Vec::new()
    };
    the_end_loses_nothing(shut_down, |kind| kind == PushErrorKind::Refused(Refusal::ShutDown));
}

#[test]
fn a_shard_that_is_held_up_holds_up_no_push_and_no_look() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().shards(1).unpinned().inline().lane_capacity(64)).unwrap();
        let (queue, gate) = (tasks.handle().delay_queue(), Gate::new());
        let pass = gate.clone();
        tasks.handle().after(Duration::ZERO, move || pass.pass()).unwrap();
        gate.await_arrival();
        for n in 0..1_000 {
            queue.push(if n % 2 == 0 { Duration::ZERO } else { Duration::MAX }, n).unwrap();
        }
        wait_until("half of them were received", || {
            while queue.try_recv().is_ok() {}
            queue.len() == 500
        });
        assert_eq!(queue.close().len(), 500);
        gate.open();
        assert_eq!((queue.len(), queue.recv().is_err(), queue.close().len()), (0, true, 0));
    });
}

/// The engine ends while threads receive, and other threads look whether the queue is closed. The first thread that
/// sees the end closes the queue, and its call returns all items that were not due.
#[test]
fn whoever_sees_the_end_first_gets_the_rest() {
    const ITEMS: usize = 2_000;
    within_patience(|| {
        for round in 0..40 {
            let tasks = threads();
            let queue = tasks.handle().delay_queue();
            for item in 0..ITEMS {
                queue.push(PATIENCE, item).unwrap();
            }
            let (seen, saved) = (AtomicUsize::new(0), AtomicUsize::new(0));
            thread::scope(|scope| {
                for n in 0..4 {
                    let (queue, seen, saved) = (&queue, &seen, &saved);
                    scope.spawn(move || {
                        if n < 2 {
                            assert!(queue.recv().is_err());
                        } else {
                            while !queue.is_closed() {
                                thread::yield_now();
                            }
                        }
                        if seen.fetch_add(1, Ordering::SeqCst) == 0 {
                            saved.fetch_add(queue.close().len(), Ordering::SeqCst);
                        }
                    });
                }
                thread::sleep(MS);
                assert!(tasks.handle().shutdown().is_empty());
            });
            assert_eq!((saved.into_inner(), queue.close().len()), (ITEMS, 0), "round {round}");
        }
    });
}

/// Threads close a queue, and a shutdown ends it. One of the calls returns all items that were not due.
#[test]
fn of_many_that_close_a_queue_one_gets_the_rest() {
    const ITEMS: usize = 500;
    within_patience(|| {
        for _ in 0..100 {
            let tasks = threads();
            let queue = tasks.handle().delay_queue();
            for item in 0..ITEMS {
                queue.push(PATIENCE, item).unwrap();
            }
            let start = Barrier::new(4);
            let mut returned = thread::scope(|scope| {
                let closing = [(); 3].map(|()| {
                    scope.spawn(|| {
                        start.wait();
                        queue.close().len()
                    })
                });
                start.wait();
                assert!(tasks.handle().shutdown().is_empty());
                closing.map(|thread| thread.join().unwrap())
            });
            returned.sort_unstable();
            assert_eq!(returned, [0, 0, ITEMS]);
        }
    });
}

#[test]
fn an_item_that_comes_while_somebody_sits_down_is_found() {
    within_patience(|| {
        let tasks = threads();
        let queue = tasks.handle().delay_queue();
        let mut rng = Rng::new(7);
        for n in 0..3_000 {
            queue.push(Duration::ZERO, n).unwrap();
            // The loop ends about when the item comes due.
            let until = tasks.handle().now() + rng.nanos_below(Duration::from_micros(150));
            while tasks.handle().now() < until {
                std::hint::spin_loop();
            }
            assert_eq!(queue.recv().map(item), Ok(n));
        }
    });
}

/// A way in which a receiver waits for the next item.
type Receive = fn(&DelayQueue<u64>) -> Option<DueItem<u64>>;

/// Two receivers take the two items of a tick, a thousand times. The receiver that takes the first item does not poll
/// the queue again. So the queue must wake the other receiver for the second item.
#[expect(clippy::print_stdout, reason = "figures to be read by hand")]
fn two_receivers_share_each_tick(receive: [Receive; 2]) {
    const ROUNDS: u64 = 1_000;
    let tasks = threads();
    let queue = tasks.handle().delay_queue::<u64>();
    let (rounds, holds) = (Barrier::new(3), Barrier::new(3));
    let (sender, received) = mpsc::channel();
    let (mut slow, mut lost) = (0, 0);
    thread::scope(|scope| {
        for receive in receive {
            let (queue, rounds, holds, sender) = (&queue, &rounds, &holds, sender.clone());
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    rounds.wait();
                    sender.send(receive(queue).map(item)).unwrap();
                    holds.wait();
                }
            });
        }
        for _ in 0..ROUNDS {
            rounds.wait();
            let due = tasks.handle().now() + MS;
            let _ids = [1, 2].map(|n| queue.push_at(due, n).unwrap());
            let mut got = vec![received.recv().unwrap()];
            got.extend(received.recv_timeout(10 * MS));
            if got.len() < 2 {
                // A busy machine may delay a receiver that was woken. If the item is still not received a second later,
                // its wake-up was lost.
                slow += 1;
                let patience = if lost == 0 { SECOND } else { Duration::ZERO };
                got.extend(received.recv_timeout(patience));
            }
            if got.len() < 2 {
                lost += 1;
                // This push wakes the receiver that sleeps.
                queue.push(Duration::ZERO, 3).unwrap();
                got.push(received.recv().unwrap());
                while queue.try_recv().is_ok() {}
            }
            assert!(got.iter().all(Option::is_some), "{got:?}");
            holds.wait();
        }
    });
    println!("{slow} items were taken later than 10 ms after the first, {lost} not within a second");
    assert_eq!(lost, 0, "items were due beside a receiver that slept");
}

fn block(queue: &DelayQueue<u64>) -> Option<DueItem<u64>> {
    queue.recv().ok()
}

fn block_for_a_while(queue: &DelayQueue<u64>) -> Option<DueItem<u64>> {
    queue.recv_timeout(PATIENCE).ok()
}

/// Waits for an item by calls of `recv_timeout`, each of which soon times out.
fn block_for_a_moment(queue: &DelayQueue<u64>) -> Option<DueItem<u64>> {
    loop {
        match queue.recv_timeout(MS) {
            Ok(due) => return Some(due),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => return None,
        }
    }
}

fn wait(queue: &DelayQueue<u64>) -> Option<DueItem<u64>> {
    block_on(queue.next())
}

fn wait_for_a_while(queue: &DelayQueue<u64>) -> Option<DueItem<u64>> {
    block_on(timeout(PATIENCE, queue.next())).ok().flatten()
}

#[test]
fn no_item_is_due_beside_a_thread_that_sleeps() {
    within_patience(|| two_receivers_share_each_tick([block, block]));
}

#[test]
fn no_item_is_due_beside_a_thread_that_sleeps_with_a_timeout() {
    within_patience(|| two_receivers_share_each_tick([block_for_a_while, block_for_a_while]));
    within_patience(|| two_receivers_share_each_tick([block_for_a_moment, block]));
}

#[test]
fn no_item_is_due_beside_a_task_that_sleeps() {
    within_patience(|| two_receivers_share_each_tick([wait, wait]));
    within_patience(|| two_receivers_share_each_tick([wait, block]));
}

#[test]
fn no_item_is_due_beside_a_task_that_sleeps_with_a_timeout() {
    within_patience(|| two_receivers_share_each_tick([wait_for_a_while, wait_for_a_while]));
    within_patience(|| two_receivers_share_each_tick([wait_for_a_while, block_for_a_moment]));
}
