//! Tests timers that are delivered at most once. A claim leases such a timer, and the caller removes it before its
//! delivery.

use super::life::{await_end, spec};
use super::network::through_proxy;
use super::server::{connect, open};
use super::session::{Psql, await_idle, await_sessions};
use crate::PostgresStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::state::{Phase, Refusal};
use tourbillon_durable::store::{
    Claimant, Claimed, Durability, Leased, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::{Delivery, Durable, Verdict};
use tourbillon_fault::{Postgres, eventually};

const BY: Claimant = Claimant { incarnation: 7, lease: Duration::from_secs(1) };
const LONG: Claimant = Claimant { incarnation: 7, lease: Duration::from_secs(300) };

fn claim(store: &PostgresStore, by: Claimant, number: u64) -> Result<Claimed, StoreError> {
    pollster::block_on(store.claim(by, number, Limit { timers: 9, bytes: u64::MAX }, None))
}

fn schedule(server: &Postgres, count: u32) {
    let _ids = server.sql(&format!(
        "SELECT count(tourbillon.schedule('mail', policy => '{{\"guarantee\": \"at-most-once\"}}'))
         FROM generate_series(1, {count})"
    ));
}

fn schedule_key(server: &Postgres, key: &str) {
    let _id = server.sql(&format!(
        "SELECT tourbillon.schedule('mail', key => '{key}', policy => '{{\"guarantee\": \"at-most-once\"}}')"
    ));
}

/// Removes claimed timers before their deliveries.
fn remove(store: &PostgresStore, leased: &[Leased]) -> Result<Vec<Outcome>, StoreError> {
    let ops = leased.iter().map(|leased| Op::Skip(leased.timer.id, leased.token)).collect();
    pollster::block_on(store.apply(ops, Durability::PowerLoss))
}

fn phases(outcomes: &[Outcome]) -> Vec<Phase> {
    let phase = |outcome: &Outcome| match outcome {
        Outcome::Ended { phase, .. } => *phase,
        other => panic!("{other:?}"),
    };
    outcomes.iter().map(phase).collect()
}

#[test]
fn a_claim_of_timers_at_most_once_whose_reply_is_lost_is_recovered() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (proxy, store) = through_proxy(&server);
    assert_eq!(claim(&store, LONG, 1).unwrap().leased.len(), 0);
    schedule(&server, 5);
    proxy.lose_after(0);
    assert_eq!(claim(&store, LONG, 2).unwrap_err().kind(), StoreErrorKind::Unknown);
    let recovered = pollster::block_on(store.recover(LONG, 2)).unwrap();
    assert_eq!((recovered.len(), claim(&store, LONG, 3).unwrap().leased.len()), (5, 0));
    assert_eq!(phases(&remove(&store, &recovered).unwrap()), [Phase::Done; 5]);
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "0");
}

/// The server refuses removals. The timers stay leased, and are claimed again after the end of their leases.
#[test]
fn timers_at_most_once_that_cannot_be_removed_are_claimed_again() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    schedule(&server, 5);
    let leased = claim(&store, BY, 2).unwrap().leased;
    let _full = server.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''no room'' USING ERRCODE = ''53100''; END';
         CREATE TRIGGER refuse BEFORE DELETE ON tourbillon.timer FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    assert_eq!(remove(&store, &leased).unwrap_err().kind(), StoreErrorKind::Full);
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease"), "5");
    let _room = server.sql("DROP TRIGGER refuse ON tourbillon.timer");
    thread::sleep(BY.lease);
    assert_eq!(pollster::block_on(store.reap(9)).unwrap().returned.len(), 5);
    let stale = Outcome::Refused(Refusal::Stale);
    assert_eq!(remove(&store, &leased).unwrap(), [(); 5].map(|()| stale.clone()), "the leases are lost");
    assert_eq!(claim(&store, BY, 3).unwrap().leased.len(), 5);
}

