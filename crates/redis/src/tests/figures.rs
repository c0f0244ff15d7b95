//! Measures creations per second, and the bytes of a pending timer. Run with `cargo test -p tourbillon-redis --lib
//! figures -- --ignored --nocapture`.

use super::{PAST, plain};
use crate::RedisStore;
use redis::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tourbillon_durable::store::{Claimant, Durability, IfPresent, Limit, Op, TimerStore};
use tourbillon_durable::timer::{Payload, Timer};
use tourbillon_fault::Server;

const TIMERS: u64 = 200_000;
const WAITING: usize = 200;

fn used(link: &plain::Plain) -> f64 {
    let text = match link.ask(&["INFO", "memory"]) {
        Value::VerbatimString { text, .. } => text,
        Value::BulkString(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    let line = text.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    line.trim().parse().unwrap()
}

/// Makes a timer with a payload of 64 bytes that is due within about 30 days, as in the comparison with other stores.
fn timer(store: &RedisStore, number: u64, is_keyed: bool) -> Timer {
    let delay = Duration::from_secs(number * 7_919 % 2_592_000 + 3_600);
    let due = store.now() + delay;
    let key: Option<Box<str>> = is_keyed.then(|| format!("order-{number:010}").into());
    let id = store.fresh_id("", key.as_deref());
    Timer { key, payload: Payload([7; 64].into()), ..Timer::new(id, "mail", due) }
}

#[test]
#[ignore = "figures, which need a quiet machine"]
#[expect(clippy::print_stdout, reason = "the figures")]
fn figures() {
    let Some(server) = Server::start(&["--appendonly", "yes", "--appendfsync", "everysec"]) else { return };
    let link = plain::Plain::to(server.port());
    for is_keyed in [false, true] {
        let _empty = link.ask(&["FLUSHALL"]);
        let store = plain::open(RedisStore::builder("figures").poll(None), server.port()).unwrap();
        let before = used(&link);
        let next = AtomicU64::new(0);
        let begin = Instant::now();
        // Each worker waits for an answer before it sends the next creation.
        let worker = || async {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= TIMERS {
                    return;
                }
                let op = Op::Place(Box::new(timer(&store, number, is_keyed)), IfPresent::Reject);
                store.apply(vec![op], Durability::ProcessCrash).await.unwrap();
            }
        };
        pollster::block_on(futures_util::future::join_all((0..WAITING).map(|_| worker())));
        let took = begin.elapsed().as_secs_f64();
        let bytes = (used(&link) - before) / TIMERS as f64;
        let keyed = if is_keyed { "with a key of 16 bytes" } else { "without a key" };
        println!(
            "{keyed}: {:.0} creations a second with {WAITING} waiting, {bytes:.0} bytes each",
            TIMERS as f64 / took
        );
    }
    let _empty = link.ask(&["FLUSHALL"]);
    let store = plain::open(RedisStore::builder("figures").poll(None), server.port()).unwrap();
    let place = |_| {
        Op::Place(
            Box::new(Timer { due: PAST, scheduled: PAST, ..timer(&store, 0, false) }),
            IfPresent::Reject,
        )
    };
    for _ in 0..20 {
        pollster::block_on(store.apply((0..1_000).map(place).collect(), Durability::Volatile)).unwrap();
    }
    let by = Claimant { incarnation: 1, lease: Duration::from_secs(60) };
    let (begin, mut ended) = (Instant::now(), 0);
    for claim in 1.. {
        let limit = Limit { timers: 512, bytes: 4 << 20 };
        let leased = pollster::block_on(store.claim(by, claim, limit, None)).unwrap().leased;
        if leased.is_empty() {
            break;
        }
        ended += leased.len();
        let acks = leased.into_iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
        pollster::block_on(store.apply(acks, Durability::Volatile)).unwrap();
    }
    println!(
        "{:.0} due at one instant are claimed and ended a second",
        ended as f64 / begin.elapsed().as_secs_f64()
    );
}
