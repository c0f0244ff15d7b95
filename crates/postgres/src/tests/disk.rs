//! Tests a server whose disk is full, while it stays full and afterwards.

use super::life::{Seen, assert_delivered, await_end, spec, started};
use super::server::connect;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::Rejection;
use tourbillon_durable::store::StoreErrorKind;
use tourbillon_fault::{Postgres, SmallDisk, eventually};

/// The greatest number of transactions a second of a node on a full disk. `DESIGN.md` has the measured number: 12.
const MOST: f64 = 60.0;

/// The number of transactions of the server so far.
fn transactions(server: &Postgres) -> u64 {
    let sum = "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database";
    server.sql(sum).parse().unwrap()
}

/// Returns the transactions a second during the next three seconds. The node's pauses after errors grow to 3.75 s.
fn transactions_a_second(server: &Postgres) -> f64 {
    let (before, since) = (transactions(server), Instant::now());
    thread::sleep(Duration::from_secs(3));
    (transactions(server) - before) as f64 / since.elapsed().as_secs_f64()
}

/// Another program fills the disk. New timers are refused, and their payloads are handed back. The failing node does
/// not keep the server busy. Each acknowledged timer is delivered once, during this time or after the disk has room
/// again. No timer is delivered early.
#[test]
fn a_full_disk_refuses_timers_loses_none_and_is_left_behind() {
    let Some(disk) = SmallDisk::mount(160) else { return };
    let Some(server) = Postgres::start_on(disk.path(), &["autovacuum=off"]) else { return };
    let seen = Seen::default();
    let durable = started(&connect(&server), &seen);
    let timers = durable.handle();
    let mut acknowledged = Vec::new();
    let mut create = |name: &str, after: Duration| {
        let payload = format!("{name} {}", "x".repeat(2_000)).into_bytes();
        let spec = spec(core::str::from_utf8(&payload).unwrap(), after);
        let result = timers.schedule_bytes_blocking("mail", spec);
        if result.is_ok() {
            acknowledged.push(payload.clone());
        }
        result.map_err(|error| {
            assert_eq!(error.payload, payload, "the payload is handed back");
            error.reason
        })
    };
    for number in 0..300 {
        create(&format!("before {number}"), Duration::from_millis(2_000 + number * 20)).unwrap();
    }
    disk.fill();
    let begin = Instant::now();
    let mut refused = 0;
    for number in 0.. {
        match create(&format!("full {number}"), Duration::from_millis(100)) {
            Ok(_) => {}
            Err(Rejection::Store(error)) => {
                assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
        if refused >= 20 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the disk is never full");
    }
    // Some timers come due while the disk is full.
    thread::sleep(Duration::from_secs(4));
    // A session that rests may add its last transactions to the count ten seconds late. So those of the creations above
    // may fall into a later span. A node that keeps the server busy does so in each span.
    let mut rate = f64::INFINITY;
    for _ in 0..4 {
        rate = rate.min(transactions_a_second(&server));
        if rate < MOST {
            break;
        }
    }
    let delivered = seen.lock().unwrap().len();
    assert!(rate < MOST, "{rate} transactions a second");
    disk.free();
    let (freed, mut attempts) = (Instant::now(), 0);
    eventually("new timers are stored", || {
        // Each attempt has a payload of its own, because payloads tell the timers apart.
        attempts += 1;
        create(&format!("after {attempts}"), Duration::ZERO).is_ok()
    });
    let usable = freed.elapsed();
    await_end(&durable);
    assert_delivered(&acknowledged, &seen);
    let seen = seen.lock().unwrap();
    // An end that finds no room is kept, and sent again until it is stored. An end takes effect by its token, also when
    // its lease is over, unless a reap has come first. There is no other node, and this one reaps only after a renewal
    // that has found room. It renews nothing before its ends are stored. So no delivery is repeated.
    let repeated = seen.values().filter(|moments| moments.len() > 1).count();
    assert_eq!(repeated, 0, "of {}", seen.len());
    assert_eq!(pollster::block_on(timers.check()).unwrap(), []);
    #[expect(clippy::print_stdout, reason = "figures")]
    {
        println!(
            "{delivered} timers were delivered before there was room; {rate:.0} transactions a second on the full disk; \
             usable again after {usable:?}; all ended after {:?}",
            freed.elapsed()
        );
    }
}
