//! Counts and times deliveries since the start of the service, for the page of metrics.

use super::by_word::ByWord;
use super::tenants::Tenants;
use crate::state::Counter;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};
use tourbillon_api::RepeatCause;
use tourbillon_durable::Times;

/// A distribution to which many threads add times.
#[derive(Debug, Default)]
pub(crate) struct SharedTimes(Mutex<Times>);

impl SharedTimes {
    pub(crate) fn record(&self, time: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).record(time);
    }

    pub(crate) fn get(&self) -> Times {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The numbers and times of deliveries since the start of the service.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The times from a timer's due moment to the start of its delivery. A delivery starts when the callback is sent or
    /// a receiver gets the timer.
    pub(crate) to_start: SharedTimes,
    /// The times from a timer's due moment until the store has recorded the end of the delivery. Only successful
    /// deliveries count.
    pub(crate) to_ack: SharedTimes,
    /// The number of ended deliveries, by their outcome.
    pub(crate) fired: ByWord<Counter, 7>,
    /// The number of timers that died, by the reason.
    pub(crate) dead: ByWord<Counter, 6>,
    /// The number of timers that are delivered at most once, and that have left the store without a delivery.
    pub(crate) lost: Counter,
    /// The number of deliveries that the service repeats although the receiver may have got them already, by the cause
    /// of the repetition.
    pub(crate) duplicates: ByWord<Counter, 5>,
    /// The durations of callbacks, by the class of the receiver's answer.
    pub(crate) callbacks: ByWord<SharedTimes, 9>,
    /// The numbers of timers and deliveries for each namespace.
    pub(crate) tenants: Tenants,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            to_start: SharedTimes::default(),
            to_ack: SharedTimes::default(),
            // All labels exist from the start, because an alarm on a rate does not see the first step of a series that
            // appears with this step.
            fired: ByWord::new(["delivered", "failed", "dead", "parked", "skipped", "given-back", "lost"]),
            dead: ByWord::new(["blocked-destination", "gone", "deliveries", "plan", "failures", "refused"]),
            lost: Counter::default(),
            duplicates: ByWord::new(["no-answer", "lease-lost", "end-lost", "given-back", "process-died"]),
            callbacks: ByWord::new([
                "2xx",
                "3xx",
                "4xx",
                "5xx",
                "timeout",
                "connection",
                "blocked",
                "unsent",
                "other",
            ]),
            tenants: Tenants::default(),
        }
    }
}

/// Returns the label under which metrics count repeated deliveries with this cause.
pub(crate) fn cause_name(cause: RepeatCause) -> &'static str {
    match cause {
        RepeatCause::NoAnswer => "no-answer",
        RepeatCause::LeaseLost => "lease-lost",
        RepeatCause::EndLost => "end-lost",
        RepeatCause::GivenBack => "given-back",
        _ => "process-died",
    }
}
