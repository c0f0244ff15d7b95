//! Tests calls through a network that cuts connections, loses replies and falls silent, and deadlocks with callers.

use super::server::open;
use super::session::{Psql, await_idle, await_sessions};
use crate::layout::SchemaName;
use crate::link::{Failure, Pool};
use crate::{Connect, PostgresStore};
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};
use tourbillon_fault::{Fate, Postgres, Proxy};

/// Opens a store whose connections pass a proxy. A call waits for an answer for a second.
pub(super) fn through_proxy(server: &Postgres) -> (Proxy, PostgresStore) {
    through_proxy_with(server, "postgres", "")
}

/// Opens a store as [`through_proxy`] does, for this user, and with these words in the query of the address.
pub(super) fn through_proxy_with(server: &Postgres, user: &str, words: &str) -> (Proxy, PostgresStore) {
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
    let address = format!("postgresql://{user}@{}/postgres?{words}", proxy.address());
    let connect = Connect::to(&address).unwrap().response_timeout(Duration::from_secs(1));
    let connect = connect.patience(Duration::from_secs(3));
    let store = pollster::block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap();
    (proxy, store)
}

fn apply(store: &PostgresStore, op: Op) -> Result<Outcome, StoreError> {
    pollster::block_on(store.apply(vec![op], Durability::PowerLoss)).map(|mut outcomes| outcomes.remove(0))
}

/// Repeats an operation until it has an answer. Returns the outcome, and how often the answer was unknown.
fn insist(store: &PostgresStore, op: &Op) -> (Outcome, u32) {
    let (begin, mut unknown) = (Instant::now(), 0);
    loop {
        match apply(store, op.clone()) {
            Ok(outcome) => return (outcome, unknown),
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                assert!(begin.elapsed() < Duration::from_secs(60), "{error}");
                unknown += u32::from(error.kind() == StoreErrorKind::Unknown);
            }
        }
    }
}

#[test]
fn replies_that_are_lost_make_no_second_timer_and_lose_none() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (proxy, store) = through_proxy(&server);
    lose_replies(&server, &proxy, &store);
}

pub(super) fn lose_replies(server: &Postgres, proxy: &Proxy, store: &PostgresStore) {
    let (mut unknown, mut outcomes) = (0, BTreeMap::<&str, u32>::new());
    for number in 0..12_u128 {
        if number % 3 == 1 {
            proxy.lose_after(0);
        }
        let due = store.now() + Duration::from_secs(3_600);
        let timer = Timer {
            key: Some(format!("key {number}").into()),
            has_chosen_id: true,
            ..Timer::new(TimerId::from_u128(number + 1), "mail", due)
        };
        let (outcome, times) = insist(store, &Op::Place(Box::new(timer), IfPresent::Reject));
        unknown += times;
        let name = match outcome {
            Outcome::Created(_) => "created",
            Outcome::Repeated(_) => "repeated",
            other => panic!("{other:?}"),
        };
        *outcomes.entry(name).or_default() += 1;
    }
    assert!(unknown > 0 && outcomes["repeated"] > 0, "no reply of a commit was lost: {outcomes:?}");
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "12");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

#[test]
fn a_claim_whose_reply_is_lost_is_recovered() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (proxy, store) = through_proxy(&server);
    lose_a_claim(&server, &proxy, &store);
}

pub(super) fn lose_a_claim(server: &Postgres, proxy: &Proxy, store: &PostgresStore) {
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(60) };
    let claim =
        |number| pollster::block_on(store.claim(by, number, Limit { timers: 9, bytes: u64::MAX }, None));
    assert_eq!(claim(1).unwrap().leased.len(), 0);
    let _ids = server.sql("SELECT count(tourbillon.schedule('mail')) FROM generate_series(1, 5)");
    proxy.lose_after(0);
    let error = claim(2).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
    let recovered = pollster::block_on(store.recover(by, 2)).unwrap();
    let again = claim(3).unwrap().leased;
    assert_eq!((recovered.len(), again.len()), (5, 0));
    for leased in recovered {
        let ended = apply(store, Op::Ack(leased.timer.id, leased.token)).unwrap();
        assert!(matches!(ended, Outcome::Ended { phase: Phase::Done, .. }));
    }
}

