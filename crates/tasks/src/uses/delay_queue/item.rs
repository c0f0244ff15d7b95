//! An item of a delay queue, as a receiver gets it, and its id.

use core::time::Duration;
use tourbillon::Timestamp;
use tourbillon::wheel::TimerId;

/// The id of an item in its [`DelayQueue`](super::DelayQueue). The id becomes stale when the item is received or
/// removed. A stale id is refused until its memory slot has been used 2^32 times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delayed(pub(super) TimerId);

/// An item that was received from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueItem<T> {
    /// The item itself, unchanged from the push.
    pub item: T,
    /// The item's id, which is stale now.
    pub id: Delayed,
    /// The moment at which the item became due.
    pub deadline: Timestamp,
    /// The time between the deadline and the moment at which a receiver or the queue's timer found the item due. The
    /// time from then until the item is received is not included.
    pub lateness: Duration,
}
