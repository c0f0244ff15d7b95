//! Tests a database that takes no writes for some time, under stores that are open.

use super::life::{Seen, await_end, spec, started};
use super::server::{connect, open};
use crate::PostgresStore;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tourbillon_durable::Rejection;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Leased, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};
use tourbillon_fault::{Postgres, eventually, eventually_some};

const BY: Claimant = Claimant { incarnation: 7, lease: Duration::from_secs(300) };

/// Runs statements in a transaction that writes, whatever the default is.
fn write(server: &Postgres, statements: &str) -> String {
    server.sql(&format!("BEGIN READ WRITE; {statements}; COMMIT"))
}

/// Makes new sessions read-only or not, and ends the sessions of the stores. A session that has begun keeps the setting
/// with which it began.
fn set_read_only(server: &Postgres, is_read_only: bool) {
    let _set =
        write(server, &format!("ALTER DATABASE postgres SET default_transaction_read_only = {is_read_only}"));
    let end = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
               WHERE application_name = 'tourbillon'";
    if is_read_only {
        let _ended = server.sql(end);
    }
}

fn claim(store: &PostgresStore) -> Result<Vec<Leased>, StoreError> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let claimed = pollster::block_on(store.claim(BY, number, Limit { timers: 100, bytes: u64::MAX }, None));
    claimed.map(|claimed| claimed.leased)
}

fn apply(store: &PostgresStore, op: Op) -> Result<Outcome, StoreError> {
    pollster::block_on(store.apply(vec![op], Durability::PowerLoss)).map(|mut outcomes| outcomes.remove(0))
}

/// Repeats a call while it fails because a connection was lost.
fn answer<T>(mut call: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let is_lost = |result: &Result<T, StoreError>| result.as_ref().is_err_and(StoreError::is_transient);
    eventually_some("the server answers", || Some(call()).filter(|result| !is_lost(result)))
}

#[test]
fn calls_on_a_database_without_writes_are_refused_and_change_nothing() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let schedule = |key: &str| format!("SELECT tourbillon.schedule('mail', key => '{key}');");
    let _id = server.sql(&schedule("begun"));
    let [begun] = &claim(&store).unwrap()[..] else { panic!("one timer is due") };
    let _ids = server.sql(&(schedule("a") + &schedule("b")));
    set_read_only(&server, true);
    let _id = write(&server, "SELECT tourbillon.schedule('mail', key => 'c')");
    let before = server.sql("SELECT count(*), max(xmin::text::bigint) FROM tourbillon.timer");

    // More calls than the store has connections.
    for _ in 0..12 {
        let error = answer(|| claim(&store)).unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (StoreErrorKind::ReadOnly, false), "{error}");
    }
    let ack = Op::Ack(begun.timer.id, begun.token);
    let far = store.now() + Duration::from_secs(3_600);
    let new = Timer { key: Some("new".into()), ..Timer::new(TimerId::fresh(), "mail", store.now()) };
    let place = Op::Place(Box::new(new), IfPresent::Reject);
    let (cancel, put_off) = (Op::Cancel(Address::from("a"), None), Op::Move(Address::from("b"), far));
    for op in [&place, &ack, &cancel, &put_off, &Op::Release(begun.timer.id, begun.token)] {
        let error = apply(&store, op.clone()).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{op:?}: {error}");
    }
    let leases = vec![(begun.timer.id, begun.token)];
    let error = pollster::block_on(store.renew(BY, leases)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    // Reads go on.
    let counts = pollster::block_on(store.counts()).unwrap();
    assert_eq!((counts.of(Phase::Pending), counts.of(Phase::Leased)), (3, 1));
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease"), "1");
    assert_eq!(server.sql("SELECT count(*), max(xmin::text::bigint) FROM tourbillon.timer"), before);

    set_read_only(&server, false);
    // A free connection may be from the time without writes. The call that finds it closes it.
    let claimed = answer(|| claim(&store)).or_else(|_| claim(&store)).unwrap();
    let mut keys: Vec<_> = claimed.into_iter().filter_map(|leased| leased.timer.key).collect();
    keys.sort();
    assert_eq!(keys.join(" "), "a b c");
    assert_eq!(claim(&store).unwrap(), [], "once");
    assert!(matches!(apply(&store, ack).unwrap(), Outcome::Ended { phase: Phase::Done, .. }));
    assert!(matches!(apply(&store, place).unwrap(), Outcome::Created(_)));
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

#[test]
fn a_runtime_delivers_each_timer_once_after_a_time_without_writes_and_none_in_it() {
    let Some(server) = Postgres::start(&[]) else { return };
    let seen = Seen::default();
    let durable = started(&connect(&server), &seen);
    let timers = durable.handle();
    timers.schedule_bytes_blocking("mail", spec("first", Duration::ZERO)).unwrap();
    eventually("the runtime delivers", || !seen.lock().unwrap().is_empty());
    await_end(&durable);
    set_read_only(&server, true);
    let due = "SELECT count(tourbillon.schedule('mail', payload => convert_to('sql ' || n, 'UTF8')))
               FROM generate_series(1, 20) n";
    assert_eq!(write(&server, due), "20");
    let errors = timers.stats().store_errors;
    eventually("claims are refused", || timers.stats().store_errors > errors + 3);
    let id = TimerId::fresh();
    let new = || spec("new", Duration::ZERO).id(id);
    let is_lost = |reason: &Rejection| matches!(reason, Rejection::Store(error) if error.is_transient());
    let refused = eventually_some("the creation has an answer", || {
        let error = timers.schedule_bytes_blocking("mail", new()).unwrap_err();
        Some(error).filter(|error| !is_lost(&error.reason))
    });
    let is_refused = |reason: &Rejection| match reason {
        Rejection::Store(error) => error.kind() == StoreErrorKind::ReadOnly,
        _ => false,
    };
    assert!(is_refused(&refused.reason) && refused.payload == b"new", "{refused:?}");
    assert_eq!(seen.lock().unwrap().len(), 1, "nothing is delivered that cannot be claimed");
    let left = "SELECT count(*), (SELECT count(*) FROM tourbillon.lease) FROM tourbillon.timer";
    assert_eq!(server.sql(left), "20|0");

    set_read_only(&server, false);
    eventually("the creation has its effect", || match timers.schedule_bytes_blocking("mail", new()) {
        Ok(_) => true,
        Err(error) => {
            assert!(is_refused(&error.reason), "{error}");
            false
        }
    });
    eventually("all are delivered", || seen.lock().unwrap().len() == 22);
    await_end(&durable);
    let seen = seen.lock().unwrap();
    let repeated: BTreeSet<_> = seen.iter().filter(|(_, moments)| moments.len() > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
    assert_eq!(pollster::block_on(timers.check()).unwrap(), []);
}
