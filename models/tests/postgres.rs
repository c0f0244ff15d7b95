//! The protocol on PostgreSQL: it holds, each situation is reached, and each planted fault is found.

mod common;

use common::{holds, is_found};
use strum::VariantArray as _;
use tourbillon_models::explore::explore;
use tourbillon_models::parts::{Budget, Sync};
use tourbillon_models::postgres::{
    ABOVE, Action, Event, Fault, LOST, NO_LEASE, NOT_OWNER, OLD_TOKEN, Postgres, REVIVED, TWO_HOLDERS,
    TWO_LEASES,
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
/// A node that sleeps past its lease, an owner whose time ends, a transaction that is rolled back, a renewal.
const TRANSACTIONS: Budget = Budget { sleeps: 1, lapses: 1, rollbacks: 1, renewals: 1, ..NONE };
/// A lost answer, a node that sleeps past its lease, and a crash.
const CRASH: Budget = Budget { losses: 1, sleeps: 1, crashes: 1, ..NONE };
/// A lost answer, while the owner changes and a node sleeps past its lease.
const LOST_ANSWER: Budget = Budget { losses: 1, sleeps: 1, lapses: 1, renewals: 1, ..NONE };
/// A change of owners.
const OWNERS: Budget = Budget { sleeps: 1, lapses: 1, ..NONE };
/// A transaction that is rolled back.
const ROLLBACK: Budget = Budget { rollbacks: 1, ..NONE };
/// Claims that pass over a lane, beside a transaction that is rolled back.
const PASSES: Budget = Budget { passes: 2, ..ROLLBACK };
/// A failover among renewals and transactions that are rolled back.
const FAILOVER: Budget = Budget { failovers: 1, rollbacks: 1, renewals: 1, ..NONE };
/// A failover and a lost answer.
const FAILOVER_AND_LOSS: Budget = Budget { failovers: 1, losses: 1, ..NONE };
/// A failover, a change of owners, and a node that sleeps past its lease.
const FAILOVER_OF_OWNERS: Budget = Budget { failovers: 1, sleeps: 1, lapses: 1, ..NONE };

fn one(budget: Budget) -> Postgres {
    Postgres::new(Sync::Wait, 1, budget)
}

fn two(budget: Budget) -> Postgres {
    Postgres::new(Sync::Wait, 2, budget)
}

#[test]
fn the_protocol_holds_and_each_situation_is_reached() {
    let scopes = [
        ("transactions", one(TRANSACTIONS)),
        ("crash", one(CRASH)),
        ("lost answer", one(LOST_ANSWER)),
        ("looks without a shard", one(OWNERS).with_idle_looks()),
        ("two timers in one lane", two(PASSES)),
        ("two timers in two lanes", two(PASSES).with_lanes()),
        ("failover", one(FAILOVER)),
        ("failover and lost answer", one(FAILOVER_AND_LOSS)),
        ("failover of owners", one(FAILOVER_OF_OWNERS)),
    ];
    let reached = scopes.clone().map(|(_, model)| model.reached);
    holds(scopes, &[ABOVE, TWO_HOLDERS]);
    for &event in Event::VARIANTS {
        assert!(reached.iter().any(|reached| reached.has(event as usize)), "{event:?} never happens");
    }
}

#[test]
fn each_planted_fault_is_found() {
    for &fault in Fault::VARIANTS {
        let (model, property) = match fault {
            Fault::NoSecondLook | Fault::ForgetOpen | Fault::ForgetLocked | Fault::ReturnKeepsNumber => {
                (one(TRANSACTIONS), LOST)
            }
            Fault::MarkTooEarly | Fault::LeavesLate | Fault::GoesBackTooLittle => (two(ROLLBACK), LOST),
            Fault::OneMark => (two(PASSES).with_lanes(), LOST),
            Fault::ForgetStuck => (one(TRANSACTIONS), LOST),
            Fault::PassesOverAll | Fault::LeavesLocked => (one(PASSES), LOST),
            Fault::MarkWithoutEpoch => (one(OWNERS).with_idle_looks(), LOST),
            Fault::ClaimWithoutNodeLock => (one(TRANSACTIONS), NOT_OWNER),
            // Of two guards, one alone is enough. See the test below.
            Fault::ClaimBySnapshot => {
                (one(OWNERS).with(Fault::ClaimWithoutNodeLock).without(&[NOT_OWNER]), TWO_LEASES)
            }
            Fault::MarkAfterFailover | Fault::AnswerWithoutWait => (one(FAILOVER), LOST),
            Fault::CancelBySnapshot | Fault::BeginWithoutLease => (one(TRANSACTIONS), NO_LEASE),
            Fault::EndWithoutToken | Fault::EndWithoutLock | Fault::ReapWithoutLock => {
                (one(TRANSACTIONS), OLD_TOKEN)
            }
            Fault::ForgetIds => (one(CRASH), REVIVED),
            Fault::OwnerForEver | Fault::NoReap => (one(CRASH), LOST),
        };
        is_found(fault, property, model.with(fault));
    }
}

#[test]
fn one_of_two_guards_is_enough_against_two_leases() {
    // The lock of the node's row decides which node claims. The key of the leases decides which claim gets the timer.
    for (guard, model) in [
        ("the key of the leases", one(OWNERS).with(Fault::ClaimWithoutNodeLock).without(&[NOT_OWNER])),
        ("the row of the node", one(OWNERS).with(Fault::ClaimBySnapshot)),
    ] {
        let explored = explore(model);
        println!("{guard} alone: {} states", explored.states);
        assert_eq!(explored.counterexample, None, "{guard}");
    }
}

#[test]
fn a_failover_that_loses_commits_loses_timers_and_cancels_and_nothing_else() {
    for budget in [FAILOVER, FAILOVER_AND_LOSS, FAILOVER_OF_OWNERS] {
        let lossy =
            |unchecked: &'static [&'static str]| Postgres::new(Sync::None, 1, budget).without(unchecked);
        for (property, unchecked) in [(LOST, &[REVIVED][..]), (REVIVED, &[LOST][..])] {
            let explored = explore(lossy(unchecked));
            let (broken, run) = explored.counterexample.unwrap();
            println!("no wait: {} states, {broken}: {run:?}", explored.states);
            assert_eq!(broken, property);
            assert!(run.contains(&Action::FailOver));
        }
        let explored = explore(lossy(&[LOST, REVIVED]));
        println!("no wait, the other properties: {} states", explored.states);
        assert_eq!(explored.counterexample, None);
    }
}
