//! Chooses the engine on which a limit runs.

use std::time::Duration;
#[cfg(feature = "http-body")]
use tourbillon::future::Sleep;
use tourbillon::future::{self, Wakeup};
use tourbillon::{Handle, Timestamp};

/// The engine on which a limit runs: the process's own engine, or an engine that the caller chose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    given: Option<Handle<Wakeup>>,
}

impl Timers {
    pub(crate) fn on(engine: &Handle<Wakeup>) -> Self {
        Self { given: Some(engine.clone()) }
    }

    /// Returns the moment `delay` from now, by the engine's clock. For a delay of zero, returns a moment that has
    /// certainly passed.
    pub(crate) fn deadline(&self, delay: Duration) -> Timestamp {
        if delay.is_zero() {
            // The clock may be ahead of the true time by microseconds. If its reading were the deadline, the future
            // would wait for a tick.
            return Timestamp::ZERO;
        }
        self.given.as_ref().map_or_else(future::now, Handle::now) + delay
    }

    pub(crate) fn timeout_at<F: Future>(&self, deadline: Timestamp, future: F) -> future::Timeout<F> {
        match &self.given {
            None => future::timeout_at(deadline, future),
            Some(engine) => engine.timeout_at(deadline, future),
        }
    }

    #[cfg(feature = "http-body")]
    pub(crate) fn sleep_until(&self, deadline: Timestamp) -> Sleep {
        match &self.given {
            None => future::sleep_until(deadline),
            Some(engine) => engine.sleep_until(deadline),
        }
    }
}
