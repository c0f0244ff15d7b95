//! Counts the running and the waiting deliveries under one limit, such as the limit of a host or of a namespace.

use super::pool::QUICK;
use crate::delivery::reason::Reason;
use core::time::Duration;
use std::collections::VecDeque;
use std::time::Instant;

/// The length of the spans in which a limiter counts ended deliveries.
const SPAN: Duration = Duration::from_millis(50);
/// The lower and the upper bound of [`Limiter::room`], the number of deliveries that may wait for one limiter. The
/// bounds do not apply while the limiter is shut or permits only one delivery at a time, or while its host does not
/// count as quick ([`Pace`]). In these cases no delivery may wait.
pub(super) const ROOM: (usize, usize) = (16, 512);

/// How fast a callback's host answers. A delivery to a host whose pace is not `Quick` also needs a permit for slow
/// hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Unknown,
    Quick,
    Slow,
}

#[derive(Debug)]
pub(super) struct Limiter {
    pub(super) limit: usize,
    pub(super) running: usize,
    /// The numbers that identify the waiting deliveries, in the order of their arrival. A delivery that gives up
    /// removes its number.
    pub(super) waiting: VecDeque<u64>,
    /// The number of timers that were parked because this limiter had no free permit, and were made due again, but have
    /// not arrived at their handler. From `coming_until` on, the number counts as zero.
    pub(super) coming: usize,
    pub(super) coming_until: Instant,
    pub(super) shut_until: Option<Instant>,
    pub(super) is_careful: bool,
    /// How fast the host answers. `None` if the limiter does not belong to a host.
    pub(super) pace: Option<Pace>,
    /// The last moment at which the limiter made progress: a delivery ended, or a delivery began while no other
    /// delivery ran. From this moment [`pace`](Self::pace) measures how long a host hangs.
    pub(super) moved: Instant,
    /// Whether the limiter is in the list [`Pool::starved`](super::pool::Pool::starved) because it found no free
    /// permit. A pool is a set of permits that the limiters of several namespaces share.
    pub(super) is_starved: bool,
    /// The moment at which the present span began. A limiter counts ended deliveries in spans of the length [`SPAN`].
    pub(super) span: Instant,
    /// The numbers of deliveries that ended in the present span and in the span before. A span has the length [`SPAN`].
    pub(super) ends: (usize, usize),
}

impl Limiter {
    pub(super) fn new(reason: &Reason, limit: usize, now: Instant) -> Self {
        Self {
            limit,
            running: 0,
            waiting: VecDeque::new(),
            coming: 0,
            coming_until: now,
            shut_until: None,
            is_careful: false,
            pace: matches!(reason, Reason::Host(..)).then_some(Pace::Unknown),
            moved: now,
            is_starved: false,
            span: now,
            ends: (0, 0),
        }
    }

    /// Sets the pace of the host to quick if `is_quick` is true. `is_quick` says whether the host answered its last
    /// callback quickly, whichever namespace sent that callback. Does nothing if the limiter does not belong to a host.
    pub(super) fn known_as(mut self, is_quick: bool) -> Self {
        if is_quick && self.pace.is_some() {
            self.pace = Some(Pace::Quick);
        }
        self
    }

    pub(super) fn is_shut(&self, now: Instant) -> bool {
        self.shut_until.is_some_and(|until| now < until)
    }

    /// Returns how fast the host answers now. A quick host counts as slow while deliveries to it run and none of them
    /// has ended for two seconds.
    pub(super) fn pace(&self, now: Instant) -> Option<Pace> {
        let hangs = self.running > 0 && now.saturating_duration_since(self.moved) > QUICK;
        self.pace.map(|pace| if hangs && pace == Pace::Quick { Pace::Slow } else { pace })
    }

    /// Returns the greatest number of deliveries that may run under this limiter at the same time. `grown` is the
    /// number of permits that the host has gained by prompt answers.
    pub(super) fn most(&self, grown: usize, now: Instant) -> usize {
        match (self.is_shut(now), self.is_careful, self.pace(now)) {
            (true, _, _) => 0,
            (_, true, _) => 1,
            // Rounded up, because a limit below 4 must still permit a delivery.
            (_, _, Some(Pace::Unknown | Pace::Slow)) => self.limit.div_ceil(4),
            _ => self.limit + grown,
        }
    }

    /// Returns whether this limiter of a path (the path of a callback's URL) holds back deliveries, because the path
    /// was shut and has not recovered. Only then does a delivery to the path need a permit of this limiter.
    pub(super) fn holds_back(&self, now: Instant) -> bool {
        self.is_careful || self.is_shut(now)
    }

    pub(super) fn coming(&self, now: Instant) -> usize {
        if now < self.coming_until { self.coming } else { 0 }
    }

    /// Begins a new span for counting ended deliveries, if the present span is over.
    pub(super) fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.span);
        if passed >= SPAN {
            // After a longer time, the counted span is not the one directly before the new span.
            self.ends = (0, if passed < 2 * SPAN { self.ends.0 } else { 0 });
            self.span = now;
        }
    }

    /// Returns the greatest number of deliveries that may wait in memory for a permit of this limiter.
    pub(super) fn room(&self, now: Instant) -> usize {
        let is_slow = matches!(self.pace(now), Some(Pace::Unknown | Pace::Slow));
        if is_slow || self.is_shut(now) || self.is_careful {
            return 0;
        }
        self.ends.0.max(self.ends.1).clamp(ROOM.0, ROOM.1)
    }

    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.running == 0 && self.waiting.is_empty() && self.coming(now) == 0 && !self.is_shut(now)
    }
}
