//! Limits the rate at which late timers are delivered. After a downtime there may be millions of late timers.
//!
//! Each delivery of a late timer uses a permit from a token bucket. The bucket fills at the permitted rate, so
//! deliveries of late timers cannot exceed this rate.

use crate::store::{Late, Leased};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use tourbillon_words::UtcMillis;

/// The greatest lateness at which a timer needs no permit to be delivered. A permit is the right to one late delivery.
const LATE: Duration = Duration::from_secs(5);
/// The longest time to the next claim of timers, if a namespace has some permits (rights to a late delivery), but not
/// as many as its [`Bucket`] can hold. The namespace may have had no permit during the last claim. In this case, the
/// claim has left late timers of this namespace in the store.
const SOON: Duration = Duration::from_millis(10);

/// Limits the rate at which late timers are delivered, either for all namespaces together or for each namespace
/// separately.
#[derive(Debug)]
pub(crate) enum CatchUp {
    Together(Together),
    InTurn(InTurn),
}

impl CatchUp {
    pub(crate) fn new(rate: Option<u32>, is_in_turn: bool) -> Self {
        match is_in_turn {
            false => Self::Together(Together::new(rate)),
            true => Self::InTurn(InTurn::new(rate)),
        }
    }
}

/// Limits the rate at which late timers are delivered, for the timers of all namespaces together.
#[derive(Debug)]
pub(crate) struct Together {
    /// The number of deliveries of late timers per second. `None` means no limit.
    rate: Option<u32>,
    bucket: Bucket,
    is_catching_up: bool,
}

/// Limits the rate at which late timers are delivered, for each namespace separately.
#[derive(Debug)]
pub(crate) struct InTurn {
    rate: Option<u32>,
    /// The buckets that are not full, by namespace. A [`Bucket`] has the permits (rights to a late delivery) of one
    /// namespace. A namespace without an entry has a full bucket.
    buckets: BTreeMap<Box<str>, Bucket>,
}

/// A bucket of permits to deliver late timers, which fills at the permitted rate of late deliveries. A full bucket
/// holds the permits of a tenth of a second, but at least a single permit.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// The moment that determines the number of permits (rights to a late delivery) in the bucket. This number is the
    /// rate multiplied by the time from this moment to now. The use of permits moves the moment to a later time.
    used_until: UtcMillis,
    /// The used permits (rights to a late delivery) that `used_until` does not account for yet, in thousandths of a
    /// permit. `used_until` moves by whole milliseconds, so a fraction may remain.
    rest: u64,
}

impl Bucket {
    /// Returns the time, in milliseconds, in which an empty bucket becomes full. The time is enough for at least one
    /// permit (right to a late delivery), because a smaller bucket would never have a permit.
    fn burst(rate: u32) -> u64 {
        1_000_u64.div_ceil(u64::from(rate)).max(100)
    }

    /// Removes the permits (rights to a late delivery) that do not fit into the bucket at `now`. Returns true if the
    /// bucket is full. If `used_until` is more than two seconds after `now`, the clock has stepped back. In this case,
    /// the bucket is filled at once: otherwise it would have no permit until the clock reaches `used_until` again.
    fn fill(&mut self, rate: u32, now: UtcMillis) -> bool {
        let full = UtcMillis::from_millis(now.as_millis().saturating_sub(Self::burst(rate)));
        let is_full = self.used_until < full || self.used_until > now + Duration::from_secs(2);
        if is_full {
            (self.used_until, self.rest) = (full, 0);
        }
        is_full
    }

    /// Returns the number of permits (rights to a late delivery) in the bucket at `now`. If the bucket has no permit,
    /// fails with the time until the bucket gets a permit.
    fn permits(&self, rate: u32, now: UtcMillis) -> Result<u32, Duration> {
        let millis = u64::try_from((now - self.used_until).as_millis()).unwrap_or(u64::MAX);
        let permits = (millis * u64::from(rate)).saturating_sub(self.rest) / 1_000;
        if permits == 0 {
            let missing = (1_000 + self.rest).div_ceil(u64::from(rate)).saturating_sub(millis).max(1);
            // The last claim may have used more permits than the bucket had, so `used_until` may be in the future.
            return Err(Duration::from_millis(missing) + (self.used_until - now));
        }
        Ok(u32::try_from(permits).unwrap_or(u32::MAX))
    }

    fn take(&mut self, rate: u32, permits: u32) {
        let used = u64::from(permits) * 1_000 + self.rest;
        self.used_until = self.used_until + Duration::from_millis(used / u64::from(rate));
        self.rest = used % u64::from(rate);
    }
}

impl Together {
    pub(crate) fn new(rate: Option<u32>) -> Self {
        // With the rate 0, no late timer would ever be delivered, and the bucket would divide by zero.
        Self { rate: rate.map(|rate| rate.max(1)), bucket: Bucket::default(), is_catching_up: false }
    }

    /// Returns the number of timers that a claim may take, at most `wanted`. `next_due` is the due moment of the first
    /// pending timer, or `None` before the first claim. If the timers may be late and there is no permit (right to a
    /// late delivery), fails with the time until there is a permit.
    pub(crate) fn permits(
        &mut self,
        next_due: Option<UtcMillis>,
        now: UtcMillis,
        wanted: u32,
    ) -> Result<u32, Duration> {
        let Some(rate) = self.rate else { return Ok(wanted) };
        // Before the first claim the due moments of the timers are unknown, so the timers may be late.
        self.is_catching_up = next_due.is_none_or(|due| now - due > LATE);
        if !self.is_catching_up {
            return Ok(wanted);
        }
        self.bucket.fill(rate, now);
        self.bucket.permits(rate, now).map(|permits| permits.min(wanted))
    }

