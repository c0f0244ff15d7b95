//! The system's clocks, and the origin from which all timestamps of a process count.

use super::{Clock, ClockReport};
use crate::base::sync::OnceLock;
use crate::base::tick::Timestamp;
use core::time::Duration;
use std::time::{Instant, SystemTime};

/// The time from the origin of timestamps to the process's first use of this crate. So instants up to a day before the
/// first use can be converted, too.
const LEAD: Duration = Duration::from_secs(86_400);

/// The moment from which the timestamps of this process count.
struct Origin {
    instant: Instant,
    /// The same moment on the boot-time clock, in nanoseconds.
    #[cfg(target_os = "linux")]
    boot: i128,
}

fn origin() -> &'static Origin {
    static ORIGIN: OnceLock<Origin> = OnceLock::new();
    ORIGIN.get_or_init(|| {
        let now = Instant::now();
        let instant = now.checked_sub(LEAD).unwrap_or(now);
        Origin {
            instant,
            #[cfg(target_os = "linux")]
            boot: {
                let (now, boot) = BootClock::read_beside_the_monotonic_clock();
                boot - nanos_i128(now - instant)
            },
        }
    })
}

fn nanos_i128(time: Duration) -> i128 {
    i128::from(time.as_secs()) * 1_000_000_000 + i128::from(time.subsec_nanos())
}

/// Reads the true time: the system's monotonic clock, which [`Instant`] reads, too.
pub(super) fn true_now() -> Timestamp {
    Instant::now().into()
}

/// Reads the time of day from the system's clock, which a user may set.
fn system_time() -> SystemTime {
    SystemTime::now()
}

/// Converts instants after the origin exactly. The origin is a day before the process's first use of this crate.
/// Instants before the origin become [`Timestamp::ZERO`].
impl From<Instant> for Timestamp {
    fn from(instant: Instant) -> Self {
        Timestamp::ZERO + instant.saturating_duration_since(origin().instant)
    }
}

/// Converts exactly where the system's [`Instant`] counts nanoseconds, as on Linux. A moment beyond the range of
/// `Instant` becomes a moment that is centuries ahead.
impl From<Timestamp> for Instant {
    fn from(timestamp: Timestamp) -> Self {
        let origin = origin().instant;
        let mut since = timestamp - Timestamp::ZERO;
        loop {
            match origin.checked_add(since) {
                Some(instant) => return instant,
                None => since /= 2,
            }
        }
    }
}

/// Converts a time of day by the present difference between the time of day and the monotonic clock. So the result
/// changes when a user sets the time of day. Moments before the origin become [`Timestamp::ZERO`].
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let (now, system_now) = (true_now(), system_time());
        match time.duration_since(system_now) {
            Ok(ahead) => now + ahead,
            Err(past) => now - past.duration(),
        }
    }
}

/// Converts to a time of day by the present difference between the time of day and the monotonic clock. A moment beyond
/// the range of `SystemTime` becomes a moment that is centuries ahead.
impl From<Timestamp> for SystemTime {
    fn from(timestamp: Timestamp) -> Self {
        let (now, system_now) = (true_now(), system_time());
        let Some(mut ahead) = timestamp.checked_duration_since(now) else {
            return system_now.checked_sub(now - timestamp).unwrap_or(SystemTime::UNIX_EPOCH);
        };
        loop {
            match system_now.checked_add(ahead) {
                Some(time) => return time,
                None => ahead /= 2,
            }
        }
    }
}

/// The system's monotonic clock ([`Instant`]). A reading costs two to three times as much as a reading of the default
/// clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock(());

impl SystemClock {
    /// Returns the system's clock. Its timestamps count from the process's origin, as the timestamps of the default
    /// clock do.
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        true_now()
    }

    fn report(&self) -> ClockReport {
        ClockReport::exact("system")
    }
}

/// The boot-time clock, which goes on while the machine is suspended.
///
/// A sleeping thread's timeout stands still while the machine is suspended. A shard with pending timers therefore wakes
/// once a second. So timers that came due while the machine was suspended fire within a second after it resumes.
///
/// The clock's timestamps count from the process's origin. They agree with the timestamps of the other clocks until the
/// machine is suspended for the first time after the origin was taken.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock(());

#[cfg(target_os = "linux")]
impl BootClock {
    const LONGEST_SLEEP: Duration = Duration::from_secs(1);

    /// Returns the boot-time clock.
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }

    /// Reads the monotonic clock, and soon afterwards the boot-time clock, in nanoseconds. The thread may lose its core
    /// between the two readings. So the method takes a few pairs of readings, and returns the closest pair.
    fn read_beside_the_monotonic_clock() -> (Instant, i128) {
        let read = |_| {
            let (before, boot) = (Instant::now(), Self::since_boot());
            (before.elapsed(), before, boot)
        };
        let (_apart, now, boot) = (0..8).map(read).min_by_key(|&(apart, ..)| apart).expect("eight pairs");
        (now, boot)
    }

    fn since_boot() -> i128 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    }
}

#[cfg(target_os = "linux")]
impl Clock for BootClock {
    fn now(&self) -> Timestamp {
        let origin = origin().boot;
        Timestamp::from_nanos(u64::try_from(Self::since_boot() - origin).unwrap_or(0))
    }

    fn report(&self) -> ClockReport {
        ClockReport::exact("boot")
    }

    fn sleep_for(&self, now: Timestamp, deadline: Timestamp) -> Option<Duration> {
        Some((deadline - now).min(Self::LONGEST_SLEEP))
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn instants_convert_exactly_both_ways_and_from_before_the_first_use() {
        let now = Instant::now();
        for instant in [now, now + Duration::from_nanos(1), now + Duration::from_secs(1 << 32)] {
            assert_eq!(Instant::from(Timestamp::from(instant)), instant);
        }
        if let Some(earlier) = now.checked_sub(LEAD / 2) {
            assert_eq!(Timestamp::from(now) - Timestamp::from(earlier), LEAD / 2);
        }
        assert!(Instant::from(Timestamp::MAX) > now + Duration::from_secs(100 * 365 * 86_400));
    }

    #[test]
    fn the_time_of_day_converts_by_the_difference_of_the_moment() {
        let near = |a: SystemTime, b: SystemTime| {
            let apart = a.duration_since(b).unwrap_or_else(|error| error.duration());
            assert!(apart < Duration::from_secs(1), "{apart:?}");
        };
        let now = SystemTime::now();
        for time in [now, now + Duration::from_secs(3_600), now - Duration::from_secs(60)] {
            near(Timestamp::from(time).into(), time);
        }
        assert_eq!(Timestamp::from(SystemTime::UNIX_EPOCH), Timestamp::ZERO);
        assert!(SystemTime::from(Timestamp::MAX) > now + Duration::from_secs(100 * 365 * 86_400));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_clocks_agree_on_the_origin() {
        let (before, boot, after) =
            (SystemClock::new().now(), BootClock::new().now(), SystemClock::new().now());
        // A machine that was suspended in between would be an exception.
        let slack = Duration::from_micros(50);
        assert!(before <= boot + slack && boot <= after + slack, "{before} {boot} {after}");
    }
}
