//! Tests a synchronous standby that is away. A commit then has its effect at once, and only its answer waits.

use super::life::await_end;
use super::server::{connect, open, opened};
use super::session::{Psql, await_idle};
use crate::PostgresStore;
use pollster::block_on;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::store::{
    Claimant, Claimed, Durability, IfPresent, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Delivery, Durable, Verdict};
use tourbillon_fault::{Postgres, eventually};

/// Makes each commit wait for a synchronous standby, and starts the server again. The server keeps its port.
pub(super) fn insist_on_a_standby(server: &mut Postgres) {
    let _set = server.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    server.shut_down();
    server.run();
}

/// Lets commits wait for no standby any more.
fn insist_no_more(server: &Postgres) {
    let _reset = server.sql("ALTER SYSTEM RESET synchronous_standby_names");
    let _read = server.sql("SELECT pg_reload_conf()");
    eventually("no commit waits", || server.sql("SHOW synchronous_standby_names").is_empty());
}

/// The processes of the server that wait for a standby.
pub(super) fn waiting(server: &Postgres) -> u32 {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    server.sql(waiting).parse().unwrap()
}

/// Runs statements whose commit does not wait for a standby.
fn run(server: &Postgres, statements: &str) {
    let _rows = server.sql(&format!("SET synchronous_commit = off; {statements}"));
}

fn claim(store: &PostgresStore, number: u64) -> Result<Claimed, StoreError> {
    let by = Claimant { incarnation: store.incarnation(), lease: Duration::from_secs(1) };
    block_on(store.claim(by, number, Limit { timers: 9, bytes: u64::MAX }, None))
}

/// All nodes lock one row for their signs of life, so a node that waited with this lock would stop the others.
#[test]
fn a_node_that_starts_or_stops_without_the_standby_stops_no_other() {
    let Some(mut server) = Postgres::start(&[]) else { return };
    // A sign of life is due after a quarter of this time.
    let store = opened(&server, Duration::from_secs(2));
    insist_on_a_standby(&mut server);
    let begin = Instant::now();
    let mut number = 0;
    let mut goes_on = |event: &str| {
        number += 1;
        thread::sleep(Duration::from_millis(600));
        run(&server, &format!("SELECT tourbillon.schedule('mail', key => 'k{number}')"));
        let leased = claim(&store, number).unwrap_or_else(|error| panic!("{event}: {error}")).leased;
        assert!(leased.iter().any(|leased| leased.timer.key == Some(format!("k{number}").into())), "{event}");
    };
    goes_on("no other node has been there");
    for _ in 0..2 {
        let other = open(&server);
        claim(&other, 1).unwrap();
        block_on(other.leave()).unwrap();
        goes_on("a node has started and stopped");
    }
    block_on(store.leave()).unwrap();
    goes_on("this node has stopped, and starts again");
    assert_eq!(waiting(&server), 0);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

/// A call that gives up leaves neither its locks nor a process of the server, however many calls give up. A repetition
/// of the call waits for the standby again, although it finds the effect of the first call.
#[test]
fn calls_that_give_up_a_standby_leave_no_process_and_are_not_answered_by_their_repetitions() {
    let Some(mut server) = Postgres::start(&[]) else { return };
    let brief = connect(&server).response_timeout(Duration::from_secs(1)).patience(Duration::from_secs(2));
    let store = block_on(PostgresStore::builder().poll(None).open(&brief)).unwrap();
    insist_on_a_standby(&mut server);
    let place = |number: u128| {
        let timer = Timer {
            key: Some(format!("k{number}").into()),
            has_chosen_id: true,
            ..Timer::new(TimerId::from_u128(number), "mail", store.now() + Duration::from_secs(3_600))
        };
        block_on(store.apply(vec![Op::Place(Box::new(timer), IfPresent::Reject)], Durability::PowerLoss))
    };
    // The repetition finds no timer, so it would have nothing to write.
    let cancel =
        || block_on(store.apply(vec![Op::Cancel(TimerId::from_u128(4).into(), None)], Durability::PowerLoss));
    let create = || block_on(store.replace_document("n", 0, Some(b"a")));
    for round in 0..2 {
        for number in 1..=4 {
            let error = place(number).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unknown, "{number} in round {round}: {error}");
            assert_eq!(waiting(&server), 0, "{number} in round {round}");
        }
    }
    for round in 0..2 {
        let error = cancel().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unknown, "round {round}: {error}");
    }
    let error = create().unwrap_err();
    assert_eq!((error.kind(), waiting(&server)), (StoreErrorKind::Unknown, 0), "{error}");
    let sessions = server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tourbillon'");
    assert!(sessions.parse::<u32>().unwrap() <= 8, "{sessions} sessions are left");
    insist_no_more(&server);
    for number in 1..=4 {
        assert_eq!(place(number).unwrap(), [Outcome::Repeated(TimerId::from_u128(number))]);
    }
    let stored = block_on(store.document("n")).unwrap().unwrap();
    assert_eq!(stored.value, b"a");
    assert!(create().unwrap().is_none(), "the document is there");
}

