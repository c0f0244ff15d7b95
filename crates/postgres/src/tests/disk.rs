//! Tests a server whose disk is full, while it stays full and afterwards.

use super::life::{Seen, await_end, spec, started};
use super::server::connect;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::Rejection;
use tourbillon_durable::store::StoreErrorKind;
use tourbillon_fault::{Postgres, SmallDisk, eventually};

/// The number of transactions of the server so far.
fn transactions(server: &Postgres) -> u64 {
    let sum = "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database";
    server.sql(sum).parse().unwrap()
}

/// Another program fills the disk. New timers are refused, and their payloads are handed back. The failing node does
/// not keep the server busy. Each acknowledged timer is delivered, during this time or after the disk has room again.
/// No timer is delivered early.
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
    let (before, since) = (transactions(&server), Instant::now());
    thread::sleep(Duration::from_secs(3));
    let rate = (transactions(&server) - before) as f64 / since.elapsed().as_secs_f64();
    let delivered = seen.lock().unwrap().len();
    assert!(rate < 300.0, "{rate} transactions a second");
    disk.free();
    let freed = Instant::now();
    eventually("new timers are stored", || create("after", Duration::ZERO).is_ok());
    let usable = freed.elapsed();
    await_end(&durable);
    let seen = seen.lock().unwrap();
    let lost = acknowledged.iter().filter(|payload| !seen.contains_key(*payload)).count();
    assert_eq!(lost, 0, "of {}", acknowledged.len());
    assert_eq!(seen.values().flatten().filter(|(at, due)| at < due).count(), 0, "early");
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
