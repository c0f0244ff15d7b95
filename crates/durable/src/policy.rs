//! Defines the policies for failed and late deliveries.

use crate::id::TimerId;
use core::time::Duration;
use serde::{Deserialize, Serialize};
pub use tourbillon_words::Guarantee;

/// The rules for the failures and the lateness of one timer.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::policy::{Backoff, Policy};
///
/// let policy = Policy { attempts: 3, backoff: Backoff::Fixed(Duration::from_secs(5)), ..Policy::default() };
/// assert_eq!((policy.deliveries, policy.timeout), (20, Duration::from_secs(30)));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// The number of failures after which the timer is dead. 10 by default; 0 counts as 1.
    pub attempts: u32,
    /// The number of deliveries after which the timer is dead, even without a reported failure. The limit also counts
    /// deliveries whose processes died or whose leases expired, even if the timer is delivered at most once and its
    /// delivery had not begun. 20 by default; 0 counts as 1.
    pub deliveries: u32,
    /// The greatest age of the timer, counted from its scheduled moment. That of a schedule's occurrence counts from
    /// its creation or its due moment, whichever is later. A move and a replay begin the age anew. After a failure, a
    /// snooze or an expired lease, the timer is dead if its next delivery would come after this age. The limit does not
    /// apply to a delivery that begins late, for example after a downtime: [`misfire`](Self::misfire) decides about
    /// late deliveries. `None`, the default, means no limit.
    pub max_age: Option<Duration>,
    /// The lengths of the pauses that follow the timer's failures.
    pub backoff: Backoff,
    /// The time in which a handler must answer, from its call. 30 s by default. The time for which a claimed timer
    /// waits for a thread or for an executor does not count.
    pub timeout: Duration,
    /// The rule that decides whether a late delivery still takes place, for example after a downtime.
    pub misfire: Misfire,
    /// The length of the window in which the timer becomes due. The window begins at the scheduled moment. The timer's
    /// id determines the moment within the window. Zero by default.
    pub jitter: Duration,
    /// Whether the timer is delivered at least once or at most once.
    pub guarantee: Guarantee,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 10,
            deliveries: 20,
            max_age: None,
            backoff: Backoff::default(),
            timeout: Duration::from_secs(30),
            misfire: Misfire::default(),
            jitter: Duration::ZERO,
            guarantee: Guarantee::default(),
        }
    }
}

impl Policy {
    /// Returns the time from the scheduled moment of the timer with this id to its due moment. The time is less than
    /// [`jitter`](Self::jitter). The same id always gives the same time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::policy::Policy;
    /// use tourbillon_durable::timer::TimerId;
    ///
    /// let policy = Policy { jitter: Duration::from_secs(60), ..Policy::default() };
    /// let timer = TimerId::fresh();
    /// assert!(policy.jitter_of(timer) < Duration::from_secs(60));
    /// assert_eq!(policy.jitter_of(timer), policy.jitter_of(timer));
    /// ```
    #[must_use]
    pub fn jitter_of(&self, timer: TimerId) -> Duration {
        // Failures are numbered from 1, so the jitter and the pauses of a timer have different fractions.
        self.jitter.mul_f64(fraction(timer, 0))
    }
}

/// The lengths of the pauses that follow the failures of a timer.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::policy::Backoff;
/// use tourbillon_durable::timer::TimerId;
///
/// let seconds = Duration::from_secs;
/// let ladder = Backoff::Ladder(vec![seconds(1), seconds(60)]);
/// let pauses: Vec<_> = (1..=3).map(|failures| ladder.pause(TimerId::fresh(), failures)).collect();
/// assert_eq!(pauses, [seconds(1), seconds(60), seconds(60)]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Backoff {
    /// The pauses are 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h, as in the Standard Webhooks
    /// specification. A random part of up to a fifth is added to each pause.
    #[default]
    Standard,
    /// Each pause has this length.
    Fixed(Duration),
    /// Each pause is random, with an upper bound. The bound is `first` after the first failure, and doubles with each
    /// further failure, up to `max`.
    Exponential {
        /// The upper bound of the pause after the first failure.
        first: Duration,
        /// The length at which the upper bound stops growing. No pause is longer.
        max: Duration,
    },
    /// The pauses of this list, in order. After the end of the list, its last pause is repeated. An empty list means no
    /// pause.
    Ladder(Vec<Duration>),
}

/// The number of doublings after which a pause of one nanosecond exceeds the longest [`Duration`].
const MOST_DOUBLINGS: u32 = 94;

