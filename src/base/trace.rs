//! The only module that uses `tracing`. It emits events for an engine's operator, with the target `tourbillon`.
//!
//! Without the feature `tracing` these functions do nothing, so callers need not check the feature. Scheduling, arming
//! and firing call them only for the first refusal of an episode and for panics. If a subscriber panics, the event is
//! lost.

use core::any::Any;
use core::time::Duration;

/// Emits an event with a level, a message, and variables as fields.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $message:literal, $($field:ident),+) => {{
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let event = AssertUnwindSafe(|| tracing::$level!(target: "tourbillon", $($field,)+ $message));
        if let Err(panic) = catch_unwind(event) {
            // Dropping the panic's payload could panic again, so the payload is leaked.
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

/// Reports that an engine has started. `workers` is the number of threads that run its handlers. The number is zero if
/// the shards run the handlers, or if the executor does not report its number of threads.
pub(crate) fn started(engine: u64, shards: usize, tick: Duration, workers: usize) {
    let tick_seconds = tick.as_secs_f64();
    event!(info, "engine started", engine, shards, tick_seconds, workers);
}

pub(crate) fn stopped(engine: u64, fired: u64, cancelled: u64, returned: u64) {
    event!(info, "engine stopped", engine, fired, cancelled, returned);
}

/// Reports that a shard is late. Called once for each stall.
#[cold]
pub(crate) fn stalled(engine: u64, shard: usize, late: Duration, ticks: u64) {
    let late_seconds = late.as_secs_f64();
    event!(warn, "shard stalled", engine, shard, late_seconds, ticks);
}

/// Reports that a stall is over. `worst` is the greatest lateness during the stall.
#[cold]
pub(crate) fn caught_up(engine: u64, shard: usize, worst: Duration, ticks: u64) {
    let worst_seconds = worst.as_secs_f64();
    event!(info, "shard caught up", engine, shard, worst_seconds, ticks);
}

/// Reports that timers are refused because no slot is left. Called once for each episode of refusals.
#[cold]
pub(crate) fn engine_full(engine: u64, capacity: u32) {
    event!(warn, "engine full", engine, capacity);
}

/// Reports that timers are refused or wait because a lane (a thread's queue to a shard) is full. Called once for each
/// episode of refusals.
#[cold]
pub(crate) fn lane_full(engine: u64, shard: usize, lane_capacity: u64) {
    event!(warn, "lane full", engine, shard, lane_capacity);
}

/// Reports that a handler, a payload's drop or an executor panicked.
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
