//! Tests ends of deliveries that wait for a transaction of a caller, beside calls that make changes durable.

use super::server::open;
use super::session::{Psql, await_idle, await_sessions};
use crate::PostgresStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::state::Refusal;
use tourbillon_durable::store::{Claimant, Durability, Limit, Op, Outcome, TimerStore};
use tourbillon_fault::{Postgres, eventually};

/// Claims a timer with the key `held`, lets a caller withdraw it, and reports the end of its delivery. The end waits
/// for the caller.
fn with_late_end(server: &Postgres) -> (Arc<PostgresStore>, Psql) {
    with_late_end_of(server, Duration::from_secs(300))
}

/// As [`with_late_end`], with a lease of this length.
fn with_late_end_of(server: &Postgres, lease: Duration) -> (Arc<PostgresStore>, Psql) {
    let store = open(server);
    let _id = server.sql("SELECT tourbillon.schedule('mail', key => 'held')");
    let by = Claimant { incarnation: 7, lease };
    let limit = Limit { timers: 10, bytes: u64::MAX };
    let leased = pollster::block_on(store.claim(by, 1, limit, None)).unwrap().leased;
    let mut caller = Psql::new(server);
    caller.send("BEGIN; SELECT tourbillon.cancel('held');");
    await_idle(server, 1);
    let end = Op::Ack(leased[0].timer.id, leased[0].token);
    let _outcomes = pollster::block_on(store.apply(vec![end], Durability::ProcessCrash)).unwrap();
    assert_eq!(timers(server), "1", "it is held");
    (store, caller)
}

fn timers(server: &Postgres) -> String {
    server.sql("SELECT count(*) FROM tourbillon.timer")
}

fn flush(store: &PostgresStore) {
    let outcomes = pollster::block_on(store.apply(Vec::new(), Durability::PowerLoss)).unwrap();
    assert_eq!(outcomes.len(), 0);
}

/// The task that tries the ends wakes while a flush has taken all ends from the list.
#[test]
fn an_end_that_a_flush_could_not_apply_is_tried_again() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (store, mut caller) = with_late_end(&server);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        flush(&store);
    }
    caller.send("COMMIT;");
    assert_eq!(caller.end().unwrap(), "in-flight");
    eventually("the end has its effect", || timers(&server) == "0");
}

/// A trigger slows the transaction that applies the end.
#[test]
fn a_flush_answers_after_the_end_that_is_on_its_way() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (store, mut caller) = with_late_end(&server);
    caller.send(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2); RETURN old; END';
         CREATE TRIGGER slow BEFORE DELETE ON tourbillon.lease FOR EACH ROW EXECUTE FUNCTION slow();
         COMMIT;",
    );
    await_sessions(&server, "application_name = 'tourbillon' AND wait_event = 'PgSleep'", 1);
    flush(&store);
    assert_eq!(timers(&server), "0", "the flush came before the end");
    assert_eq!(caller.end().unwrap(), "in-flight");
}

/// The transaction is open for longer than the lease, and rolls back. Another node reaps expired leases all the time.
#[test]
fn no_reap_comes_before_an_end_that_waited_for_a_transaction() {
    let Some(server) = Postgres::start(&[]) else { return };
    let other = open(&server);
    for round in 0..4 {
        let (store, mut caller) = with_late_end_of(&server, Duration::from_millis(600));
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            let reaping = scope.spawn(|| {
                let mut returned = 0;
                while !ends.load(Ordering::Relaxed) {
                    returned += pollster::block_on(other.reap(10)).unwrap().returned.len();
                }
                returned
            });
            thread::sleep(Duration::from_millis(1_000));
            caller.send("ROLLBACK;");
            assert_eq!(caller.end().unwrap(), "in-flight");
            // The end has its effect at the next try. A reap would come only once the lease has expired.
            thread::sleep(Duration::from_millis(400));
            ends.store(true, Ordering::Relaxed);
            assert_eq!(reaping.join().unwrap(), 0, "round {round}: the end was confirmed");
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
    let by = Claimant { incarnation: 7, lease: Duration::ZERO };
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
    flush(&store);
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
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let leased =
        pollster::block_on(store.claim(by, 1, Limit { timers: 10, bytes: u64::MAX }, None)).unwrap().leased;
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT tourbillon.cancel('held');");
    await_idle(&server, 1);
    let ends: Vec<Op> = leased.iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
    let begin = Instant::now();
    let outcomes = pollster::block_on(store.apply(ends, Durability::ProcessCrash)).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Ended { .. })), "{outcomes:?}");
    assert_eq!((outcomes.len(), timers(&server).as_str()), (2, "1"), "the held one");
    caller.send("COMMIT;");
    assert_eq!(caller.end().unwrap(), "in-flight");
    eventually("the end has its effect", || timers(&server) == "0");
}
