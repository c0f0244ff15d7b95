//! A delivery under way, on the runtime's side.

use super::event::{Attempt, Ending};
use crate::delivery::Settlement;
use crate::handler::Verdict;
use crate::state::Token;
use crate::store::Op;
use crate::timer::{Timer, TimerId};
use crate::utc::UtcMillis;
use core::time::Duration;
use std::sync::Arc;
use tourbillon::Timestamp;

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
    /// The delivery for an observer, if there is one, and what its handler has answered after how long.
    pub(crate) observed: Option<Observed>,
}

#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) of: Arc<Attempt>,
    pub(crate) answer: Option<Verdict>,
    pub(crate) took: Option<Duration>,
}

impl Observed {
    pub(crate) fn new(timer: &Timer) -> Self {
        Self { of: Arc::new(Attempt::of(timer)), answer: None, took: None }
    }

    /// The way in which the delivery ends by this operation.
    pub(crate) fn ending(&self, op: &Op) -> Ending {
        match (&self.answer, op) {
            (Some(answer), _) => Ending::Answered(answer.clone()),
            (None, Op::Skip(..)) => Ending::Skipped,
            (None, Op::Park(..)) => Ending::NoHandler,
            (None, Op::Return(timer, _)) if timer.state != crate::state::State::Pending => Ending::NoHandler,
            (None, _) => Ending::GivenBack,
        }
    }
}
