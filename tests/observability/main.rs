//! What an engine tells of itself: series, health, and the example that serves both.

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

/// An engine with a known history: of two shards, the second has fired one timer 0.25 ms late and one that panicked, on
/// time; the first has fired an owned one, postponed once. One was cancelled, and one is pending.
fn engine_with_a_history() -> DrivenEngine<u32> {
    let builder = Builder::new().shards(2).capacity(64);
    let mut engine = builder.build_driven(|timer| assert_ne!(timer.payload, 666)).unwrap();
    let (mut first, mut second) = (engine.handle().producer_on(0), engine.handle().producer_on(1));
    let at = |micros| engine.handle().now() + Duration::from_micros(micros);
    second.schedule_at(at(1_750), 1).unwrap();
    second.schedule_at(at(3_000), 666).unwrap();
    let cancelled = first.schedule_at(at(5_000), 2).unwrap();
    assert_eq!(first.cancel(cancelled).payload(), Some(2));
    first.schedule_at(at(3_600_000_000), 3).unwrap();
    let owned = engine.handle().timer(4).unwrap();
    owned.arm_at(at(4_000)).unwrap();
    owned.arm_at(at(6_000)).unwrap();
    engine.advance(10 * MS);
    drop(owned);
    engine
}
