//! A worker that blocks for longer costs no more memory. The test is alone in its process, whose resident memory it
//! measures.
//!
//! The worker blocks for 1.5 s, or for as many seconds as `TOURBILLON_BLOCKED_SECONDS` says:
//! `TOURBILLON_BLOCKED_SECONDS=10 cargo test --release --test blocked_worker -- --nocapture`.

mod support;

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};
use support::{Gate, HOUR, MS, assert_settled};
use tourbillon::{Builder, Fired};

const PENDING: usize = 1_000;
/// The number of timers that are scheduled in each millisecond. Each timer is cancelled at the moment at which it is
/// due.
const EACH_MILLISECOND: usize = 600;
const GROWTH_KIB: usize = 8 * 1_024;

/// Returns the number of milliseconds for which the test's worker blocks.
fn milliseconds() -> u32 {
    std::env::var("TOURBILLON_BLOCKED_SECONDS")
        .map_or(1_500, |seconds| 1_000 * seconds.parse::<u32>().expect("a number of seconds"))
}

/// Returns this process's resident memory, in KiB. Returns 0 if the system does not report it.
fn resident_kib() -> usize {
    let read = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    read().unwrap_or(0)
}

#[test]
fn a_worker_that_blocks_takes_no_more_memory_the_longer_it_does() {
    let milliseconds = milliseconds();
    let gate = Gate::new();
    let at_gate = gate.clone();
    let engine = Builder::new()
        .shards(1)
        .workers(1)
        .capacity(4_096)
        .start(move |timer: Fired<'_, bool>| {
            if timer.payload {
                at_gate.pass();
            }
        })
        .unwrap();
    engine.handle().schedule(Duration::ZERO, true).unwrap();
    gate.await_arrival();
    let mut pending: VecDeque<_> =
        (0..PENDING).map(|_| engine.handle().schedule(HOUR, false).unwrap()).collect();
    let (begin, before) = (Instant::now(), resident_kib());
    for millisecond in 0..milliseconds {
        for _ in 0..EACH_MILLISECOND {
            pending.push_back(engine.handle().schedule(Duration::ZERO, false).unwrap());
            let oldest = pending.pop_front().expect("there are a thousand");
            assert!(engine.handle().cancel(oldest).payload().is_some());
        }
        thread::sleep((millisecond * MS).saturating_sub(begin.elapsed()));
    }
    let took = begin.elapsed();
    let growth = resident_kib().saturating_sub(before);
    let stats = engine.handle().stats();
    gate.open();
    let timers = milliseconds as usize * EACH_MILLISECOND;
    eprintln!(
        "{timers} timers in {:.2} s ({:.0} a second): {before} KiB before, {growth} KiB more",
        took.as_secs_f64(),
        timers as f64 / took.as_secs_f64()
    );
    assert!(growth < GROWTH_KIB, "{growth} KiB more after {milliseconds} ms, {stats:?}");
    drop(engine.handle().shutdown());
    assert_settled(&engine.handle().stats());
}
