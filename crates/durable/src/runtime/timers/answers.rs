//! Converts the outcomes of a store's operations into the answers of [`Timers`](super::Timers).

use crate::spec::Rejection;
use crate::state::{Phase, Refusal};
use crate::store::{Outcome, StoreError, StoreErrorKind};
use crate::timer::{Timer, TimerId};

/// The result of a creation: which timer is stored, and which timer it replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placed {
    /// The timer with this id is new.
    Created(TimerId),
    /// A timer with this id was already stored by an earlier call.
    Repeated(TimerId),
    /// An old timer already has the key. The old timer stays, as [`IfPresent::Keep`](crate::store::IfPresent::Keep)
    /// demands, and the new timer is not stored.
    Kept {
        /// The id of the timer that keeps the key.
        id: TimerId,
        /// The phase of the timer that keeps the key. In [`Phase::Leased`], its delivery has begun, and may use data
        /// from before this call. To get a later delivery, the caller repeats the call with
        /// [`IfPresent::Replace`](crate::store::IfPresent::Replace).
        was: Phase,
    },
    /// The new timer replaced an old timer that had its key.
    Replaced {
        /// The id of the new timer.
        new: TimerId,
        /// The id of the old timer that was replaced.
        old: TimerId,
        /// The phase that the replaced timer had. In [`Phase::Leased`], a delivery of the replaced timer has begun, and
        /// may still succeed.
        was: Phase,
    },
}

impl Placed {
    /// Returns the id of the timer that is stored after the call: the new timer, or the timer that stays.
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

/// The result of a call that cancels a timer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cancelled {
    /// The timer was removed, and no delivery of it begins any more. The value is the removed timer.
    Cancelled(Box<Timer>),
    /// A delivery has begun, and goes on. No further delivery follows, even if this delivery fails or its process dies.
    InFlight,
    /// The store has no timer with this key or id.
    NotFound,
}

/// The result of a change to a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// The timer was changed.
    Changed,
    /// The change is not possible in this phase of the timer.
    Refused(Phase),
    /// The timer is dead, and its key now belongs to the timer with this id.
    KeyExists(TimerId),
    /// The store has no timer with this key or id.
    NotFound,
}

/// The progress of a call that cancels all timers with a label ([`cancel_labelled`](crate::Timers::cancel_labelled)).
/// The call reports its progress after each batch of timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of timers cancelled so far, including timers whose delivery had begun.
    pub cancelled: u64,
    /// The number of cancelled timers whose delivery had already begun. A delivery that has begun goes on.
    pub in_flight: u64,
}

pub(super) fn placed(outcome: &Outcome) -> Result<Placed, Rejection> {
    match *outcome {
        Outcome::Created(id) => Ok(Placed::Created(id)),
        Outcome::Repeated(id) => Ok(Placed::Repeated(id)),
        Outcome::Kept { id, was } => Ok(Placed::Kept { id, was }),
        Outcome::Replaced { new, old, was } => Ok(Placed::Replaced { new, old, was }),
        Outcome::KeyExists { holder, .. } => Err(Rejection::KeyExists(holder)),
        Outcome::NotFound => Err(Rejection::NotFound),
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
