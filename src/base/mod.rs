//! Basic types, and the only modules that import atomics, threads and tracing.

pub(crate) mod buckets;
pub(crate) mod counters;
pub(crate) mod error;
pub(crate) mod fork;
pub(crate) mod limits;
pub(crate) mod missed;
#[cfg(all(test, tourbillon_lines))]
#[path = "../../benches/lines/record.rs"]
pub(crate) mod record;
pub(crate) mod sync;
pub(crate) mod tick;
pub(crate) mod ticket;
pub(crate) mod trace;
