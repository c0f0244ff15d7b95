//! Owned timers, used through their public interface: the results of their calls, their firings, and the ends of their
//! payloads. Each theme has a file. Helpers that several files use are here.
//!
//! Most tests use the threadless engine, whose time is exact. The others need threads.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod arming;
mod cost;
mod deadlines;
mod dropping;
mod handlers;
mod memory;
mod panics;
mod races;
mod room;
mod shutdown;
mod slots;
mod waiting;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use support::{Log, Shot, lock};
use tourbillon::{Builder, DrivenEngine, Engine, Fired, Job, ManualClock, Timer, Timestamp};

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(31_557_600);
/// The unit of a timer's word, in nanoseconds. The word says when the timer's ticket (a request to check the timer)
/// must be checked.
const UNIT: u64 = 1 << 20;

fn at(since_origin: Duration) -> Timestamp {
    Timestamp::ZERO + since_origin
}

fn nanos(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// Returns the moment at which a deadline is due: the start of the first tick by which the deadline has passed.
fn due(deadline: Timestamp, tick: Duration) -> Timestamp {
    let tick = u64::try_from(tick.as_nanos()).expect("a short tick");
    nanos(deadline.as_nanos().div_ceil(tick).saturating_mul(tick))
}

/// Returns the firing of a timer that fires exactly when its deadline is due.
fn on_time(payload: u64, deadline: Timestamp) -> Shot {
    Shot { at: deadline, deadline, payload }
}

/// A place for a timer that handlers can reach. `None` once the timer was dropped.
type Place<T> = Arc<Mutex<Option<Timer<T>>>>;

/// A payload that counts its clones and drops. A clone or a drop panics if the `Book` of the payload demands it.
struct Tracked {
    book: Arc<Book>,
    is_original: bool,
}

#[derive(Default)]
struct Book {
    clones: AtomicUsize,
    clone_drops: AtomicUsize,
    original_drops: AtomicUsize,
    /// The name of the thread that dropped the payload itself, not a clone.
    dropped_by: Mutex<Option<String>>,
    clone_panics: AtomicBool,
    drop_panics: AtomicBool,
}

impl Tracked {
    fn new() -> (Self, Arc<Book>) {
        let book = Arc::new(Book::default());
        (Self { book: Arc::clone(&book), is_original: true }, book)
    }
}

impl Clone for Tracked {
    fn clone(&self) -> Self {
        if self.book.clone_panics.swap(false, Ordering::SeqCst) {
            resume_unwind(Box::new("a clone"));
        }
        self.book.clones.fetch_add(1, Ordering::SeqCst);
        Self { book: Arc::clone(&self.book), is_original: false }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if !self.is_original {
            self.book.clone_drops.fetch_add(1, Ordering::SeqCst);
            return;
        }
        self.book.original_drops.fetch_add(1, Ordering::SeqCst);
        *lock(&self.book.dropped_by) = thread::current().name().map(String::from);
        if self.book.drop_panics.swap(false, Ordering::SeqCst) {
            resume_unwind(Box::new("a drop"));
        }
    }
}

impl Book {
    fn original_drops(&self) -> usize {
        self.original_drops.load(Ordering::SeqCst)
    }

    /// Asserts that the payload and its clones were dropped, each exactly once.
    #[track_caller]
    fn assert_gone(&self) {
        assert_eq!(self.original_drops(), 1, "the payload was not dropped once");
        let (drops, clones) = (self.clone_drops.load(Ordering::SeqCst), self.clones.load(Ordering::SeqCst));
        assert_eq!(drops, clones, "not every clone was dropped once");
    }
}

/// Makes a threadless engine whose handler counts its firings and reads no payload.
fn counting() -> (DrivenEngine<Tracked>, Arc<AtomicUsize>) {
    let fired = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fired);
    let engine = Builder::new()
        .driven(move |_: Fired<'_, Tracked>| {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    (engine, fired)
}

/// Makes an engine with one shard thread, on a clock that the test moves. Jobs for due timers wait in a list until the
/// test runs them.
fn with_held_jobs(log: &Log<Shot>) -> (Engine<u64>, ManualClock, Arc<Mutex<Vec<Job>>>) {
    let (clock, jobs, sink) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())), log.clone());
    let queue = Arc::clone(&jobs);
    let engine = Builder::new()
        .shards(1)
        .clock(clock.clone())
        .executor(move |job| lock(&queue).push(job))
        .start(move |fired: Fired<'_, u64>| sink.push(Shot::of(&fired)))
        .unwrap();
    (engine, clock, jobs)
}

/// Returns a builder for each way to run handlers. Each engine has at most two threads for handlers.
fn every_dispatch() -> [Builder; 3] {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || queue.into_iter().for_each(Job::run));
    [
        Builder::new().workers(2),
        Builder::new().inline(),
        Builder::new().executor(move |job| jobs.send(job).unwrap()),
    ]
    .map(|builder| builder.shards(2))
}
