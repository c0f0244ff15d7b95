//! Tests the store and callers behind pgbouncer in transaction mode. The pool gives each transaction another session.

use super::life::{Seen, assert_delivered, await_end, create_beside, started, started_by};
use super::server::maker_at;
use super::standby::{insist_on_a_standby, waiting};
use super::through_functions::through_functions;
use crate::{Connect, PostgresStore};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;
use tourbillon::ManualClock;
use tourbillon_conformance::{self as conformance, Life};
use tourbillon_durable::state::{Phase, Refusal};
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, MemoryStore, Op, Outcome, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Bouncer, Postgres, eventually};

fn start() -> Option<(Postgres, Bouncer)> {
    let server = Postgres::start(&[])?;
    let pool = Bouncer::start(&server)?;
    Some((server, pool))
}

fn connect(pool: &Bouncer) -> Connect {
    Connect::to(&pool.url()).unwrap()
}

#[test]
#[ignore = "it takes a minute; the CI runs it beside the runs under faults"]
fn the_store_conforms_behind_a_pool() {
    let Some((_server, pool)) = start() else { return };
    let make = maker_at(connect(&pool), "pooled");
    let make = move |clock: ManualClock| make(clock) as Arc<dyn TimerStore>;
    let cases = conformance::CASES.iter().copied().flatten();
    assert_eq!(conformance::failures(cases, &make), [""; 0]);
}

#[test]
fn the_functions_have_the_outcomes_of_the_store_in_memory_behind_a_pool() {
    let Some((_server, pool)) = start() else { return };
    let make = maker_at(connect(&pool), "pooled");
    let make = move |clock: ManualClock| through_functions(make(clock));
    let in_memory = |clock: ManualClock| Arc::new(MemoryStore::new(clock)) as Arc<dyn TimerStore>;
    conformance::differential(&in_memory, &make, 0..4, &Life::default());
}

/// The pool ends each session after three seconds, and here it is killed twice. Each acknowledged timer is delivered,
/// and not early.
#[test]
fn timers_behind_a_pool_are_delivered_while_sessions_change_and_the_pool_and_the_server_are_killed() {
    let Some((mut server, mut pool)) = start() else { return };
    let seen = Seen::default();
    let durable = started(&connect(&pool), &seen);
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        acknowledged.extend(create_beside(&durable, Duration::from_millis(1_500), || {
            thread::sleep(Duration::from_millis(500));
            if round % 2 == 0 {
                pool.kill();
                thread::sleep(Duration::from_millis(200));
                pool.run();
            } else {
                server.kill();
                thread::sleep(Duration::from_millis(200));
                server.run();
            }
        }));
    }
    await_end(&durable);
    assert_delivered(&acknowledged, &seen);
    assert!(acknowledged.len() > 30, "only {} were created", acknowledged.len());
    assert_eq!(pollster::block_on(durable.handle().check()).unwrap(), []);
}

/// The connection that listens is a client of the pool, too. Its `LISTEN` is left in one of the server's sessions, and
/// ends with this session. So the notifications reach nobody, or whichever client has that session at the moment. The
/// node finds the timers of SQL by its looks, and none is lost, also while the pool is killed.
#[test]
fn a_store_that_listens_behind_a_pool_finds_each_timer_by_its_looks() {
    let Some((server, mut pool)) = start() else { return };
    let seen = Seen::default();
    let durable = started_by(PostgresStore::builder().listen(true), &connect(&pool), &seen);
    eventually("creations notify", || server.sql("SELECT bool_or(n.listens) FROM tourbillon.node n") == "t");
    let mut created = Vec::new();
    // The pool ends each session after three seconds. So the session with the `LISTEN` ends during the creations.
    for number in 0..40 {
        let (due, soon) = (format!("due {number}"), format!("soon {number}"));
        let _ids = server.sql(&format!(
            "SELECT tourbillon.schedule('mail', payload => '{due}'),
                 tourbillon.schedule('mail', payload => '{soon}', delay => '150 ms')"
        ));
        created.extend([due.into_bytes(), soon.into_bytes()]);
        if number == 20 {
            pool.kill();
            thread::sleep(Duration::from_millis(200));
            pool.run();
        }
        thread::sleep(Duration::from_millis(100));
    }
    await_end(&durable);
    assert_delivered(&created, &seen);
    assert_eq!(pollster::block_on(durable.handle().check()).unwrap(), []);
}

/// The server has received a commit, and the pool loses the session before the answer arrives. So the outcome is not
/// known, and the store says so.
#[test]
fn a_commit_whose_session_ends_behind_a_pool_is_unknown() {
    let Some((server, pool)) = start() else { return };
    let store = pollster::block_on(PostgresStore::builder().poll(None).open(&connect(&pool))).unwrap();
    // A commit waits for a replica that does not exist, from soon on: the server reads its settings again when it
    // likes.
    let _set = server.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    let _set = server.sql("SELECT pg_reload_conf()");
    let place = || {
        let op = Op::Place(Box::new(Timer::new(TimerId::fresh(), "mail", store.now())), IfPresent::Reject);
        pollster::block_on(store.apply(vec![op], Durability::PowerLoss))
    };
    let answered = thread::scope(|scope| {
        let placing = scope.spawn(|| {
            let (mut answered, begin) = (0, Instant::now());
            while begin.elapsed() < Duration::from_secs(100) {
                match place() {
                    Ok(_) => answered += 1,
                    Err(error) => return Some((answered, error)),
                }
            }
            None
        });
        let end_waiting =
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        eventually("a commit whose session ends", || {
            let _ended = server.sql(end_waiting);
            placing.is_finished()
        });
        let (answered, error) = placing.join().unwrap().expect("no commit has waited");
        assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
        answered
    });
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), (answered + 1).to_string());
}

