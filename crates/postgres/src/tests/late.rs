//! Tests ends of deliveries whose timers a transaction of a caller has locked.

use super::server::open;
use super::session::{Psql, await_idle};
use crate::PostgresStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::state::{Failure, Phase, Refusal};
use tourbillon_durable::store::{Claimant, Durability, Leased, Limit, Op, Outcome, Renewal, TimerStore};
use tourbillon_fault::Postgres;

/// Claims a timer with the key `held`, and lets a caller call this SQL function, in a transaction that stays open.
fn hold(server: &Postgres, by: Claimant, call: &str) -> (Arc<PostgresStore>, Leased, Psql) {
    let store = open(server);
    let _id = server.sql("SELECT tourbillon.schedule('mail', key => 'held')");
    let limit = Limit { timers: 10, bytes: u64::MAX };
    let leased = pollster::block_on(store.claim(by, 1, limit, None)).unwrap().leased.remove(0);
    let mut caller = Psql::new(server);
    caller.send(&format!("BEGIN; SELECT tourbillon.{call};"));
    await_idle(server, 1);
    (store, leased, caller)
}

fn by(lease: Duration) -> Claimant {
    Claimant { incarnation: 7, lease }
}

fn timers(server: &Postgres) -> String {
    server.sql("SELECT count(*) FROM tourbillon.timer WHERE phase <> 'd'")
}

fn apply(store: &PostgresStore, op: &Op, durability: Durability) -> Outcome {
    let mut outcomes = pollster::block_on(store.apply(vec![op.clone()], durability)).unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// If an end were confirmed before it is stored, it would be lost if the process died.
#[test]
fn an_end_is_not_confirmed_while_a_transaction_holds_its_timer() {
    let Some(server) = Postgres::start(&[]) else { return };
    let final_failure = Failure { error: "no".into(), retry_after: None, is_final: true };
    for call in ["cancel('held')", "move_to('held', delay => '1 hour')"] {
        for durability in [Durability::Volatile, Durability::ProcessCrash, Durability::PowerLoss] {
            for is_ack in [true, false] {
                let (store, leased, mut caller) = hold(&server, by(Duration::from_secs(300)), call);
                let (id, token) = (leased.timer.id, leased.token);
                let end =
                    if is_ack { Op::Ack(id, token) } else { Op::Fail(id, token, final_failure.clone()) };
                for _ in 0..3 {
                    let begin = Instant::now();
                    assert_eq!(apply(&store, &end, durability), Outcome::Held, "{call} {durability:?}");
                    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
                }
                assert_eq!(timers(&server), "1", "it is held");
                caller.send("ROLLBACK;");
                caller.end().unwrap();
                await_idle(&server, 0);
                let phase = if is_ack { Phase::Done } else { Phase::Dead };
                assert_eq!(
                    apply(&store, &end, durability),
                    Outcome::Ended { id, phase, next: None, skipped: 0 }
                );
                assert_eq!(timers(&server), "0");
                pollster::block_on(store.leave()).unwrap();
            }
        }
    }
}

/// The transaction is open for longer than the lease, and rolls back. The runtime renews the lease. Another node reaps
/// expired leases all the time.
#[test]
fn no_reap_comes_before_an_end_that_waited_for_a_transaction() {
    let Some(server) = Postgres::start(&[]) else { return };
    let other = open(&server);
    let by = by(Duration::from_millis(600));
    for round in 0..4 {
        let (store, leased, mut caller) = hold(&server, by, "cancel('held')");
        let (id, token) = (leased.timer.id, leased.token);
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            let reaping = scope.spawn(|| {
                let mut returned = 0;
                while !ends.load(Ordering::Relaxed) {
                    returned += pollster::block_on(other.reap(10)).unwrap().returned.len();
                }
                returned
            });
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(1) {
                let renewal = pollster::block_on(store.renew(by, vec![(id, token)])).unwrap();
                assert_eq!(renewal, Renewal::default());
                assert_eq!(apply(&store, &Op::Ack(id, token), Durability::ProcessCrash), Outcome::Held);
            }
            caller.send("ROLLBACK;");
            assert_eq!(caller.end().unwrap(), "in-flight");
            await_idle(&server, 0);
            let ended = apply(&store, &Op::Ack(id, token), Durability::ProcessCrash);
            assert!(matches!(ended, Outcome::Ended { phase: Phase::Done, .. }), "{ended:?}");
            ends.store(true, Ordering::Relaxed);
            assert_eq!(reaping.join().unwrap(), 0, "round {round}");
        });
        assert_eq!(timers(&server), "0", "round {round}");
        // The next store gets the shards.
        pollster::block_on(store.leave()).unwrap();
    }
}

/// When the end is reported, a reap (search for expired leases) has locked the timer and deleted its lease, and has not
/// committed yet.
#[test]
fn an_end_that_comes_during_a_reap_is_refused() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let _id = server.sql("SELECT tourbillon.schedule('mail', key => 'held')");
    let by = by(Duration::ZERO);
    let leased =
        pollster::block_on(store.claim(by, 1, Limit { timers: 10, bytes: u64::MAX }, None)).unwrap().leased;
    let mut reap = Psql::new(&server);
    reap.send("BEGIN; SELECT 1 FROM tourbillon.timer FOR UPDATE; DELETE FROM tourbillon.lease;");
    await_idle(&server, 1);
    let end = Op::Ack(leased[0].timer.id, leased[0].token);
    let outcomes = pollster::block_on(store.apply(vec![end], Durability::ProcessCrash)).unwrap();
    assert_eq!(outcomes, [Outcome::Refused(Refusal::Stale)]);
    reap.send("ROLLBACK;");
    assert_eq!(reap.end().unwrap(), "1");
    assert_eq!(timers(&server), "1", "what was refused has no effect");
}

/// The id of a timer has only zeros, which a caller may choose. The end of its delivery is like any other end.
#[test]
fn an_end_of_the_least_id_waits_for_no_transaction() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let _ids = server.sql(
        "SELECT tourbillon.schedule('mail', key => 'held'),
             tourbillon.schedule('mail', id => '00000000-0000-0000-0000-000000000000')",
    );
    let by = by(Duration::from_secs(300));
    let leased =
        pollster::block_on(store.claim(by, 1, Limit { timers: 10, bytes: u64::MAX }, None)).unwrap().leased;
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT tourbillon.cancel('held');");
    await_idle(&server, 1);
    let ends: Vec<Op> = leased.iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
    let begin = Instant::now();
    let outcomes = pollster::block_on(store.apply(ends, Durability::ProcessCrash)).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let held: Vec<_> = leased.iter().map(|leased| leased.timer.key.as_deref() == Some("held")).collect();
    for (outcome, is_held) in outcomes.iter().zip(held) {
        assert_eq!(matches!(outcome, Outcome::Held), is_held, "{outcomes:?}");
        assert_eq!(matches!(outcome, Outcome::Ended { .. }), !is_held, "{outcomes:?}");
    }
    assert_eq!((outcomes.len(), timers(&server).as_str()), (2, "1"), "the held one");
    caller.send("COMMIT;");
    assert_eq!(caller.end().unwrap(), "in-flight");
}
