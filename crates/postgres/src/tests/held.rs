//! Tests transactions of callers that lock timers for a long time, while a node delivers other timers.

use super::life::{await_end, spec};
use super::server::{connect, open};
use super::session::{Psql, await_idle};
use crate::PostgresStore;
use crate::link::Failure;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, Renewal, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, KeyOf};
use tourbillon_durable::{Delivery, Durable, Verdict};
use tourbillon_fault::{Postgres, eventually};

/// A runtime with a handler. If a payload begins with `wait`, the handler waits until the test lets it end.
struct Runtime {
    store: Arc<PostgresStore>,
    durable: Durable,
    begun: Arc<AtomicU32>,
    ended: Arc<Mutex<Vec<Vec<u8>>>>,
    ends: Arc<AtomicBool>,
}

fn start(server: &Postgres, lease: Duration) -> Runtime {
    start_with(server, lease, &["mail"])
}

/// Starts a runtime that has the handler for these kinds.
fn start_with(server: &Postgres, lease: Duration, kinds: &[&'static str]) -> Runtime {
    let store = Arc::new(pollster::block_on(PostgresStore::builder().open(&connect(server))).unwrap());
    let (begun, ended, ends) =
        (Arc::<AtomicU32>::default(), Arc::<Mutex<Vec<Vec<u8>>>>::default(), Arc::<AtomicBool>::default());
    let (count, list, may_end) = (Arc::clone(&begun), Arc::clone(&ended), Arc::clone(&ends));
    let handler = move |payload: Box<[u8]>, _: Delivery| {
        if payload.starts_with(b"wait") {
            count.fetch_add(1, Ordering::Relaxed);
            while !may_end.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
        }
        list.lock().unwrap().push(payload.into());
        async { Verdict::Done }
    };
    let builder = Durable::builder_on(Arc::<PostgresStore>::clone(&store));
    let builder = kinds.iter().fold(builder, |builder, kind| builder.bytes_handler(kind, handler.clone()));
    let durable = builder.lease(lease).workers(4).end_durability(Durability::ProcessCrash).start().unwrap();
    Runtime { store, durable, begun, ended, ends }
}

impl Runtime {
    fn schedule(&self, payload: &str) {
        let spec = spec(payload, Duration::ZERO).key(payload);
        self.durable.handle().schedule_bytes_blocking("mail", spec).unwrap();
    }

    fn count(&self, payload: &str) -> usize {
        self.ended.lock().unwrap().iter().filter(|ended| **ended == payload.as_bytes()).count()
    }

    /// Checks that timers are delivered: schedules ten timers, each after the delivery of the timer before.
    fn assert_goes_on(&self, name: &str) {
        for number in 0..10 {
            let (payload, begin) = (format!("{name} {number}"), Instant::now());
            self.schedule(&payload);
            eventually("it is delivered", || self.count(&payload) == 1);
            assert!(begin.elapsed() < Duration::from_secs(5), "{payload} took {:?}", begin.elapsed());
        }
    }
}

#[test]
fn a_transaction_that_holds_a_timer_during_its_delivery_delays_its_end_alone() {
    let Some(server) = Postgres::start(&[]) else { return };
    for end in ["COMMIT", "ROLLBACK"] {
        // The lease is shorter than the transaction.
        let runtime = start(&server, Duration::from_millis(500));
        runtime.schedule("wait");
        eventually("its delivery has begun", || runtime.begun.load(Ordering::Relaxed) == 1);
        let mut caller = Psql::new(&server);
        caller.send("BEGIN; SELECT tourbillon.cancel('wait');");
        await_idle(&server, 1);
        runtime.ends.store(true, Ordering::Relaxed);
        eventually("its delivery has ended", || runtime.count("wait") == 1);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            runtime.assert_goes_on(&format!("{end} {:?}", begin.elapsed()));
        }
        assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer WHERE key = 'wait'"), "1", "it is held");
        caller.send(&format!("{end};"));
        assert_eq!(caller.end().unwrap(), "in-flight");
        await_end(&runtime.durable);
        assert_eq!((runtime.begun.load(Ordering::Relaxed), runtime.count("wait")), (1, 1), "{end}");
        assert_eq!(pollster::block_on(runtime.durable.handle().check()).unwrap(), []);
    }
}