/// Each piece of the server's replies to a removal is lost once. Nobody knows then whether the timer was removed. So no
/// timer may be confirmed as removed twice, nor be claimed again after its removal.
#[test]
fn a_removal_whose_reply_is_lost_is_never_confirmed_twice() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (proxy, store) = through_proxy(&server);
    assert_eq!(claim(&store, LONG, 1).unwrap().leased.len(), 0);
    let (mut unknown, mut number) = (0, 1);
    for lost in 0..8 {
        schedule(&server, 1);
        let mut leased = Vec::new();
        while leased.is_empty() {
            number += 1;
            leased = claim(&store, LONG, number).unwrap().leased;
        }
        let begin = Instant::now();
        proxy.lose_after(lost);
        let mut outcome = remove(&store, &leased);
        if let Err(error) = &outcome {
            assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
            unknown += 1;
        }
        while let Err(error) = &outcome {
            assert!(begin.elapsed() < Duration::from_secs(60), "{error}");
            outcome = remove(&store, &leased);
        }
        let outcome = outcome.unwrap().remove(0);
        let is_removed = matches!(outcome, Outcome::Ended { phase: Phase::Done, .. });
        assert!(is_removed || outcome == Outcome::Refused(Refusal::Stale), "{outcome:?}");
        assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "0", "lost after {lost} pieces");
        assert_eq!(remove(&store, &leased).unwrap(), [Outcome::Refused(Refusal::Stale)]);
    }
    assert!(unknown > 0, "no reply of a commit was lost");
}

/// Another process cancels or replaces a timer between its claim and its removal.
#[test]
fn a_timer_at_most_once_that_is_withdrawn_before_its_removal_ends_as_withdrawn() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let replace = "tourbillon.schedule('mail', key => 'k', delay => '1 day', if_present => 'replace')";
    let cancel = "tourbillon.cancel('k')";
    for (number, (withdraw, is_batch)) in
        (2..).zip([(cancel, false), (cancel, true), (replace, false), (replace, true)])
    {
        schedule_key(&server, "k");
        schedule(&server, u32::from(is_batch));
        let mut leased = claim(&store, LONG, number).unwrap().leased;
        leased.sort_by_key(|leased| leased.timer.key.is_none());
        let _answer = server.sql(&format!("SELECT {withdraw}"));
        let outcomes = phases(&remove(&store, &leased).unwrap());
        assert_eq!(outcomes[0], Phase::Withdrawn, "{withdraw}");
        assert_eq!(outcomes[1..], vec![Phase::Done; usize::from(is_batch)], "{withdraw}");
        assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease"), "0");
        assert_eq!(
            server.sql("SELECT count(*) FROM tourbillon.timer"),
            if withdraw == replace { "1" } else { "0" }
        );
        let _rest = server.sql("DELETE FROM tourbillon.timer");
    }
}

/// A caller's transaction has locked a timer during its removal. The removal of the other timer does not wait.
#[test]
fn the_removal_of_a_held_timer_waits_for_the_transaction_of_the_caller() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    for (number, (end, phase)) in (2..).zip([("COMMIT", Phase::Withdrawn), ("ROLLBACK", Phase::Done)]) {
        schedule_key(&server, "held");
        schedule(&server, 1);
        let mut leased = claim(&store, LONG, number).unwrap().leased;
        leased.sort_by_key(|leased| leased.timer.key.is_none());
        let mut caller = Psql::new(&server);
        caller.send("BEGIN; SELECT tourbillon.cancel('held');");
        await_idle(&server, 1);
        let begin = Instant::now();
        let outcomes = remove(&store, &leased).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert_eq!((&outcomes[0], phases(&outcomes[1..])), (&Outcome::Held, vec![Phase::Done]), "{end}");
        leased.truncate(1);
        assert_eq!(remove(&store, &leased).unwrap(), [Outcome::Held]);
        caller.send(&format!("{end};"));
        assert_eq!(caller.end().unwrap(), "in-flight");
        await_idle(&server, 0);
        assert_eq!(phases(&remove(&store, &leased).unwrap()), [phase], "{end}");
        assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "0", "{end}");
    }
}

