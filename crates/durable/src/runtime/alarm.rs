//! The engine's timers for a runtime: the alarm at the next due moment, the renewal of leases, the timeouts of
//! handlers.
//!
//! The engine counts by a clock that does not step, and the store by the time of day. So the alarm is armed with the
//! time that is left, and the store announces each step of its clock, after which the loop looks and arms the alarm
//! anew. The alarm is a hint: the store decides which timers are due.

use core::time::Duration;
use std::sync::Arc;
use tourbillon::{BuildError, Builder, Clock, Engine, Fired, Timer, TimerId, Timestamp};

/// The request of an engine's timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    /// To look for timers that are due.
    Look,
    /// To renew leases.
    Renew,
    /// To settle the delivery of this number.
    Timeout(u64),
}

/// The engine's timers of one runtime.
#[derive(Debug)]
pub(crate) struct Alarms {
    look: Timer<Signal>,
    renew: Timer<Signal>,
    engine: Engine<Signal>,
}

/// A clock that is shared.
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

    /// Asks for a look after this time, in place of an earlier request.
    pub(crate) fn look_in(&self, rest: Duration) {
        let _armed = self.look.arm(rest);
    }

    /// Asks for a renewal after this time.
    pub(crate) fn renew_in(&self, rest: Duration) {
        let _armed = self.renew.arm(rest);
    }

    /// Asks for the end of a delivery after this time.
    pub(crate) fn timeout_in(&self, number: u64, rest: Duration) -> Option<TimerId> {
        self.engine.handle().schedule(rest, Signal::Timeout(number)).ok()
    }

    pub(crate) fn cancel(&self, timeout: Option<TimerId>) {
        if let Some(timeout) = timeout {
            let _gone = self.engine.handle().cancel(timeout);
        }
    }
}