/// A node stands still in the middle of a transaction, and does not come back.
#[test]
fn a_node_that_stands_still_in_a_transaction_holds_a_timer_for_some_seconds() {
    let Some(server) = Postgres::start(&[]) else { return };
    let open = || pollster::block_on(PostgresStore::builder().open(&connect(&server))).unwrap();
    let (still, other) = (open(), open());
    let id = server.sql("SELECT tourbillon.schedule('mail', key => 'k', delay => '1 hour')");
    let pool = Arc::clone(&still.deployment.pool);
    let sql = format!("SELECT tourbillon.lock_at('{id}'::uuid, NULL::text, NULL::text)");
    let (held, is_held) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let standing = still.deployment.pool.spawn(async move {
        let mut session = pool.session().await.map_err(Failure::into_error)?;
        session.begin().await.map_err(Failure::into_error)?;
        session.run(&sql).await.map_err(Failure::into_error)?;
        held.send(()).unwrap();
        // The thread that drives the connections stands still, as a stopped process does.
        let _end = waits.recv();
        session.commit().await.map_err(Failure::into_error)
    });
    is_held.recv().unwrap();
    let begin = Instant::now();
    let cancel = Op::Cancel(Address::Key(KeyOf { namespace: "".into(), key: "k".into() }), None);
    let outcomes = pollster::block_on(other.apply(vec![cancel], Durability::PowerLoss)).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Cancelled(_)]), "{outcomes:?}");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    go_on.send(()).unwrap();
    assert!(pollster::block_on(standing).is_err(), "its session was ended");
}

#[test]
fn a_failed_delivery_whose_timer_is_held_is_repeated_after_the_transaction() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = pollster::block_on(PostgresStore::builder().open(&connect(&server))).unwrap();
    let begun = Arc::<AtomicU32>::default();
    let count = Arc::clone(&begun);
    let handler = move |_: Box<[u8]>, delivery: Delivery| {
        count.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(500));
        let error = Verdict::Retry { error: "again".into(), after: Some(Duration::from_millis(10)) };
        async move { if delivery.attempt == 1 { error } else { Verdict::Done } }
    };
    let durable = Durable::builder_on(Arc::new(store)).bytes_handler("mail", handler).start().unwrap();
    durable.handle().schedule_bytes_blocking("mail", spec("mail", Duration::ZERO).key("k")).unwrap();
    eventually("its delivery has begun", || begun.load(Ordering::Relaxed) == 1);
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT tourbillon.move_to('k', delay => '1 hour');");
    await_idle(&server, 1);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(begun.load(Ordering::Relaxed), 1, "the timer is held");
    caller.send("COMMIT;");
    assert_eq!(caller.end().unwrap(), "leased");
    await_end(&durable);
    assert_eq!(begun.load(Ordering::Relaxed), 2);
}

/// More calls wait for a transaction than the store has connections. Deliveries, renewals, reads, documents, other
/// creations and other changes go on.
#[test]
fn calls_that_wait_for_a_transaction_leave_connections_to_the_node() {
    let Some(server) = Postgres::start(&[]) else { return };
    let runtime = start(&server, Duration::from_secs(1));
    let mut caller = Psql::new(&server);
    caller.send(
        "BEGIN; SELECT count(tourbillon.schedule('mail', key => 'held ' || n, delay => '1 hour'))
         FROM generate_series(1, 12) n;",
    );
    await_idle(&server, 1);
    thread::scope(|scope| {
        let waiting = (1..=12).map(|number| {
            let handle = runtime.durable.handle();
            scope.spawn(move || {
                let key = format!("held {number}");
                let spec = spec(&key, Duration::ZERO).key(key.clone()).if_present(IfPresent::Replace);
                handle.schedule_bytes_blocking("mail", spec).unwrap();
            })
        });
        let waiting: Vec<_> = waiting.collect();
        let waiting_now = "SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'tourbillon' AND wait_event_type = 'Lock'";
        eventually("they wait", || server.sql(waiting_now) != "0");
        let handle = runtime.durable.handle();
        for number in 0..10 {
            let begin = Instant::now();
            let key = format!("other {number}");
            let far = spec(&key, Duration::from_secs(3_600)).key(key.clone());
            handle.schedule_bytes_blocking("mail", far).unwrap();
            assert!(pollster::block_on(handle.get(key.as_str())).unwrap().is_some());
            handle.cancel_blocking(key.as_str()).unwrap();
            assert!(pollster::block_on(runtime.store.document("d")).unwrap().is_none());
            assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
            // Of eight connections, four serve changes, and two of these serve changes that wait for long.
            let waits: u32 = server.sql(waiting_now).parse().unwrap();
            assert!(waits <= 4, "{waits} connections wait");
        }
        let _ids = server.sql(
            "SELECT count(tourbillon.schedule('mail', payload => convert_to('sql ' || n, 'UTF8')))
                               FROM generate_series(1, 20) n",
        );
        let begin = Instant::now();
        eventually("they are delivered", || (1..=20).all(|n| runtime.count(&format!("sql {n}")) == 1));
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        caller.send("COMMIT;");
        waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
    });
    assert_eq!(caller.end().unwrap(), "12");
    await_end(&runtime.durable);
    assert!((1..=12).all(|number| runtime.count(&format!("held {number}")) == 1));
}

