//! A stress test with real threads in real time. Producers schedule, cancel and move timers, their own and each
//! other's, until a shutdown stops them. Every payload comes back once, nothing fires early, and the numbers agree.
//!
//! At the same time other threads arm, disarm, share and drop owned timers, which use the same slots. Half-way these
//! threads pause, and every armed timer must have fired. Then they go on until the shutdown.
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
use tourbillon::{
    ArmError, Armed, Builder, Cancel, Disarm, Engine, Fired, Refusal, RescheduleError, ScheduleError, Timer,
    TimerId, Timestamp,
};

const PRODUCERS: usize = 4;
/// The number of threads that have owned timers.
const OWNERS: usize = 2;
const OWN_TIMERS: usize = 40;
/// The number of owned timers that all owners share: each owner arms, disarms and drops them.
const SHARED_TIMERS: usize = 8;
const LONGEST_DELAY: Duration = Duration::from_millis(10);
/// The number of ids that a producer remembers. The producer cancels or moves their timers later.
const MEMORY: usize = 512;

/// The payload of a timer: of a one-shot, or of an owned timer.
#[derive(Clone)]
enum Load {
    Once(usize),
    Owned(Arc<Book>),
}

/// The record of an owned timer. The timer's payload refers to the record, and the number of references shows whether
/// all payloads are gone.
struct Book {
    /// The last deadlines for which the timer's only owner armed it. A deadline's number gives its place. `None` if
    /// several threads arm the timer.
    deadlines: Option<[AtomicU64; Book::DEADLINES]>,
    /// The number of deadlines for which the timer was armed so far.
    armed: AtomicU64,
    /// The lowest number of a deadline that is not void. A disarm makes all earlier deadlines void. A later deadline
    /// that was acknowledged as pending makes them void, too.
    void_before: AtomicU64,
    /// The deadline for which the timer's own handler last armed it.
    armed_inside: AtomicU64,
    runs: AtomicBool,
    fired: AtomicU64,
}

impl Book {
    const DEADLINES: usize = 64;

    fn new(has_one_owner: bool) -> Arc<Self> {
        Arc::new(Self {
            deadlines: has_one_owner.then(|| std::array::from_fn(|_| AtomicU64::new(0))),
            armed: AtomicU64::new(0),
            void_before: AtomicU64::new(0),
            armed_inside: AtomicU64::new(u64::MAX),
            runs: AtomicBool::new(false),
            fired: AtomicU64::new(0),
        })
    }

    fn note(&self, deadline: Timestamp) -> u64 {
        let number = self.armed.load(Ordering::SeqCst);
        if let Some(deadlines) = &self.deadlines {
            deadlines[place_of(number)].store(deadline.as_nanos(), Ordering::SeqCst);
            self.armed.store(number + 1, Ordering::SeqCst);
        }
        number
    }

    fn void_before(&self, number: u64) {
        self.void_before.store(number, Ordering::SeqCst);
    }

    /// Returns whether the timer may fire for `deadline`, as far as the test knows.
    fn is_good(&self, deadline: Timestamp) -> bool {
        let Some(deadlines) = &self.deadlines else { return true };
        let from = self.void_before.load(Ordering::SeqCst);
        let to = self.armed.load(Ordering::SeqCst);
        let nanos = deadline.as_nanos();
        let mut good = (from..to).any(|n| deadlines[place_of(n)].load(Ordering::SeqCst) == nanos);
        good |= self.armed_inside.load(Ordering::SeqCst) == nanos;
        // Or the owner has since overwritten the deadline in the ring.
        good || self.armed.load(Ordering::SeqCst) - from >= Self::DEADLINES as u64
    }
}

fn place_of(number: u64) -> usize {
    usize::try_from(number % Book::DEADLINES as u64).expect("a place")
}

