//! Tests withdrawals of many timers at once, as an operation of the service makes them.

use super::server::open;
use crate::PostgresStore;
use pollster::block_on;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Durability, IfPresent, Limit, Op, Outcome, TimerStore as _};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Postgres;

fn apply(store: &PostgresStore, ops: Vec<Op>) -> Vec<Outcome> {
    block_on(store.apply(ops, Durability::PowerLoss)).unwrap()
}

/// Stores due timers. The caller has chosen every second id, so the store remembers this id after the timer's end.
fn place(store: &PostgresStore, count: u128) -> Vec<TimerId> {
    let ids: Vec<TimerId> = (1..=count).map(TimerId::from_u128).collect();
    let op = |id: &TimerId| {
        let mut timer = Timer::new(*id, "mail", store.now());
        timer.has_chosen_id = id.as_u128().is_multiple_of(2);
        Op::Place(Box::new(timer), IfPresent::Reject)
    };
    for portion in ids.chunks(500) {
        apply(store, portion.iter().map(op).collect());
    }
    ids
}

fn cancel(id: &TimerId) -> Op {
    Op::Cancel((*id).into(), None)
}

#[test]
fn many_timers_are_withdrawn_in_one_transaction_whatever_their_states() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let ids = place(&store, 300);
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    thread::sleep(Duration::from_millis(5));
    let leased = block_on(store.claim(by, 1, Limit { timers: 100, bytes: u64::MAX }, None)).unwrap().leased;
    let leased: BTreeSet<TimerId> = leased.into_iter().map(|leased| leased.timer.id).collect();
    // One of the timers is named twice, and one does not exist.
    let absent = TimerId::from_u128(999);
    let named: Vec<TimerId> = ids.iter().copied().chain([absent, ids[0]]).collect();
    let outcomes = apply(&store, named.iter().map(cancel).collect());
    assert_eq!(outcomes.len(), 302);
    for (id, outcome) in named.iter().zip(&outcomes).take(300) {
        match outcome {
            Outcome::Cancelled(timer) => assert!(timer.id == *id && !leased.contains(id)),
            Outcome::InFlight(other) => assert!(other == id && leased.contains(id)),
            other => panic!("{id}: {other:?}"),
        }
    }
    let singles = [absent, ids[0]].map(|id| apply(&store, vec![cancel(&id)]).remove(0));
    assert_eq!(outcomes[300..], singles);
    assert_eq!(
        server.sql("SELECT count(*), count(*) FILTER (WHERE phase = 'c') FROM tourbillon.timer"),
        "100|100"
    );
    let remembered = ids.iter().filter(|id| id.as_u128().is_multiple_of(2) && !leased.contains(id)).count();
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.remembered"), remembered.to_string());
    assert_eq!(block_on(store.check()).unwrap(), []);
}

/// Timers are claimed while they are withdrawn portion by portion. Each timer is either withdrawn or in flight.
#[test]
fn a_timer_that_is_withdrawn_with_many_others_is_not_claimed() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (store, other) = (open(&server), open(&server));
    let ids = place(&store, 2_000);
    thread::sleep(Duration::from_millis(5));
    let (leased, withdrawn) = thread::scope(|scope| {
        let claiming = scope.spawn(|| {
            let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
            let mut leased = BTreeSet::new();
            for number in 1..=60 {
                let limit = Limit { timers: 20, bytes: u64::MAX };
                let claimed = block_on(store.claim(by, number, limit, None)).unwrap().leased;
                leased.extend(claimed.into_iter().map(|leased| leased.timer.id));
            }
            leased
        });
        let (mut withdrawn, mut in_flight) = (BTreeSet::new(), BTreeSet::new());
        for portion in ids.chunks(100).rev() {
            for outcome in apply(&other, portion.iter().map(cancel).collect()) {
                match outcome {
                    Outcome::Cancelled(timer) => _ = withdrawn.insert(timer.id),
                    Outcome::InFlight(id) => _ = in_flight.insert(id),
                    other => panic!("{other:?}"),
                }
            }
        }
        let leased = claiming.join().unwrap();
        assert_eq!(leased, in_flight, "each claimed timer was in flight at its cancel");
        (leased, withdrawn)
    });
    eprintln!("{} timers were claimed, {} withdrawn", leased.len(), withdrawn.len());
    assert!(!leased.is_empty() && !withdrawn.is_empty());
    assert_eq!(leased.len() + withdrawn.len(), 2_000);
    assert!(leased.is_disjoint(&withdrawn));
    assert_eq!(block_on(store.check()).unwrap(), []);
}
