//! A circuit breaker: whether a receiver that fails is left alone for a while.
//!
//! ```text
//!            so many failures in a row, or 10 of the last 20
//!   closed ─────────────────────────────────────────────────► open(until) ◄──┐
//!     ▲                                                         │ until      │ failure: twice the pause
//!     └──────────────────── success ◄── half open: one callback ◄┘ ──────────┘
//! ```
//! A callback that was under way when the breaker opened changes nothing at its end: it says how the receiver was
//! before.

use crate::limits::HostLimits;
use core::time::Duration;
use std::time::Instant;

/// The number of recent outcomes that count: if half of them are failures, the breaker opens.
const WINDOW: u32 = 20;
/// The pause of a callback that comes while a probe finds out whether the receiver works.
const PROBED: Duration = Duration::from_millis(250);

/// The evidence that a callback gives about its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It works.
    Works,
    /// It fails.
    Fails(Cause),
    /// Neither.
    Nothing,
}

/// How a receiver fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It cannot be reached, or does not answer in time.
    Silence,
    /// Its answer says so.
    Answer,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    /// The failures for which half of the last outcomes are too many. Others count in a row only.
    frequent: Cause,
    in_a_row: u32,
    /// The last outcomes, the latest in the lowest bit; a failure is a one.
    window: u32,
    known: u32,
    open: Option<Open>,
    /// How often it has opened.
    openings: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// The moment of the failure that opened the breaker first, and its cause.
    pub(crate) since: Instant,
    pub(crate) cause: Cause,
    pub(crate) until: Instant,
    pause: Duration,
    is_probed: bool,
}

impl Breaker {
    /// A closed breaker. Half of the last outcomes are too many if they are failures of this cause.
    pub(crate) fn new(frequent: Cause) -> Self {
        Self { frequent, in_a_row: 0, window: 0, known: 0, open: None, openings: 0 }
    }

    /// The time for which no callback may be sent. None if a callback may be sent now.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        let open = self.open?;
        if open.is_probed {
            return Some(PROBED);
        }
        open.until.checked_duration_since(now).filter(|rest| !rest.is_zero())
    }

    /// Begins a callback, which is the probe if the breaker is not closed. Returns the number of openings, for its end.
    pub(crate) fn begin(&mut self) -> u64 {
        if let Some(open) = &mut self.open {
            open.is_probed = true;
        }
        self.openings
    }

    /// Ends a callback that began when the breaker had opened `openings` times.
    pub(crate) fn end(&mut self, openings: u64, sign: Sign, limits: &HostLimits, now: Instant) {
        if self.openings != openings {
            return;
        }
        match sign {
            Sign::Nothing => {
                if let Some(open) = &mut self.open {
                    open.is_probed = false;
                }
            }
            Sign::Works => {
                self.in_a_row = 0;
                self.note(0);
                if self.open.take().is_some() {
                    (self.window, self.known) = (0, 0);
                }
            }
            Sign::Fails(cause) => {
                self.in_a_row = self.in_a_row.saturating_add(1);
                if cause == self.frequent {
                    self.note(1);
                }
                self.open = self.opened(cause, limits, now).or(self.open);
            }
        }
    }

    /// The breaker's opening after a failure, if that opens it.
    fn opened(&mut self, cause: Cause, limits: &HostLimits, now: Instant) -> Option<Open> {
        let fails = self.in_a_row >= limits.failures
            || self.known >= WINDOW && self.window.count_ones() >= WINDOW / 2;
        let (since, cause, pause) = match self.open {
            Some(Open { since, cause, pause, .. }) => (since, cause, (pause * 2).min(limits.longest_pause)),
            None if fails => (now, cause, limits.first_pause),
            None => return None,
        };
        self.openings += 1;
        Some(Open { since, cause, until: now + pause, pause, is_probed: false })
    }

    fn note(&mut self, outcome: u32) {
        self.window = (self.window << 1 | outcome) & ((1 << WINDOW) - 1);
        self.known = (self.known + 1).min(WINDOW);
    }

    /// The opening, if the breaker is not closed.
    pub(crate) fn open(&self) -> Option<Open> {
        self.open
    }

    /// The failures since the last success.
    pub(crate) fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Whether the breaker is open, and lets no callback through.
    pub(crate) fn rests(&self, now: Instant) -> bool {
        self.open.is_some_and(|open| open.until > now)
    }

    /// Whether no failure is remembered.
    pub(crate) fn is_spotless(&self) -> bool {
        self.open.is_none() && self.window == 0 && self.in_a_row == 0
    }

    /// Closes it, and forgets all failures. Callbacks under way change nothing at their ends.
    pub(crate) fn close(&mut self) {
        *self = Self { openings: self.openings + 1, ..Self::new(self.frequent) };
    }
}
