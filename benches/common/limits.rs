//! The limits of a contestant, as it states them: a bench reports them, instead of measuring another thing.

/// The limits of a structure and its lateness by design, in its own unit: ticks, or nanoseconds for a
/// [`Service`](super::Service).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The farthest that a timer may be ahead of the position.
    pub(crate) span: u64,
    /// The number of different delays that the structure can hold, counted over its whole life.
    pub(crate) durations: usize,
    /// The most pending timers: more would take longer than a bench has.
    pub(crate) timers: usize,
    /// The lateness of a timer at most, given how far ahead it was when it was scheduled. It never shrinks as that
    /// grows.
    pub(crate) lateness: fn(u64) -> u64,
}

/// The demands of a workload on a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// The longest delay.
    pub(crate) span: u64,
    /// The number of different delays.
    pub(crate) durations: usize,
    pub(crate) timers: usize,
}

impl Limits {
    pub(crate) const NONE: Self =
        Self { span: u64::MAX, durations: usize::MAX, timers: usize::MAX, lateness: |_| 0 };

    /// The reason why the structure cannot run a workload, if there is one.
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
    /// The demand of `timers` with delays that are uniform in `delays`.
    pub(crate) fn uniform(timers: usize, delays: &std::ops::Range<u64>) -> Self {
        let durations = usize::try_from(delays.end - delays.start).unwrap_or(usize::MAX);
        Self { span: delays.end - 1, durations, timers }
    }
}
