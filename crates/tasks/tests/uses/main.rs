//! Idle timeouts, maps whose entries expire, delay queues and rate limiters. Most tests use a clock that the test
//! moves. The files that are named after races use real threads, and account for each entry.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod delay_queue;
mod examples;
mod expiry_map;
mod held_up;
mod idle;
mod idle_races;
mod map_on_time;
mod map_races;
mod polling;
mod queue_races;
mod rate_limiter;
mod rate_races;

use std::time::Duration;
use tourbillon::{Builder, Stats};
use tourbillon_tasks::TaskEngine;
use tourbillon_tasks::uses::DueItem;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Makes an engine with short ticks, whose shards and workers race with the test's threads.
fn threads() -> TaskEngine {
    TaskEngine::start(Builder::new().shards(2).unpinned().tick(Duration::from_micros(50)).workers(2)).unwrap()
}

/// Returns the item of a `DueItem`, as it was pushed.
fn item<T>(due: DueItem<T>) -> T {
    due.item
}

/// Returns whether the engine has neither a pending one-shot nor an owned timer.
fn is_empty(stats: &Stats) -> bool {
    stats.owned.alive == 0 && stats.pending == 0
}
