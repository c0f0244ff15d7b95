//! A delivery under way, on the runtime's side.

use crate::delivery::Settlement;
use crate::handler::Verdict;
use crate::runtime::event::{Attempt, Ending};
use crate::state::Token;
use crate::store::Op;
use crate::timer::{Timer, TimerId};
use core::time::Duration;
use std::sync::Arc;
use tourbillon::Timestamp;
use tourbillon_words::UtcMillis;

#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) id: TimerId,
    pub(crate) token: Token,
    pub(crate) settlement: Arc<Settlement>,
    /// The timer as it was before the claim, if the store has forgotten it, so that no end is reported.
    pub(crate) unstored: Option<Box<Timer>>,
    /// The number of the delivery in this runtime.
    pub(crate) number: u64,
    pub(crate) timeout: Option<tourbillon::TimerId>,
    /// The due moment.
    pub(crate) due: UtcMillis,
    /// The end of the lease.
    pub(crate) until: UtcMillis,
    pub(crate) key: Option<Box<str>>,
    /// The moment at which the handler was called, by the runtime's clock.
    pub(crate) begun: Option<Timestamp>,
    /// Whether the handler has snoozed a timer that the store has forgotten.
    pub(crate) is_snoozed: bool,
    /// The delivery for an observer, if there is one.
    pub(crate) observed: Option<Observed>,
}

/// The end of a delivery, and the operation that tells it to the store.
#[derive(Debug)]
pub(crate) struct DeliveryEnd {
    pub(crate) delivery: UnderWay,
    pub(crate) op: Op,
}

/// The part of a delivery that an observer's events show.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) verdict: Option<Verdict>,
    /// The time from the handler's call to its verdict.
    pub(crate) took: Option<Duration>,
}

impl Observed {
    pub(crate) fn new(timer: &Timer) -> Self {
        Self { attempt: Arc::new(Attempt::new(timer)), verdict: None, took: None }
    }

    /// The way in which the delivery ends by this operation.
    pub(crate) fn ending(&self, op: &Op) -> Ending {
        match (&self.verdict, op) {
            (Some(verdict), _) => Ending::Answered(verdict.clone()),
            (None, Op::Skip(..)) => Ending::Skipped,
            (None, Op::Park(..)) => Ending::NoHandler,
            (None, Op::Return(timer, _)) if timer.state != crate::state::State::Pending => Ending::NoHandler,
            (None, _) => Ending::GivenBack,
        }
    }
}
