//! Estimates the server's time from the answers of scripts.

use crate::script::decimal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tourbillon::{Clock, Timestamp};
use tourbillon_durable::UtcMillis;

/// If a measurement of the server's time is older than this, the next answer of the server replaces the measurement. A
/// younger measurement is replaced in only two cases: the new answer took at most as long as the answer from which the
/// measurement was made, or the new answer shows that the server's clock was set.
const AGE: Duration = Duration::from_secs(10);

/// The clock by which a deployment decides which timers are due.
pub(crate) enum Time {
    /// The server's clock, whose time this process estimates.
    Server(Mutex<Measured>),
    /// A clock that the caller provides for tests.
    Test(Arc<dyn Clock>),
}

/// Returns the present moment on this machine. On Linux, the clock also counts the time while the machine is suspended.
pub(crate) fn moment() -> Timestamp {
    // The server's clock goes on while this machine is suspended. With a clock that stops, the estimate of the server's
    // time would be behind after a suspension.
    #[cfg(target_os = "linux")]
    return tourbillon::BootClock::new().true_now();
    #[cfg(not(target_os = "linux"))]
    return tourbillon::SystemClock::new().true_now();
}

/// Converts a duration to whole milliseconds, rounded up.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).min(UtcMillis::MAX.as_millis())
}

/// Formats a duration as an argument of a script: whole milliseconds, rounded up.
pub(crate) fn time_text(time: Duration) -> Vec<u8> {
    decimal(millis(time))
}

/// A measurement of the server's time, made from the answer of a script. Each such answer contains the server's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The moment on this machine at which the script was sent. The server read its own clock after this moment. So the
    /// sum of `server` and the time since `sent` is never behind the server's time.
    sent: Timestamp,
    /// The server's time in the script's answer.
    server: UtcMillis,
    /// The time from `sent` to the arrival of the script's answer, or [`Duration::MAX`] before the first answer.
    took: Duration,
}

impl Time {
    pub(crate) fn server() -> Self {
        let measured = Measured { sent: moment(), server: UtcMillis::ZERO, took: Duration::MAX };
        Self::Server(Mutex::new(measured))
    }

    fn lock(measured: &Mutex<Measured>) -> MutexGuard<'_, Measured> {
        measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an estimate of the server's time. The estimate is never behind the server's time. It is ahead by at most
    /// about the time that an answer takes. So a timer with a delay of a second is never due before a second has
    /// passed.
    pub(crate) fn now(&self) -> UtcMillis {
        match self {
            Self::Server(measured) => Self::lock(measured).at(moment()),
            Self::Test(clock) => UtcMillis::from_nanos(clock.true_now().as_nanos()),
        }
    }

    /// Returns the first argument of every script: the time of the test clock, or an empty argument if the server's
    /// clock decides.
    pub(crate) fn argument(&self) -> Vec<u8> {
        match self {
            Self::Server(_) => Vec::new(),
            Self::Test(_) => self.now().as_millis().to_string().into_bytes(),
        }
    }

    /// Learns the server's time from the answer of a script that was sent at the moment `sent`. `server` is the
    /// server's time in the answer. Ignores the answer if a script that was sent later has given the last measurement.
    /// Returns true if the answer shows that the server's clock was set to another time
    /// after the last measurement.
    pub(crate) fn learn(&self, sent: Timestamp, server: UtcMillis) -> bool {
        let Self::Server(measured) = self else { return false };
        let mut measured = Self::lock(measured);
        if sent < measured.sent {
            // A delayed answer may be from before a step of the server's clock that the measurement has shown.
            return false;
        }
        let new = Measured { sent, server, took: moment() - sent };
        let is_first = measured.took == Duration::MAX;
        let guess = measured.at(sent);
        // The guess may be ahead by the time that the measurement took. It may be behind by the time that the new
        // answer took, because the server read its clock at some moment after `sent`.
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
        // The server rounds its time down to a millisecond, so the sum is rounded up.
        self.server + (moment - self.sent) + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_not_before_the_servers() {
        let time = Time::server();
        let sent = moment();
        assert!(!time.learn(sent, UtcMillis::from_millis(5_000)), "the first answer is no step");
        let now = time.now();
        assert!(now > UtcMillis::from_millis(5_000));
        assert!(now <= UtcMillis::from_millis(5_001) + (moment() - sent) + Duration::from_millis(1));
    }

    #[test]
    fn a_clock_that_is_set_is_noticed() {
        let time = Time::server();
        let sent = moment();
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
        let early = moment();
        time.learn(early, UtcMillis::from_millis(5_000_000));
        let late = early + Duration::from_nanos(1);
        assert!(time.learn(late, UtcMillis::from_millis(9_000_000_000)), "the clock was set");
        assert!(
            !time.learn(early, UtcMillis::from_millis(5_000_000)),
            "this script was sent before the other"
        );
        assert!(time.now() >= UtcMillis::from_millis(9_000_000_000));
    }
}
