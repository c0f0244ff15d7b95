//! The pauses after errors of the store.

use core::time::Duration;

/// The pauses after errors of the store.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The pauses after errors of the store, each twice as long as the one before, up to the second one here.
pub(super) struct Pause(pub(super) Duration, Duration);

impl Pause {
    /// Pauses that are short beside a lease: once the store is back, leases are renewed before they end.
    pub(super) fn new(lease: Duration) -> Self {
        Self(Duration::ZERO, LONGEST_PAUSE.min(lease / 8))
    }

    pub(super) fn next(&mut self) -> Duration {
        self.0 = (2 * self.0).clamp(FIRST_PAUSE, self.1);
        self.0
    }

    pub(super) fn reset(&mut self) {
        self.0 = Duration::ZERO;
    }

    pub(super) fn is_long(&self) -> bool {
        self.0 >= self.1
    }
}