/// The record of each payload's end, and the counts of the owned timers.
struct Ledger {
    seen: Vec<AtomicU8>,
    fired: AtomicU64,
    /// The number of payloads that cancels returned.
    cancelled: AtomicU64,
    refused: AtomicU64,
    early: AtomicU64,
    submitted: AtomicUsize,
    over: AtomicBool,
    owned_fired: AtomicU64,
    /// The number of firings of owned timers for a deadline that was not in force.
    stray: AtomicU64,
    /// The number of handlers that began while another handler of the same timer ran.
    overlapping: AtomicU64,
    /// The number of owners that have reached their pause half-way through the test.
    rested: AtomicUsize,
}

impl Ledger {
    fn see(&self, payload: usize) {
        self.seen[payload].fetch_add(1, Ordering::Relaxed);
    }

    fn refuse(&self, kind: Refusal, payload: &Load) {
        assert_eq!(kind, Refusal::ShutDown);
        let Load::Once(payload) = *payload else { panic!("an owned timer's payload") };
        self.see(payload);
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Ledger {
    /// Records the firing of a timer. The engine's handler calls this.
    fn on_fire(&self, fired: &Fired<'_, Load>) {
        if fired.engine().now() < fired.deadline {
            self.early.fetch_add(1, Ordering::Relaxed);
        }
        match &fired.payload {
            Load::Once(payload) => {
                self.see(*payload);
                self.fired.fetch_add(1, Ordering::Relaxed);
            }
            Load::Owned(book) => self.on_owned(fired, book),
        }
    }

    fn on_owned(&self, fired: &Fired<'_, Load>, book: &Book) {
        self.owned_fired.fetch_add(1, Ordering::Relaxed);
        if book.runs.swap(true, Ordering::SeqCst) {
            self.overlapping.fetch_add(1, Ordering::Relaxed);
        }
        if !book.is_good(fired.deadline) {
            self.stray.fetch_add(1, Ordering::Relaxed);
        }
        // In every fourth run the timer arms itself again, at once or after a while.
        let count = book.fired.fetch_add(1, Ordering::SeqCst);
        if count.is_multiple_of(4) {
            let deadline = fired.engine().now() + Duration::from_micros(count % 7 * 100);
            book.armed_inside.store(deadline.as_nanos(), Ordering::SeqCst);
            let outcome = fired.timer().expect("it is owned").arm_at(deadline);
            assert!(matches!(outcome, Ok(Armed::Running) | Err(_)), "{outcome:?}");
        }
        book.runs.store(false, Ordering::SeqCst);
    }
}

/// An owned timer, and its record. The timer's owner and handler share the record.
struct Own {
    timer: Timer<Load>,
    book: Arc<Book>,
}

/// A thread that makes, arms and drops owned timers.
struct Owner<'a> {
    engine: &'a Engine<Load>,
    ledger: &'a Ledger,
    rng: Rng,
    own: Vec<Own>,
    shared: Vec<Arc<Timer<Load>>>,
    /// The records of all timers that this owner has made.
    books: Vec<Arc<Book>>,
}

impl Owner<'_> {
    fn make(&mut self) -> Result<(), ArmError> {
        let book = Book::new(true);
        match self.engine.handle().timer(Load::Owned(Arc::clone(&book))) {
            Ok(timer) => {
                self.books.push(Arc::clone(&book));
                self.own.push(Own { timer, book });
                Ok(())
            }
            Err(error) => {
                assert_eq!(error.kind, Refusal::ShutDown);
                Err(ArmError::ShutDown)
            }
        }
    }

    fn arm(&mut self, at: usize, delay: Duration) -> Result<(), ArmError> {
        let Own { timer, book } = &self.own[at];
        let deadline = self.engine.handle().now() + delay;
        let number = book.note(deadline);
        if timer.arm_at(deadline)? == Armed::Pending {
            // From here on nothing fires for the earlier deadlines.
            book.void_before(number);
        }
        Ok(())
    }

    fn disarm(&mut self, at: usize) {
        let Own { timer, book } = &self.own[at];
        let waits = self.rng.chance(3);
        match if waits { timer.disarm_and_wait() } else { timer.disarm() } {
            Disarm::Running => assert!(!waits),
            // During the wait, the handler may have armed the timer. That deadline is not one of the owner's deadlines.
            _ => book.void_before(book.armed.load(Ordering::SeqCst)),
        }
    }

