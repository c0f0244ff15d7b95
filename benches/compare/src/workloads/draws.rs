//! What the workloads draw at random: delays and timers.

use crate::common::Chance;
use std::ops::Range;

/// The range of delays, in nanoseconds, with which timers stay pending until the end of the measurement.
pub(super) const LONG: Range<u64> = 10_000_000_000..60_000_000_000;
pub(super) const HOUR: u64 = 3_600_000_000_000;

/// Returns a random number below `count`: the index of a timer.
pub(super) fn below(chance: &mut Chance, count: usize) -> u32 {
    u32::try_from(chance.within(&(0..count as u64))).expect("fewer than 2^32 timers")
}
