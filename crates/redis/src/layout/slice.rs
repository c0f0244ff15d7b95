//! Slices: the pending timers of one lane that are due in one period.

/// The length of a period, in milliseconds: two hours.
pub(crate) const PERIOD: u64 = 7_200_000;

/// The lanes of a deployment. The timers of a namespace are in one lane, so that a claim passes over those of a
/// namespace that has its share without a look at each. Two namespaces may have the same lane, and then share its
/// share: this is *stochastic fairness queueing* (McKenney, 1990).
pub(crate) const LANES: u64 = 64;

/// The pending timers of one lane that are due in one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slice(u64);

impl Slice {
    /// The slice of a timer.
    pub(crate) fn of(namespace: &str, due: u64) -> Self {
        Self(period_of(due) * LANES + lane_of(namespace))
    }

    /// The slice with this number, as the directory of slices has it.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        core::str::from_utf8(name).ok()?.parse().ok().map(Self)
    }

    /// Its number, which stands in the directory of slices and in its name.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    pub(crate) const fn period(self) -> u64 {
        self.0 / LANES
    }
}

/// The lane of a namespace.
pub(crate) fn lane_of(namespace: &str) -> u64 {
    u64::from(crc32fast::hash(namespace.as_bytes())) % LANES
}

/// The period in which a moment is: periods are counted from the start of 1970 in UTC.
pub(crate) const fn period_of(moment: u64) -> u64 {
    moment / PERIOD
}

/// The first millisecond of a period.
pub(crate) const fn start_of(period: u64) -> u64 {
    period * PERIOD
}
