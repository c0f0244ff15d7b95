//! Tests the runtime under faults: downtime, stepping clocks, handlers and stores that fail, races, crowds. The names
//! of the tests begin with the letter and number of the fault in the project's list of faults.
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs these tests")]

mod clocks;
mod crowds;
mod downtime;
mod handlers;
mod held;
mod once;
mod parts;
mod put_off;
mod races;
mod simulation;
mod stores;
mod unparks;
mod wakes;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tourbillon::ManualClock;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{MemoryStore, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Builder, Delivery, Durable, Kind, Spec, Timers, UtcMillis, Verdict};

/// The longest time for which a test waits until a condition is met.
const PATIENCE: Duration = Duration::from_secs(60);
/// The moment at which the clocks of tests begin, in milliseconds since 1970: a Tuesday in November 2023.
const START: u64 = 1_700_000_000_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note(u64);

impl Kind for Note {
    const NAME: &'static str = "note";
}

/// A delivery as a handler saw it: the payload, the delivery, and the time of the store's clock.
#[derive(Clone, Debug)]
struct Seen {
    number: u64,
    delivery: Delivery,
    at: UtcMillis,
}

type Answer = Arc<dyn Fn(u64, &Delivery) -> Verdict + Send + Sync>;

/// A store in memory on a manual clock, and the present runtime on this store.
struct World {
    clock: ManualClock,
    store: Arc<dyn TimerStore>,
    seen: Arc<Mutex<Vec<Seen>>>,
    incidents: Arc<Mutex<Vec<String>>>,
    answer: Answer,
    durable: Option<Durable>,
}

impl World {
    fn new(settings: impl FnOnce(Builder) -> Builder) -> Self {
        Self::answering(|_, _| Verdict::Done, settings)
    }

    fn answering(
        answer: impl Fn(u64, &Delivery) -> Verdict + Send + Sync + 'static,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let clock = ManualClock::new();
        clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(START).as_nanos()));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let mut world = Self {
            clock,
            store,
            seen: Arc::default(),
            incidents: Arc::default(),
            answer: Arc::new(answer),
            durable: None,
        };
        world.start(settings);
        world
    }

    fn start(&mut self, settings: impl FnOnce(Builder) -> Builder) {
        let (seen, clock, answer) = (Arc::clone(&self.seen), self.clock.clone(), Arc::clone(&self.answer));
        let incidents = Arc::clone(&self.incidents);
        let handler = move |Note(number), delivery: Delivery| {
            let at = UtcMillis::from_nanos(tourbillon::Clock::now(&clock).as_nanos());
            seen.lock().unwrap().push(Seen { number, delivery: delivery.clone(), at });
            let verdict = answer(number, &delivery);
            async move { verdict }
        };
        let builder = Durable::builder_on(Arc::clone(&self.store))
            .clock(self.clock.clone())
            .on_incident(move |incident| incidents.lock().unwrap().push(format!("{incident:?}")))
            .handler(handler);
        self.durable = Some(settings(builder).start().unwrap());
    }

    fn stop(&mut self) {
        drop(self.durable.take());
    }

    fn timers(&self) -> &Timers {
        self.durable.as_ref().unwrap().handle()
    }

    fn schedule(&self, spec: Spec<Note>) -> TimerId {
        self.timers().schedule_blocking(spec).unwrap().id()
    }

    fn now(&self) -> UtcMillis {
        self.store.now()
    }

    /// Moves the clock forward, and waits until all due timers were delivered.
    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.settle();
    }

    fn settle(&self) {
        assert!(self.timers().await_idle(PATIENCE), "{:?}", self.timers());
    }

    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap()
    }

    fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.seen().iter().map(|seen| seen.number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Asserts that no delivery was early, and that the store has no faults. Also asserts that `left` has the numbers
    /// of stored timers by phase.
    fn assert_whole(&self, left: &[(Phase, u64)]) {
        for Seen { delivery, at, .. } in &*self.seen() {
            assert!(*at >= delivery.due, "early: {delivery:?} at {at}");
        }
        assert_eq!(pollster::block_on(self.store.check()).unwrap(), []);
        assert_eq!(phases(&*self.store), left.iter().copied().collect());
    }
}

/// Returns the numbers of stored timers by phase.
fn phases(store: &dyn TimerStore) -> BTreeMap<Phase, u64> {
    let counts = pollster::block_on(store.counts()).unwrap();
    let mut phases = BTreeMap::new();
    for ((_, phase), count) in counts.by_namespace {
        *phases.entry(phase).or_default() += count;
    }
    phases
}

/// Waits until another thread has made the condition true. Panics if the wait takes longer than [`PATIENCE`].
fn eventually(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn number_of(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}
