//! Runs the conformance suite.

use super::server::maker;
use std::sync::Arc;
use tourbillon::ManualClock;
use tourbillon_conformance::{self as conformance, Faults, Life};
use tourbillon_durable::store::{MemoryStore, TimerStore};
use tourbillon_fault::Postgres;

#[test]
fn the_store_conforms() {
    let Some(server) = Postgres::start(&[]) else { return };
    let cases = conformance::CASES.iter().copied().flatten();
    assert_eq!(conformance::failures(cases, &maker(&server)), [""; 0]);
}

#[test]
fn random_histories_of_the_store() {
    let Some(server) = Postgres::start(&[]) else { return };
    let make = maker(&server);
    let _tally = conformance::histories(&make, 0..10, &Life::default());
    let faults = Some(Faults::default());
    let _tally = conformance::histories(&make, 0..10, &Life { faults, ..Life::default() });
}

#[test]
fn the_same_operations_have_the_same_outcomes_in_memory_and_in_postgres() {
    let Some(server) = Postgres::start(&[]) else { return };
    let in_memory = |clock: ManualClock| Arc::new(MemoryStore::new(clock)) as Arc<dyn TimerStore>;
    conformance::differential(&in_memory, &maker(&server), 0..10, &Life::default());
}