    /// Makes a random operation on an own timer or on a shared timer.
    fn act(&mut self) -> Result<(), ArmError> {
        // Some timers come due during this sleep.
        if self.rng.chance(1) {
            thread::sleep(MS / 10);
        }
        // Most delays are a tick or two. So the timer comes due while it is armed again.
        let longest = if self.rng.chance(20) { LONGEST_DELAY / 4 } else { MS / 5 };
        let (delay, at) = (self.rng.nanos_below(longest), self.rng.index(OWN_TIMERS));
        match self.rng.below(100) {
            0..60 => self.arm(at, delay),
            60..80 => {
                self.disarm(at);
                Ok(())
            }
            80..83 => {
                drop(self.own.swap_remove(at));
                self.make()
            }
            83..95 => self.shared[self.rng.index(SHARED_TIMERS)].arm(delay).map(drop),
            _ => {
                self.shared[self.rng.index(SHARED_TIMERS)].disarm();
                Ok(())
            }
        }
    }

    /// Waits until all timers of this owner have come due. No thread disarms them during the wait.
    fn rest(&mut self) {
        let mut before = Vec::new();
        for at in 0..OWN_TIMERS {
            self.own[at].timer.disarm_and_wait();
            before.push(self.own[at].book.fired.load(Ordering::SeqCst));
            let delay = self.rng.nanos_below(LONGEST_DELAY);
            self.arm(at, delay).expect("the shutdown waits for this");
        }
        for (own, before) in self.own.iter().zip(before) {
            wait_until("an armed timer fires", || own.book.fired.load(Ordering::SeqCst) > before);
        }
        self.ledger.rested.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes operations until the shutdown. Pauses when half of `timers`, the number of all one-shots, have been
    /// submitted.
    fn run(mut self, timers: usize) -> Self {
        for _ in 0..OWN_TIMERS {
            self.make().expect("the shutdown waits for this");
        }
        while self.ledger.submitted.load(Ordering::Relaxed) < timers / 2 {
            self.act().expect("the shutdown waits for this");
        }
        self.rest();
        while self.act().is_ok() {}
        self
    }

    /// Drops the owner's timers after the shutdown. Returns the records of all timers that this owner made.
    fn end(self) -> Vec<Arc<Book>> {
        for Own { timer, .. } in &self.own {
            assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
            assert_eq!(timer.arm(MS), Err(ArmError::ShutDown));
        }
        self.books
    }
}

struct Producer<'a> {
    engine: &'a Engine<Load>,
    ledger: &'a Ledger,
    rng: Rng,
    memory: Vec<TimerId>,
    /// The channel to the next producer. It carries ids whose timers the next producer cancels.
    to_next: SyncSender<TimerId>,
    from_previous: Receiver<TimerId>,
}

