//! Compares the stores with an oracle: a store in SQLite that was written from the documentation, with only the state
//! machine of the library. If the oracle differs from another store, one of the two or the documentation is wrong.

mod leases;
mod lists;
mod operations;
mod store;
mod transaction;

use std::sync::Arc;
use store::SqliteStore;
use tourbillon::ManualClock;
use tourbillon_conformance::{self as conformance, Faults, Life};
use tourbillon_durable::store::{MemoryStore, TimerStore};

fn in_sqlite(clock: ManualClock) -> Arc<dyn TimerStore> {
    Arc::new(SqliteStore::new(clock).unwrap())
}

fn in_memory(clock: ManualClock) -> Arc<dyn TimerStore> {
    Arc::new(MemoryStore::new(clock))
}

#[test]
fn the_oracle_conforms() {
    let mut failed = Vec::new();
    for (name, case) in conformance::CASES.iter().copied().flatten() {
        if std::panic::catch_unwind(|| case(&in_sqlite)).is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn random_histories_of_the_oracle() {
    let _tally = conformance::histories(&in_sqlite, 0..20, &Life::default());
    let _tally = conformance::histories(
        &in_sqlite,
        0..20,
        &Life { faults: Some(Faults::default()), ..Life::default() },
    );
}

/// Compares the outcomes of a store in SQLite with those of the store in memory. The test has 100 runs of 240 steps.
/// `TOURBILLON_LIVES` sets another number of runs.
#[test]
fn the_same_operations_have_the_same_outcomes_in_memory_and_in_sqlite() {
    let lives = std::env::var("TOURBILLON_LIVES").map_or(100, |lives| lives.parse().unwrap());
    let first = std::env::var("TOURBILLON_SEED").map_or(0, |seed| seed.parse().unwrap());
    let life = Life { steps: 240, ..Life::default() };
    conformance::differential(&in_memory, &in_sqlite, first..first + lives, &life);
}
