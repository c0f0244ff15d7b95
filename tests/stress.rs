//! Real threads, real time: producers that schedule, cancel and move timers, their own and each other's, until a
//! shutdown cuts them off. Every payload is seen once, nothing fires early, and the books balance.
//!
//! `TOURBILLON_STRESS=10000000 cargo test --release --test stress` is the long run.

mod support;

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;
use support::{MS, Rng, assert_settled, wait_until};
use tourbillon::{Builder, Cancel, Engine, RescheduleError, ScheduleError, ScheduleErrorKind, TimerId};

const PRODUCERS: usize = 4;
const LONGEST_DELAY: Duration = Duration::from_millis(10);
/// Ids that a producer remembers, to cancel or move some time later.
const MEMORY: usize = 512;

/// What became of each payload.
struct Ledger {
    seen: Vec<AtomicU8>,
    fired: AtomicU64,
    /// Got back from a cancel.
    cancelled: AtomicU64,
    refused: AtomicU64,
    early: AtomicU64,
    submitted: AtomicUsize,
    over: AtomicBool,
}

impl Ledger {
    fn see(&self, payload: usize) {
        self.seen[payload].fetch_add(1, Ordering::Relaxed);
    }

    fn refuse(&self, error: ScheduleError<usize>) {
        assert_eq!(error.kind, ScheduleErrorKind::ShutDown);
        self.see(error.payload);
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }
}

struct Producer<'a> {
    engine: &'a Engine<usize>,
    ledger: &'a Ledger,
    rng: Rng,
    memory: Vec<TimerId>,
    /// Ids go to the next thread, which cancels them.
    to_next: SyncSender<TimerId>,
    from_previous: Receiver<TimerId>,
}

impl Producer<'_> {
    fn cancel(&mut self, id: TimerId) {
        let outcome =
            if self.rng.chance(2) { self.engine.cancel_and_wait(id) } else { self.engine.cancel(id) };
        if let Cancel::Cancelled(payload) = outcome {
            self.ledger.see(payload);
            self.ledger.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn remember(&mut self, id: TimerId) {
        if self.memory.len() < MEMORY {
            self.memory.push(id);
            return;
        }
        let at = self.rng.index(MEMORY);
        let old = std::mem::replace(&mut self.memory[at], id);
        match self.rng.below(100) {
            // Stays armed, and fires.
            0..10 => {}
            // Not waited for: a full channel leaves the timer armed.
            10..30 => drop(self.to_next.try_send(old)),
            _ => self.cancel(old),
        }
    }

    fn reschedule(&mut self) {
        let at = self.rng.index(self.memory.len());
        match self.engine.reschedule(self.memory[at], self.rng.nanos_below(LONGEST_DELAY)) {
            Ok(id) => self.memory[at] = id,
            Err(RescheduleError::ShutDown(payload)) => {
                // Counted as cancelled, and refused as a timer that was never scheduled.
                self.ledger.refuse(ScheduleError { kind: ScheduleErrorKind::ShutDown, payload });
            }
            Err(_) => {}
        }
    }

    fn run(mut self, payloads: impl Iterator<Item = usize>) {
        for payload in payloads {
            self.ledger.submitted.fetch_add(1, Ordering::Relaxed);
            match self.engine.schedule(self.rng.nanos_below(LONGEST_DELAY), payload) {
                Ok(id) => self.remember(id),
                Err(error) => self.ledger.refuse(error),
            }
            if self.rng.chance(10) {
                self.reschedule();
            }
            while let Ok(id) = self.from_previous.try_recv() {
                self.cancel(id);
            }
            if self.ledger.over.load(Ordering::Relaxed) && self.rng.chance(1) {
                return;
            }
        }
    }
}

#[test]
fn every_timer_ends_once_and_none_early() {
    stress(Builder::new().workers(2));
}

/// The same without a pool: nothing but the engine's own parts, for the thread sanitizer.
#[test]
fn every_timer_ends_once_and_none_early_inline() {
    stress(Builder::new().inline());
}

fn stress(builder: Builder) {
    let timers: usize = match env::var("TOURBILLON_STRESS") {
        Ok(timers) => timers.parse().expect("TOURBILLON_STRESS is a number of timers"),
        Err(_) => 200_000,
    };
    let ledger = Arc::new(Ledger {
        seen: (0..timers).map(|_| AtomicU8::new(0)).collect(),
        fired: AtomicU64::new(0),
        cancelled: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        early: AtomicU64::new(0),
        submitted: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    });
    let in_handler = Arc::clone(&ledger);
    let engine = builder
        .tick(Duration::from_micros(100))
        .shards(2)
        .build(move |timer| {
            if timer.engine().now() < timer.deadline {
                in_handler.early.fetch_add(1, Ordering::Relaxed);
            }
            in_handler.see(timer.payload);
            in_handler.fired.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    let (senders, mut receivers): (Vec<_>, Vec<_>) =
        (0..PRODUCERS).map(|_| mpsc::sync_channel(10_000)).unzip();
    receivers.rotate_right(1);
    let unfired = thread::scope(|scope| {
        for (number, (to_next, from_previous)) in senders.into_iter().zip(receivers).enumerate() {
            let producer = Producer {
                engine: &engine,
                ledger: &ledger,
                rng: Rng::new(number as u64),
                memory: Vec::new(),
                to_next,
                from_previous,
            };
            scope.spawn(move || producer.run((number..timers).step_by(PRODUCERS)));
        }
        // The shutdown comes while producers are at their last timers.
        wait_until_progress(&ledger, timers - timers / 20);
        engine.shutdown()
    });
    let returned = unfired.len() as u64;
    for timer in unfired {
        ledger.see(timer.payload);
    }

    assert_eq!(ledger.early.load(Ordering::Relaxed), 0, "early");
    let submitted = ledger.submitted.load(Ordering::Relaxed);
    let seen: Vec<u8> = ledger.seen.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert!(seen.iter().all(|&count| count <= 1), "a payload was seen twice");
    assert_eq!(seen.iter().filter(|&&count| count == 1).count(), submitted, "a payload was lost");

    let stats = engine.stats();
    assert_settled(&stats);
    let (fired, refused) = (ledger.fired.load(Ordering::Relaxed), ledger.refused.load(Ordering::Relaxed));
    let cancelled = ledger.cancelled.load(Ordering::Relaxed);
    assert_eq!((stats.fired, stats.returned), (fired, returned));
    assert_eq!(fired + cancelled + returned + refused, submitted as u64);
    assert!(fired > 0 && cancelled > 0);
    assert_eq!(stats.total.panics, 0);
}

/// Waits as long as there is progress.
fn wait_until_progress(ledger: &Ledger, enough: usize) {
    while ledger.submitted.load(Ordering::Relaxed) < enough {
        let before = ledger.submitted.load(Ordering::Relaxed);
        wait_until("the producers go on", || ledger.submitted.load(Ordering::Relaxed) != before);
        thread::sleep(MS / 4);
    }
}