impl Producer<'_> {
    fn cancel(&mut self, id: TimerId) {
        let outcome = if self.rng.chance(2) {
            self.engine.handle().cancel_and_wait(id)
        } else {
            self.engine.handle().cancel(id)
        };
        if let Cancel::Cancelled(Load::Once(payload)) = outcome {
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
            // The timer stays armed, and fires.
            0..10 => {}
            // The send does not wait. If the channel is full, the timer stays armed.
            10..30 => drop(self.to_next.try_send(old)),
            _ => self.cancel(old),
        }
    }

    fn reschedule(&mut self) {
        let at = self.rng.index(self.memory.len());
        match self.engine.handle().reschedule(self.memory[at], self.rng.nanos_below(LONGEST_DELAY)) {
            Ok(id) => self.memory[at] = id,
            Err(RescheduleError::ShutDown(payload)) => {
                // The timer counts as cancelled. It also counts as refused, like a timer that was never scheduled.
                self.ledger.refuse(Refusal::ShutDown, &payload);
            }
            Err(_) => {}
        }
    }

    fn run(mut self, payloads: impl Iterator<Item = usize>) {
        for payload in payloads {
            self.ledger.submitted.fetch_add(1, Ordering::Relaxed);
            match self.engine.handle().schedule(self.rng.nanos_below(LONGEST_DELAY), Load::Once(payload)) {
                Ok(id) => self.remember(id),
                Err(ScheduleError { kind, payload, .. }) => self.ledger.refuse(kind, &payload),
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

/// Every timer ends once and none is early, on an engine without workers. Under the thread sanitizer, only the engine's
/// own code runs.
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
        owned_fired: AtomicU64::new(0),
        stray: AtomicU64::new(0),
        overlapping: AtomicU64::new(0),
        rested: AtomicUsize::new(0),
    });
    let in_handler = Arc::clone(&ledger);
    let engine = builder
        .tick(Duration::from_micros(100))
        .shards(2)
        .start(move |fired| in_handler.on_fire(&fired))
        .unwrap();
    let mut books: Vec<Arc<Book>> = (0..SHARED_TIMERS).map(|_| Book::new(false)).collect();
    let shared: Vec<Arc<Timer<Load>>> = books
        .iter()
        .map(|book| Arc::new(engine.handle().timer(Load::Owned(Arc::clone(book))).unwrap()))
        .collect();
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
        let owners: Vec<_> = (0..OWNERS as u64)
            .map(|number| {
                let owner = Owner {
                    engine: &engine,
                    ledger: &ledger,
                    rng: Rng::new(1_000 + number),
                    own: Vec::new(),
                    shared: shared.clone(),
                    books: Vec::new(),
                };
                scope.spawn(move || owner.run(timers))
            })
            .collect();
        // The last thread that refers to the shared timers drops them.
        drop(shared);
        wait_until("the owners have rested", || ledger.rested.load(Ordering::SeqCst) == OWNERS);
        // The shutdown comes while producers schedule their last timers.
        wait_until_progress(&ledger, timers - timers / 20);
        let unfired = engine.handle().shutdown();
        books.extend(owners.into_iter().flat_map(|owner| owner.join().unwrap().end()));
        unfired
    });
    let returned = unfired.len() as u64;
    for timer in unfired {
        let Load::Once(payload) = timer.payload else { panic!("an owned timer was returned") };
        ledger.see(payload);
    }

    assert_eq!(ledger.early.load(Ordering::Relaxed), 0, "early");
    let submitted = ledger.submitted.load(Ordering::Relaxed);
    let seen: Vec<u8> = ledger.seen.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert!(seen.iter().all(|&count| count <= 1), "a payload was seen twice");
    assert_eq!(seen.iter().filter(|&&count| count == 1).count(), submitted, "a payload was lost");

    let stats = engine.handle().stats();
    assert_settled(&stats);
    let (fired, refused) = (ledger.fired.load(Ordering::Relaxed), ledger.refused.load(Ordering::Relaxed));
    let cancelled = ledger.cancelled.load(Ordering::Relaxed);
    assert_eq!((stats.fired, stats.returned), (fired, returned));
    assert_eq!(fired + cancelled + returned + refused, submitted as u64);
    assert!(fired > 0 && cancelled > 0);
    assert_eq!(stats.total.panics, 0);

    assert_eq!(ledger.stray.load(Ordering::Relaxed), 0, "fired for a deadline that was not in force");
    assert_eq!(ledger.overlapping.load(Ordering::Relaxed), 0, "a handler ran twice at a time");
    let owned_fired = ledger.owned_fired.load(Ordering::Relaxed);
    assert!(owned_fired >= (OWNERS * OWN_TIMERS) as u64);
    assert_eq!((stats.owned.fired, stats.owned.alive), (owned_fired, 0));
    assert_eq!(books.iter().map(|book| book.fired.load(Ordering::SeqCst)).sum::<u64>(), owned_fired);
    assert!(books.iter().all(|book| Arc::strong_count(book) == 1), "a payload was not dropped");
}

/// Waits until `enough` timers have been submitted. Fails if the producers make no progress.
fn wait_until_progress(ledger: &Ledger, enough: usize) {
    while ledger.submitted.load(Ordering::Relaxed) < enough {
        let before = ledger.submitted.load(Ordering::Relaxed);
        wait_until("the producers go on", || ledger.submitted.load(Ordering::Relaxed) != before);
        thread::sleep(MS / 4);
    }
}
