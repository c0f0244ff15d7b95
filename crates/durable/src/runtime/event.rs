//! Defines the events of a runtime: incidents, and the deliveries as an observer sees them.

use crate::handler::Verdict;
use crate::phase::Phase;
use crate::store::StoreError;
use crate::timer::{Timer, TimerId};
use core::time::Duration;
use std::sync::Arc;
use tourbillon_words::UtcMillis;

/// An event that a person may have to look at. Each is counted in [`Stats`](crate::Stats), too.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Incident {
    /// A delivery was late by more than its policy permits, and was left out.
    Skipped {
        /// The timer's id.
        id: TimerId,
        /// The timer's key.
        key: Option<Box<str>>,
        /// The moment from which the delivery was due.
        due: UtcMillis,
        /// The time by which the delivery was late.
        lateness: Duration,
    },
    /// Instants of a series had passed when its occurrence ended, and were left out.
    InstantsSkipped {
        /// The id of the occurrence that ended.
        id: TimerId,
        /// The series' key.
        key: Option<Box<str>>,
        /// The number of instants that were left out.
        count: u64,
    },
    /// Deliveries of a timer were given up.
    Died {
        /// The timer's id.
        id: TimerId,
    },
    /// A timer is due whose kind has no handler. It waits until a runtime with such a handler starts.
    UnknownKind {
        /// The timer's id.
        id: TimerId,
        /// The timer's kind.
        kind: Box<str>,
    },
    /// Records could not be read. They were set aside with their bytes.
    Quarantined {
        /// The number of records.
        count: u32,
    },
    /// The store failed. The runtime tries again.
    StoreFailed(StoreError),
    /// The store's clock has stepped by half a second or more, ahead or back. Timers follow the new time at once: after
    /// a step ahead they may be due, after a step back they are due later. Timers that were made or put off while the
    /// clock was ahead keep their moments. [`Filter::created_after`](crate::store::Filter::created_after) finds those
    /// that were made then. Schedules are computed anew after a step back.
    ClockStepped {
        /// The moment that the clock would have shown without the step.
        from: UtcMillis,
        /// The moment that the clock shows now.
        to: UtcMillis,
    },
}

/// Identifies a delivery of a timer in events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The timer's id.
    pub id: TimerId,
    /// The timer's namespace.
    pub namespace: Box<str>,
    /// The key, if the timer has one.
    pub key: Option<Box<str>>,
    /// The timer's kind.
    pub kind: Box<str>,
    /// The moment at which the timer was accepted.
    pub created: UtcMillis,
    /// The moment for which the timer was made.
    pub scheduled: UtcMillis,
    /// The moment from which this delivery was due.
    pub due: UtcMillis,
    /// The number of the attempt: one more than the number of failures before.
    pub attempt: u32,
    /// The number of the delivery, from 1 on.
    pub delivery: u32,
    /// The trace context that the creator of the timer has given.
    pub trace: Option<Box<str>>,
}

impl Attempt {
    /// Describes the delivery that a claim has begun.
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
            delivery: timer.deliveries,
            trace: timer.trace.clone(),
        }
    }
}

/// The way in which a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The handler answered. Some ends count as [`Verdict::Retry`]: a panic, a handler that does not answer in time,
    /// and a park for a reason that a handler may not use.
    Answered(Verdict),
    /// The delivery was late by more than its policy permits, and the handler was not called.
    Skipped,
    /// The kind has no handler.
    NoHandler,
    /// The timer was given back: the runtime stops, the lease ended before the handler was called, or the executor
    /// dropped the work. No attempt was counted. A timer that is delivered at most once comes back only if its handler
    /// had not been called.
    GivenBack,
}

/// An event of a delivery, for a history or a live view. See [`Builder::observe`](crate::Builder::observe).
///
/// All moments are of the store's clock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A handler is called.
    Began {
        /// The delivery to which the event belongs.
        attempt: Arc<Attempt>,
        /// The moment of the event.
        at: UtcMillis,
        /// The time from the due moment to `at`.
        lateness: Duration,
    },
    /// A delivery has ended, and the store has confirmed the end, as durable as
    /// [`end_durability`](crate::Builder::end_durability) asks for. A delivery whose handler was not called ends
    /// without having begun.
    Ended {
        /// The delivery to which the event belongs.
        attempt: Arc<Attempt>,
        /// The moment at which the store had confirmed the end, or shortly after it.
        at: UtcMillis,
        /// The way in which the delivery ended.
        ending: Ending,
        /// The time from the handler's call to its answer, or to the end of its time, by the runtime's clock.
        took: Option<Duration>,
        /// The phase of the timer after this end: done, pending again, parked, dead, or withdrawn. A timer that is
        /// delivered at most once is done, whatever its handler answers, unless it was snoozed, parked or given back.
        phase: Phase,
        /// The id of the next occurrence, if the timer is of a series that goes on.
        next: Option<TimerId>,
        /// The moment from which the next delivery is due, of the timer or of the next occurrence. It is read from the
        /// store after the end: `None` if the timer was cancelled in between.
        due: Option<UtcMillis>,
    },
    /// The lease of a delivery was lost, or its answer came after its lease. The timer is delivered again, unless
    /// another holder's delivery has ended it.
    LeaseLost {
        /// The delivery to which the event belongs.
        attempt: Arc<Attempt>,
        /// The moment of the event.
        at: UtcMillis,
    },
    /// The end of a delivery could not be stored. The timer is delivered again, once the lease has ended.
    EndLost {
        /// The delivery to which the event belongs.
        attempt: Arc<Attempt>,
        /// The moment of the event.
        at: UtcMillis,
    },
    /// A lease was ended because its holder was gone.
    Expired {
        /// The timer's id.
        id: TimerId,
        /// The moment of the event.
        at: UtcMillis,
        /// The timer's phase: pending again, or dead.
        phase: Phase,
    },
    /// An incident, as [`Builder::on_incident`](crate::Builder::on_incident) gets it.
    Incident(Incident),
}
