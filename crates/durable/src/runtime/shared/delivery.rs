//! Describes a delivery for the runtime, from the claim of its timer to the decision on its end.

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
    /// The timer as it was before its claim, if it is delivered at most once. The claim has removed such a timer from
    /// the store, so normally the end of its delivery is not reported to the store. The exception is a timer that must
    /// be stored again, for example after a snooze. `None` for a timer that is delivered at least once.
    pub(crate) unstored: Option<Box<Timer>>,
    /// The number of the delivery, which is unique in this runtime.
    pub(crate) number: u64,
    /// The time in which the handler must answer, from its call.
    pub(crate) timeout: Duration,
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
    /// True if the handler has snoozed the timer. A snooze of the runtime gives the timer back after a pause.
    pub(crate) is_snoozed: bool,
    /// The data for this delivery's events, which the program's observer gets. `None` if the program has no observer.
    pub(crate) observed: Option<Observed>,
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
}

impl Observed {
    pub(crate) fn new(timer: &Timer) -> Self {
        Self { attempt: Arc::new(Attempt::new(timer)), verdict: None, took: None }
    }

    /// Returns how the delivery ended. `op` is the operation that reports the end to the store.
    pub(crate) fn ending(&self, op: &Op) -> Ending {
        match (&self.verdict, op) {
            (Some(verdict), _) => Ending::Answered(verdict.clone()),
            (None, Op::Skip(..)) => Ending::Skipped,
            // Without a verdict, a timer is parked only because the runtime has no handler for its kind.
            (None, Op::Park(..)) => Ending::NoHandler,
            (None, Op::Return(timer, _)) if timer.state != crate::state::State::Pending => Ending::NoHandler,
            (None, _) => Ending::GivenBack,
        }
    }
}
