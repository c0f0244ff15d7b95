//! A worker that blocks costs no more memory the longer it does. Alone in its process, whose resident memory it measures.

mod support;

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};
use support::{Gate, HOUR, MS, assert_settled};
use tourbillon::{Builder, Fired};

const PENDING: usize = 1_000;
/// Timers that are scheduled in each millisecond, and cancelled when they are due.
const EACH_MILLISECOND: usize = 600;
const MILLISECONDS: u32 = 1_500;
const GROWTH_KIB: usize = 8 * 1_024;

/// Resident memory, where the system tells.
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
    let gate = Gate::new();
    let at_gate = gate.clone();
    let engine = Builder::new()
        .shards(1)
        .workers(1)
        .capacity(4_096)
        .build(move |timer: Fired<'_, bool>| {
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
    for millisecond in 0..MILLISECONDS {
        for _ in 0..EACH_MILLISECOND {
            pending.push_back(engine.handle().schedule(Duration::ZERO, false).unwrap());
            let oldest = pending.pop_front().expect("there are a thousand");
            assert!(engine.handle().cancel(oldest).payload().is_some());
        }
        thread::sleep((millisecond * MS).saturating_sub(begin.elapsed()));
    }
    let growth = resident_kib().saturating_sub(before);
    let stats = engine.handle().stats();
    gate.open();
    assert!(growth < GROWTH_KIB, "{growth} KiB more after {MILLISECONDS} ms, {stats:?}");
    drop(engine.handle().shutdown());
    assert_settled(&engine.handle().stats());
}
