//! The crash model. A user, a worker, a disk and a clock take steps over one or two timers. The model searches all
//! orders of their steps, with a crash possible before and after each step.
//!
//! Transactions change the store in memory. They become durable in order, each at some later moment. The user gets an
//! answer when its transaction is durable. A crash takes the worker, and all transactions that are not durable. The
//! restart ends all leases. The transitions are those of [`step`](tourbillon_durable::state::step). The search is
//! breadth first, so the first counterexample is the shortest. From each world that is reached, a run without further
//! faults must come to the promised end.
//!
//! | | |
//! |---|---|
//! | I1 | an accepted timer that was not withdrawn is delivered, or dead |
//! | I2 | no delivery starts before the timer is due |
//! | I3 | after a cancel returned `Cancelled` no delivery starts; after `InFlight` no further delivery starts, and none at all of a timer of at most one delivery |
//! | I4 | without faults a timer is delivered once; after a durable acknowledgement it is not delivered |
//! | I5 | after a replacement returned, the old timer is not delivered, but for the delivery that was in flight |
//! | I6 | each instant of a series has one id, and none is left out |
//! | I7 | a timer of at most one delivery starts at most once |
//!
//! Twelve wrong variants of the model show that the search finds faults.

mod search;
mod steps;
mod transactions;
mod world;

use search::search;
use std::thread;
use tourbillon_durable::policy::Guarantee;
use world::{Scenario, UserOp, Wrong};

fn one_timer() -> Scenario {
    Scenario { user: vec![UserOp::Place(1, 1), UserOp::Cancel(1)], ..Scenario::default() }
}

fn two_timers() -> Scenario {
    Scenario {
        user: vec![UserOp::Place(1, 1), UserOp::Place(2, 0), UserOp::Cancel(1)],
        crashes: 1,
        last_tick: 2,
        ..Scenario::default()
    }
}

fn one_key() -> Scenario {
    Scenario {
        user: vec![UserOp::Place(1, 0), UserOp::Replace(2, 1), UserOp::Cancel(2)],
        crashes: 1,
        last_tick: 2,
        ..Scenario::default()
    }
}

fn at_most_once() -> Scenario {
    let user = vec![UserOp::Place(1, 1), UserOp::Place(2, 1), UserOp::Cancel(1)];
    Scenario { guarantee: Guarantee::AtMostOnce, user, ..Scenario::default() }
}

fn series() -> Scenario {
    Scenario {
        user: vec![UserOp::Place(1, 1), UserOp::Cancel(1)],
        series_until: Some(5),
        crashes: 1,
        last_tick: 6,
        ..Scenario::default()
    }
}

#[test]
fn no_crash_breaks_a_promise() {
    let scenarios = [
        ("one timer", one_timer()),
        ("two timers", two_timers()),
        ("one key", one_key()),
        ("at most once", at_most_once()),
        ("a series", series()),
    ];
    // One thread would take half a minute for all.
    thread::scope(|scope| {
        for (name, scenario) in scenarios {
            scope.spawn(move || {
                let worlds =
                    search(&scenario, Wrong::Nothing).unwrap_or_else(|broken| panic!("{name}: {broken}"));
                assert!(worlds > 1_000, "{name} has {worlds} worlds: the search does not get far");
                eprintln!("{name}: {worlds} worlds");
            });
        }
    });
}

/// Goal: the search finds each wrong variant of the model, by an invariant that the variant breaks.
#[test]
fn each_wrong_variant_goes_red() {
    let variants: [(Scenario, Wrong, &[&str]); 13] = [
        (one_timer(), Wrong::DeleteBeforeDelivery, &["I1"]),
        (series(), Wrong::NextInATransactionOfItsOwn, &["I6"]),
        (one_timer(), Wrong::CancelForgetsTheLease, &["I3"]),
        (one_timer(), Wrong::RestartForgetsTheWithdrawal, &["I3"]),
        (one_key(), Wrong::RestartForgetsTheWithdrawal, &["I3, I5"]),
        (one_timer(), Wrong::AnswerBeforeDurable, &["I1"]),
        (at_most_once(), Wrong::OnceBeginsBeforeDurable, &["I7"]),
        (at_most_once(), Wrong::RemovalIgnoresTheWithdrawal, &["I3, I5"]),
        (one_timer(), Wrong::ClaimIgnoresTheDueMoment, &["I2"]),
        (series(), Wrong::NextFromTheEndOfTheDelivery, &["I6"]),
        (series(), Wrong::FreshIds, &["I6"]),
        (one_timer(), Wrong::BeginsAfterTheLease, &["I3", "I4"]),
        (one_key(), Wrong::ReplaceKeepsTheOld, &["I3, I5"]),
    ];
    thread::scope(|scope| {
        for (scenario, wrong, invariants) in variants {
            scope.spawn(move || {
                let Err(broken) = search(&scenario, wrong) else { panic!("{wrong:?} is not found") };
                eprintln!("{wrong:?}: {broken}");
                let is_named = invariants.iter().any(|name| broken.starts_with(name));
                assert!(is_named, "{wrong:?} breaks another invariant: {broken}");
            });
        }
    });
}
