//! Contains the tests that every store must pass, for the authors of stores.
//!
//! [`run`] runs all cases on a store. [`failures`] runs some cases and returns the names of those that fail. [`CASES`]
//! lists the cases by name, for a test framework that runs each case as a test. For each case, a function that the
//! author passes makes an empty store on a manual clock. A case uses only the interface of the store, and panics if the
//! store deviates. After each step of a case, the store's own check must find no fault, and the store's counts must
//! agree with a recount.
//!
//! ```
//! use std::sync::Arc;
//! use tourbillon_durable::store::MemoryStore;
//!
//! tourbillon_conformance::run(&|clock| Arc::new(MemoryStore::new(clock)));
//! ```
//!
//! A [`Faulty`] store has faults that a seed chooses. [`histories`] gives a store random operations, and checks their
//! effects. [`differential`] gives two stores the same random operations, and compares all visible results.

// Floor 0: a store under test, and stores that fail.
mod bench;
mod faults;
// Floor 1: the cases, and random lives.
mod backup;
mod bulk;
mod claims;
mod endings;
mod history;
mod leases;
mod lists;
mod odd_series;
mod placing;
mod series;
mod turns;

pub use bench::{Case, Make};
pub use faults::{Faults, Faulty, SeededFaults, Strikes};
pub use history::{Life, Tally, differential, histories};
pub use turns::Turns;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// All test cases for any store, without the random [`histories`].
pub const CASES: &[&[Case]] = &[
    placing::CASES,
    claims::CASES,
    leases::CASES,
    endings::CASES,
    series::CASES,
    odd_series::CASES,
    bulk::CASES,
    lists::CASES,
    backup::CASES,
];

/// The test cases for a store that divides the handlers between namespaces, in a [`claim`] with shares. Such a store
/// does not claim the timers of a namespace that uses its whole share of the handlers. Authors can write further cases
/// with [`Turns`].
///
/// [`claim`]: tourbillon_durable::store::TimerStore::claim
pub const TURNS: &[Case] = turns::CASES;

/// The number of cases that run at the same time. During a case, a store on a server mostly waits for the server.
const THREADS: usize = 4;

/// Runs test cases, each on a store of its own. Returns the names of the cases in which the store deviates. The
/// messages of their panics are printed.
pub fn failures(cases: impl IntoIterator<Item = &'static Case>, make: Make<'_>) -> Vec<&'static str> {
    let cases = Mutex::new(cases.into_iter().copied().collect::<Vec<_>>().into_iter());
    let failed = Mutex::new(Vec::new());
    let next = || cases.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((name, case)) = next() {
            if catch_unwind(AssertUnwindSafe(|| case(make))).is_err() {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs [`CASES`], and [`histories`] with 200 random lives (runs of random operations).
///
/// # Panics
///
/// Panics if the store deviates from the meaning of the operations. The message has the names of the cases.
pub fn run(make: Make<'_>) {
    let failed = failures(CASES.iter().copied().flatten(), make);
    assert!(failed.is_empty(), "the store deviates in these cases: {failed:#?}");
    let _tally = histories(make, 0..200, &Life::default());
}
