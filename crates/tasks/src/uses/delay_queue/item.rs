//! An item of a queue: its id, and its form for a receiver.

use core::time::Duration;
use tourbillon::Timestamp;
use tourbillon::wheel::TimerId;

/// The id of an item in its [`DelayQueue`](super::DelayQueue). Ids of items that were received or taken out are
/// refused, until the place of such an item was used 2^32 times by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delayed(pub(super) TimerId);

/// An item that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueItem<T> {
    /// The item as it was pushed.
    pub item: T,
    /// The item's id, by which the item is found no more.
    pub id: Delayed,
    /// The moment at which the item was due.
    pub deadline: Timestamp,
    /// The time from the deadline to the look that found the item due: the look of a receiver, or the look that wakes
    /// the receivers in line. The item may have lain there since, until its receiver came; the present moment minus the
    /// deadline includes that time.
    pub lateness: Duration,
}
