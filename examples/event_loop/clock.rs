//! The clock of the loop. A tick is a millisecond.
//!
//! The present is rounded down to a tick, and a deadline is rounded up. So a timer whose tick has come is never early.

use std::num::NonZero;
use std::time::{Duration, Instant};
use tourbillon::wheel::TickLength;
use tourbillon::{Tick, Timestamp};

const TICK: TickLength = TickLength::from_nanos(NonZero::new(1_000_000).unwrap());

pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }
}

/// Returns the last tick that has begun at `now`.
pub(crate) fn current_tick(now: Timestamp) -> Tick {
    TICK.current_tick(now.as_nanos())
}

/// Returns the first tick that does not begin before `deadline`.
pub(crate) fn due_tick(deadline: Timestamp) -> Tick {
    TICK.due_tick(deadline.as_nanos())
}

/// Returns how long to wait at `now` for the start of `tick`, in whole ticks. The wait is rounded up, since the present
/// is rounded down. So a poll of this length never ends a little too early.
pub(crate) fn time_until(tick: Tick, now: Timestamp) -> Duration {
    let ticks = tick.0.saturating_sub(current_tick(now).0);
    Duration::from_nanos(TICK.start_of(Tick(ticks)))
}
