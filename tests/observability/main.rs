//! Observability of an engine: its metrics, its health, and the example that serves both.

mod health;
mod lateness;
mod monitoring;
mod page;
mod prometheus;
#[cfg(feature = "metrics")]
mod recorder;
mod stalls;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;
use support::MS;
use tourbillon::{Builder, DrivenEngine};

/// Makes an engine of two shards with a known history. The second shard has fired a timer 0.25 ms late, and another
/// timer on time, whose handler panicked. The first shard has fired an owned timer, which was postponed once. One timer
/// was cancelled, and one timer is pending.
fn engine_with_a_history() -> DrivenEngine<u32> {
    let builder = Builder::new().shards(2).capacity(64);
    let mut engine = builder.driven(|timer| assert_ne!(timer.payload, 666)).unwrap();
    let handle = engine.handle();
    let at = |micros| handle.now() + Duration::from_micros(micros);
    handle.use_shard(1);
    handle.schedule_at(at(1_750), 1).unwrap();
    handle.schedule_at(at(3_000), 666).unwrap();
    handle.use_shard(0);
    let cancelled = handle.schedule_at(at(5_000), 2).unwrap();
    assert_eq!(handle.cancel(cancelled).payload(), Some(2));
    handle.schedule_at(at(3_600_000_000), 3).unwrap();
    let owned = handle.timer(4).unwrap();
    owned.arm_at(at(4_000)).unwrap();
    owned.arm_at(at(6_000)).unwrap();
    engine.advance(10 * MS);
    drop(owned);
    engine
}
