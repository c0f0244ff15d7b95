//! The clock of tokio runtimes: the system's, unless a test has paused or moved it.
//!
//! tokio pauses a clock with its feature `test-util` alone, so [`RuntimeClock`] is behind the feature of the same name.

use core::time::Duration;
#[cfg(feature = "test-util")]
use {
    super::{Clock, system},
    crate::base::tick::Timestamp,
};

pub(crate) use tokio::time::Instant;

/// Returns the present moment by the clock of the runtime that the calling thread is in. Outside of a runtime this is
/// the system's clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the moment `delay` from now. If no [`Instant`] can show that moment, returns a moment some 30 years from
/// now, as tokio does.
pub(crate) fn after(delay: Duration) -> Instant {
    let now = now();
    now.checked_add(delay).unwrap_or_else(|| far_from(now))
}

/// Returns a moment some 30 years after `now`.
pub(crate) fn far_from(now: Instant) -> Instant {
    now + Duration::from_secs(30 * 365 * 86_400)
}

/// Returns whether the runtime's clock shows another moment than the system's clock.
#[cfg(feature = "test-util")]
pub(crate) fn is_moved() -> bool {
    let (before, shown, after) = (system::true_now(), now().into_std(), system::true_now());
    !(before..=after).contains(&shown.into())
}

/// The clock of the tokio runtime that the calling thread is in, for the shards that a task of that runtime turns.
#[cfg(feature = "test-util")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeClock;

/// The tick of the shards that a task of a runtime turns. tokio rounds the sleep of that task up to a millisecond, and
/// a tick adds little to that.
pub(crate) const TICK: Duration = Duration::from_nanos(TICK_NANOS);
const TICK_NANOS: u64 = if cfg!(feature = "test-util") { 1_000 } else { 64_000 };

#[cfg(feature = "test-util")]
impl Clock for RuntimeClock {
    /// Returns the end of the present tick. So a timer with a delay of whole ticks is always due at the end of a tick,
    /// and two runs of a test with a paused clock behave alike.
    fn now(&self) -> Timestamp {
        let tick = self.true_now().as_nanos() / TICK_NANOS;
        Timestamp::from_nanos((tick + 1).saturating_mul(TICK_NANOS))
    }

    fn true_now(&self) -> Timestamp {
        now().into_std().into()
    }
}
