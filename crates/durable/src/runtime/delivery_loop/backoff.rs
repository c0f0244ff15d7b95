//! Computes the pauses after errors of the store.

use core::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(5);

/// The pauses after errors of the store. Each pause is twice as long as the pause before, up to `longest`.
pub(super) struct Backoff {
    last: Duration,
    longest: Duration,
}

impl Backoff {
    /// Makes the pauses for leases of the length `lease`. No pause is longer than an eighth of this length. So once the
    /// store answers again, the delivery loop renews the leases before they expire.
    pub(super) fn new(lease: Duration) -> Self {
        Self { last: Duration::ZERO, longest: LONGEST.min(lease / 8) }
    }

    pub(super) fn next(&mut self) -> Duration {
        self.last = (2 * self.last).clamp(FIRST, self.longest);
        self.last
    }

    pub(super) fn reset(&mut self) {
        self.last = Duration::ZERO;
    }

    pub(super) fn is_longest(&self) -> bool {
        self.last >= self.longest
    }
}