/// A caller's transaction cancels a timer, and commits while the removal waits for the timer's lock. The removal and
/// the caller agree about the timer.
#[test]
fn a_removal_sees_the_withdrawal_for_which_it_has_waited() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    schedule_key(&server, "k");
    let leased = claim(&store, LONG, 2).unwrap().leased;
    // Each removal waits for the lock for 20 ms. So one of them nearly always waits at the moment of the commit.
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT tourbillon.cancel('k'); SELECT pg_sleep(0.5); COMMIT;");
    await_sessions(&server, "query LIKE 'SELECT pg_sleep%'", 1);
    let mut outcomes = remove(&store, &leased).unwrap();
    while outcomes == [Outcome::Held] {
        outcomes = remove(&store, &leased).unwrap();
    }
    assert_eq!(phases(&outcomes), [Phase::Withdrawn]);
    assert_eq!(caller.end().unwrap(), "in-flight");
}

/// A caller's transaction has locked a timer when its handler begins the delivery. Other timers are still delivered,
/// for longer than a lease. The handler then acts once after a rollback, and not at all after a commit.
#[test]
fn a_handler_begins_after_the_transaction_of_a_caller_that_holds_its_timer() {
    let Some(server) = Postgres::start(&[]) else { return };
    // The runtime puts the held timer off after a second, so its handler is called again after a rollback.
    for (end, called, acts) in [("COMMIT", 1, 0), ("ROLLBACK", 2, 1)] {
        let store = Arc::new(pollster::block_on(PostgresStore::builder().open(&connect(&server))).unwrap());
        let (calls, acted, others) = (count(), count(), count());
        let is_held = Arc::<AtomicBool>::default();
        let handler = {
            let (calls, acted, is_held) = (Arc::clone(&calls), Arc::clone(&acted), Arc::clone(&is_held));
            move |_: Box<[u8]>, delivery: Delivery| {
                calls.fetch_add(1, Ordering::Relaxed);
                let (acted, is_held) = (Arc::clone(&acted), Arc::clone(&is_held));
                async move {
                    while !is_held.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(5));
                    }
                    if delivery.begin().await {
                        acted.fetch_add(1, Ordering::Relaxed);
                    }
                    Verdict::Done
                }
            }
        };
        let seen = Arc::clone(&others);
        let other = move |_: Box<[u8]>, _: Delivery| {
            seen.fetch_add(1, Ordering::Relaxed);
            async { Verdict::Done }
        };
        let builder = Durable::builder_on(Arc::<PostgresStore>::clone(&store)).bytes_handler("mail", handler);
        let builder = builder.begins_itself("mail").bytes_handler("other", other);
        let durable = builder.lease(Duration::from_secs(1)).workers(4).start().unwrap();
        schedule_key(&server, "held");
        eventually("the handler is called", || calls.load(Ordering::Relaxed) == 1);
        let mut caller = Psql::new(&server);
        caller.send("BEGIN; SELECT tourbillon.cancel('held');");
        await_idle(&server, 1);
        is_held.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        let mut number = 0;
        while begin.elapsed() < Duration::from_secs(3) {
            number += 1;
            durable.handle().schedule_bytes_blocking("other", spec("x", Duration::ZERO)).unwrap();
            eventually("it is delivered", || others.load(Ordering::Relaxed) == number);
        }
        assert!(number > 10, "{number} in three seconds");
        assert_eq!(acted.load(Ordering::Relaxed), 0, "it is held");
        caller.send(&format!("{end};"));
        assert_eq!(caller.end().unwrap(), "in-flight");
        await_end(&durable);
        drop(durable.shutdown(Duration::from_secs(5)));
        assert_eq!((calls.load(Ordering::Relaxed), acted.load(Ordering::Relaxed)), (called, acts), "{end}");
    }
}

fn count() -> Arc<AtomicU32> {
    Arc::default()
}
