//! Runs the conformance suite.

use super::server::maker;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tourbillon::ManualClock;
use tourbillon_conformance::{self as conformance, Case, Faults, Life};
use tourbillon_durable::store::{MemoryStore, TimerStore};
use tourbillon_fault::Postgres;

/// Runs cases of the suite. Returns the names of those that fail.
pub(super) fn failures_of(
    cases: impl Iterator<Item = Case>,
    make: conformance::Make<'_>,
) -> Vec<&'static str> {
    let fails = |case: fn(conformance::Make<'_>)| catch_unwind(AssertUnwindSafe(|| case(make))).is_err();
    cases.filter(|(_, case)| fails(*case)).map(|(name, _)| name).collect()
}

#[test]
fn the_store_conforms() {
    let Some(server) = Postgres::start(&[]) else { return };
    assert_eq!(failures_of(conformance::CASES.iter().copied().flatten().copied(), &maker(&server)), [""; 0]);
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
