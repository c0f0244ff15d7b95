//! Tests the runtime on a server, from creation to end, and through crashes of the server and of its sessions.

use super::server::connect;
use crate::{Connect, PostgresBuilder, PostgresStore};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::policy::Backoff;
use tourbillon_durable::store::{StoreErrorKind, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Delivery, Durable, Rejection, Spec, UtcMillis, Verdict};
use tourbillon_fault::{Postgres, eventually};

/// The deliveries of each payload: their moments by the store's time, and their due moments.
pub(super) type Seen = Arc<Mutex<BTreeMap<Vec<u8>, Vec<(UtcMillis, UtcMillis)>>>>;

/// Starts a runtime whose handler records its deliveries. The first delivery of a payload that begins with `odd` fails.
fn runtime(server: &Postgres, seen: &Seen) -> Durable {
    started(&connect(server), seen)
}

/// Starts a runtime as [`runtime`] does, on the server or pool of these connections.
pub(super) fn started(connect: &Connect, seen: &Seen) -> Durable {
    started_by(PostgresStore::builder(), connect, seen)
}

/// Starts a runtime as [`started`] does, with the store's settings in `builder`. Sets the time `ttl` of the node.
pub(super) fn started_by(builder: PostgresBuilder, connect: &Connect, seen: &Seen) -> Durable {
    let builder = builder.ttl(Duration::from_secs(2));
    let store = Arc::new(pollster::block_on(builder.open(connect)).unwrap());
    let (seen, clock) = (Arc::clone(seen), Arc::clone(&store));
    let handler = move |payload: Box<[u8]>, delivery: Delivery| {
        let fails = payload.starts_with(b"odd") && delivery.attempt == 1;
        let moments = (clock.now(), delivery.due);
        seen.lock().unwrap().entry(payload.into()).or_default().push(moments);
        async move { if fails { Verdict::Retry { error: "odd\0".into(), after: None } } else { Verdict::Done } }
    };
    Durable::builder_on(store).bytes_handler("mail", handler).start().unwrap()
}

pub(super) fn spec(payload: &str, after: Duration) -> Spec<Vec<u8>> {
    Spec::new(payload.as_bytes().to_vec()).after(after).backoff(Backoff::Fixed(Duration::from_millis(30)))
}

pub(super) fn await_end(durable: &Durable) {
    eventually("all timers have ended", || {
        let counts = pollster::block_on(durable.handle().counts());
        counts.is_ok_and(|counts| counts.by_namespace.is_empty())
    });
}

/// Creates timers for `time`, while `disturb` runs. Repeats each creation until it is acknowledged, and returns the
/// payloads. A creation with a chosen id is safe to repeat.
pub(super) fn create_beside(durable: &Durable, time: Duration, disturb: impl FnOnce()) -> Vec<Vec<u8>> {
    let timers = durable.handle();
    thread::scope(|scope| {
        let creating = scope.spawn(|| {
            let (mut acknowledged, begin) = (Vec::new(), Instant::now());
            while begin.elapsed() < time {
                let id = TimerId::fresh();
                let payload = id.to_string();
                let spec = || spec(&payload, Duration::from_millis(300)).id(id);
                while let Err(error) = timers.schedule_bytes_blocking("mail", spec()) {
                    match &error.reason {
                        Rejection::Store(error) if error.is_transient() => {}
                        other => panic!("{other}"),
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                acknowledged.push(payload.into_bytes());
            }
            acknowledged
        });
        disturb();
        creating.join().unwrap()
    })
}

/// Asserts that each timer with one of these payloads is delivered, and that no timer is early.
pub(super) fn assert_delivered(payloads: &[Vec<u8>], seen: &Seen) {
    let seen = seen.lock().unwrap();
    let lost = payloads.iter().filter(|payload| !seen.contains_key(*payload)).count();
    assert_eq!(lost, 0, "of {} are lost", payloads.len());
    let early = seen.values().flatten().filter(|(at, due)| at < due).count();
    assert_eq!(early, 0, "of {} were early", payloads.len());
}

#[test]
fn timers_of_the_library_and_of_sql_are_delivered_retried_and_cancelled() {
    let Some(server) = Postgres::start(&[]) else { return };
    let seen = Seen::default();
    let durable = runtime(&server, &seen);
    let timers = durable.handle();
    for number in 0..20_u32 {
        let name = if number % 2 == 1 { "odd" } else { "even" };
        let spec = spec(&format!("{name} {number}"), Duration::from_millis(u64::from(number) * 10));
        timers.schedule_bytes_blocking("mail", spec.key(format!("key {number}"))).unwrap();
    }
    let _ids = server.sql(
        "SELECT count(tourbillon.schedule('mail', payload => convert_to('sql ' || n, 'UTF8'),
             delay => make_interval(secs => n / 100.0))) FROM generate_series(0, 19) n",
    );
    let far = spec("far", Duration::from_secs(3_600)).key("far");
    timers.schedule_bytes_blocking("mail", far).unwrap();
    assert!(matches!(timers.cancel_blocking("far").unwrap(), Cancelled::Cancelled(_)));
    await_end(&durable);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 40);
    for (payload, moments) in &*seen {
        assert_eq!(moments.len(), if payload.starts_with(b"odd") { 2 } else { 1 }, "{payload:?}");
        assert!(moments.iter().all(|(at, due)| at >= due), "{payload:?} was early");
    }
    assert_eq!(pollster::block_on(timers.check()).unwrap(), []);
}