#[test]
fn half_open_connections_are_given_up_and_replaced() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (proxy, store) = through_proxy(&server);
    half_open(&proxy, &store);
}

fn claimant(store: &PostgresStore) -> Claimant {
    Claimant { incarnation: store.incarnation(), lease: Duration::from_secs(300) }
}

/// Returns the number of timers that a claim leases.
fn claim(store: &PostgresStore, number: u64) -> Result<usize, StoreError> {
    let claimed = store.claim(claimant(store), number, Limit { timers: 10, bytes: u64::MAX }, None);
    pollster::block_on(claimed).map(|claimed| claimed.leased.len())
}

/// The response timeout is a minute, but the `ttl` is a second.
#[test]
fn a_half_open_connection_holds_up_a_claim_for_the_ttl_and_no_longer() {
    let Some(server) = Postgres::start(&[]) else { return };
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
    let url = format!("postgresql://postgres@{}/postgres", proxy.address());
    let builder = PostgresStore::builder().poll(None).ttl(Duration::from_secs(1));
    let connect = Connect::to(&url).unwrap().response_timeout(Duration::from_secs(60));
    let store = pollster::block_on(builder.open(&connect)).unwrap();
    let claim = |number| claim(&store, number);
    assert_eq!(claim(1).unwrap(), 0);
    let _id = server.sql("SELECT tourbillon.schedule('mail')");
    proxy.doom(Fate::Silence);
    let begin = Instant::now();
    let leased = (2..).find_map(|number| claim(number).ok());
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(leased, Some(1));
}

