//! The limits that a contestant states. If a workload exceeds them, a bench reports that and measures nothing.

/// The limits of a timer structure, and its lateness by design. The unit is ticks, or nanoseconds for a
/// [`Service`](super::Service).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The largest distance of a timer's deadline from the structure's present position.
    pub(crate) span: u64,
    /// The number of different delays that the structure can hold, over its whole life.
    pub(crate) durations: usize,
    /// The largest number of pending timers. The structure would take too long for a bench with more timers.
    pub(crate) timers: usize,
    /// A function that returns the largest lateness of a timer. The argument is the time from the scheduling of the
    /// timer to its deadline. A larger argument never gives a smaller result.
    pub(crate) lateness: fn(u64) -> u64,
}

/// The properties that a workload demands of a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// The longest delay of the workload.
    pub(crate) span: u64,
    /// The number of different delays in the workload.
    pub(crate) durations: usize,
    pub(crate) timers: usize,
}

impl Limits {
    pub(crate) const NONE: Self =
        Self { span: u64::MAX, durations: usize::MAX, timers: usize::MAX, lateness: |_| 0 };

    /// Returns the reason why the structure cannot run the workload `demand`. `None` if the structure can run the
    /// workload.
    pub(crate) fn refuses(&self, demand: &Demand) -> Option<String> {
        if demand.span > self.span {
            Some(format!("cannot: {} ahead, its span is {}", demand.span, self.span))
        } else if demand.durations > self.durations {
            Some(format!("cannot: {} different delays, it takes {}", demand.durations, self.durations))
        } else if demand.timers > self.timers {
            Some(format!("not run: O(n) an insert, up to {}", self.timers))
        } else {
            None
        }
    }
}

impl Demand {
    /// Returns the demand of a workload that has `timers` timers with delays uniform in `delays`.
    pub(crate) fn uniform(timers: usize, delays: &std::ops::Range<u64>) -> Self {
        let durations = usize::try_from(delays.end - delays.start).unwrap_or(usize::MAX);
        Self { span: delays.end - 1, durations, timers }
    }
}
