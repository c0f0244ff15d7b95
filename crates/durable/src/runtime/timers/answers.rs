//! Converts the outcomes of a store's operations to the answers of [`Timers`](super::Timers).

use crate::spec::Rejection;
use crate::state::{Phase, Refusal};
use crate::store::{Outcome, StoreError, StoreErrorKind};
use crate::timer::{Timer, TimerId};

/// Tells which timer is stored after a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placed {
    /// The timer is new.
    Created(TimerId),
    /// The timer was stored by an earlier call with the same id.
    Repeated(TimerId),
    /// The timer that has the key stays, by [`IfPresent::Keep`](crate::store::IfPresent::Keep), and the new timer is
    /// not stored.
    Kept {
        /// The id of the timer that stays.
        id: TimerId,
        /// The phase of the timer that stays. If it is [`Phase::Leased`], its delivery has begun, and may have missed
        /// the reason of the new timer. To get a delivery after this call, the caller makes the call again with
        /// [`IfPresent::Replace`](crate::store::IfPresent::Replace).
        was: Phase,
    },
    /// The timer replaced another timer.
    Replaced {
        /// The id of the new timer.
        new: TimerId,
        /// The id of the old timer.
        old: TimerId,
        /// The old timer's phase. If it is [`Phase::Leased`], a delivery of the old timer has begun and may still
        /// succeed.
        was: Phase,
    },
}

impl Placed {
    /// Returns the id of the timer that is stored now.
    ///
    /// ```
    /// use tourbillon_durable::store::IfPresent;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// let first = timers.schedule_bytes_blocking("mail", mail("a"))?;
    /// let kept = timers.schedule_bytes_blocking("mail", mail("a").if_present(IfPresent::Keep))?;
    /// assert_eq!(kept.id(), first.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn id(self) -> TimerId {
        match self {
            Self::Created(id)
            | Self::Repeated(id)
            | Self::Kept { id, .. }
            | Self::Replaced { new: id, .. } => id,
        }
    }
}

/// The effect of a cancel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cancelled {
    /// No delivery of the timer begins any more. The record is handed back.
    Cancelled(Box<Timer>),
    /// A delivery has begun. No other delivery follows, even if it fails or its process has died.
    InFlight,
    /// No such timer is stored.
    NotFound,
}

/// The effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// The timer was changed.
    Changed,
    /// The timer is in a phase that does not permit the change.
    Refused(Phase),
    /// The timer is dead, and its key is another timer's by now: this timer's.
    KeyExists(TimerId),
    /// No such timer is stored.
    NotFound,
}

/// Counts the timers that a cancel by label has cancelled so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of timers that were cancelled.
    pub cancelled: u64,
    /// The number of these timers of which a delivery had begun.
    pub in_flight: u64,
}

pub(super) fn placed(outcome: &Outcome) -> Result<Placed, Rejection> {
    match *outcome {
        Outcome::Created(id) => Ok(Placed::Created(id)),
        Outcome::Repeated(id) => Ok(Placed::Repeated(id)),
        Outcome::Kept { id, was } => Ok(Placed::Kept { id, was }),
        Outcome::Replaced { new, old, was } => Ok(Placed::Replaced { new, old, was }),
        Outcome::KeyExists { holder, .. } => Err(Rejection::KeyExists(holder)),
        _ => Err(Rejection::Store(unexpected(outcome))),
    }
}

pub(super) fn cancelled(outcome: Outcome) -> Result<Cancelled, StoreError> {
    match outcome {
        Outcome::Cancelled(timer) => Ok(Cancelled::Cancelled(timer)),
        Outcome::InFlight(_) => Ok(Cancelled::InFlight),
        Outcome::NotFound => Ok(Cancelled::NotFound),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn changed(outcome: &Outcome) -> Result<Changed, StoreError> {
    match *outcome {
        Outcome::Changed(_) => Ok(Changed::Changed),
        Outcome::NotFound => Ok(Changed::NotFound),
        Outcome::KeyExists { holder, .. } => Ok(Changed::KeyExists(holder)),
        Outcome::Refused(Refusal::State(phase)) => Ok(Changed::Refused(phase)),
        _ => Err(unexpected(outcome)),
    }
}

pub(super) fn unexpected(outcome: &Outcome) -> StoreError {
    StoreError::new(
        StoreErrorKind::Corrupt,
        format!("the store gave an outcome of another operation: {outcome:?}"),
    )
}