#[test]
fn a_timer_of_sql_is_delivered_within_a_second_of_its_moment() {
    let Some(server) = Postgres::start(&[]) else { return };
    let seen = Seen::default();
    let durable = runtime(&server, &seen);
    // After some time without a timer, the node makes its longest pause between two looks.
    thread::sleep(Duration::from_millis(600));
    let begin = Instant::now();
    let _id = server.sql("SELECT tourbillon.schedule('mail', payload => 'now')");
    eventually("it is delivered", || !seen.lock().unwrap().is_empty());
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    await_end(&durable);
}

/// Kills the server while timers are created and delivered. Each acknowledged timer is delivered, and not early.
#[test]
fn nothing_is_lost_when_the_server_is_killed_and_comes_back() {
    let Some(mut server) = Postgres::start(&["fsync=on"]) else { return };
    let seen = Seen::default();
    let durable = runtime(&server, &seen);
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        acknowledged.extend(create_beside(&durable, Duration::from_millis(900), || {
            thread::sleep(Duration::from_millis(400));
            server.kill();
            thread::sleep(Duration::from_millis(200));
            server.run();
        }));
    }
    await_end(&durable);
    assert_delivered(&acknowledged, &seen);
    assert!(acknowledged.len() > 30, "only {} were created", acknowledged.len());
    assert_eq!(pollster::block_on(durable.handle().check()).unwrap(), []);
}

/// The server ends all sessions of the store, again and again. A call may fail, but not for long, and each acknowledged
/// timer is delivered.
#[test]
fn sessions_that_are_ended_fail_no_call_for_long() {
    let Some(server) = Postgres::start(&[]) else { return };
    let seen = Seen::default();
    let durable = runtime(&server, &seen);
    let timers = durable.handle();
    let (mut acknowledged, mut longest) = (Vec::new(), Duration::ZERO);
    for number in 0..100 {
        if number % 10 == 5 {
            let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                       WHERE application_name = 'tourbillon'";
            let _ended = server.sql(end);
        }
        let payload = format!("number {number}");
        let begin = Instant::now();
        let created = timers.schedule_bytes_blocking("mail", spec(&payload, Duration::ZERO));
        longest = longest.max(begin.elapsed());
        match created {
            Ok(_) => acknowledged.push(payload.into_bytes()),
            Err(error) => match &error.reason {
                Rejection::Store(error) if error.kind() == StoreErrorKind::Unknown => {}
                other => panic!("{other}"),
            },
        }
    }
    // A call that waited for the answer of an ended session would take the response timeout, which is longer.
    let Connect { patience, response_timeout, .. } = connect(&server);
    let most = patience + Duration::from_secs(4);
    assert!(longest < most && most < response_timeout, "a call took {longest:?}");
    await_end(&durable);
    assert_delivered(&acknowledged, &seen);
    // A call fails only if it meets a session that was just ended.
    assert!(acknowledged.len() > 20, "only {} were acknowledged", acknowledged.len());
}
