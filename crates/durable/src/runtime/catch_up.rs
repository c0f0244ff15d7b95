//! The rate at which timers are delivered that are late: after a downtime there may be millions.

use crate::utc::UtcMillis;
use core::time::Duration;

/// Timers that are late by more than this are caught up with.
const LATE: Duration = Duration::from_secs(5);

/// A bucket of permits that fills at the rate, up to those of a tenth of a second, and up to one at least.
#[derive(Debug)]
pub(crate) struct CatchUp {
    /// Deliveries a second; `None` without a limit.
    rate: Option<u32>,
    /// The moment until which permits are used up.
    used_until: UtcMillis,
    /// Permits that were used since `used_until` was last moved, as a fraction of a millisecond's.
    rest: u64,
    is_catching_up: bool,
}

impl CatchUp {
    pub(crate) fn new(rate: Option<u32>) -> Self {
        Self {
            rate: rate.map(|rate| rate.max(1)),
            used_until: UtcMillis::ZERO,
            rest: 0,
            is_catching_up: false,
        }
    }

    /// The number of timers that may be claimed, at most `wanted`, if the first of them is due at `next_due`, or if
    /// nothing is known of them. Fails with the time until there is a permit.
    pub(crate) fn permits(
        &mut self,
        next_due: Option<UtcMillis>,
        now: UtcMillis,
        wanted: u32,
    ) -> Result<u32, Duration> {
        let Some(rate) = self.rate else { return Ok(wanted) };
        // Before the first claim nothing is known of the timers, and they may be late.
        self.is_catching_up = next_due.is_none_or(|due| now - due > LATE);
        if !self.is_catching_up {
            return Ok(wanted);
        }
        // At least one permit's time: a bucket that holds less than one permit never fills.
        let burst = 1_000_u64.div_ceil(u64::from(rate)).max(100);
        let full = UtcMillis::from_millis(now.as_millis().saturating_sub(burst));
        if self.used_until < full || self.used_until > now + Duration::from_secs(2) {
            (self.used_until, self.rest) = (full, 0);
        }
        let millis = u64::try_from((now - self.used_until).as_millis()).unwrap_or(u64::MAX);
        let permits = (millis * u64::from(rate)).saturating_sub(self.rest) / 1_000;
        if permits == 0 {
            let missing = (1_000 + self.rest).div_ceil(u64::from(rate)).saturating_sub(millis).max(1);
            return Err(Duration::from_millis(missing));
        }
        Ok(wanted.min(u32::try_from(permits).unwrap_or(u32::MAX)))
    }

    /// Notes that so many timers were claimed.
    pub(crate) fn note(&mut self, claimed: u32) {
        let Some(rate) = self.rate.filter(|_| self.is_catching_up) else { return };
        let used = u64::from(claimed) * 1_000 + self.rest;
        self.used_until = self.used_until + Duration::from_millis(used / u64::from(rate));
        self.rest = used % u64::from(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of deliveries in `millis`, each looked for as soon as it is permitted.
    fn deliveries(rate: u32, millis: u64) -> u64 {
        let mut catch_up = CatchUp::new(Some(rate));
        let start = 1_000_000;
        let (mut now, mut delivered) = (start, 0);
        while now < start + millis {
            match catch_up.permits(Some(UtcMillis::ZERO), UtcMillis::from_millis(now), 64) {
                Ok(count) => {
                    assert!(count > 0);
                    catch_up.note(count);
                    delivered += u64::from(count);
                }
                Err(rest) => {
                    assert!(!rest.is_zero());
                    now += u64::try_from(rest.as_millis()).unwrap();
                }
            }
        }
        delivered
    }

    #[test]
    fn late_timers_come_at_the_rate() {
        for rate in [1, 3, 7, 100, 999, 1_000, 1_001, 50_000] {
            let delivered = deliveries(rate, 100_000);
            let wanted = u64::from(rate) * 100;
            assert!(
                (wanted.saturating_sub(1)..=wanted + u64::from(rate) / 10 + 64).contains(&delivered),
                "{rate}: {delivered}"
            );
        }
    }

    #[test]
    fn timers_that_are_in_time_are_not_held_back() {
        let mut catch_up = CatchUp::new(Some(1));
        let now = UtcMillis::from_millis(1_000_000);
        for _ in 0..100 {
            assert_eq!(catch_up.permits(Some(now), now, 64), Ok(64));
            catch_up.note(64);
        }
        assert_eq!(CatchUp::new(None).permits(None, now, 64), Ok(64));
    }
}