/// The only connection serves claims, beside calls that wait for a transaction. After a while these calls fail, and say
/// why.
#[test]
fn calls_that_wait_for_a_transaction_leave_the_only_connection_to_the_node() {
    let Some(server) = Postgres::start(&[]) else { return };
    let single = connect(&server).connections(1).response_timeout(Duration::from_secs(3));
    let store = pollster::block_on(PostgresStore::builder().open(&single)).unwrap();
    let _id = server.sql("SELECT tourbillon.schedule('mail', key => 'held', delay => '1 hour')");
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT tourbillon.move_to('held', delay => '2 hours');");
    await_idle(&server, 1);
    let cancel = || {
        let op = Op::Cancel(Address::Key(KeyOf { namespace: "".into(), key: "held".into() }), None);
        pollster::block_on(store.apply(vec![op], Durability::PowerLoss))
    };
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(cancel)).collect();
        for number in 1..=5 {
            let _id = server.sql("SELECT tourbillon.schedule('mail')");
            let begin = Instant::now();
            let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
            let limit = Limit { timers: 10, bytes: u64::MAX };
            let leased = pollster::block_on(store.claim(by, number, limit, None)).unwrap().leased;
            assert_eq!(leased.len(), 1);
            assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        }
        for waiting in waiting {
            let error = waiting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Held, "{error}");
        }
    });
    caller.send("ROLLBACK;");
    assert_eq!(caller.end().unwrap(), "moved");
    let outcomes = cancel().unwrap();
    assert!(matches!(outcomes[..], [Outcome::Cancelled(_)]), "{outcomes:?}");
}

