//! Counts the timers that were unparked or fetched, but have not arrived at their queue.

use core::time::Duration;
use std::time::Instant;

/// The time for which timers that were made due again count as on their way to their queue. The time starts again when
/// further timers become due. The timers on their way are subtracted from the number of timers that receivers want, so
/// that not too many timers become due.
pub(super) const ON_THE_WAY: Duration = Duration::from_secs(1);

/// The number of timers on their way to a queue's receivers. From the moment `until` on, the number counts as zero.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coming {
    timers: usize,
    pub(super) until: Option<Instant>,
}

impl Coming {
    pub(super) fn at(&self, now: Instant) -> usize {
        if self.until.is_some_and(|until| now < until) { self.timers } else { 0 }
    }

    pub(super) fn more(&mut self, timers: usize, within: Duration) {
        let now = Instant::now();
        *self = Self { timers: self.at(now) + timers, until: Some(now + within) };
    }

    pub(super) fn fewer(&mut self, timers: usize) {
        self.timers = self.timers.saturating_sub(timers);
    }
}