    /// Records that a claim has taken `claimed` timers. If [`permits`](Self::permits) found that these timers may be
    /// late, uses a permit (right to a late delivery) for each of them.
    pub(crate) fn note(&mut self, claimed: u32) {
        if let Some(rate) = self.rate.filter(|_| self.is_catching_up) {
            self.bucket.take(rate, claimed);
        }
    }
}

impl InTurn {
    pub(crate) fn new(rate: Option<u32>) -> Self {
        Self { rate: rate.map(|rate| rate.max(1)), buckets: BTreeMap::new() }
    }

    /// Returns the number of late timers that a claim may take from each namespace. `None` means no limit.
    pub(crate) fn permits(&mut self, now: UtcMillis) -> Option<Late> {
        let rate = self.rate?;
        self.buckets.retain(|_, bucket| !bucket.fill(rate, now));
        let left = self.buckets.iter().map(|(namespace, bucket)| {
            let permits = bucket.permits(rate, now).unwrap_or(0);
            (namespace.clone(), usize::try_from(permits).unwrap_or(usize::MAX))
        });
        let left = Arc::new(left.collect());
        let each = Bucket::burst(rate) * u64::from(rate) / 1_000;
        Some(Late::new(LATE, usize::try_from(each).unwrap_or(usize::MAX), left))
    }

    /// Uses a permit (right to a late delivery) for each late timer that a claim has taken. The permit comes from the
    /// bucket of the timer's namespace.
    pub(crate) fn note(&mut self, claimed: &[Leased], now: UtcMillis) {
        let Some(rate) = self.rate else { return };
        for Leased { timer, .. } in claimed.iter().filter(|leased| now - leased.timer.due > LATE) {
            let bucket = self.buckets.entry(timer.namespace.clone()).or_insert_with(|| {
                let mut bucket = Bucket::default();
                bucket.fill(rate, now);
                bucket
            });
            bucket.take(rate, 1);
        }
    }

    /// Returns the time until a claim may take more late timers. Returns `None` if each namespace has a full bucket of
    /// permits (rights to a late delivery). If a bucket has permits but is not full, the time is at most [`SOON`]. Such
    /// a bucket may have been empty during the last claim, which then left late timers in the store.
    ///
    /// The time may be long if the store keeps its timers in several shards. Each shard may count the late timers of a
    /// claim separately, so the claim may use more permits than the bucket had. Such a bucket gets its next permit only
    /// after the time in which these additional permits would have come.
    pub(crate) fn rest(&self, now: UtcMillis) -> Option<Duration> {
        let rate = self.rate?;
        let rests = self.buckets.values().map(|bucket| bucket.permits(rate, now).err().unwrap_or(SOON));
        rests.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::plain;
    use crate::state::Token;
    use crate::timer::Timer;

    /// Returns the number of late timers that are delivered in `millis` milliseconds if each claim is made as soon as
    /// it is permitted.
    fn deliveries(rate: u32, millis: u64) -> u64 {
        let mut catch_up = Together::new(Some(rate));
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
        let mut catch_up = Together::new(Some(1));
        let now = UtcMillis::from_millis(1_000_000);
        for _ in 0..100 {
            assert_eq!(catch_up.permits(Some(now), now, 64), Ok(64));
            catch_up.note(64);
        }
        assert_eq!(Together::new(None).permits(None, now, 64), Ok(64));
    }

    fn leased(namespace: &str, due: UtcMillis) -> Leased {
        let timer = Timer { namespace: namespace.into(), due, ..plain() };
        Leased { timer, token: Token { incarnation: 1, claim: 1 } }
    }

    #[test]
    fn each_namespace_has_the_rate_for_itself() {
        for rate in [1, 7, 1_000, 50_000] {
            let mut catch_up = InTurn::new(Some(rate));
            let start = 1_000_000;
            let (mut now, mut delivered) = (start, [0, 0]);
            while now < start + 100_000 {
                let moment = UtcMillis::from_millis(now);
                let late = catch_up.permits(moment).unwrap();
                for (namespace, delivered) in ["a", "b"].into_iter().zip(&mut delivered) {
                    let count = late.left(namespace).min(64);
                    catch_up.note(&vec![leased(namespace, UtcMillis::ZERO); count], moment);
                    *delivered += count as u64;
                }
                if catch_up.permits(moment).unwrap().left("a") == 0 {
                    now += u64::try_from(catch_up.rest(moment).unwrap().as_millis()).unwrap();
                }
            }
            let wanted = u64::from(rate) * 100;
            let range = wanted.saturating_sub(1)..=wanted + u64::from(rate) / 10 + 64;
            assert!(delivered.iter().all(|delivered| range.contains(delivered)), "{rate}: {delivered:?}");
        }
    }

    #[test]
    fn timers_in_time_use_no_permit_of_their_namespace() {
        let mut catch_up = InTurn::new(Some(10));
        let now = UtcMillis::from_millis(1_000_000);
        catch_up.note(&vec![leased("a", now); 1_000], now);
        assert!(catch_up.permits(now).unwrap().left("a") > 0);
        catch_up.note(&[leased("a", UtcMillis::ZERO)], now);
        assert_eq!(catch_up.permits(now).unwrap().left("a"), 0);
        assert!(catch_up.rest(now).is_some(), "the loop looks again once there is a permit");
        assert!(
            catch_up.permits(now + Duration::from_secs(1)).unwrap().left.is_empty(),
            "a full bucket is forgotten"
        );
        assert!(InTurn::new(None).permits(now).is_none());
    }
}
