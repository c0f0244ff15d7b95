//! Chooses the engine on which a limit runs.

use std::time::Duration;
use tourbillon::future::{self, Sleep, Wakeup};
use tourbillon::{Handle, Timestamp};

/// The engine on which a limit runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    /// The engine that the caller chose. `None` stands for the engine that is current where the limit is used, as with
    /// the functions of [`tourbillon::future`].
    given: Option<Handle<Wakeup>>,
}

impl Timers {
    pub(crate) fn on(engine: &Handle<Wakeup>) -> Self {
        Self { given: Some(engine.clone()) }
    }

    /// Returns the present moment by the engine's clock, which may be ahead of the true time by microseconds.
    pub(crate) fn now(&self) -> Timestamp {
        self.given.as_ref().map_or_else(future::now, Handle::now)
    }

    /// Returns the moment `delay` from now, by the engine's clock. For a delay of zero, returns a moment that has
    /// certainly passed.
    pub(crate) fn deadline(&self, delay: Duration) -> Timestamp {
        if delay.is_zero() {
            // The clock may be ahead of the true time by microseconds. If its reading were the deadline, the future
            // would wait for a tick.
            return Timestamp::ZERO;
        }
        self.now() + delay
    }

    pub(crate) fn timeout_at<F: Future>(&self, deadline: Timestamp, future: F) -> future::Timeout<F> {
        match &self.given {
            None => future::timeout_at(deadline, future),
            Some(engine) => engine.timeout_at(deadline, future),
        }
    }

    pub(crate) fn sleep_until(&self, deadline: Timestamp) -> Sleep {
        match &self.given {
            None => future::sleep_until(deadline),
            Some(engine) => engine.sleep_until(deadline),
        }
    }
}
