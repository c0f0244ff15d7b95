//! Compares the stores with an oracle: the store in SQLite. It was written from the documentation, with only the state
//! machine of the library. If the oracle differs from another store, one of the two or the documentation is wrong.

use std::sync::Arc;
use tourbillon::ManualClock;
use tourbillon_conformance::{self as conformance, Life};
use tourbillon_durable::store::{MemoryStore, TimerStore};
use tourbillon_sqlite::SqliteStore;

fn in_sqlite(clock: ManualClock) -> Arc<dyn TimerStore> {
    Arc::new(SqliteStore::builder().clock(clock).in_memory().unwrap())
}

fn in_memory(clock: ManualClock) -> Arc<dyn TimerStore> {
    Arc::new(MemoryStore::new(clock))
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
