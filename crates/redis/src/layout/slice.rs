//! Slices: a slice holds the pending timers of one lane, a group of namespaces, that are due in one period.

/// The length of a period in milliseconds: two hours. Pending timers are stored by the period of their due moment.
pub(crate) const PERIOD: u64 = 7_200_000;

/// The number of lanes (groups of namespaces) of a deployment. The timers of a namespace are in one lane. So a claim
/// can pass over a namespace that has used up its share, without reading the namespace's timers. Two namespaces in the
/// same lane divide the lane's share: this is *stochastic fairness queueing* (McKenney, 1990).
pub(crate) const LANES: u64 = 64;

/// Names the set of pending timers of one lane that are due in one period of two hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slice(u64);

impl Slice {
    /// Returns the slice (set of pending timers) to which a timer with this namespace and due moment belongs.
    pub(crate) fn of(namespace: &str, due: u64) -> Self {
        Self(period_of(due) * LANES + lane_of(namespace))
    }

    /// Parses the number of a slice from a member of the set of slices. A slice is a set of pending timers.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        core::str::from_utf8(name).ok()?.parse().ok().map(Self)
    }

    /// Returns the number of the slice (a set of pending timers). The number is a member of the set of slices, and a
    /// part of the name of the slice's key.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    pub(crate) const fn period(self) -> u64 {
        self.0 / LANES
    }
}

/// Returns the lane to which a namespace belongs.
pub(crate) fn lane_of(namespace: &str) -> u64 {
    u64::from(crc32fast::hash(namespace.as_bytes())) % LANES
}

/// Returns the number of the period in which a moment lies. Periods are counted from the start of 1970 in UTC.
pub(crate) const fn period_of(moment: u64) -> u64 {
    moment / PERIOD
}

/// Returns the first millisecond of the period with this number.
pub(crate) const fn start_of(period: u64) -> u64 {
    period * PERIOD
}
