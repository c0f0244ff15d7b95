//! Estimates the server's time from its answers. A process that creates a timer with a delay computes the due moment
//! from this estimate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tourbillon::{Clock, Timestamp};
use tourbillon_durable::UtcMillis;

/// The age after which a measurement of the server's time is replaced by the next answer of the server. A younger
/// measurement is replaced only by a faster answer, or if the server's clock was set.
const AGE: Duration = Duration::from_secs(10);

/// The clock by which a deployment decides which timers are due.
pub(crate) enum Time {
    /// The server's clock. This process estimates the server's time, and the estimate is never behind that clock.
    Server(Mutex<Measured>),
    /// A clock that the caller provides for tests.
    Test(Arc<dyn Clock>),
}

/// Returns the present moment on this machine. Where the system permits, the clock also counts the time while the
/// machine is suspended.
pub(crate) fn instant() -> Timestamp {
    #[cfg(target_os = "linux")]
    return tourbillon::BootClock::new().true_now();
    #[cfg(not(target_os = "linux"))]
    return tourbillon::SystemClock::new().true_now();
}

/// Converts a duration to whole milliseconds, rounded up.
pub(crate) fn ms(duration: Duration) -> i64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).unwrap_or(i64::MAX).min(UtcMillis::MAX.as_millis().cast_signed())
}

/// A measurement of the server's time: the time in an answer, and the moment at which the statement was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The moment at which the statement was sent. The server has read its clock after this moment. An estimate of the
    /// server's time adds the time since this moment to `server`. So the estimate is never behind the server's clock.
    sent: Timestamp,
    /// The server's time in the answer.
    server: UtcMillis,
    /// The time from `sent` to the arrival of the answer. `Duration::MAX` before the first answer.
    took: Duration,
}

impl Time {
    pub(crate) fn server() -> Self {
        let measured = Measured { sent: instant(), server: UtcMillis::ZERO, took: Duration::MAX };
        Self::Server(Mutex::new(measured))
    }

    fn lock(measured: &Mutex<Measured>) -> MutexGuard<'_, Measured> {
        measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an estimate of the server's time. The estimate is never behind the server's clock, so a timer with a
    /// delay of a second is never due before a second has passed. The estimate is ahead of the server's clock by about
    /// the time that an answer takes, or less.
    pub(crate) fn now(&self) -> UtcMillis {
        match self {
            Self::Server(measured) => Self::lock(measured).at(instant()),
            Self::Test(clock) => UtcMillis::from_nanos(clock.true_now().as_nanos()),
        }
    }

    /// Returns the argument `p_now` of the SQL functions: the time of the test clock. `None` if the server's clock
    /// decides.
    pub(crate) fn argument(&self) -> Option<i64> {
        match self {
            Self::Server(_) => None,
            Self::Test(_) => Some(self.now().as_millis().cast_signed()),
        }
    }

    /// Measures the server's time by the answer to a statement, at the arrival of the answer. `sent` is the moment at
    /// which the statement was sent, and `server` the time in the answer. The measurement may replace the last (see
    /// [`AGE`]), unless the statement of the last was sent later. Returns whether the server's clock has been set since
    /// the last measurement.
    pub(crate) fn learn(&self, sent: Timestamp, server: UtcMillis) -> bool {
        let Self::Server(measured) = self else { return false };
        let mut measured = Self::lock(measured);
        if sent < measured.sent {
            // A delayed answer may be from before a step of the server's clock that the measurement has shown.
            return false;
        }
        let new = Measured { sent, server, took: instant() - sent };
        let is_first = measured.took == Duration::MAX;
        let guess = measured.at(sent);
        let uncertain = measured.took.saturating_add(new.took).saturating_add(Duration::from_millis(50));
        let is_step = !is_first && (guess - server).max(server - guess) > uncertain;
        let is_better = new.took <= measured.took || sent - measured.sent > AGE;
        if is_first || is_step || is_better {
            *measured = new;
        }
        is_step
    }
}

impl Measured {
    fn at(&self, moment: Timestamp) -> UtcMillis {
        // The server rounds its time down to a millisecond, so the estimate is a millisecond later.
        self.server + (moment - self.sent) + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_not_before_the_servers() {
        let time = Time::server();
        let sent = instant();
        assert!(!time.learn(sent, UtcMillis::from_millis(5_000)), "the first answer is no step");
        let now = time.now();
        assert!(now > UtcMillis::from_millis(5_000));
        assert!(now <= UtcMillis::from_millis(5_001) + (instant() - sent) + Duration::from_millis(1));
    }

    #[test]
    fn a_clock_that_is_set_is_noticed() {
        let time = Time::server();
        let sent = instant();
        time.learn(sent, UtcMillis::from_millis(5_000_000));
        assert!(!time.learn(sent, UtcMillis::from_millis(5_000_000)));
        for server in [9_000_000_000, 1_000_000] {
            assert!(time.learn(sent, UtcMillis::from_millis(server)));
            assert!(time.now() >= UtcMillis::from_millis(server));
            assert!(time.now() < UtcMillis::from_millis(server + 1_000_000), "the new time counts at once");
        }
    }

    #[test]
    fn a_delayed_answer_from_before_a_step_does_not_undo_the_step() {
        let time = Time::server();
        let early = instant();
        time.learn(early, UtcMillis::from_millis(5_000_000));
        let late = early + Duration::from_nanos(1);
        assert!(time.learn(late, UtcMillis::from_millis(9_000_000_000)), "the clock was set");
        assert!(
            !time.learn(early, UtcMillis::from_millis(5_000_000)),
            "this statement was sent before the other"
        );
        assert!(time.now() >= UtcMillis::from_millis(9_000_000_000));
    }
}
