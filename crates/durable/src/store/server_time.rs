//! Estimates the time of a database server from its answers.
//!
//! Calls to a server overlap, and their answers may arrive in any order:
//!
//! | the call was sent | its answer | effect |
//! |---|---|---|
//! | after the answer of the measurement had arrived | agrees with the measurement | replaces the measurement if it is better, or if it shows that the estimate is behind the server's time. Replaces the lower bound if it shows that the bound is ahead of the server's time. |
//! | after the answer of the measurement had arrived | disagrees | replaces the measurement: the server's clock was set |
//! | before that | agrees | none |
//! | before that | disagrees | none on the measurement. The server's clock was set, but nobody knows which of the two answers is from before that. The caller makes another call, whose answer decides. |

use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon::{Clock, Timestamp};
use tourbillon_words::UtcMillis;

/// The divisor of a measurement's age that gives the drift: the time by which the clocks of the two machines may have
/// moved apart since the measurement. An answer replaces a measurement if it took longer than the measurement by at
/// most the drift, because the estimate of the server's time is then no worse than before. A slower answer replaces a
/// measurement only if it shows that the server's clock was set, or that the estimate is behind the server's time.
/// Otherwise it would put the estimate ahead by the time that it took, and the next quick answer would put the estimate
/// back.
const DRIFT: u32 = 5_000;

/// The clock by which a store on a database server decides which timers are due: the server's clock, whose time this
/// process estimates, or a clock of the caller's for tests. For authors of stores.
pub struct ServerTime(Source);

enum Source {
    /// The last measurement of the server's time, or `None` before the first answer.
    Server(Mutex<Option<Measured>>),
    Test(Arc<dyn Clock>),
}

/// A measurement of the server's time, made from an answer with that time.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// The moment on this machine at which the call was sent. The server read its own clock after this moment. So the
    /// sum of `server` and the time since `sent` is not behind the server's time, unless the server's clock was set.
    sent: Timestamp,
    /// The moment at which the answer arrived. The server read its own clock before this moment.
    arrived: Timestamp,
    /// The server's time in the answer.
    server: UtcMillis,
    /// The lower bound of the server's time: a moment on this machine, and the bound at this moment.
    least: (Timestamp, UtcMillis),
}

impl ServerTime {
    /// Makes the clock of a server that has not answered yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Source::Server(Mutex::default()))
    }

    /// Makes a clock that shows the time of `clock`, for tests.
    #[must_use]
    pub fn of_test(clock: Arc<dyn Clock>) -> Self {
        Self(Source::Test(clock))
    }

    /// Returns the present moment on this machine. On Linux, the clock also counts the time while the machine is
    /// suspended.
    #[must_use]
    pub fn moment() -> Timestamp {
        // The server's clock goes on while this machine is suspended. With a clock that stops, the estimate of the
        // server's time would be behind after a suspension.
        #[cfg(target_os = "linux")]
        return tourbillon::BootClock::new().true_now();
        #[cfg(not(target_os = "linux"))]
        return tourbillon::SystemClock::new().true_now();
    }

    /// Returns an estimate of the server's time. The estimate is not behind the server's time, and ahead by at most
    /// about the time that an answer takes. So a timer with a delay of a second is not due before a second has passed.
    /// If the server's clock is set, or another server takes its place, the estimate may be wrong until the answer to a
    /// call that is sent afterwards. After a step back by less than 50 ms, the estimate may stay ahead by the step.
    /// Before the first answer, the estimate is [`UtcMillis::ZERO`].
    #[must_use]
    pub fn now(&self) -> UtcMillis {
        match &self.0 {
            Source::Server(measured) => {
                lock(measured).map_or(UtcMillis::ZERO, |measured| measured.at(Self::moment()))
            }
            Source::Test(clock) => UtcMillis::from_nanos(clock.true_now().as_nanos()),
        }
    }

    /// Returns a lower bound of the server's time. It is behind the estimate [`now`](Self::now) by about the time that
    /// the measured answer took. If the server's clock is set, the bound may be wrong for as long as the estimate.
    #[must_use]
    pub fn least(&self) -> UtcMillis {
        match &self.0 {
            Source::Server(measured) => {
                lock(measured).map_or(UtcMillis::ZERO, |measured| measured.least_at(Self::moment()))
            }
            Source::Test(_) => self.now(),
        }
    }

    /// Returns the time of the clock for tests, or `None` if the server's clock decides.
    #[must_use]
    pub fn of_caller(&self) -> Option<UtcMillis> {
        match &self.0 {
            Source::Server(_) => None,
            Source::Test(_) => Some(self.now()),
        }
    }

    /// Learns the server's time from an answer that has just arrived. `sent` is the [`moment`](Self::moment) at which
    /// the call was sent, and `server` is the server's time in the answer. Returns true if the answer disagrees with
    /// the last measurement, because the server's clock was set. More timers may then be due than the caller knows, so
    /// the caller should make another claim.
    pub fn learn(&self, sent: Timestamp, server: UtcMillis) -> bool {
        let Source::Server(measured) = &self.0 else { return false };
        let mut measured = lock(measured);
        // The moment is read under the lock, so the measurements are in the order of their arrivals.
        let (is_step, next) = learned(*measured, Measured::new(sent, Self::moment(), server));
        *measured = Some(next);
        is_step
    }
}

