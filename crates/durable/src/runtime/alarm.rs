//! Sets the timers in a runtime's own engine: the alarm at the next due moment, the alarm for the renewal of leases,
//! and the timeouts of handlers.
//!
//! The store's clock shows the time of day, which may step. The engine's clock does not step. So the alarm at a due
//! moment is armed with the time that remains until this moment. After each step of the store's clock, the delivery
//! loop claims due timers and arms the alarm again. An early or late alarm does no harm: the store decides which timers
//! are due.

use core::time::Duration;
use std::sync::Arc;
use tourbillon::{BuildError, Builder, Clock, Engine, Fired, Timer, TimerId, Timestamp};

/// The signal that an alarm sends when it fires. An alarm is a timer of the runtime's own engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    /// Stored timers may be due, so the runtime must claim due timers.
    Look,
    /// The leases of the deliveries under way must be renewed.
    Renew,
    /// The time of a handler has passed.
    Timeout(HandlerTime),
}

/// The time in which the handler of a delivery must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandlerTime {
    /// The number of the delivery.
    pub(crate) delivery: u64,
    /// The number of times at which the delivery's time had begun before. A timer that is delivered at most once may
    /// give its handler a second time.
    pub(crate) nth: u32,
}

/// The engine of a runtime. The engine has an alarm for the next claim, and an alarm for the next renewal of leases.
#[derive(Debug)]
pub(crate) struct Alarms {
    look: Timer<Signal>,
    renew: Timer<Signal>,
    engine: Engine<Signal>,
}

/// A clock that the runtime and its engine share.
struct SharedClock(Arc<dyn Clock>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    // These methods have defaults, which would hide the methods of a clock that the program has chosen.
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
    /// Starts the runtime's engine. Each timer of the engine calls `on_signal` when it fires.
    pub(crate) fn start(
        clock: Arc<dyn Clock>,
        on_signal: impl Fn(Signal) + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        // A signal only leaves a request or settles a delivery, and wakes other threads. So the engine needs no
        // workers.
        let builder = Builder::new().clock(SharedClock(clock)).shards(1).unpinned().inline();
        let engine = builder.start(move |fired: Fired<'_, Signal>| on_signal(fired.payload))?;
        let timer = |signal| engine.handle().timer(signal).map_err(|_| BuildError::Forked);
        Ok(Self { look: timer(Signal::Look)?, renew: timer(Signal::Renew)?, engine })
    }

    // Arming a timer can fail only in a child process of a fork. No timer fires there, so the error is ignored.

    /// Sets the alarm for the next claim of due timers: it fires after the time `rest`. A new setting replaces the
    /// earlier setting.
    pub(crate) fn look_in(&self, rest: Duration) {
        let _armed = self.look.arm(rest);
    }

    /// Sets the alarm for the next renewal of leases: it fires after the time `rest`.
    pub(crate) fn renew_in(&self, rest: Duration) {
        let _armed = self.renew.arm(rest);
    }

    /// Sets the timeout of a handler: it fires after the time `rest`. Returns the id by which the caller can cancel the
    /// timeout. A timeout that is about to fire may fire in spite of the cancellation.
    pub(crate) fn timeout_in(&self, time: HandlerTime, rest: Duration) -> Option<TimerId> {
        self.engine.handle().schedule(rest, Signal::Timeout(time)).ok()
    }

    pub(crate) fn cancel(&self, timeout: Option<TimerId>) {
        if let Some(timeout) = timeout {
            let _gone = self.engine.handle().cancel(timeout);
        }
    }
}
