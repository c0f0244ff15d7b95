//! The conformance suite on the store in memory.

use std::sync::Arc;
use tourbillon::ManualClock;
use tourbillon_durable::store::conformance::{self, Faults, Life};
use tourbillon_durable::store::{MemoryStore, TimerStore};

fn make(clock: ManualClock) -> Arc<dyn TimerStore> {
    Arc::new(MemoryStore::new(clock))
}

#[test]
fn the_store_in_memory_conforms() {
    let mut failed = Vec::new();
    for (name, case) in conformance::CASES.iter().copied().flatten() {
        if std::panic::catch_unwind(|| case(&make)).is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn random_histories_of_the_store_in_memory() {
    let tally = conformance::histories(&make, 0..200, &Life::default());
    // The lives reach every outcome of every operation, but for those that a life can only reach by a fault of the store.
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
        ("fire", "changed"),
        ("fire", "not found"),
        ("fire", "refused: state"),
    ]
    .into_iter()
    .chain(places)
    .chain(ends.filter(|what| *what != ("ack", "ended: withdrawn")))
    .collect();
    let missing: Vec<_> = wanted.iter().filter(|what| !tally.contains_key(*what)).collect();
    assert!(missing.is_empty(), "no life had {missing:?}; they had {tally:#?}");
}

#[test]
fn nothing_is_lost_and_nothing_doubled_when_answers_are() {
    let faults = Some(Faults::default());
    let _tally = conformance::histories(&make, 0..200, &Life { faults, ..Life::default() });
}
