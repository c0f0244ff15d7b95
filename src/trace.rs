//! The one door to `tracing`: what an engine has to say to its operator, as events with the target `tourbillon`.
//!
//! Without the feature these functions are empty, so that their callers need not know of it. None of them is called where
//! timers are scheduled, armed or fired, but for the first refusal of an episode and for panics. A subscriber that panics
//! costs its event.

use core::any::Any;
use core::time::Duration;

/// An event of this level with this message and these variables as its fields.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $message:literal, $($field:ident),+) => {{
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let event = AssertUnwindSafe(|| tracing::$level!(target: "tourbillon", $($field,)+ $message));
        if let Err(panic) = catch_unwind(event) {
            // Its drop may panic in turn: leaking it ends the chain.
            Box::leak(panic);
        }
    }};
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $message:literal, $($field:ident),+) => {{
        let _ = ($(&$field,)+);
    }};
}

/// `workers` run its handlers; zero where the shards do, or an executor that does not say.
pub(crate) fn started(engine: u64, shards: usize, tick: Duration, workers: usize) {
    let tick_seconds = tick.as_secs_f64();
    event!(info, "engine started", engine, shards, tick_seconds, workers);
}

pub(crate) fn stopped(engine: u64, fired: u64, cancelled: u64, returned: u64) {
    event!(info, "engine stopped", engine, fired, cancelled, returned);
}

/// A shard is late: once for each stall.
#[cold]
pub(crate) fn stalled(engine: u64, shard: usize, late: Duration, ticks: u64) {
    let late_seconds = late.as_secs_f64();
    event!(warn, "shard stalled", engine, shard, late_seconds, ticks);
}

/// The stall is over; it was so late at the worst.
#[cold]
pub(crate) fn caught_up(engine: u64, shard: usize, worst: Duration, ticks: u64) {
    let worst_seconds = worst.as_secs_f64();
    event!(info, "shard caught up", engine, shard, worst_seconds, ticks);
}

/// Timers are refused for want of slots: once for each episode.
#[cold]
pub(crate) fn engine_full(engine: u64, capacity: u32) {
    event!(warn, "engine full", engine, capacity);
}

/// Timers are refused, or wait, for want of room in a lane: once for each episode.
#[cold]
pub(crate) fn lane_full(engine: u64, shard: usize, lane_capacity: u64) {
    event!(warn, "lane full", engine, shard, lane_capacity);
}

/// A handler, a payload's drop or an executor panicked.
#[cold]
pub(crate) fn panicked(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let panic = text.or_else(|| panic.downcast_ref().map(String::as_str)).unwrap_or("not a text");
    event!(error, "panic survived", panic);
}

#[cold]
pub(crate) fn pin_refused(engine: u64, shard: usize, core: usize) {
    event!(warn, "pin refused", engine, shard, core);
}
