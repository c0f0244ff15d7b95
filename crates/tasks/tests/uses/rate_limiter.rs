//! Rate limiters, on a clock that the test moves.

use crate::SECOND;
use crate::support::{HOUR, Log, MS, Rng};
use std::time::Duration;
use tourbillon::{Builder, Cancel, Refusal, Timestamp};
use tourbillon_tasks::uses::{Acquired, Rate, RateError, RateLimiter};
use tourbillon_tasks::{DrivenTasks, Tasks};

fn driven() -> DrivenTasks {
    DrivenTasks::start(Builder::new().tick(MS)).unwrap()
}

/// Takes all permits that are ready, and returns their number.
fn take_all(limiter: &RateLimiter) -> usize {
    (0..).take_while(|_| limiter.acquire() == Acquired::Now).count()
}

/// Returns whether a permit at `next` keeps the bound of the rate, after permits at `moments`. The bound is that `n`
/// successive permits span at least `n - burst` intervals.
fn fits(moments: &[Timestamp], next: Timestamp, interval: Duration, burst: u32) -> bool {
    let least = |permits: u32| interval * (permits.max(burst) - burst);
    moments.iter().rev().zip(2..).all(|(&first, permits)| next >= first + least(permits))
}

#[test]
fn a_full_bucket_is_taken_at_once_and_comes_back_permit_by_permit() {
    let mut tasks = driven();
    let limiter = tasks.handle().rate_limiter(Rate::every(10 * MS).burst(5)).unwrap();
    assert_eq!(take_all(&limiter), 5);
    let next = tasks.handle().now() + 10 * MS;
    assert_eq!(limiter.acquire(), Acquired::NotBefore(next));
    tasks.advance(10 * MS - Duration::from_nanos(1));
    assert_eq!(limiter.acquire(), Acquired::NotBefore(next), "a nanosecond early");
    tasks.advance(Duration::from_nanos(1));
    assert_eq!(take_all(&limiter), 1);
    tasks.advance(35 * MS);
    assert_eq!(take_all(&limiter), 3);
    tasks.advance(HOUR);
    assert_eq!(take_all(&limiter), 5, "no more than the bucket holds");
}

#[test]
fn closures_run_at_the_moments_of_their_permits_in_the_order_of_the_calls() {
    let mut tasks = driven();
    let limiter = tasks.handle().rate_limiter(Rate::every(10 * MS).burst(2)).unwrap();
    let log = Log::new();
    for n in 0..6 {
        let (sink, now) = (log.clone(), Tasks::clone(tasks.handle()));
        limiter.run_when_due(move || sink.push((n, now.now()))).unwrap();
    }
    let start = tasks.handle().now();
    assert_eq!(
        limiter.acquire(),
        Acquired::NotBefore(start + 50 * MS),
        "closures that wait have their permits"
    );
    tasks.advance(SECOND);
    let seen = log.take();
    assert_eq!(seen.iter().map(|&(n, _)| n).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    for (n, at) in seen {
        let moment = start + 10 * MS * u32::saturating_sub(n, 1);
        assert!(at >= moment && at - moment <= MS, "closure {n} at {at}");
    }
}

#[test]
fn a_reserved_permit_has_its_moment_and_later_ones_come_after_it() {
    let mut tasks = driven();
    let limiter = tasks.handle().rate_limiter(Rate::every(10 * MS)).unwrap();
    let start = tasks.handle().now();
    assert_eq!([(); 3].map(|()| limiter.reserve()), [start, start + 10 * MS, start + 20 * MS]);
    tasks.advance(20 * MS);
    assert_eq!(limiter.acquire(), Acquired::NotBefore(start + 30 * MS));
}

/// Callers acquire or reserve at random moments. The limiter keeps the bound of its rate. The limiter refuses a permit
/// only if the permit would break the bound.
#[test]
fn the_bound_holds_and_is_reached() {
    let mut refused = 0;
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let interval = rng.nanos_below(5 * MS) + Duration::from_nanos(1);
        let burst = 1 + u32::try_from(rng.below(6)).unwrap();
        let mut tasks = driven();
        let limiter = tasks.handle().rate_limiter(Rate::every(interval).burst(burst)).unwrap();
        let mut moments = Vec::new();
        for _ in 0..200 {
            let now = tasks.handle().now();
            let permit = match rng.below(4) {
                0 => limiter.reserve(),
                1 => {
                    tasks.advance(rng.nanos_below(3 * interval));
                    continue;
                }
                _ => match limiter.acquire() {
                    Acquired::Now => now,
                    Acquired::NotBefore(moment) => {
                        let earlier = Timestamp::from_nanos(moment.as_nanos() - 1);
                        assert!(earlier >= now && !fits(&moments, earlier, interval, burst), "seed {seed}");
                        refused += 1;
                        continue;
                    }
                },
            };
            assert!(permit >= now && fits(&moments, permit, interval, burst), "seed {seed}: {permit}");
            moments.push(permit);
        }
    }
    assert!(refused > 1_000, "{refused} refusals show little");
}