/// More reads wait for a lock than the store has connections. Claims and renewals go on.
#[test]
fn reads_that_wait_leave_connections_to_the_node() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let _ids = server.sql("SELECT tourbillon.schedule('mail')");
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let claim = |number| {
        let limit = Limit { timers: 9, bytes: u64::MAX };
        pollster::block_on(store.claim(by, number, limit, None)).unwrap().leased
    };
    let leased = claim(1);
    let mut other = Psql::new(&server);
    other.send("BEGIN; LOCK TABLE tourbillon.tally IN ACCESS EXCLUSIVE MODE;");
    await_idle(&server, 1);
    thread::scope(|scope| {
        let reads: Vec<_> =
            (0..12).map(|_| scope.spawn(|| pollster::block_on(store.counts()).unwrap())).collect();
        eventually("the reads wait", || {
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            server.sql(waits).parse::<u32>().unwrap() >= 6
        });
        thread::sleep(Duration::from_millis(200));
        let begin = Instant::now();
        assert_eq!(claim(2).len(), 0);
        let lease = (leased[0].timer.id, leased[0].token);
        let lost = pollster::block_on(store.renew(by, vec![lease])).unwrap().lost;
        let took = begin.elapsed();
        other.send("COMMIT;");
        for read in reads {
            assert_eq!(read.join().unwrap().of(Phase::Leased), 1);
        }
        assert_eq!(lost, []);
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}

/// Timers of a kind were parked while no node had a handler for the kind. Then a node with a handler starts, while a
/// caller's transaction has locked one of the timers.
#[test]
fn a_transaction_that_holds_a_parked_timer_holds_up_no_start() {
    let Some(server) = Postgres::start(&[]) else { return };
    drop(open(&server));
    let _ids = server.sql(
        "SELECT count(tourbillon.schedule('other', payload => convert_to('other ' || n, 'UTF8'), key => 'k' || n))
         FROM generate_series(1, 3) n",
    );
    drop({
        let runtime = start(&server, Duration::from_secs(5));
        let parked = "SELECT count(*) FROM tourbillon.timer WHERE phase = 'k'";
        eventually("they are parked", || server.sql(parked) == "3");
        runtime
    });
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT tourbillon.cancel('k1');");
    await_idle(&server, 1);
    let runtime = start_with(&server, Duration::from_secs(5), &["mail", "other"]);
    runtime.assert_goes_on("mail");
    eventually("the others are delivered", || (2..=3).all(|n| runtime.count(&format!("other {n}")) == 1));
    caller.send("ROLLBACK;");
    caller.end().unwrap();
    eventually("it is delivered", || runtime.count("other 1") == 1);
    await_end(&runtime.durable);
}

/// A caller has locked a parked timer. The other timers that are parked for the same reason become pending at once.
#[test]
fn a_transaction_that_holds_a_parked_timer_delays_this_timer_alone() {
    let Some(server) = Postgres::start(&[]) else { return };
    let runtime = start(&server, Duration::from_secs(5));
    for number in 1..=5 {
        let due = spec(&format!("parked {number}"), Duration::from_secs(3_600)).key(format!("k{number}"));
        runtime.durable.handle().schedule_bytes_blocking("mail", due).unwrap();
    }
    let _parked =
        server.sql("UPDATE tourbillon.timer SET phase = 'k', reason = 'host', due = tourbillon.now_ms()");
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT tourbillon.cancel('k1');");
    await_idle(&server, 1);
    thread::scope(|scope| {
        let handle = runtime.durable.handle();
        let unparking = scope.spawn(move || handle.unpark_blocking("host", 10).unwrap());
        let are_others_done = || (2..=5).all(|number| runtime.count(&format!("parked {number}")) == 1);
        eventually("the others are delivered", are_others_done);
        assert!(!unparking.is_finished(), "one timer is still parked");
        caller.send("COMMIT;");
        assert_eq!((caller.end().unwrap().as_str(), unparking.join().unwrap()), ("cancelled", 4));
    });
    await_end(&runtime.durable);
    assert_eq!(runtime.count("parked 1"), 0);
}

/// A caller has ended a delivery in its transaction, and does not commit.
#[test]
fn a_transaction_that_has_ended_a_delivery_stops_no_renewal() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = pollster::block_on(PostgresStore::builder().open(&connect(&server))).unwrap();
    let _ids = server.sql("SELECT tourbillon.schedule('mail'), tourbillon.schedule('mail')");
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let limit = Limit { timers: 9, bytes: u64::MAX };
    let leased = pollster::block_on(store.claim(by, 1, limit, None)).unwrap().leased;
    let leases: Vec<_> = leased.iter().map(|leased| (leased.timer.id, leased.token)).collect();
    let until = || server.sql("SELECT string_agg(until::text, ' ' ORDER BY id) FROM tourbillon.lease");
    let before = until();
    let first = leases.iter().min_by_key(|(id, _)| id.as_u128()).unwrap();
    let mut caller = Psql::new(&server);
    caller.send(&format!("BEGIN; DELETE FROM tourbillon.lease WHERE id = '{}';", first.0));
    await_idle(&server, 1);
    let begin = Instant::now();
    let renewal = pollster::block_on(store.renew(by, leases.clone())).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(renewal, Renewal { lost: vec![], silent: vec![*first] }, "the locked lease ends as before");
    let (before, after) = (before.split(' ').collect::<Vec<_>>(), until());
    let after: Vec<_> = after.split(' ').collect();
    assert_eq!((after[0] == before[0], after[1] > before[1]), (true, true), "{before:?} {after:?}");
    caller.send("COMMIT;");
    await_idle(&server, 0);
    let lost = pollster::block_on(store.renew(by, leases.clone())).unwrap().lost;
    assert_eq!(lost, [*first]);
}

/// A caller has locked more due timers than a node's list of locked timers has room for. The timers that are due later
/// are claimed. The locked timers are claimed once the caller has released the locks.
#[test]
fn very_many_held_timers_hold_up_no_other() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let _ids = server.sql("SELECT count(tourbillon.schedule('mail')) FROM generate_series(1, 11000)");
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let mut number = 0;
    let mut claim = || {
        number += 1;
        let limit = Limit { timers: 512, bytes: u64::MAX };
        pollster::block_on(store.claim(by, number, limit, None)).unwrap().leased
    };
    let mut caller = Psql::new(&server);
    caller.send("BEGIN; SELECT count(*) FROM (SELECT 1 FROM tourbillon.timer FOR UPDATE) t;");
    await_idle(&server, 1);
    let _id = server.sql("SELECT tourbillon.schedule('mail', key => 'free')");
    let found: Vec<_> = (0..60).flat_map(|_| claim()).map(|leased| leased.timer.key).collect();
    assert_eq!(found, [Some("free".into())]);
    caller.send("ROLLBACK;");
    await_idle(&server, 0);
    let (begin, mut found) = (Instant::now(), 0);
    while found < 11_000 {
        assert!(begin.elapsed() < Duration::from_secs(120), "only {found} were found");
        found += claim().len();
    }
    assert_eq!((found, claim().len()), (11_000, 0));
}
