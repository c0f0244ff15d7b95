//! The form in which a firing timer is passed to its handler.

use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use crate::lockfree::slab::Slots;
use crate::system::clock::EngineClock;
use core::fmt;
use core::time::Duration;

/// A timer that fires: the argument of the handler of a layer, code that builds on `extend`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Due<'a, T> {
    /// Describes which timer fires.
    pub moment: Moment<'a>,
    /// The payload of the timer: the payload itself for a one-shot, a reference for an owned timer.
    pub payload: Payload<'a, T>,
}

/// Describes which timer fires: its id, its deadline and its lateness.
///
/// The id of an owned timer and the lateness are read when they are asked for. A handler that does not ask saves the
/// reads.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Moment<'a> {
    id: Id<'a>,
    /// The moment for which the timer was armed.
    pub deadline: Timestamp,
    clock: &'a EngineClock,
}

#[derive(Clone, Copy)]
enum Id<'a> {
    OneShot(TimerId),
    Owned(u32, &'a Slots),
}

impl<'a> Moment<'a> {
    #[inline(always)]
    pub(super) fn of_one_shot(id: TimerId, deadline: Timestamp, clock: &'a EngineClock) -> Self {
        Self { id: Id::OneShot(id), deadline, clock }
    }

    /// Describes the owned timer in slot `index`, whose handler runs.
    #[inline(always)]
    pub(super) fn of_owned(
        index: u32,
        deadline: Timestamp,
        slots: &'a Slots,
        clock: &'a EngineClock,
    ) -> Self {
        Self { id: Id::Owned(index, slots), deadline, clock }
    }

    /// Returns the timer's id. The id of a one-shot is stale once the handler has returned.
    #[must_use]
    pub fn id(&self) -> TimerId {
        match self.id {
            Id::OneShot(id) => id,
            Id::Owned(index, slots) => slots.id_of_owned(index),
        }
    }

    /// Returns the present moment on the engine's clock, or the deadline if the clock has stepped back before it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now().max(self.deadline)
    }

    /// Returns the time that has passed since the deadline, by a reading of the engine's clock: at the start of the
    /// handler, how late the timer fires.
    #[must_use]
    pub fn lateness(&self) -> Duration {
        self.now() - self.deadline
    }

    /// Returns the slot of an owned timer; `None` for a one-shot.
    #[inline(always)]
    pub(crate) fn owned_slot(&self) -> Option<u32> {
        match self.id {
            Id::OneShot(_) => None,
            Id::Owned(index, _) => Some(index),
        }
    }
}

impl fmt::Debug for Moment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment")
            .field("id", &self.id())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
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
