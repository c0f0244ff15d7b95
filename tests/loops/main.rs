//! Shards that loops of the program turn: their next moments, wakes, ends and faults.

#[path = "../support/mod.rs"]
mod support;

mod foreign;
mod lanes;
mod ledger;
mod lifecycle;
mod players;
mod polling;
mod sorted_list;
mod stage;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use support::Log;
use tourbillon::{Builder, Engine, Fired, LoopLeft, LoopShard, ManualClock, Shards, Timestamp};

const BUDGET: usize = 1 << 20;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// Makes loops on a clock that stands still at time zero, and an engine that logs the payloads of its firings.
fn stepped(loops: usize) -> (Engine<u64>, Vec<LoopShard>, Log<u64>) {
    let (shards, loops) = Builder::new().clock(ManualClock::new()).loops(loops).unwrap();
    let (engine, log) = recording(&shards);
    (engine, loops, log)
}

fn recording(shards: &Shards) -> (Engine<u64>, Log<u64>) {
    let log = Log::new();
    let sink = log.clone();
    let engine = shards.engine().start(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    (engine, log)
}

fn index(n: u64) -> usize {
    usize::try_from(n).expect("a small number")
}

/// Turns the loop until a turn (a pass of its loop) finds no work.
fn settle(shard: &mut LoopShard, now: Timestamp) {
    while shard.turn(now, BUDGET) == LoopLeft::More {}
}

/// Returns a counter that counts each wake of the loop.
fn count_wakes(shard: &mut LoopShard) -> Arc<AtomicU64> {
    let wakes = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&wakes);
    shard.wake_by(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    wakes
}

/// Runs `f` on another thread. Waits for the end of `f`, and returns its result.
fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(f).join().unwrap())
}
