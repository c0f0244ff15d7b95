//! A circuit breaker, which stops callbacks to a failing receiver for a while.
//!
//! ```text
//!            `failures` in a row, or 10 of the last 20 calls
//!   closed ─────────────────────────────────────────────────► open(until) ◄──┐
//!     ▲                                                         │ until      │ failure: twice the pause
//!     └──────────────────── success ◄── half open: one callback ◄┘ ──────────┘
//! ```
//! If the breaker opens while a callback is under way, the end of this callback changes nothing, because it shows only
//! the receiver's former state.

use crate::limits::HostLimits;
use core::time::Duration;
use std::time::Instant;

/// The number of recent outcomes of callbacks that a breaker remembers. The breaker opens if half of these outcomes are
/// failures of the cause in the breaker's field `frequent`.
const WINDOW: u32 = 20;
/// The pause before the next try of a callback that is held back by a probe. A probe is the single callback that an
/// open breaker lets through after its pause, to find out whether the receiver works.
const PROBED: Duration = Duration::from_millis(250);

/// The evidence that an ended callback gives to a breaker about the host or the path that the breaker guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The callback shows that the receiver works.
    Works,
    /// The callback shows that the receiver fails in this way.
    Fails(Cause),
    /// The callback shows nothing about the receiver.
    Nothing,
}

/// The way in which a receiver of callbacks fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The receiver cannot be reached, or does not answer in time.
    Silence,
    /// The receiver answers with a status which shows that it does not work.
    Answer,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    /// The cause whose failures open the breaker if they are half of the recent outcomes. Failures of the other cause
    /// are not counted among the recent outcomes. Enough failures in a row, of any causes, open the breaker, too.
    frequent: Cause,
    in_a_row: u32,
    /// The recent outcomes of callbacks, a bit for each. A bit is 1 for a failure whose cause equals the field
    /// `frequent`, and 0 for a success. A failure of the other cause has no bit. The lowest bit is the latest outcome.
    window: u32,
    known: u32,
    open: Option<Open>,
    /// The number of times that the breaker has opened, plus the number of calls of [`close`](Breaker::close). If the
    /// number has changed during a callback, the end of this callback does not affect the breaker.
    openings: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// The moment at which the breaker opened. Later failures do not change it.
    pub(crate) since: Instant,
    /// The cause of the failure that opened the breaker. Later failures do not change it.
    pub(crate) cause: Cause,
    pub(crate) until: Instant,
    pause: Duration,
    is_probed: bool,
}

impl Breaker {
    /// Makes a closed breaker. Failures of any cause open the breaker if enough of them come in a row. Failures of the
    /// cause `frequent` also open it if they are half of the recent outcomes.
    pub(crate) fn new(frequent: Cause) -> Self {
        Self { frequent, in_a_row: 0, window: 0, known: 0, open: None, openings: 0 }
    }

    /// Returns the time for which no callback may be sent. `None` if a callback may be sent now.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        let open = self.open?;
        if open.is_probed {
            return Some(PROBED);
        }
        open.until.checked_duration_since(now).filter(|rest| !rest.is_zero())
    }

    /// Records that a callback begins. If the breaker is open, this callback is the probe, which shows whether the
    /// receiver works again. The caller passes the returned number to [`end`](Self::end) when the callback ends.
    pub(crate) fn begin(&mut self) -> u64 {
        if let Some(open) = &mut self.open {
            open.is_probed = true;
        }
        self.openings
    }

    /// Records the end of a callback. `openings` is the number that [`begin`](Self::begin) returned. Does nothing if
    /// the breaker has opened or was closed by hand during the callback.
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

    /// Returns the state of the open breaker after a failure. `None` if the failure leaves the breaker closed.
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

    /// Returns when the breaker opened, why, and until when it is open. Returns `None` if the breaker is closed.
    pub(crate) fn open(&self) -> Option<Open> {
        self.open
    }

    /// Returns the number of failures since the last success.
    pub(crate) fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Returns whether the breaker holds back callbacks now, because its pause is not over.
    pub(crate) fn rests(&self, now: Instant) -> bool {
        self.open.is_some_and(|open| open.until > now)
    }

    /// Returns whether the breaker is closed and remembers no failure.
    pub(crate) fn is_spotless(&self) -> bool {
        self.open.is_none() && self.window == 0 && self.in_a_row == 0
    }

    /// Closes the breaker, and forgets all failures. Callbacks that are under way no longer change the breaker when
    /// they end.
    pub(crate) fn close(&mut self) {
        *self = Self { openings: self.openings + 1, ..Self::new(self.frequent) };
    }
}
