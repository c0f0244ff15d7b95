//! Describes a delivery for the runtime, from the claim of its timer to the decision on its end.

use crate::delivery::Settlement;
use crate::runtime::alarm::HandlerTime;
use crate::runtime::event::{Attempt, Ending, Event};
use crate::state::{Failure, Phase, Token};
use crate::store::Op;
use crate::supervise::Kept;
use crate::timer::{Timer, TimerId};
use crate::verdict::Verdict;
use core::time::Duration;
use std::sync::Arc;
use tourbillon::Timestamp;
use tourbillon_words::UtcMillis;

/// The stages in which a timer that is delivered at most once leaves the store. The module
/// [`removals`](crate::runtime::delivery_loop) has their table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The timer is delivered at least once.
    Never,
    /// The runtime has the timer removed before it calls the handler.
    BeforeTheCall,
    /// The handler has the timer removed ([`Delivery::begin`](crate::Delivery::begin)).
    ByTheHandler,
    /// The delivery wants to begin, and its removal is not at the store.
    Asked,
    /// The store was asked to remove the timer, and has not answered.
    AtStore,
    /// The store takes long. The work of the handler leaves its thread and its place, if the handler was not called.
    AtStoreForLong,
    /// The store has removed the timer, and the delivery has begun.
    Done,
}

impl Removal {
    /// Returns true if the store may have ended the lease because it was asked to remove the timer.
    pub(crate) fn is_sent(self) -> bool {
        self.is_at_store() || self == Self::Done
    }

    pub(crate) fn is_at_store(self) -> bool {
        matches!(self, Self::AtStore | Self::AtStoreForLong)
    }
}

#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) id: TimerId,
    pub(crate) token: Token,
    pub(crate) settlement: Arc<Settlement>,
    pub(crate) removal: Removal,
    /// The number of the delivery, which is unique in this runtime.
    pub(crate) number: u64,
    /// The time in which the handler must answer, from its call.
    pub(crate) timeout: Duration,
    /// The number of times at which the handler got its whole time again. A handler that begins the delivery itself
    /// gets it again at the beginning.
    pub(crate) renewed_times: u32,
    /// The engine's timer for `timeout`. `None` before the handler is called.
    pub(crate) alarm: Option<tourbillon::TimerId>,
    /// The moment at which the program's executor got the work of the delivery, by the runtime's clock. `None` if a
    /// thread of the runtime does the work.
    pub(crate) spawned: Option<Timestamp>,
    /// The moment at which this delivery became due.
    pub(crate) due: UtcMillis,
    /// The moment at which the lease of the delivery ends.
    pub(crate) until: UtcMillis,
    pub(crate) key: Option<Box<str>>,
    /// The moment at which the handler was called, by the runtime's clock. `None` before the call.
    pub(crate) begun: Option<Timestamp>,
    /// The work of the handler, if it has left its thread because the removal takes long.
    pub(crate) kept: Option<Box<Kept>>,
    /// True if the store was asked to remove the timer, and nobody knows whether it did.
    pub(crate) may_be_removed: bool,
    /// True if the handler has snoozed the timer. A snooze of the runtime gives the timer back after a pause.
    pub(crate) is_snoozed: bool,
    /// The data for this delivery's events, which the program's observer gets. `None` if the program has no observer.
    pub(crate) observed: Option<Observed>,
}

impl UnderWay {
    /// Returns the present time of the handler.
    pub(crate) fn time(&self) -> HandlerTime {
        HandlerTime { delivery: self.number, nth: self.renewed_times }
    }

    /// Notes the handler's answer, and the time that the handler took.
    pub(crate) fn note_answer(&mut self, verdict: &Verdict, took: Option<Duration>) {
        if let Some(observed) = &mut self.observed {
            (observed.verdict, observed.took) = (Some(verdict.clone()), took);
        }
        self.is_snoozed = matches!(verdict, Verdict::Snooze(_));
    }

    /// Returns the operation that reports `verdict` to the store.
    pub(crate) fn op_of(&self, verdict: Verdict) -> Op {
        let (id, token) = (self.id, self.token);
        let failure = |error: Box<str>, retry_after, is_final| {
            Op::Fail(id, token, Failure { error: shorten(error), retry_after, is_final })
        };
        match verdict {
            Verdict::Done => Op::Ack(id, token),
            Verdict::Retry { error, after } => failure(error, after, false),
            Verdict::Dead(error) => failure(error, None, true),
            Verdict::Snooze(moment) => Op::Snooze(id, token, moment),
            Verdict::Park(reason) => Op::Park(id, token, reason),
        }
    }
}

/// Cuts the text of an error to its first 500 bytes, so that a handler cannot make the timer's record long.
fn shorten(error: Box<str>) -> Box<str> {
    const MOST: usize = 500;
    if error.len() <= MOST {
        return error;
    }
    let end = (0..=MOST).rev().find(|at| error.is_char_boundary(*at)).unwrap_or(0);
    error[..end].into()
}

/// A delivery whose end is decided, with the operation that reports the end to the store.
#[derive(Debug)]
pub(crate) struct DeliveryEnd {
    pub(crate) delivery: UnderWay,
    pub(crate) op: Op,
}

/// The data of a delivery for the events that the program's observer gets.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) verdict: Option<Verdict>,
    /// The time from the call of the handler to the handler's answer, or to the moment at which its timeout passed.
    /// `None` if the handler was not called.
    pub(crate) took: Option<Duration>,
    /// The next occurrence of the series, if the store has removed the timer at the beginning of the delivery.
    pub(crate) next: Option<TimerId>,
}

impl Observed {
    pub(crate) fn new(timer: &Timer) -> Self {
        Self { attempt: Arc::new(Attempt::new(timer)), verdict: None, took: None, next: None }
    }

    /// Makes the event for the end of a delivery whose timer the store has removed.
    pub(crate) fn ended_removed(self, at: UtcMillis, ending: Ending) -> Event {
        let Self { attempt, took, next, .. } = self;
        Event::Ended { attempt, at, ending, took, phase: Phase::Done, next, due: None }
    }

    /// Returns how the delivery ended. `op` is the operation that reports the end to the store.
    pub(crate) fn ending(&self, op: &Op) -> Ending {
        match (&self.verdict, op) {
            (Some(verdict), _) => Ending::Answered(verdict.clone()),
            (None, Op::Skip(..)) => Ending::Skipped,
            // Without a verdict, a timer is parked only because the runtime has no handler for its kind.
            (None, Op::Park(..)) => Ending::NoHandler,
            (None, _) => Ending::GivenBack,
        }
    }
}
