//! Measures the bytes that a timer takes in the tables, and in the server's write-ahead log. The command
//! `cargo test -p tourbillon-postgres figures -- --nocapture`
//! prints them.

use super::server::open;
use super::session::Psql;
use crate::PostgresStore;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Durability, IfPresent, Limit, Op, TimerStore};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_fault::Postgres;

const TIMERS: u64 = 2_000;
/// The number of timers that stay pending. They are due in a day.
const PENDING: u64 = 20_000;
/// The number of timers in a claim, and also the number of deliveries that end in one transaction.
const TOGETHER: u32 = 500;

/// The number of timers that a runtime creates in one transaction, and the number of these transactions.
const GROUP: u64 = 256;
const GROUPS: u64 = 8;

/// Creates timers with a payload of 64 bytes and a key of 16 bytes in one transaction. They are due in a minute.
fn create_group(store: &PostgresStore, group: u64) {
    let place = |number| {
        let key = Some(format!("group-{:010}", group * GROUP + number).into());
        let due = store.now() + Duration::from_secs(60);
        let payload = Payload([7; 64].into());
        let timer = Timer { key, payload, ..Timer::new(TimerId::fresh(), "mail", due) };
        Op::Place(Box::new(timer), IfPresent::Reject)
    };
    let ops = (0..GROUP).map(place).collect();
    let _created = pollster::block_on(store.apply(ops, Durability::PowerLoss)).unwrap();
}

/// Returns the number of bytes that the server has written to its write-ahead log.
fn log(server: &Postgres) -> u64 {
    server.sql("SELECT pg_current_wal_insert_lsn() - '0/0'").parse().unwrap()
}

/// Returns the number of bytes of the table of timers, with its indexes.
fn table(server: &Postgres) -> u64 {
    server.sql("SELECT pg_total_relation_size('tourbillon.timer')").parse().unwrap()
}

/// Returns a call that creates a timer with a payload of 64 bytes and a key of 16 bytes.
fn schedule(number: &str, delay: &str) -> String {
    let payload = "('\\x' || repeat('07', 64))::bytea";
    format!(
        "tourbillon.schedule('mail', payload => {payload}, key => 'order-' || lpad(({number})::text, 10, '0'),
             delay => '{delay}')"
    )
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures")]
fn figures_of_a_timer_in_bytes() {
    let Some(server) = Postgres::start(&["full_page_writes=off", "autovacuum=off"]) else { return };
    let store = open(&server);
    let empty = table(&server);
    let far = schedule("n", "1 day");
    let _count = server.sql(&format!("SELECT count({far}) FROM generate_series(1, {PENDING}) n"));
    let pending = (table(&server) - empty) / PENDING;
    let begin = log(&server);
    let mut caller = Psql::new(&server);
    (PENDING + 1..=PENDING + TIMERS)
        .for_each(|number| caller.send(&format!("SELECT {};", schedule(&number.to_string(), "0"))));
    let _ids = caller.end().unwrap();
    let created = (log(&server) - begin) / TIMERS;
    println!("a pending timer with its indexes: {pending} bytes (goal 300)");
    println!("log of a creation in a transaction of its own: {created} bytes (goal 500)");
    let begin = log(&server);
    (0..GROUPS).for_each(|group| create_group(&store, group));
    let grouped = (log(&server) - begin) / (GROUPS * GROUP);
    println!("log of a creation among {GROUP}: {grouped} bytes");
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let (mut claims, mut ends) = (0, 0);
    for number in 1..=TIMERS / u64::from(TOGETHER) {
        let before = log(&server);
        let limit = Limit { timers: TOGETHER, bytes: u64::MAX };
        let leased = pollster::block_on(store.claim(by, number, limit, None)).unwrap().leased;
        assert_eq!(leased.len(), TOGETHER as usize);
        claims += log(&server) - before;
        let before = log(&server);
        let done = leased.into_iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
        let _done = pollster::block_on(store.apply(done, Durability::PowerLoss)).unwrap();
        ends += log(&server) - before;
    }
    let (claims, ends) = (claims / TIMERS, ends / TIMERS);
    println!("log of a claim among {TOGETHER}: {claims} bytes; of an end: {ends} bytes");
    println!("log of a timer's whole life: {} bytes (goal 900)", created + claims + ends);
    println!("the same, created among {GROUP}: {} bytes", grouped + claims + ends);
    assert!(grouped < 610, "larger than DESIGN.md says");
    // The figures of the design page, with some room: they hardly vary from run to run.
    assert!(pending < 310 && created < 760 && claims < 250 && ends < 130, "larger than DESIGN.md says");
}