impl Default for ServerTime {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerTime").field(&self.now()).finish()
    }
}

fn lock(measured: &Mutex<Option<Measured>>) -> MutexGuard<'_, Option<Measured>> {
    measured.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compares an answer with the last measurement. Returns true if they disagree, because the server's clock was set.
/// Also returns the measurement from which the server's time is estimated from now on.
fn learned(last: Option<Measured>, new: Measured) -> (bool, Measured) {
    let Some(last) = last else { return (false, new) };
    let guess = last.at(new.sent);
    // The guess may be ahead by the time that the measurement took. It may be behind by the time that the new answer
    // took, because the server read its clock at some moment after `sent`.
    let uncertain = last.took().saturating_add(new.took()).saturating_add(Duration::from_millis(50));
    let is_step = (guess - new.server).max(new.server - guess) > uncertain;
    // If the calls overlap, the server may have read its clock for the new answer before it did for the measurement.
    let is_later = new.sent >= last.arrived;
    let is_better = new.took() <= last.took().saturating_add((new.sent - last.sent) / DRIFT);
    // The server's time was `new.server` before the answer arrived, and the estimate must not be behind it.
    let is_behind = last.at(new.arrived) < new.server;
    // The server's time was less than a millisecond after `new.server` once it had the call, and the lower bound must
    // not be ahead of it.
    let is_least_ahead = last.least_at(new.sent) > new.server + Duration::from_millis(1);
    let next = match is_later {
        true if is_step || is_better || is_behind => new,
        // The answer took long. As an estimate, it would be ahead by this time.
        true if is_least_ahead => Measured { least: new.least, ..last },
        _ => last,
    };
    (is_step, next)
}

impl Measured {
    fn new(sent: Timestamp, arrived: Timestamp, server: UtcMillis) -> Self {
        Self { sent, arrived, server, least: (arrived, server) }
    }

    fn took(&self) -> Duration {
        self.arrived - self.sent
    }

    fn at(&self, moment: Timestamp) -> UtcMillis {
        // The server rounds its time down to a millisecond, so the sum is rounded up.
        self.server + (moment - self.sent) + Duration::from_millis(1)
    }

