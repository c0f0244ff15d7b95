//! Tests ends of deliveries that wait for a transaction of a caller, beside calls that make changes durable.

use super::server::open;
use super::session::{Psql, await_idle, await_sessions};
use crate::PostgresStore;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tourbillon_durable::store::{Claimant, Durability, Limit, Op, TimerStore};
use tourbillon_fault::{Postgres, eventually};

/// Claims a timer with the key `held`, lets a caller withdraw it, and reports the end of its delivery. The end waits
/// for the caller.
fn with_late_end(server: &Postgres) -> (Arc<PostgresStore>, Psql) {
    let store = open(server);
    let _id = server.sql("SELECT tourbillon.schedule('mail', key => 'held')");
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let limit = Limit { timers: 10, bytes: u64::MAX };
    let leased = pollster::block_on(store.claim(by, 1, limit)).unwrap().leased;
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

/// The task that tries the ends wakes while a flush has them all.
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

/// A trigger makes the transaction slow that applies the end.
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
