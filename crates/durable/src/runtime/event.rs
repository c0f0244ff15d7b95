//! Defines the incidents and the events that a runtime passes to the program.

use crate::phase::Phase;
use crate::store::StoreError;
use crate::timer::{Payload, Timer, TimerId};
use crate::verdict::Verdict;
use core::time::Duration;
use std::sync::Arc;
use tourbillon_words::UtcMillis;

/// An event that may need a person's attention. [`Stats`](crate::Stats) counts each incident, too.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Incident {
    /// A delivery was late by more than its policy permits, so the handler was not called.
    Skipped {
        /// The timer's id.
        id: TimerId,
        /// The timer's key. `None` if the timer has no key.
        key: Option<Box<str>>,
        /// The timer's payload, which no handler has got.
        payload: Payload,
        /// The moment at which the skipped delivery became due.
        due: UtcMillis,
        /// The time by which the skipped delivery was late.
        lateness: Duration,
    },
    /// Occurrences of a series (a timer that repeats) were left out. Their instants, the moments for which they were
    /// scheduled, had already passed when the previous occurrence ended.
    InstantsSkipped {
        /// The id of the occurrence that ended.
        id: TimerId,
        /// The series' key. `None` if the series has no key.
        key: Option<Box<str>>,
        /// The number of occurrences that were left out.
        count: u64,
    },
    /// The timer is dead, and is not delivered again. [`DeathReason`](crate::state::DeathReason) lists the possible
    /// reasons.
    Died {
        /// The timer's id.
        id: TimerId,
    },
    /// A timer is due, and the runtime has no handler for its kind. The timer waits until a runtime with such a handler
    /// starts.
    UnknownKind {
        /// The timer's id.
        id: TimerId,
        /// The timer's kind.
        kind: Box<str>,
    },
    /// The records of some timers could not be read, for example because they were damaged. The store keeps the bytes
    /// of these records in a separate place, and does not deliver the timers.
    Quarantined {
        /// The number of records that could not be read.
        count: u32,
    },
    /// A call at the store failed. The runtime tries again.
    StoreFailed(StoreError),
    /// The store's clock has stepped by half a second or more, ahead or back. Timers follow the new time at once: a
    /// step ahead makes timers due earlier, and a step back makes them due later. Timers that were created or snoozed
    /// while the clock was ahead keep their due moments. [`Filter::created_after`](crate::store::Filter::created_after)
    /// finds timers that were created while the clock was ahead. The next instants of schedules are recomputed after a
    /// step back.
    ClockStepped {
        /// The moment that the store's clock would show if it had not stepped.
        from: UtcMillis,
        /// The moment that the store's clock shows after its step.
        to: UtcMillis,
    },
}

/// Describes the timer and the delivery to which an event belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The timer's id.
    pub id: TimerId,
    /// The timer's namespace.
    pub namespace: Box<str>,
    /// The timer's key. `None` if the timer has no key.
    pub key: Option<Box<str>>,
    /// The timer's kind.
    pub kind: Box<str>,
    /// The moment at which the store accepted the timer.
    pub created: UtcMillis,
    /// The moment for which the timer is scheduled. Retries and snoozes do not change it.
    pub scheduled: UtcMillis,
    /// The moment at which this delivery became due.
    pub due: UtcMillis,
    /// The number of the attempt: the number of earlier failures, plus one.
    pub attempt: u32,
    /// The number of this delivery among the timer's deliveries, counted from 1.
    pub delivery: u32,
    /// The trace context that the timer's creator has given. `None` if the creator has given no trace context.
    pub trace: Option<Box<str>>,
}

impl Attempt {
    /// Describes the delivery of a timer that a claim has just taken.
    pub(crate) fn new(timer: &Timer) -> Self {
        Self {
            id: timer.id,
            namespace: timer.namespace.clone(),
            key: timer.key.clone(),
            kind: timer.kind.clone(),
            created: timer.created,
            scheduled: timer.scheduled,
            due: timer.due,
            attempt: timer.failures.saturating_add(1),
            // The claim has already counted this delivery. A failure is counted only when it is reported.
            delivery: timer.deliveries,
            trace: timer.trace.clone(),
        }
    }
}