/// A claim gives up while another transaction locks the table, as a migration does. The server ends the claim's wait,
/// so the claim leases nothing once the lock is free.
#[test]
fn a_claim_that_is_given_up_behind_a_lock_leases_nothing_afterwards() {
    let Some(server) = Postgres::start(&[]) else { return };
    let builder = PostgresStore::builder().poll(None).ttl(Duration::from_secs(1));
    let store = pollster::block_on(builder.open(&Connect::to(&server.url()).unwrap())).unwrap();
    let claim = |number| claim(&store, number);
    assert_eq!(claim(1).unwrap(), 0);
    let _id = server.sql("SELECT tourbillon.schedule('mail')");
    let mut other = Psql::new(&server);
    other.send("BEGIN; LOCK TABLE tourbillon.timer IN ACCESS EXCLUSIVE MODE;");
    await_idle(&server, 1);
    for number in 2..5 {
        let error = claim(number).unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    let (by, limit) = (claimant(&store), Limit { timers: 10, bytes: u64::MAX });
    let error = pollster::block_on(store.claim_parked(by, 9, "queue".into(), 1, limit)).unwrap_err();
    assert!(error.is_transient(), "{error}");
    await_sessions(&server, "wait_event_type = 'Lock'", 0);
    other.send("COMMIT;");
    await_idle(&server, 0);
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease"), "0");
    assert_eq!(claim(5).unwrap(), 1);
}

pub(super) fn half_open(proxy: &Proxy, store: &PostgresStore) {
    let timer = |number: u128| {
        let due = store.now() + Duration::from_secs(3_600);
        Timer { has_chosen_id: true, ..Timer::new(TimerId::from_u128(number), "mail", due) }
    };
    let place = |number| Op::Place(Box::new(timer(number)), IfPresent::Reject);
    apply(store, place(1)).unwrap();
    proxy.doom(Fate::Silence);
    let begin = Instant::now();
    let (_, unknown) = insist(store, &place(2));
    assert!(unknown == 1 && begin.elapsed() < Duration::from_secs(20), "{unknown}, {:?}", begin.elapsed());
    proxy.cut();
    thread::sleep(Duration::from_millis(50));
    insist(store, &place(3));
    proxy.greet(Fate::Refuse);
    proxy.cut();
    thread::sleep(Duration::from_millis(50));
    let error = pollster::block_on(store.counts()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Io, "{error}");
    proxy.greet(Fate::Pass);
    assert_eq!(pollster::block_on(store.counts()).unwrap().of(Phase::Pending), 3);
}

/// Flips a bit in each reply on the open connections, and checks that the store does not believe the replies.
pub(super) fn when_damaged(server: &Postgres, proxy: &Proxy, store: &PostgresStore) {
    let timer = |number: u128| {
        let due = store.now() + Duration::from_secs(3_600);
        Timer { has_chosen_id: true, ..Timer::new(TimerId::from_u128(number), "mail", due) }
    };
    for number in 1..=5 {
        let place = Op::Place(Box::new(timer(number)), IfPresent::Reject);
        proxy.doom(Fate::Damage);
        let error = apply(store, place.clone()).unwrap_err();
        assert!(error.is_transient(), "{error}");
        // The server may have committed it.
        insist(store, &place);
        assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), number.to_string());
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// A replica takes over from a lost primary. All acknowledged changes are there. The node's low-water marks are reset.
#[test]
fn a_replica_that_takes_over_has_all_timers_and_delivers_them() {
    let Some(mut primary) = Postgres::start(&[]) else { return };
    let replica = primary.replica();
    // A commit waits until the replica has it. A server that only reads its settings again would begin with that when
    // it likes.
    let _set = primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.shut_down();
    primary.run();
    let address = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname=postgres",
        primary.port(),
        replica.port()
    );
    let connect = Connect::to(&address).unwrap().patience(Duration::from_secs(10));
    let store = pollster::block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap();
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(60) };
    let claim = |number| {
        let claimed =
            pollster::block_on(store.claim(by, number, Limit { timers: 100, bytes: u64::MAX }, None));
        claimed.map(|claimed| claimed.leased.len())
    };
    let place = |due| Op::Place(Box::new(Timer::new(TimerId::fresh(), "mail", due)), IfPresent::Reject);
    for _ in 0..20 {
        apply(&store, place(store.now())).unwrap();
    }
    thread::sleep(Duration::from_millis(5));
    assert_eq!(claim(1).unwrap(), 20);
    for _ in 0..10 {
        apply(&store, place(store.now())).unwrap();
    }
    primary.kill();
    replica.promote();
    // A claim does not wait for the disk or the replica. So its leases may be lost with the primary.
    let (mut number, begin, mut claimed) = (2, Instant::now(), 0);
    while claimed < 10 {
        assert!(begin.elapsed() < Duration::from_secs(30), "only {claimed} timers were claimed");
        claimed += claim(number).unwrap_or(0);
        number += 1;
    }
    assert_eq!(pollster::block_on(store.counts()).unwrap().of(Phase::Leased), 30);
    insist(&store, &place(store.now()));
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// Callers lock timers in one order, and the store in the other order. PostgreSQL ends one of the two transactions in a
/// deadlock. If it is the store's transaction, the store repeats it.
#[test]
fn deadlocks_with_transactions_of_callers_fail_no_call_of_the_store() {
    let Some(server) = Postgres::start(&["deadlock_timeout=20ms"]) else { return };
    let store = open(&server);
    let keys = ["a", "b"];
    for key in keys {
        let _id =
            server.sql(&format!("SELECT tourbillon.schedule('mail', key => '{key}', delay => '1 day')"));
    }
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            for round in 0..40 {
                // The transaction that waits last is the victim.
                let pause = if round % 2 == 0 { "0.03" } else { "0" };
                let moved = format!(
                    "SELECT tourbillon.move_to('a', delay => '2 days'), pg_sleep({pause}),
                         tourbillon.move_to('b', delay => '2 days')"
                );
                if let Err(error) = server.try_sql("postgres", &moved) {
                    assert!(error.contains("40P01"), "{error}");
                }
            }
        });
        let due = store.now() + Duration::from_secs(86_400);
        while !caller.is_finished() {
            let move_one = |key: &str| Op::Move(Address::from(key), due);
            let ops = vec![move_one("b"), move_one("a")];
            pollster::block_on(store.apply(ops, Durability::Volatile)).unwrap();
        }
        caller.join().unwrap();
    });
    let deadlocks = server.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'");
    assert!(deadlocks.parse::<u32>().unwrap() > 0, "no transactions met");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// A caller has locked keys and a timer for longer than a call waits. The calls fail. No session is left on the server
