//! The protocol on Redis: it holds, each situation is reached, and each planted fault is found.

mod common;

use common::{holds, is_found};
use strum::VariantArray as _;
use tourbillon_models::explore::{Explored, explore};
use tourbillon_models::parts::{Budget, Sync};
use tourbillon_models::redis::{
    Action, Event, Fault, LATE, LOST, NO_LEASE, NOT_OWNER, OLD_TOKEN, ONE_EPOCH, REVIVED, Redis, TWICE,
    TWO_HOLDERS, TWO_LEASES,
};

const NONE: Budget = Budget {
    losses: 0,
    sleeps: 0,
    lapses: 0,
    failovers: 0,
    crashes: 0,
    rollbacks: 0,
    renewals: 0,
    passes: 0,
};
/// One server: lost answers, a node that sleeps past its lease twice, an owner whose time ends, a crash.
const ONE_SERVER: Budget = Budget { losses: 1, sleeps: 2, lapses: 1, crashes: 1, renewals: 1, ..NONE };
/// A failover while answers are lost and a node sleeps.
const FAILOVER: Budget = Budget { losses: 1, failovers: 1, sleeps: 1, ..NONE };
/// A failover while leases are renewed and the owner changes.
const FAILOVER_OF_OWNERS: Budget = Budget { failovers: 1, lapses: 1, renewals: 1, ..NONE };

fn wait(budget: Budget) -> Redis {
    Redis::new(Sync::Wait, budget)
}

#[test]
fn the_protocol_holds_and_each_situation_is_reached() {
    let scopes = [
        ("one server", wait(ONE_SERVER)),
        ("failover", wait(FAILOVER)),
        ("failover of owners", wait(FAILOVER_OF_OWNERS)),
    ];
    let reached = scopes.clone().map(|(_, model)| model.reached);
    holds(scopes, &[LATE, TWO_HOLDERS, ONE_EPOCH, TWICE]);
    for &event in Event::VARIANTS {
        assert!(reached.iter().any(|reached| reached.has(event as usize)), "{event:?} never happens");
    }
}

#[test]
fn each_planted_fault_is_found() {
    for &fault in Fault::VARIANTS {
        let (budget, property) = match fault {
            Fault::EndWithoutToken => (ONE_SERVER, OLD_TOKEN),
            Fault::ClaimWithoutOwner => (ONE_SERVER, NOT_OWNER),
            Fault::ClaimLeavesTimer => (ONE_SERVER, TWO_LEASES),
            Fault::ReapWithoutLook => (ONE_SERVER, NO_LEASE),
            Fault::RenewWithoutToken => (ONE_SERVER, TWO_LEASES),
            Fault::CancelWithoutCheck => (ONE_SERVER, NO_LEASE),
            Fault::BeginWithoutLease => (ONE_SERVER, NO_LEASE),
            Fault::ForgetIds => (ONE_SERVER, REVIVED),
            Fault::AnswerWithoutWait | Fault::OtherWitness | Fault::RepeatWithoutWait => (FAILOVER, LOST),
            Fault::OwnerForEver | Fault::NoReap => (ONE_SERVER, LOST),
        };
        is_found(fault, property, wait(budget).with(fault));
    }
}

#[test]
fn ownership_decides_nothing() {
    // Any node may claim in any shard. Only the property that speaks of owners breaks.
    for budget in [ONE_SERVER, FAILOVER] {
        let Explored { states, counterexample, .. } =
            explore(wait(budget).with(Fault::ClaimWithoutOwner).without(NOT_OWNER));
        println!("claims without owners: {states} states");
        assert_eq!(counterexample, None);
    }
}

#[test]
fn without_a_wait_a_failover_loses_an_acknowledged_timer() {
    let explored = explore(Redis::new(Sync::None, FAILOVER));
    let (property, run) = explored.counterexample.unwrap();
    println!("no wait: {} states, {property}: {run:?}", explored.states);
    assert_eq!(property, LOST);
    assert!(run.contains(&Action::FailOver));
}
