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
    conformance::histories(&make, 0..200, &Life::default());
}

#[test]
fn nothing_is_lost_and_nothing_doubled_when_answers_are() {
    let faults = Some(Faults::default());
    conformance::histories(&make, 0..200, &Life { faults, ..Life::default() });
}
