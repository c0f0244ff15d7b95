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

/// Returns the last tick that begins at `now` or before.
pub(crate) fn current_tick(now: Timestamp) -> Tick {
    TICK.current_tick(now.as_nanos())
}

/// Returns the first tick that begins at `deadline` or after.
pub(crate) fn due_tick(deadline: Timestamp) -> Tick {
    TICK.due_tick(deadline.as_nanos())
}

/// Returns the time from `now` until the start of `tick`, in whole ticks. The time is rounded up, because the present
/// is rounded down. Therefore a poll of this length never ends a little too early.
pub(crate) fn time_until(tick: Tick, now: Timestamp) -> Duration {
    let ticks = tick.0.saturating_sub(current_tick(now).0);
    Duration::from_nanos(TICK.start_of(Tick(ticks)))
}