/// While the standby is away, a store asks before each removal whether commits are confirmed, and cancels a question
/// without an answer. Behind a pool, the process that has answered one statement of a connection may run a statement of
/// another connection next. Such a statement must not be cancelled: its commit would be answered, and no standby would
/// have it.
#[test]
fn a_question_that_is_cancelled_behind_a_pool_confirms_no_commit_of_another_client() {
    let Some((mut server, pool)) = start() else { return };
    let (asking, creating) = (connect(&pool), connect(&pool).response_timeout(Duration::from_secs(2)));
    let open =
        |connect: &Connect| pollster::block_on(PostgresStore::builder().poll(None).open(connect)).unwrap();
    let (asking, creating) = (open(&asking), open(&creating));
    let _id = server.sql("SELECT tourbillon.schedule('mail', policy => '{\"guarantee\": \"at-most-once\"}')");
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let leased = pollster::block_on(asking.claim(by, 1, Limit { timers: 9, bytes: u64::MAX }, None));
    let leased = leased.unwrap().leased.remove(0);
    insist_on_a_standby(&mut server);
    let (begin, time) = (Instant::now(), Duration::from_secs(8));
    let create = || {
        while begin.elapsed() < time {
            let timer = Timer::new(TimerId::fresh(), "mail", creating.now());
            let op = Op::Place(Box::new(timer), IfPresent::Reject);
            let answer = pollster::block_on(creating.apply(vec![op], Durability::PowerLoss));
            assert!(answer.is_err(), "no standby has the timer: {answer:?}");
        }
    };
    let refused = thread::scope(|scope| {
        let creations: Vec<_> = (0..3).map(|_| scope.spawn(create)).collect();
        let mut refused = 0;
        while begin.elapsed() < time {
            let op = Op::Skip(leased.timer.id, leased.token);
            match pollster::block_on(asking.apply(vec![op], Durability::PowerLoss)) {
                Ok(outcomes) => {
                    assert_eq!(outcomes, [Outcome::Refused(Refusal::State(Phase::Leased))]);
                    refused += 1;
                }
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
        creations.into_iter().for_each(|creation| creation.join().unwrap());
        refused
    });
    assert!(refused > 2, "only {refused} questions were asked");
    eventually("no process waits", || waiting(&server) == 0);
}

/// A caller prepares its statements within the transaction that uses them, so they are known to its session.
#[test]
fn callers_behind_a_pool_prepare_statements_in_their_transactions() {
    let Some((server, pool)) = start() else { return };
    let seen = Seen::default();
    let durable = started(&connect(&pool), &seen);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let callers = (0..6).map(|caller: i32| {
        let url = pool.url();
        async move {
            let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            let _driven = tokio::spawn(connection);
            let mut sessions = std::collections::BTreeSet::new();
            for number in 0..30 {
                let transaction = client.transaction().await.unwrap();
                let create = "SELECT pg_backend_pid(), tourbillon.schedule('mail', payload => $1, key => $2,
                                  delay => make_interval(secs => $3))::text";
                let create = transaction.prepare(create).await.unwrap();
                let key = format!("{caller} {number}");
                let row = transaction.query_one(&create, &[&key.as_bytes(), &key, &0.05_f64]).await.unwrap();
                sessions.insert(row.get::<_, i32>(0));
                let cancel = transaction.prepare("SELECT tourbillon.cancel($1)").await.unwrap();
                let change =
                    transaction.prepare("SELECT tourbillon.move_to($1, delay => $2::text::interval)");
                let change = change.await.unwrap();
                match number % 3 {
                    0 => {
                        let row = transaction.query_one(&cancel, &[&key]).await.unwrap();
                        assert_eq!(row.get::<_, &str>(0), "cancelled");
                    }
                    1 => {
                        let row = transaction.query_one(&change, &[&key, &"0.1 s"]).await.unwrap();
                        assert_eq!(row.get::<_, &str>(0), "moved");
                    }
                    _ => {}
                }
                transaction.commit().await.unwrap();
            }
            sessions.len()
        }
    });
    let sessions = runtime.block_on(async {
        let tasks: Vec<_> = callers.map(tokio::spawn).collect();
        let mut sessions = 0;
        for task in tasks {
            sessions = sessions.max(task.await.unwrap());
        }
        sessions
    });
    assert!(sessions > 1, "a caller had one session only");
    await_end(&durable);
    assert_eq!(seen.lock().unwrap().len(), 6 * 20, "two of three timers are delivered");
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "0");
}
