//! A runtime on a store in memory and a manual clock.
#![allow(dead_code, reason = "each test file takes what it needs")]

use pollster::block_on;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon::{Clock, ManualClock, Timestamp};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{MemoryStore, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Builder, Delivery, Durable, Kind, Spec, Timers, UtcMillis, Verdict};

/// The longest time for which a test waits until a condition is met.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The moment at which the clocks of tests begin, in milliseconds since 1970: a Tuesday in November 2023.
pub(crate) const START: u64 = 1_700_000_000_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note(pub(crate) u64);

impl Kind for Note {
    const NAME: &'static str = "note";
}

/// A delivery as the handler saw it: the payload, the delivery, and the time of the store's clock.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) number: u64,
    pub(crate) delivery: Delivery,
    pub(crate) at: UtcMillis,
}

/// The function that returns the handler's answer. The number is the payload.
type Answer = Arc<dyn Fn(u64, &Delivery) -> Verdict + Send + Sync>;

/// A store, and the present runtime on it. The handler keeps its deliveries, and answers as the test has chosen.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<dyn TimerStore>,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) incidents: Arc<Mutex<Vec<String>>>,
    pub(crate) answer: Answer,
    pub(crate) durable: Option<Durable>,
}

impl World {
    pub(crate) fn done() -> Self {
        Self::new(|_, _| Verdict::Done)
    }

    pub(crate) fn new(answer: impl Fn(u64, &Delivery) -> Verdict + Send + Sync + 'static) -> Self {
        Self::with(answer, |builder| builder)
    }

    pub(crate) fn with(
        answer: impl Fn(u64, &Delivery) -> Verdict + Send + Sync + 'static,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let clock = ManualClock::new();
        clock.set(Timestamp::from_nanos(UtcMillis::from_millis(START).as_nanos()));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let (seen, incidents) = (Arc::default(), Arc::default());
        let mut world = Self { clock, store, seen, incidents, answer: Arc::new(answer), durable: None };
        world.start(settings);
        world
    }

    pub(crate) fn start(&mut self, settings: impl FnOnce(Builder) -> Builder) {
        let (seen, clock, answer) = (Arc::clone(&self.seen), self.clock.clone(), Arc::clone(&self.answer));
        let incidents = Arc::clone(&self.incidents);
        let handler = move |Note(number), delivery: Delivery| {
            let at = UtcMillis::from_nanos(clock.true_now().as_nanos());
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

    pub(crate) fn stop(&mut self) {
        drop(self.durable.take());
    }

    pub(crate) fn timers(&self) -> &Timers {
        self.durable.as_ref().unwrap().handle()
    }

    pub(crate) fn schedule(&self, spec: Spec<Note>) -> TimerId {
        self.timers().schedule_blocking(spec).unwrap().id()
    }

    pub(crate) fn now(&self) -> UtcMillis {
        self.store.now()
    }

    /// Moves the clock forward, and waits until all due timers were delivered.
    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.settle();
    }

    pub(crate) fn settle(&self) {
        assert!(self.timers().await_idle(PATIENCE), "{:?}", self.timers());
    }

    /// Returns the payloads of all deliveries, in the order of the deliveries.
    pub(crate) fn seen(&self) -> Vec<u64> {
        self.seen.lock().unwrap().iter().map(|seen| seen.number).collect()
    }

    /// Returns the payloads of all deliveries, in the order of the numbers.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let mut numbers = self.seen();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) fn count(&self, phase: Phase) -> u64 {
        block_on(self.store.counts()).unwrap().of(phase)
    }

    /// Asserts that no delivery was early, and that the store has no faults. Also asserts that `left` has the numbers
    /// of stored timers by phase.
    pub(crate) fn assert_whole(&self, left: &[(Phase, u64)]) {
        for Seen { delivery, at, .. } in &*self.seen.lock().unwrap() {
            assert!(*at >= delivery.due, "early: {delivery:?} at {at}");
        }
        assert_eq!(block_on(self.store.check()).unwrap(), []);
        assert_eq!(phases(&*self.store), left.iter().copied().collect());
    }
}

/// Asserts at the end of each test that the world's store has no faults.
impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(block_on(self.store.check()).unwrap(), []);
        }
    }
}

/// Returns the numbers of stored timers by phase.
pub(crate) fn phases(store: &dyn TimerStore) -> BTreeMap<Phase, u64> {
    let counts = block_on(store.counts()).unwrap();
    let mut phases = BTreeMap::new();
    for ((_, phase), count) in counts.by_namespace {
        *phases.entry(phase).or_default() += count;
    }
    phases
}

/// Waits until another thread has made the condition true. Panics if the wait takes longer than [`PATIENCE`].
pub(crate) fn eventually(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
