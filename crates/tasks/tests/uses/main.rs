//! Idle timeouts, maps whose entries expire, delay queues, rate limiters: on a clock that the test moves, and, where
//! names say so, in races of real threads, which account for each entry.

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

/// An engine with short ticks, whose shards and workers race with the test's threads.
fn threads() -> TaskEngine {
    TaskEngine::start(Builder::new().shards(2).unpinned().tick(Duration::from_micros(50)).workers(2)).unwrap()
}

/// The item that was pushed.
fn item<T>(due: DueItem<T>) -> T {
    due.item
}

/// Nothing is left in the engine: no timer of either kind.
fn is_empty(stats: &Stats) -> bool {
    stats.owned.alive == 0 && stats.pending == 0
}
