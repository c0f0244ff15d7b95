//! Tests that every store must pass, for the authors of stores.
//!
//! [`run`] runs all cases on a store. [`CASES`] has them by name, for a test framework that wants a test for each. A
//! case gets an empty store on a manual clock from the author's function. It uses only the store's interface, and
//! panics where the store deviates. After each step of a case the store's own check must find no fault, and its counts
//! must be those of a recount.
//!
//! ```
//! use std::sync::Arc;
//! use tourbillon_durable::store::MemoryStore;
//!
//! tourbillon_conformance::run(&|clock| Arc::new(MemoryStore::new(clock)));
//! ```
//!
//! A [`Faulty`] store fails as a seed decides. [`histories`] gives a store random operations, which a checker follows.
//! [`differential`] gives two stores the same random operations, and compares all that is visible.

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
mod placing;
mod series;
mod turns;

pub use bench::{Case, Make};
pub use faults::{Faults, Faulty, SeededFaults, Strikes};
pub use history::{Life, Tally, differential, histories};
pub use turns::Turns;

/// All cases, without the random [`histories`].
pub const CASES: &[&[Case]] = &[
    placing::CASES,
    claims::CASES,
    leases::CASES,
    endings::CASES,
    series::CASES,
    bulk::CASES,
    lists::CASES,
    backup::CASES,
];

/// The cases for a store that claims in turn ([`TimerStore::claim_in_turn`]): it passes over a namespace that has its
/// share. [`Turns`] serves for further cases that an author writes.
///
/// [`TimerStore::claim_in_turn`]: tourbillon_durable::store::TimerStore::claim_in_turn
pub const TURNS: &[Case] = turns::CASES;

/// Runs [`CASES`], and 200 random [`histories`].
///
/// # Panics
///
/// Panics if the store deviates from the meaning of the operations. The message names the case.
pub fn run(make: Make<'_>) {
    for (name, case) in CASES.iter().copied().flatten() {
        let _named = Named(name);
        case(make);
    }
    let _tally = histories(make, 0..200, &Life::default());
}

/// Prints the name of a case, if the case panics.
struct Named(&'static str);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the store deviates in the case {}", self.0);
        }
    }
}
