//! The cost of a push to a shard, measured on its producer, for 1, 2 and 4 producers. A consumer drains every 0.9 ms.
//!
//! Our lanes are not public: this bench is built from their source.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "the sources serve the whole crate")]

#[path = "../src/base"]
mod base {
    pub(crate) mod fork;
    pub(crate) mod limits;
    pub(crate) mod sync;
    pub(crate) mod tick;
    pub(crate) mod ticket;
}
#[path = "../src/lockfree"]
mod lockfree {
    pub(crate) mod inbox;
}

mod common;
#[path = "common/sampling.rs"]
mod sampling;

use base::ticket::Insertion;
use criterion::{BenchmarkId, Criterion};
use crossbeam::channel::{Receiver, Sender};
use crossbeam::queue::SegQueue;
use lockfree::inbox;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const DRAIN_INTERVAL: Duration = Duration::from_micros(900);
/// The number of pushes that a producer makes before it checks the consumer's progress.
const BURST: u64 = 16_384;
/// The largest number of pushes by which a producer may be ahead of the consumer. An engine has the same lane capacity
/// by default.
const LANE_CAPACITY: u64 = 65_536;

/// A queue from many producers to one consumer.
trait Queue: Sync {
    const NAME: &'static str;
    type Writer: Writer + Send;

    fn new() -> Self;
    fn writer(&self) -> Self::Writer;
    /// Takes all entries from the queue. Only one thread at a time may drain.
    fn drain(&self, each: impl FnMut(Insertion));
}

trait Writer {
    fn push(&mut self, insertion: Insertion);
}

/// The engine's inbox. It has a lane (a queue with one producer) for each writer.
struct Lanes {
    inbox: Arc<inbox::Inbox>,
    reader: Mutex<inbox::InboxReader>,
}

impl Queue for Lanes {
    const NAME: &'static str = "lanes";
    type Writer = inbox::LaneWriter;

    fn new() -> Self {
        let inbox = Arc::new(inbox::Inbox::new(16 * LANE_CAPACITY));
        let reader = Mutex::new(inbox.reader());
        Self { inbox, reader }
    }

    fn writer(&self) -> inbox::LaneWriter {
        self.inbox.register()
    }

    fn drain(&self, mut each: impl FnMut(Insertion)) {
        self.reader.lock().unwrap().walk(|lane| lane.drain(&mut each));
    }
}

impl Writer for inbox::LaneWriter {
    #[inline]
    fn push(&mut self, insertion: Insertion) {
        // The check for room comes first, as in the engine.
        assert!(self.has_room());
        let _ = self.push(insertion);
    }
}

impl Queue for Arc<SegQueue<Insertion>> {
    const NAME: &'static str = "crossbeam SegQueue";
    type Writer = Self;

    fn new() -> Self {
        Self::default()
    }

    fn writer(&self) -> Self {
        Self::clone(self)
    }

    fn drain(&self, mut each: impl FnMut(Insertion)) {
        while let Some(insertion) = self.pop() {
            each(insertion);
        }
    }
}

impl Writer for Arc<SegQueue<Insertion>> {
    #[inline]
    fn push(&mut self, insertion: Insertion) {
        SegQueue::push(self, insertion);
    }
}

struct Channel {
    sender: Sender<Insertion>,
    receiver: Receiver<Insertion>,
}

impl Queue for Channel {
    const NAME: &'static str = "crossbeam channel";
    type Writer = Sender<Insertion>;

    fn new() -> Self {
        let (sender, receiver) = crossbeam::channel::unbounded();
        Self { sender, receiver }
    }

    fn writer(&self) -> Sender<Insertion> {
        self.sender.clone()
    }

    fn drain(&self, each: impl FnMut(Insertion)) {
        self.receiver.try_iter().for_each(each);
    }
}

impl Writer for Sender<Insertion> {
    #[inline]
    fn push(&mut self, insertion: Insertion) {
        self.send(insertion).expect("the receiver is there");
    }
}

fn main() {
    let mut criterion = sampling::criterion().measurement_time(Duration::from_millis(300));
    for producers in [1, 2, 4] {
        push::<Lanes>(&mut criterion, producers);
        push::<Arc<SegQueue<Insertion>>>(&mut criterion, producers);
        push::<Channel>(&mut criterion, producers);
    }
    criterion.final_summary();
}

fn push<Q: Queue>(criterion: &mut Criterion, producers: u64) {
    let mut group = criterion.benchmark_group("push");
    group.bench_function(BenchmarkId::new(Q::NAME, producers), |bencher| {
        bencher.iter_custom(|pushes| measure::<Q>(producers, common::at_least_some(pushes)));
    });
    group.finish();
}

fn insertion(number: u64) -> Insertion {
    Insertion { deadline: base::tick::Timestamp::from_nanos(number), index: 1, stamp: 2 }
}

/// Makes `pushes` pushes on each of `producers` threads. Returns the mean of the threads' times.
fn measure<Q: Queue>(producers: u64, pushes: u64) -> Duration {
    let queue = Q::new();
    let drained = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let ready = Barrier::new(usize::try_from(producers).expect("a few"));
    thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(&queue, &drained, &is_over));
        let producers: Vec<_> = (0..producers)
            .map(|_| scope.spawn(|| produce(&mut queue.writer(), pushes, producers, &drained, &ready)))
            .collect();
        let count = u32::try_from(producers.len()).expect("a few");
        let time: Duration =
            producers.into_iter().map(|producer| producer.join().expect("it only pushes")).sum();
        is_over.store(true, Ordering::Release);
        let sum = consumer.join().expect("it only sums");
        assert_eq!(sum, (pushes * (pushes - 1) / 2).wrapping_mul(u64::from(count)));
        time / count
    })
}

/// Drains the queue until `is_over` is set and the queue is empty. Returns the sum of all deadlines, and keeps the
/// number of entries in `drained`.
fn consume(queue: &impl Queue, drained: &AtomicU64, is_over: &AtomicBool) -> u64 {
    let (mut sum, mut count) = (0u64, 0);
    loop {
        let is_last = is_over.load(Ordering::Acquire);
        queue.drain(|insertion| {
            sum = sum.wrapping_add(insertion.deadline.as_nanos());
            count += 1;
        });
        drained.store(count, Ordering::Relaxed);
        if is_last {
            return sum;
        }
        thread::sleep(DRAIN_INTERVAL);
    }
}

/// Makes `pushes` pushes, and returns the time that they took. The result leaves out waits for a slow consumer.
fn produce(
    writer: &mut impl Writer,
    pushes: u64,
    producers: u64,
    drained: &AtomicU64,
    ready: &Barrier,
) -> Duration {
    let mut time = Duration::ZERO;
    let mut pushed = 0;
    ready.wait();
    while pushed < pushes {
        let burst = BURST.min(pushes - pushed);
        let start = Instant::now();
        for number in pushed..pushed + burst {
            writer.push(insertion(number));
        }
        time += start.elapsed();
        pushed += burst;
        // The limit assumes that the other producers push about the same number.
        while pushed * producers > drained.load(Ordering::Relaxed) + LANE_CAPACITY * producers {
            thread::sleep(DRAIN_INTERVAL / 4);
        }
    }
    time
}
