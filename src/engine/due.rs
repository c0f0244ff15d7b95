//! The form in which a firing timer is passed to its handler.

use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use crate::lockfree::slab::Slots;
use crate::system::clock::EngineClock;
use core::fmt;
use core::time::Duration;

/// A timer that fires: the argument of the handler of a layer, code that builds on `extend`.
#[non_exhaustive]
pub struct Due<'a, T> {
    /// The timer's id.
    pub id: DueId<'a>,
    /// The moment for which the timer was armed.
    pub deadline: Timestamp,
    /// The payload of the timer: the payload itself for a one-shot, a reference for an owned timer.
    pub payload: Payload<'a, T>,
    pub(crate) clock: &'a EngineClock,
}

impl<'a, T> Due<'a, T> {
    #[inline(always)]
    pub(super) fn new(
        id: DueId<'a>,
        deadline: Timestamp,
        payload: Payload<'a, T>,
        clock: &'a EngineClock,
    ) -> Self {
        Self { id, deadline, payload, clock }
    }

    /// Returns the time that has passed since the deadline. Reads the engine's clock, so the time counts to this call.
    #[must_use]
    pub fn lateness(&self) -> Duration {
        self.clock.now() - self.deadline
    }
}

impl<T: fmt::Debug> fmt::Debug for Due<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Due")
            .field("id", &self.id)
            .field("deadline", &self.deadline)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// The id of a timer that fires. For an owned timer, [`get`](Self::get) reads memory that the firing does not need
/// otherwise. A handler that does not call `get` saves the read.
#[derive(Clone, Copy)]
pub struct DueId<'a>(Id<'a>);

#[derive(Clone, Copy)]
enum Id<'a> {
    OneShot(TimerId),
    Owned(u32, &'a Slots),
}

impl<'a> DueId<'a> {
    #[inline(always)]
    pub(super) fn one_shot(id: TimerId) -> Self {
        Self(Id::OneShot(id))
    }

    /// Makes the id of the owned timer in slot `index`, whose handler runs.
    #[inline(always)]
    pub(super) fn owned(index: u32, slots: &'a Slots) -> Self {
        Self(Id::Owned(index, slots))
    }

    /// Returns the id. The id of a one-shot is stale once the handler has returned.
    #[must_use]
    pub fn get(self) -> TimerId {
        match self.0 {
            Id::OneShot(id) => id,
            Id::Owned(index, slots) => slots.id_of_owned(index),
        }
    }

    /// Returns the slot of an owned timer; `None` for a one-shot.
    #[inline(always)]
    pub(crate) fn owned_slot(self) -> Option<u32> {
        match self.0 {
            Id::OneShot(_) => None,
            Id::Owned(index, _) => Some(index),
        }
    }
}

impl fmt::Debug for DueId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The payload of a timer that fires.
#[derive(Debug)]
pub enum Payload<'a, T> {
    /// The payload itself. The timer was a one-shot, which has ended.
    Taken(T),
    /// A reference to the payload, which the owned timer keeps.
    Kept(&'a T),
}