/// that still waits for a lock.
#[test]
fn calls_that_give_up_a_held_timer_leave_no_session_that_waits() {
    let Some(server) = Postgres::start(&[]) else { return };
    let connect = Connect::to(&server.url()).unwrap().response_timeout(Duration::from_secs(2));
    let connect = connect.patience(Duration::from_secs(1));
    let store = pollster::block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap();
    let _id = server.sql("SELECT tourbillon.schedule('mail', key => 'old', delay => '1 day')");
    let mut caller = Psql::new(&server);
    caller.send(
        "BEGIN; SELECT tourbillon.schedule('mail', key => 'new', delay => '1 day'), tourbillon.cancel('old');",
    );
    await_idle(&server, 1);
    let due = store.now() + Duration::from_secs(3_600);
    let place = |key: &str| {
        let timer = Timer { key: Some(key.into()), ..Timer::new(TimerId::fresh(), "mail", due) };
        Op::Place(Box::new(timer), IfPresent::Reject)
    };
    let ops = [place("new"), place("old"), Op::Cancel(Address::from("old"), None)];
    for op in &ops {
        let error = apply(&store, op.clone()).unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (StoreErrorKind::Held, true), "{error}");
    }
    // The caller still holds the keys and the timer.
    await_sessions(&server, "application_name = 'tourbillon' AND state <> 'idle'", 0);
    caller.send("ROLLBACK;");
    caller.end().unwrap();
    assert!(matches!(apply(&store, ops[2].clone()).unwrap(), Outcome::Cancelled(_)));
    assert!(matches!(apply(&store, ops[0].clone()).unwrap(), Outcome::Created(_)));
}

/// Reads a message of a client, after its tag. Returns the text in it.
fn message(client: &mut impl io::Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut text = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
    client.read_exact(&mut text)?;
    Ok(text)
}

/// Plays a server that answers each statement whose text begins with `at` with an error. Returns the failure of a
/// transaction on this server that consists of `BEGIN` and `COMMIT`.
fn failure_at(at: &'static str, severity: &'static str, code: &'static str) -> Failure {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || -> io::Result<()> {
        let (mut client, _) = listener.accept()?;
        message(&mut client)?;
        // The messages say that the client is authenticated, and that the server is ready.
        client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")?;
        loop {
            let mut tag = [0];
            if client.read_exact(&mut tag).is_err() || tag == *b"X" {
                return Ok(());
            }
            let statement = message(&mut client)?;
            if !statement.starts_with(at.as_bytes()) {
                client.write_all(b"C\0\0\0\x08SET\0Z\0\0\0\x05T")?;
                continue;
            }
            let fields = format!("S{severity}\0V{severity}\0C{code}\0Mno room\0\0");
            let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
            client.write_all(&[b"E", &length[..], fields.as_bytes()].concat())?;
            if severity != "ERROR" {
                return Ok(());
            }
            client.write_all(b"Z\0\0\0\x05E")?;
        }
    });
    let address = format!("postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable");
    let pool = Pool::new(Connect::to(&address).unwrap(), SchemaName::default()).unwrap();
    let inside = Arc::clone(&pool);
    let failure = pool.spawn(async move {
        let mut session = inside.session().await.map_err(Failure::into_error)?;
        Ok(match session.begin().await {
            Ok(()) => session.commit().await.expect_err("the commit fails"),
            Err(failure) => failure,
        })
    });
    let failure = pollster::block_on(failure).unwrap();
    drop(pool);
    server.join().unwrap().unwrap();
    failure
}

/// The server ends the session, or itself. A commit that was sent before may be in the server's log.
#[test]
fn an_error_that_ends_the_session_at_a_commit_tells_no_outcome() {
    for (severity, code) in [("PANIC", "58030"), ("PANIC", "53100"), ("FATAL", "57P05"), ("FATAL", "25P04")] {
        let failure = failure_at("COMMIT", severity, code);
        assert!(
            matches!(&failure, Failure::Unknown(error) if error.kind() == StoreErrorKind::Unknown),
            "{severity} {code}: {failure:?}"
        );
        let failure = failure_at("BEGIN", severity, code);
        assert!(matches!(failure, Failure::Lost(_)), "{severity} {code}: {failure:?}");
    }
    for (code, kind) in [("58030", StoreErrorKind::Io), ("53100", StoreErrorKind::Full)] {
        let failure = failure_at("COMMIT", "ERROR", code);
        assert!(matches!(&failure, Failure::Failed(error) if error.kind() == kind), "{code}: {failure:?}");
    }
}