    fn least_at(&self, moment: Timestamp) -> UtcMillis {
        let (since, least) = self.least;
        least + (moment - since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an answer. `sent` and `arrived` are in milliseconds.
    fn answer(sent: u64, arrived: u64, server: u64) -> Measured {
        let moment = |millis| Timestamp::from_nanos(millis * 1_000_000);
        Measured::new(moment(sent), moment(arrived), UtcMillis::from_millis(server))
    }

    #[test]
    fn the_time_is_not_before_the_servers() {
        let time = ServerTime::new();
        assert_eq!((time.now(), time.of_caller()), (UtcMillis::ZERO, None));
        let sent = ServerTime::moment();
        assert!(!time.learn(sent, UtcMillis::from_millis(5_000)), "the first answer is no step");
        let now = time.now();
        assert!(now > UtcMillis::from_millis(5_000));
        assert!(time.least() >= UtcMillis::from_millis(5_000) && time.least() <= time.now());
        assert!(
            now <= UtcMillis::from_millis(5_001) + (ServerTime::moment() - sent) + Duration::from_millis(1)
        );
    }

    #[test]
    fn a_clock_that_is_set_is_noticed() {
        let time = ServerTime::new();
        let learn = |server| time.learn(ServerTime::moment(), UtcMillis::from_millis(server));
        assert!(!learn(5_000_000));
        assert!(!learn(5_000_000));
        for server in [9_000_000_000, 1_000_000] {
            assert!(learn(server));
            assert!(time.now() >= UtcMillis::from_millis(server));
            assert!(time.now() < UtcMillis::from_millis(server + 1_000_000), "the new time counts at once");
        }
    }

    /// Tests two calls that overlap. The server's clock is set between the moments at which the server reads it for
    /// these calls. Their answers arrive in both orders.
    #[test]
    fn an_answer_that_overlaps_the_measurement_does_not_replace_it() {
        let first = answer(0, 20, 5_000_000);
        let before = answer(105, 115, 5_000_106);
        let after = answer(100, 111, 9_000_000_000);
        let (is_step, last) = learned(Some(first), after);
        assert!(is_step && last.server == after.server);
        let (is_step, last) = learned(Some(last), before);
        assert!(is_step && last.server == after.server, "the answer of a call from before undoes no step");

        let early = Measured::new(before.sent, after.arrived, before.server);
        let late = Measured::new(after.sent, before.arrived, after.server);
        let (is_step, last) = learned(Some(first), early);
        assert!(!is_step && last.server == early.server);
        let (is_step, last) = learned(Some(last), late);
        assert!(is_step && last.server == early.server, "the caller makes another call");
        let next = answer(116, 120, 9_000_000_016);
        let (is_step, last) = learned(Some(last), next);
        assert!(is_step && last.server == next.server);
        assert!(!learned(Some(last), answer(121, 140, 9_000_000_030)).0);
    }

    #[test]
    fn a_measurement_is_replaced_by_a_faster_answer_or_by_a_little_slower_one_once_it_is_old() {
        let first = answer(0, 10, 5_000);
        let server_after = |new| learned(Some(first), new).1.server;
        let server = UtcMillis::from_millis;
        assert_eq!(server_after(answer(20, 25, 5_022)), server(5_022));
        assert_eq!(server_after(answer(20, 35, 5_022)), server(5_000));
        assert_eq!(server_after(answer(5, 12, 5_007)), server(5_000), "the calls overlap");
        assert_eq!(server_after(answer(30_000, 30_015, 35_002)), server(35_002));
    }

    #[test]
    fn the_lower_bound_of_the_time_is_not_ahead_after_a_slow_answer() {
        // The server read its clock at the moment 2,990.
        let slow = answer(0, 3_000, 5_000);
        let moment = Timestamp::from_nanos(4_000_000_000);
        assert_eq!(slow.at(moment), UtcMillis::from_millis(9_001));
        assert_eq!(slow.least_at(moment), UtcMillis::from_millis(6_000));
    }

    #[test]
    fn a_slow_answer_does_not_put_the_time_ahead_once_the_measurement_is_old() {
        let first = answer(0, 10, 5_000);
        let (is_step, last) = learned(Some(first), answer(20_000, 23_000, 25_005));
        assert!(!is_step && last.server == first.server);
    }

    /// Tests a failover to a primary that is farther away, and whose clock is ahead by less than the uncertainty of the
    /// two measurements.
    #[test]
    fn a_slower_answer_that_shows_that_the_time_is_behind_replaces_the_measurement() {
        let first = answer(0, 1, 5_000);
        let (is_step, last) = learned(Some(first), answer(1_000, 1_021, 6_070));
        assert!(!is_step && last.server == UtcMillis::from_millis(6_070));
        let (_, last) = learned(Some(first), answer(1_000, 1_021, 6_015));
        assert_eq!(last.server, first.server, "the time is not behind");
        let (_, last) = learned(Some(first), answer(0, 21, 5_060));
        assert_eq!(last.server, first.server, "the calls overlap");
    }

    /// Tests a failover to a primary that is farther away, and whose clock is behind by less than the uncertainty of
    /// the two measurements.
    #[test]
    fn a_slower_answer_that_shows_that_the_lower_bound_is_ahead_corrects_the_bound() {
        let first = answer(0, 1, 5_000);
        let moment = Timestamp::from_nanos(1_021_000_000);
        // The server read its clock before the moment 1,021.
        let (is_step, last) = learned(Some(first), answer(1_000, 1_021, 5_960));
        assert!(!is_step && last.least_at(moment) <= UtcMillis::from_millis(5_981), "{last:?}");
        assert_eq!(last.at(moment), first.at(moment), "the upper bound was right");
        let (_, last) = learned(Some(first), answer(1_000, 1_021, 6_000));
        assert_eq!(last.least_at(moment), first.least_at(moment), "the lower bound was right");
        let (_, last) = learned(Some(first), answer(0, 1_021, 5_000));
        assert_eq!(last.least_at(moment), first.least_at(moment), "the calls overlap");
    }
}
