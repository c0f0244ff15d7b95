//! What a contestant cannot do, said by itself: a bench then says so too, instead of measuring something else.

/// What a structure cannot do and how late it is by design, in its own unit: ticks, or nanoseconds for a
/// [`Service`](super::Service).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The farthest ahead of its position that it can hold a timer.
    pub(crate) span: u64,
    /// How many different delays it takes, counted over its whole life.
    pub(crate) durations: usize,
    /// More pending timers than these take longer than a bench has.
    pub(crate) timers: usize,
    /// By how much a timer may be late, given how far ahead it was when it was scheduled. It never shrinks as that grows.
    pub(crate) lateness: fn(u64) -> u64,
}

/// What a workload asks of a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// The longest delay.
    pub(crate) span: u64,
    /// How many different delays occur.
    pub(crate) durations: usize,
    pub(crate) timers: usize,
}

impl Limits {
    pub(crate) const NONE: Self =
        Self { span: u64::MAX, durations: usize::MAX, timers: usize::MAX, lateness: |_| 0 };

    /// Why the structure is of no use for a workload, if so.
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
    /// Of `timers` whose delays are uniform in `delays`.
    pub(crate) fn uniform(timers: usize, delays: &std::ops::Range<u64>) -> Self {
        let durations = usize::try_from(delays.end - delays.start).unwrap_or(usize::MAX);
        Self { span: delays.end - 1, durations, timers }
    }
}