#[test]
fn a_refused_closure_comes_back_and_has_taken_no_permit() {
    let mut tasks = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    let limiter = tasks.handle().rate_limiter(Rate::every(10 * MS)).unwrap();
    let log = Log::new();
    let [first, second, third] = [(); 3].map(|()| log.clone());
    limiter.run_when_due(move || first.push(1)).unwrap();
    let refused = limiter.run_when_due(move || second.push(2)).unwrap_err();
    assert_eq!(refused.kind, Refusal::EngineFull);
    (refused.payload)();
    assert_eq!(log.take(), [2]);
    assert_eq!(
        limiter.acquire(),
        Acquired::NotBefore(tasks.handle().now() + 10 * MS),
        "one permit was taken"
    );
    tasks.advance(5 * MS);
    assert_eq!(log.take(), [1]);
    limiter.run_when_due(move || third.push(3)).unwrap();
    for unfired in tasks.handle().shutdown() {
        (unfired.payload)();
    }
    assert_eq!(log.take(), [3], "a shutdown returns what waits");
    assert_eq!(limiter.run_when_due(|| {}).unwrap_err().kind, Refusal::ShutDown);
    tasks.clock().advance(HOUR);
    assert_eq!(take_all(&limiter), 1, "the bound goes on without the engine");
}

#[test]
fn a_cancelled_closure_does_not_give_its_permit_back() {
    let mut tasks = driven();
    let limiter = tasks.handle().rate_limiter(Rate::every(10 * MS)).unwrap();
    let log = Log::new();
    let start = tasks.handle().now();
    let ids = [0, 1, 2].map(|n| {
        let sink = log.clone();
        limiter.run_when_due(move || sink.push(n)).unwrap()
    });
    assert!(matches!(tasks.handle().cancel(ids[1]), Cancel::Cancelled(())));
    assert_eq!(limiter.acquire(), Acquired::NotBefore(start + 30 * MS));
    tasks.advance(SECOND);
    assert_eq!(log.take(), [0, 2]);
}

#[test]
fn a_rate_that_limits_nothing_or_allows_nothing_is_refused() {
    let tasks = driven();
    let refused = |rate| tasks.handle().rate_limiter(rate).unwrap_err();
    assert_eq!(refused(Rate::every(Duration::ZERO)), RateError::ZeroInterval);
    assert_eq!(refused(Rate::every(Duration::ZERO).burst(3)), RateError::ZeroInterval);
    assert_eq!(refused(Rate::every(SECOND).burst(0)), RateError::ZeroBurst);
    assert_eq!(RateError::ZeroInterval.to_string(), "the interval between two permits is zero");
}

#[test]
fn rates_without_bounds_and_without_end_do_not_overflow() {
    let tasks = driven();
    let fast = tasks.handle().rate_limiter(Rate::every(Duration::from_nanos(1)).burst(u32::MAX)).unwrap();
    assert!((0..1_000).all(|_| fast.acquire() == Acquired::Now));
    for burst in [1, 3, u32::MAX] {
        let limiter = tasks.handle().rate_limiter(Rate::every(Duration::MAX).burst(burst)).unwrap();
        let wanted = usize::try_from(burst.min(1_000)).unwrap();
        assert!((0..wanted).all(|_| limiter.acquire() == Acquired::Now));
        if burst < 1_000 {
            assert_eq!(limiter.acquire(), Acquired::NotBefore(Timestamp::MAX));
            assert_eq!((limiter.reserve(), limiter.reserve()), (Timestamp::MAX, Timestamp::MAX));
        }
    }
}
