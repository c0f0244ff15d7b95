//! Sets the engine's timers of a runtime: the alarm at the next due moment, the renewal of leases, and the timeouts of
//! handlers.
//!
//! The engine's clock does not step, and the store counts by the time of day. So the alarm is armed with the time that
//! is left. The store announces each step of its clock, after which the loop claims and arms the alarm anew. The alarm
//! is a hint: the store decides which timers are due.

use core::time::Duration;
use std::sync::Arc;
use tourbillon::{BuildError, Builder, Clock, Engine, Fired, Timer, TimerId, Timestamp};

/// Tells the runtime which of the engine's timers has fired.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    /// Timers may be due.
    Look,
    /// Leases must be renewed.
    Renew,
    /// The time of the delivery with this number is over.
    Timeout(u64),
}

/// The engine of one runtime, with the timers for its alarms.
#[derive(Debug)]
pub(crate) struct Alarms {
    look: Timer<Signal>,
    renew: Timer<Signal>,
    engine: Engine<Signal>,
}

/// Passes the calls of a clock on to a shared clock.
struct SharedClock(Arc<dyn Clock>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn true_now(&self) -> Timestamp {
        self.0.true_now()
    }

    fn report(&self) -> tourbillon::ClockReport {
        self.0.report()
    }

    fn sleep_for(&self, now: Timestamp, deadline: Timestamp) -> Option<Duration> {
        self.0.sleep_for(now, deadline)
    }

    fn subscribe(&self, on_step: tourbillon::OnStep) {
        self.0.subscribe(on_step);
    }
}

impl Alarms {
    /// Starts the engine, whose timers call `on_signal`.
    pub(crate) fn start(
        clock: Arc<dyn Clock>,
        on_signal: impl Fn(Signal) + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        let builder = Builder::new().clock(SharedClock(clock)).shards(1).unpinned().inline();
        let engine = builder.start(move |fired: Fired<'_, Signal>| on_signal(fired.payload))?;
        let timer = |signal| engine.handle().timer(signal).map_err(|_| BuildError::Forked);
        Ok(Self { look: timer(Signal::Look)?, renew: timer(Signal::Renew)?, engine })
    }

    // In this type an arming fails only if the process is the child of a fork, where nothing fires.

    /// Sets the alarm for the next due moment, in place of an earlier setting.
    pub(crate) fn look_in(&self, rest: Duration) {
        let _armed = self.look.arm(rest);
    }

    /// Sets the alarm for the next renewal.
    pub(crate) fn renew_in(&self, rest: Duration) {
        let _armed = self.renew.arm(rest);
    }

    /// Sets the timeout of a delivery. Returns its id, by which it can be cancelled.
    pub(crate) fn timeout_in(&self, number: u64, rest: Duration) -> Option<TimerId> {
        self.engine.handle().schedule(rest, Signal::Timeout(number)).ok()
    }

    pub(crate) fn cancel(&self, timeout: Option<TimerId>) {
        if let Some(timeout) = timeout {
            let _gone = self.engine.handle().cancel(timeout);
        }
    }
}