/// The way in which a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The handler answered with this verdict. Three cases count as [`Verdict::Retry`]: a panic of the handler, a
    /// handler that does not answer in time, and a [`Verdict::Park`] whose reason is too long or is reserved for the
    /// runtime.
    Answered(Verdict),
    /// The delivery was late by more than its policy permits, so the handler was not called.
    Skipped,
    /// The runtime has no handler for the timer's kind.
    NoHandler,
    /// The timer was given back to the store, and no attempt was counted. Either the runtime stops, or the lease ended
    /// before the handler was called, or the executor dropped the work, or the store could not remove a timer that is
    /// delivered at most once. A timer that is delivered at most once is lost
    /// instead if its delivery had begun; its phase is then done. If such a timer was cancelled or replaced just before
    /// its delivery would have begun, its phase is withdrawn.
    GivenBack,
}

/// An event of a delivery, for a history or a live view. See [`Builder::observe`](crate::Builder::observe).
///
/// All moments are by the store's clock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The handler of a delivery is called.
    Began {
        /// The delivery to which the event belongs.
        attempt: Arc<Attempt>,
        /// The moment at which the handler is called.
        at: UtcMillis,
        /// The time from the due moment of the delivery to `at`.
        lateness: Duration,
    },
    /// A delivery has ended, and the store has confirmed its result with the durability that
    /// [`end_durability`](crate::Builder::end_durability) demands. If a timer is delivered at most once, the store has
    /// removed it at the beginning of the delivery. So the result of such a delivery is not stored, and this event does
    /// not wait for the store. If the handler was not called, no `Began` precedes this event.
    Ended {
        /// The delivery to which the event belongs.
        attempt: Arc<Attempt>,
        /// The moment at which the runtime received the store's confirmation of the delivery's result. If the delivery
        /// had no result to store, the moment at which it ended.
        at: UtcMillis,
        /// The way in which the delivery ended.
        ending: Ending,
        /// The time from the handler's call to its answer, or to its timeout. The runtime's clock measures this time.
        /// `None` if the handler was not called.
        took: Option<Duration>,
        /// The phase of the timer after this delivery: done, pending again, parked, dead, or withdrawn. A timer that is
        /// delivered at most once is done once its delivery has begun, whatever its handler answers.
        phase: Phase,
        /// The id of the next occurrence of the timer's series. `None` if no further occurrence follows, or if the
        /// timer belongs to no series.
        next: Option<TimerId>,
        /// The moment at which the timer's next delivery, or the next occurrence of its series, is due. The runtime
        /// reads this moment from the store after the delivery has ended. `None` if no delivery follows, if the timer
        /// was cancelled before the read, or if the timer is delivered at most once and its delivery had begun.
        due: Option<UtcMillis>,
    },
    /// The lease of a delivery was lost, or the handler answered after the lease had ended. Normally the timer is
    /// delivered again. There is no further delivery if another process has already ended the timer.
    LeaseLost {
        /// The delivery to which the event belongs.
        attempt: Arc<Attempt>,
        /// The moment at which the runtime noticed that the lease was lost, or had ended.
        at: UtcMillis,
        /// True if the timer is delivered at most once, and the store was asked to remove it without a known outcome.
        /// If the store no longer has the timer, it is lost, unless another process has delivered or cancelled it.
        may_be_removed: bool,
    },
    /// The result of a delivery could not be stored, because calls at the store failed. Normally the timer is
    /// delivered again once the lease has ended. A timer that is delivered at most once may be lost: if the result is
    /// its removal, nobody knows whether the store has removed it.
    EndLost {
        /// The delivery to which the event belongs.
        attempt: Arc<Attempt>,
        /// The moment at which the runtime gave up its attempts to store the result.
        at: UtcMillis,
        /// True if the timer is delivered at most once, and the store was asked to remove it without a known outcome.
        /// If the store no longer has the timer, it is lost, unless another process has delivered or cancelled it.
        may_be_removed: bool,
    },
    /// A lease was ended because its holder was gone, for example after the process had died. There is no such event
    /// for a timer that is delivered at most once and is pending again: its delivery had not begun.
    Expired {
        /// The id of the timer whose lease was ended.
        id: TimerId,
        /// The moment at which the runtime learned that the lease had ended.
        at: UtcMillis,
        /// The timer's phase after its lease was ended: pending again, or dead.
        phase: Phase,
    },
    /// An incident has happened. [`Builder::on_incident`](crate::Builder::on_incident) gets the same value.
    Incident(Incident),
}