/// A read has no limit for its waits at the server.
#[test]
fn a_read_that_is_given_up_leaves_no_process_that_waits_for_a_lock() {
    let Some(server) = Postgres::start(&[]) else { return };
    let brief = connect(&server).response_timeout(Duration::from_secs(1));
    let store = block_on(PostgresStore::builder().poll(None).open(&brief)).unwrap();
    assert_cancels(&server, &store);
}

/// Fails if a read that gives up leaves a process of the server. The store must give up after a second.
pub(super) fn assert_cancels(server: &Postgres, store: &PostgresStore) {
    let mut other = Psql::new(server);
    other.send("BEGIN; LOCK TABLE tourbillon.tally, tourbillon.timer IN ACCESS EXCLUSIVE MODE;");
    await_idle(server, 1);
    assert!(block_on(store.counts()).is_err());
    assert!(block_on(store.get(TimerId::from_u128(1).into())).is_err());
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("no process waits", || server.sql(waits) == "0");
    other.send("ROLLBACK;");
    other.end().unwrap();
    assert_eq!(block_on(store.get(TimerId::from_u128(1).into())).unwrap(), None);
}

/// The synchronous standby is away for longer than leases last. Timers at least once are delivered in time, and none of
/// them twice, also after another node has started and stopped. Timers at most once wait, and none of them is lost.
#[test]
fn timers_at_most_once_wait_for_a_synchronous_standby_and_delay_no_others() {
    const OTHERS: usize = 100;
    const ONCE: usize = 200;
    let Some(mut primary) = Postgres::start(&[]) else { return };
    let mut standby = primary.replica();
    insist_on_a_standby(&mut primary);
    let store = Arc::new(block_on(PostgresStore::builder().open(&connect(&primary))).unwrap());
    let (late, once, long) =
        (Arc::<Mutex<Vec<Duration>>>::default(), Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let (noted, counted, lasted, clock) =
        (Arc::clone(&late), Arc::clone(&once), Arc::clone(&long), Arc::clone(&store));
    let other = move |_: Box<[u8]>, delivery: Delivery| {
        noted.lock().unwrap().push(clock.now() - delivery.due);
        async { Verdict::Done }
    };
    let mail = move |_: Box<[u8]>, _: Delivery| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Verdict::Done }
    };
    let lasting = move |_: Box<[u8]>, _: Delivery| {
        lasted.fetch_add(1, Ordering::Relaxed);
        async {
            thread::sleep(Duration::from_secs(6));
            Verdict::Done
        }
    };
    let builder = Durable::builder_on(Arc::<PostgresStore>::clone(&store)).bytes_handler("mail", mail);
    let builder = builder.bytes_handler("other", other).bytes_handler("long", lasting);
    let durable = builder.lease(Duration::from_secs(2)).workers(8).start().unwrap();
    let others = format!(
        "SELECT count(tourbillon.schedule('other', delay => '2 s'::interval + number * '60 ms'::interval))
         FROM generate_series(1, {OTHERS}) number"
    );
    let _others = primary.sql(&format!("{others}; SELECT tourbillon.schedule('long', delay => '2 s')"));
    let _once = primary.sql(&format!(
        "SELECT count(tourbillon.schedule('mail', delay => '2 s',
                      policy => '{{\"guarantee\": \"at-most-once\"}}'))
         FROM generate_series(1, {ONCE})"
    ));
    standby.kill();
    let are_delivered = |count: usize| {
        eventually("the others are delivered", || late.lock().unwrap().len() >= count);
        let late = core::mem::take(&mut *late.lock().unwrap());
        let latest = late.iter().max().unwrap();
        assert!(
            late.len() == count && *latest < Duration::from_secs(2),
            "{} of {count}: {latest:?}",
            late.len()
        );
        let waiting = waiting(&primary);
        assert!(waiting <= 2, "{waiting} processes wait for the standby");
    };
    are_delivered(OTHERS);
    thread::sleep(Duration::from_secs(3));
    let second = open(&primary);
    // The leases of what it claims end soon.
    claim(&second, 1).unwrap();
    block_on(second.leave()).unwrap();
    // The next sign of life takes the shards that the node has left.
    thread::sleep(Duration::from_secs(3));
    run(&primary, &others);
    are_delivered(OTHERS);
    assert_eq!((once.load(Ordering::Relaxed), long.load(Ordering::Relaxed)), (0, 1));
    standby.run();
    eventually("all are delivered", || once.load(Ordering::Relaxed) as usize == ONCE);
    await_end(&durable);
    let stats = durable.shutdown(Duration::from_secs(10));
    assert_eq!(
        (usize::try_from(stats.done).unwrap(), stats.leases_lost, stats.lost),
        (2 * OTHERS + ONCE + 1, 0, 0),
        "{stats:?}"
    );
}
