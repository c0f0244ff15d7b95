//! Runs the conformance suite on the store in memory and on the store in a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tourbillon::ManualClock;
use tourbillon_conformance::{self as conformance, Faults, Life, SeededFaults};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::policy::Policy;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{
    Durability, IfPresent, MemoryStore, Op, RedbStore, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};

fn make(clock: ManualClock) -> Arc<dyn TimerStore> {
    Arc::new(MemoryStore::new(clock))
}

/// Makes stores in files of a folder. The folder outlives the stores. The number becomes the name of the next file.
struct InFiles(tempfile::TempDir, AtomicU32);

impl InFiles {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), AtomicU32::new(0))
    }

    fn make(&self, clock: ManualClock) -> Arc<dyn TimerStore> {
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        let path = self.0.path().join(format!("timers-{number}"));
        Arc::new(RedbStore::builder().clock(clock).open(path).unwrap())
    }
}

fn failures_of(make: conformance::Make<'_>) -> Vec<&'static str> {
    conformance::failures(conformance::CASES.iter().copied().flatten().chain(conformance::TURNS), make)
}

#[test]
fn the_store_in_memory_conforms() {
    assert_eq!(failures_of(&make), [""; 0]);
}

#[test]
fn the_store_in_a_file_conforms() {
    let files = InFiles::new();
    let make_in_file = |clock| files.make(clock);
    assert_eq!(failures_of(&make_in_file), [""; 0]);
    let _tally = conformance::histories(&make_in_file, 0..10, &Life::default());
    let faults = Some(Faults::default());
    let _tally = conformance::histories(&make_in_file, 0..10, &Life { faults, ..Life::default() });
}

/// Compares the outcomes of a store in a file with those of the store in memory. The tests in `sqlite` compare a store
/// in SQLite with the store in memory.
#[test]
fn the_same_operations_have_the_same_outcomes_in_memory_and_in_a_file() {
    let files = InFiles::new();
    let make_in_file = |clock| files.make(clock);
    conformance::differential(&make, &make_in_file, 0..20, &Life { steps: 240, ..Life::default() });
}

#[test]
fn random_histories_of_the_store_in_memory() {
    let tally = conformance::histories(&make, 0..200, &Life::default());
    // The lives reach every outcome of every operation, except the outcomes that only a fault of the store can cause.
    let modes = ["place, reject", "place, keep", "place, replace", "place, replace but keep due"];
    let places = modes.into_iter().flat_map(|mode| [(mode, "created"), (mode, "repeated")]);
    let ends = ["ack", "skip", "fail", "snooze", "release", "park"];
    let ends = ends.into_iter().flat_map(|end| [(end, "refused: stale"), (end, "ended: withdrawn")]);
    let wanted: Vec<(&str, &str)> = [
        ("place, reject", "key exists"),
        ("place, keep", "kept"),
        ("place, replace", "replaced"),
        ("place, replace", "replaced in flight"),
        ("place, replace but keep due", "replaced"),
        ("place, replace but keep due", "replaced in flight"),
        ("place, replace only", "replaced"),
        ("place, replace only", "replaced in flight"),
        ("place, replace only", "key exists"),
        ("place, replace only", "not found"),
        ("cancel", "cancelled"),
        ("cancel", "in flight"),
        ("cancel", "not found"),
        ("cancel by label", "cancelled many"),
        ("cancel by label", "cancelled many, more"),
        ("move", "changed"),
        ("move", "not found"),
        ("move", "refused: state"),
        ("pause", "changed"),
        ("pause", "not found"),
        ("pause", "refused: state"),
        ("resume", "changed"),
        ("resume", "not found"),
        ("resume", "refused: state"),
        ("ack", "ended: done"),
        ("ack", "ended, next"),
        ("ack", "ended: dead"),
        ("skip", "ended: done"),
        ("skip", "ended, next"),
        ("fail", "ended: pending"),
        ("fail", "ended: dead"),
        ("fail", "ended, next"),
        ("snooze", "ended: pending"),
        ("snooze", "ended: dead"),
        ("release", "ended: pending"),
        ("release", "ended: parked"),
        ("park", "ended: parked"),
        ("unpark", "unparked"),
        ("replay", "changed"),
        ("replay", "key exists"),
        ("replay", "not found"),
        ("replay", "refused: state"),
        ("import", "stored"),
        ("import", "refused"),
        ("fire", "changed"),
        ("fire", "not found"),
        ("fire", "refused: state"),
    ]
    .into_iter()
    .chain(places)
    .chain(ends.filter(|pair| *pair != ("ack", "ended: withdrawn")))
    .collect();
    let missing: Vec<_> = wanted.iter().filter(|pair| !tally.contains_key(*pair)).collect();
    assert!(missing.is_empty(), "no life had {missing:?}; they had {tally:#?}");
}

#[test]
fn nothing_is_lost_and_nothing_doubled_when_answers_are() {
    let faults = Some(Faults::default());
    let _tally = conformance::histories(&make, 0..200, &Life { faults, ..Life::default() });
}

#[test]
fn faults_strike_before_or_after_the_effect() {
    let none = Faults { before: 0, after: 0, delayed: 0, dropped_wakes: 0 };
    let apply = |faults| {
        let store = make(ManualClock::new());
        let faulty = SeededFaults::new(1, faults).on(Arc::clone(&store));
        let wakes = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&wakes);
        faulty.subscribe(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let import = pollster::block_on(faulty.apply(vec![creation()], Durability::Volatile));
        let stored = pollster::block_on(store.counts()).unwrap().of(Phase::Pending);
        (import.map(drop).map_err(|error| error.kind()), stored, wakes.load(Ordering::Relaxed))
    };
    assert_eq!(apply(none), (Ok(()), 1, 1));
    assert_eq!(apply(Faults { before: 100, ..none }), (Err(StoreErrorKind::Io), 0, 0));
    assert_eq!(apply(Faults { after: 100, ..none }), (Err(StoreErrorKind::Unknown), 1, 1));
    assert_eq!(apply(Faults { delayed: 100, ..none }), (Ok(()), 1, 1));
    assert_eq!(apply(Faults { dropped_wakes: 100, ..none }), (Ok(()), 1, 0));
    let faulty = SeededFaults::new(1, Faults { before: 100, ..none }).on(make(ManualClock::new()));
    assert!(pollster::block_on(faulty.counts()).is_err());
    faulty.hook().heal();
    assert!(pollster::block_on(faulty.counts()).is_ok());
    assert_eq!(faulty.hook().injected(), 1);
}

fn creation() -> Op {
    let timer = Timer {
        id: TimerId::from_u128(1),
        namespace: "".into(),
        key: None,
        kind: "".into(),
        payload: Payload::default(),
        labels: Vec::new(),
        policy: Policy::default(),
        series: None,
        created: UtcMillis::ZERO,
        scheduled: UtcMillis::ZERO,
        due: UtcMillis::ZERO,
        deliveries: 0,
        failures: 0,
        last_error: None,
        state: State::Pending,
        trace: None,
        has_chosen_id: true,
        age_from: None,
    };
    Op::Place(Box::new(timer), IfPresent::Reject)
}
