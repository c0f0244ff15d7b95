//! Runs the conformance suite on the store in SQLite, in memory and in files. The tests in
//! `crates/durable/tests/sqlite` compare the store with the store in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tourbillon::ManualClock;
use tourbillon_conformance::{self as conformance, Faults, Life};
use tourbillon_durable::store::TimerStore;
use tourbillon_sqlite::SqliteStore;

fn in_memory(clock: ManualClock) -> Arc<dyn TimerStore> {
    Arc::new(SqliteStore::builder().clock(clock).in_memory().unwrap())
}

/// Makes stores in files of a folder. The folder outlives the stores. The number is the name of the next file.
struct InFiles(tempfile::TempDir, AtomicU32);

impl InFiles {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), AtomicU32::new(0))
    }

    fn make(&self, clock: ManualClock) -> Arc<dyn TimerStore> {
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        let path = self.0.path().join(format!("timers-{number}.db"));
        Arc::new(SqliteStore::builder().clock(clock).open(path).unwrap())
    }
}

fn failures_of(make: conformance::Make<'_>) -> Vec<&'static str> {
    conformance::failures(conformance::CASES.iter().copied().flatten().chain(conformance::TURNS), make)
}

#[test]
fn the_store_in_memory_conforms() {
    assert_eq!(failures_of(&in_memory), [""; 0]);
}

#[test]
fn the_store_in_a_file_conforms() {
    let files = InFiles::new();
    let make_in_file = |clock| files.make(clock);
    assert_eq!(failures_of(&make_in_file), [""; 0]);
    let _tally = conformance::histories(&make_in_file, 0..5, &Life::default());
}

#[test]
fn random_histories_in_memory() {
    let _tally = conformance::histories(&in_memory, 0..20, &Life::default());
    let faults = Some(Faults::default());
    let _tally = conformance::histories(&in_memory, 0..20, &Life { faults, ..Life::default() });
}
