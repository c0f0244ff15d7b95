//! A timer that fires, as its handler gets it.

use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use core::time::Duration;

/// A timer that fires, as the handler of a layer gets it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Due<'a, T> {
    /// The timer's id. The id of a one-shot is stale once the handler has returned.
    pub id: TimerId,
    /// The moment for which the timer was armed.
    pub deadline: Timestamp,
    /// How long after the deadline the handler began.
    pub lateness: Duration,
    /// The payload that was scheduled with the timer.
    pub payload: Payload<'a, T>,
}

/// The payload of a timer that fires.
#[derive(Debug)]
pub enum Payload<'a, T> {
    /// The payload itself: the timer has ended.
    Taken(T),
    /// A reference to the payload, which stays with its owned timer.
    Kept(&'a T),
}