const STANDARD: [u64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

impl Backoff {
    /// Returns the pause after the timer's failure number `failures`, counted from 1. The random part of a pause is
    /// computed from the timer's id and the number, so equal arguments give equal pauses.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::policy::Backoff;
    /// use tourbillon_durable::timer::TimerId;
    ///
    /// let backoff = Backoff::Exponential { first: Duration::from_secs(1), max: Duration::from_secs(10) };
    /// assert!(backoff.pause(TimerId::fresh(), 1) < Duration::from_secs(1));
    /// assert!(backoff.pause(TimerId::fresh(), 40) < Duration::from_secs(10));
    /// ```
    #[must_use]
    pub fn pause(&self, timer: TimerId, failures: u32) -> Duration {
        let step = failures.saturating_sub(1);
        match self {
            Self::Standard => {
                let rung = usize::try_from(step).unwrap_or(usize::MAX).min(STANDARD.len() - 1);
                let pause = Duration::from_secs(STANDARD[rung]);
                pause + (pause / 5).mul_f64(fraction(timer, failures))
            }
            Self::Fixed(pause) => *pause,
            Self::Exponential { first, max } => {
                let doublings = 0..step.min(MOST_DOUBLINGS);
                let most = doublings.fold(*first, |most, _| most.saturating_mul(2)).min(*max);
                most.mul_f64(fraction(timer, failures))
            }
            Self::Ladder(rungs) => {
                let rung = usize::try_from(step).unwrap_or(usize::MAX);
                rungs.get(rung).or(rungs.last()).copied().unwrap_or_default()
            }
        }
    }
}

/// Returns a fraction from 0 to below 1, computed from a timer's id and a number (splitmix64). The fractions are
/// distributed like random numbers.
fn fraction(timer: TimerId, number: u32) -> f64 {
    // After a crash, a store repeats the operations of its journal, and must compute the same due moments again. So a
    // change of this formula is a change of the meaning of stored data.
    let bits = timer.as_u128();
    #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed")]
    let mut mixed = (bits as u64) ^ ((bits >> 64) as u64) ^ (u64::from(number) << 32);
    for _ in 0..2 {
        mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    #[expect(clippy::cast_precision_loss, reason = "53 bits, which are exact")]
    let fraction = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
    fraction
}

/// The rule for a late delivery. A delivery may be late after a downtime, a stall, or a burst of earlier timers.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::policy::{Misfire, Policy};
///
/// // A reminder that is an hour late is of no use any more.
/// let policy = Policy { misfire: Misfire::Within(Duration::from_secs(3_600)), ..Policy::default() };
/// assert_ne!(policy.misfire, Misfire::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Misfire {
    /// The timer is delivered, however late the delivery is.
    #[default]
    Fire,
    /// The timer is skipped if it is late by more than this time. A timer that has failed before is not skipped.
    Within(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TimerId = TimerId::from_u128(0x0123_4567_89ab_cdef);

    #[test]
    fn the_standard_ladder_ends_in_days() {
        let pauses: Vec<u64> = (1..=12).map(|n| Backoff::Standard.pause(ID, n).as_secs()).collect();
        for (pause, rung) in pauses.iter().zip(STANDARD.iter().chain([86_400; 3].iter())) {
            assert!((*rung..=rung * 6 / 5).contains(pause), "{pauses:?}");
        }
    }

    #[test]
    fn no_number_of_failures_overflows() {
        let exponential =
            Backoff::Exponential { first: Duration::from_secs(1), max: Duration::from_secs(60) };
        for failures in [0, 1, 2, 31, 32, 33, 64, 65, u32::MAX] {
            for backoff in
                [&exponential, &Backoff::Standard, &Backoff::Ladder(vec![]), &Backoff::Fixed(Duration::MAX)]
            {
                let _ = backoff.pause(ID, failures);
            }
            assert!(exponential.pause(ID, failures) <= Duration::from_secs(60));
        }
        let endless = Backoff::Exponential { first: Duration::MAX, max: Duration::MAX };
        assert!(endless.pause(ID, 70) <= Duration::MAX);
    }

    #[test]
    fn an_exponential_pause_grows_until_it_reaches_its_greatest_length() {
        let max = Duration::from_secs(86_400);
        let exponential = Backoff::Exponential { first: Duration::from_nanos(1), max };
        for failures in [60, 96, 1_000, u32::MAX] {
            assert_eq!(exponential.pause(ID, failures), max.mul_f64(fraction(ID, failures)), "{failures}");
        }
        let longest = Backoff::Exponential { first: Duration::from_nanos(1), max: Duration::MAX };
        assert!(longest.pause(ID, 96) > Duration::MAX.mul_f64(fraction(ID, 96) / 2.0));
        let none = Backoff::Exponential { first: Duration::ZERO, max };
        assert_eq!(none.pause(ID, u32::MAX), Duration::ZERO);
    }

    #[test]
    fn fractions_are_spread_and_repeat() {
        let tenths = (0..10_000).fold([0; 10], |mut tenths, n| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 9")]
            let tenth = (fraction(TimerId::from_u128(n), 3) * 10.0) as usize;
            tenths[tenth] += 1;
            tenths
        });
        assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
        assert_eq!(fraction(ID, 1).to_bits(), fraction(ID, 1).to_bits());
        assert_ne!(fraction(ID, 1).to_bits(), fraction(ID, 2).to_bits());
    }
}
