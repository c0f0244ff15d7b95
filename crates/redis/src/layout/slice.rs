//! Slices. A *lane* is one of 64 groups of namespaces. A *period* is two hours. A *slice* is the set of the pending
//! timers of one lane that are due in one period.

/// The length of a period in milliseconds. Pending timers are stored by the period of their due moment.
pub(crate) const PERIOD: u64 = 7_200_000;

/// The number of lanes of a deployment. A lane is a group of namespaces: all timers of a namespace are in one lane.
/// A claim takes a limited number of timers from each lane, the lane's share. A claim skips a lane that has used up
/// its share, without reading the lane's timers. Namespaces in the same lane divide the lane's share: this is
/// *stochastic fairness queueing* (McKenney, 1990).
pub(crate) const LANES: u64 = 64;

/// The number of a slice: the set of the pending timers of one lane (group of namespaces) that are due in one period of
/// two hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slice(u64);

impl Slice {
    /// Returns the [`Slice`] for pending timers of this namespace that are due at the moment `due`, in milliseconds. A
    /// slice contains the timers of one lane (group of namespaces) and one period of two hours.
    pub(crate) fn of(namespace: &str, due: u64) -> Self {
        // The script `claim` computes the lane of a slice as the remainder of this number and `LANES`.
        Self(period_of(due) * LANES + lane_of(namespace))
    }

    /// Parses a member of the sorted set [`Part::Slices`](crate::layout::Part::Slices). Returns `None` if the member is
    /// not a decimal number.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        core::str::from_utf8(name).ok()?.parse().ok().map(Self)
    }

    /// Returns the number of the slice. The number is a member of the sorted set
    /// [`Part::Slices`](crate::layout::Part::Slices), and a part of the name of the slice's key.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    pub(crate) const fn period(self) -> u64 {
        self.0 / LANES
    }
}

/// Returns the lane (one of 64 groups of namespaces) to which a namespace belongs.
pub(crate) fn lane_of(namespace: &str) -> u64 {
    u64::from(crc32fast::hash(namespace.as_bytes())) % LANES
}

/// Returns the number of the period that contains a moment. Periods are counted from the start of 1970 in UTC.
pub(crate) const fn period_of(moment: u64) -> u64 {
    moment / PERIOD
}

/// Returns the first millisecond of the period with this number.
pub(crate) const fn start_of(period: u64) -> u64 {
    period * PERIOD
}
