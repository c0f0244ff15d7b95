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

/// Asserts that the search of the model notices the planted fault `wrong`. The fault must break an invariant of
/// `invariants`.
#[track_caller]
fn goes_red(scenario: &Scenario, wrong: Wrong, invariants: &[&str]) {
    let broken = search(scenario, wrong).expect_err("the search does not find the fault");
    eprintln!("{wrong:?}: {broken}");
    assert!(
        invariants.iter().any(|name| broken.starts_with(name)),
        "{wrong:?} breaks another invariant: {broken}"
    );
}

#[test]
fn red_if_a_timer_is_deleted_before_its_delivery() {
    goes_red(&one_timer(), Wrong::DeleteBeforeDelivery, &["I1"]);
}

#[test]
fn red_if_the_next_occurrence_has_a_transaction_of_its_own() {
    goes_red(&series(), Wrong::NextInATransactionOfItsOwn, &["I6"]);
}

#[test]
fn red_if_a_cancel_forgets_the_lease() {
    goes_red(&one_timer(), Wrong::CancelForgetsTheLease, &["I3"]);
}

#[test]
fn red_if_a_restart_forgets_the_withdrawal() {
    goes_red(&one_timer(), Wrong::RestartForgetsTheWithdrawal, &["I3"]);
    goes_red(&one_key(), Wrong::RestartForgetsTheWithdrawal, &["I3, I5"]);
}

#[test]
fn red_if_an_answer_comes_before_its_change_is_durable() {
    goes_red(&one_timer(), Wrong::AnswerBeforeDurable, &["I1"]);
}

#[test]
fn red_if_at_most_once_begins_before_the_removal_is_durable() {
    goes_red(&at_most_once(), Wrong::OnceBeginsBeforeDurable, &["I7"]);
}

#[test]
fn red_if_a_removal_ignores_the_withdrawal() {
    goes_red(&at_most_once(), Wrong::RemovalIgnoresTheWithdrawal, &["I3, I5"]);
}

#[test]
fn red_if_a_claim_ignores_the_due_moment() {
    goes_red(&one_timer(), Wrong::ClaimIgnoresTheDueMoment, &["I2"]);
}

#[test]
fn red_if_the_next_occurrence_follows_the_end_of_the_delivery() {
    goes_red(&series(), Wrong::NextFromTheEndOfTheDelivery, &["I6"]);
}

#[test]
fn red_if_ids_are_made_anew() {
    goes_red(&series(), Wrong::FreshIds, &["I6"]);
}

#[test]
fn red_if_a_delivery_begins_after_its_lease() {
    goes_red(&one_timer(), Wrong::BeginsAfterTheLease, &["I3", "I4"]);
}

#[test]
fn red_if_a_replacement_keeps_the_old_timer() {
    goes_red(&one_key(), Wrong::ReplaceKeepsTheOld, &["I3, I5"]);
}
