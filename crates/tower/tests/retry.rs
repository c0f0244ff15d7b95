//! Tests the backoff by itself and under tower's `Retry`, on a clock that the test moves.
#![cfg(feature = "retry")]

use std::collections::BTreeSet;
use std::future::{Ready, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon::future::{Sleep, Wakeup};
use tourbillon::{Builder, DrivenEngine, Handle};
use tourbillon_tower::ExponentialBackoff;
use tower::retry::backoff::{Backoff, ExponentialBackoffMaker, MakeBackoff};
use tower::retry::budget::{Budget, TpsBudget};
use tower::retry::{Policy, Retry, RetryLayer};
use tower::util::rng::HasherRng;
use tower::{Layer, Service};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

fn driven() -> DrivenEngine<Wakeup> {
    let mut engine = Builder::new().driven_futures().unwrap();
    // A delay of zero has a deadline in the past, which differs from the present moment only later than this.
    engine.advance(SECOND);
    engine
}

/// Returns the next delay of a backoff.
fn delay(engine: &Handle<Wakeup>, backoff: &mut ExponentialBackoff) -> Duration {
    backoff.next_backoff().deadline() - engine.now()
}

// --- The delays ---

#[test]
fn bounds_double_up_to_the_cap() {
    let engine = driven();
    let mut backoff = ExponentialBackoff::new(50 * MS, SECOND).without_jitter().on(engine.handle());
    let delays: Vec<u128> = (0..8).map(|_| delay(engine.handle(), &mut backoff).as_millis()).collect();
    assert_eq!(delays, [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]);
    // A clone, and a backoff that it makes, begin anew.
    assert_eq!(delay(engine.handle(), &mut backoff.clone()), 50 * MS);
    assert_eq!(delay(engine.handle(), &mut backoff.make_backoff()), 50 * MS);
    assert_eq!(delay(engine.handle(), &mut backoff), SECOND);
}

#[test]
fn jitter_is_full_also_at_the_cap() {
    let engine = driven();
    let backoff = ExponentialBackoff::new(100 * MS, 400 * MS).seed(1).on(engine.handle());
    let sessions: Vec<Vec<Duration>> = (0..1_000)
        .map(|_| {
            let mut session = backoff.clone();
            (0..5).map(|_| delay(engine.handle(), &mut session)).collect()
        })
        .collect();
    for (index, bound) in [100, 200, 400, 400, 400].into_iter().enumerate() {
        let delays: BTreeSet<Duration> = sessions.iter().map(|session| session[index]).collect();
        let bound = bound * MS;
        assert!(delays.len() > 990, "nearly all differ");
        assert!(*delays.first().unwrap() < bound / 50 && *delays.last().unwrap() > bound * 49 / 50);
        assert!(*delays.last().unwrap() <= bound);
        let mean = delays.iter().sum::<Duration>() / u32::try_from(delays.len()).unwrap();
        assert!(mean > bound * 45 / 100 && mean < bound * 55 / 100, "{mean:?} of {bound:?}");
    }
}

#[test]
fn a_seed_repeats_the_delays_and_no_two_backoffs_share_them() {
    let engine = driven();
    let backoff = ExponentialBackoff::new(SECOND, 60 * SECOND).on(engine.handle());
    let delays = |mut backoff: ExponentialBackoff| -> Vec<Duration> {
        (0..5).map(|_| delay(engine.handle(), &mut backoff)).collect()
    };
    assert_eq!(delays(backoff.clone().seed(7)), delays(backoff.clone().seed(7)));
    assert_ne!(delays(backoff.clone().seed(7)), delays(backoff.clone().seed(8)));
    assert_ne!(delays(backoff.clone()), delays(backoff.clone()));
    let other = ExponentialBackoff::new(SECOND, 60 * SECOND).on(engine.handle());
    assert_ne!(delays(backoff), delays(other));
}

#[test]
fn any_durations_will_do() {
    let engine = driven();
    let century = Duration::from_secs(100 * 365 * 24 * 3_600);
    for first in [Duration::ZERO, NANO, SECOND, century, Duration::MAX] {
        for cap in [Duration::ZERO, NANO, SECOND, century, Duration::MAX] {
            for plain in [true, false] {
                let backoff = ExponentialBackoff::new(first, cap).on(engine.handle());
                let mut backoff = if plain { backoff.without_jitter() } else { backoff };
                for _ in 0..100 {
                    let wait = backoff.next_backoff();
                    assert!(wait.deadline() - engine.handle().now() <= cap);
                    assert!(!plain || first.min(cap).is_zero() || !wait.is_elapsed());
                }
            }
        }
    }
    let mut longest =
        ExponentialBackoff::new(Duration::MAX, Duration::MAX).without_jitter().on(engine.handle());
    assert_eq!(longest.next_backoff().deadline(), tourbillon::Timestamp::MAX);
    let mut none = ExponentialBackoff::new(Duration::ZERO, SECOND).on(engine.handle());
    assert!(Pin::new(&mut none.next_backoff()).poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

// --- Under tower's `Retry` ---

/// Retries failures while the budget lasts.
#[derive(Clone)]
struct Failures {
    left: u32,
    budget: Arc<TpsBudget>,
    backoff: ExponentialBackoff,
}

impl Policy<(), u64, &'static str> for Failures {
    type Future = Sleep;

    fn retry(&mut self, (): &mut (), result: &mut Result<u64, &'static str>) -> Option<Sleep> {
        if result.is_ok() {
            self.budget.deposit();
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        self.budget.withdraw().then(|| self.backoff.next_backoff())
    }

    fn clone_request(&mut self, (): &()) -> Option<()> {
        Some(())
    }
}

/// A service whose first calls fail.
#[derive(Clone)]
struct Failing {
    calls: Arc<AtomicU64>,
    failures: u64,
}

impl Failing {
    fn new(failures: u64) -> Self {
        Self { calls: Arc::default(), failures }
    }
}

impl Service<()> for Failing {
    type Response = u64;
    type Error = &'static str;
    type Future = Ready<Result<u64, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        ready(if call > self.failures { Ok(call) } else { Err("refused") })
    }
}

fn retrying(
    engine: &Handle<Wakeup>,
    failures: u64,
    retries_in_reserve: u32,
) -> (Retry<Failures, Failing>, Arc<AtomicU64>) {
    let backoff = ExponentialBackoff::new(50 * MS, SECOND).without_jitter().on(engine);
    // The reserve of a budget is for each second of ten.
    let budget = Arc::new(TpsBudget::new(SECOND, retries_in_reserve, 0.1));
    let service = Failing::new(failures);
    let calls = Arc::clone(&service.calls);
    (RetryLayer::new(Failures { left: 3, budget, backoff }).layer(service), calls)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn retries_come_after_their_delays_and_not_before() {
    let mut engine = driven();
    let (mut service, calls) = retrying(engine.handle(), 3, 100);
    let mut response = pin!(service.call(()));
    for (retry, wait) in [(1, 50 * MS), (2, 100 * MS), (3, 200 * MS)] {
        assert!(poll(response.as_mut()).is_pending());
        assert_eq!(calls.load(Ordering::Relaxed), retry);
        engine.advance(wait - NANO);
        assert!(poll(response.as_mut()).is_pending());
        assert_eq!(calls.load(Ordering::Relaxed), retry);
        engine.advance(NANO);
    }
    assert_eq!(poll(response.as_mut()), Poll::Ready(Ok(4)));
}

#[test]
fn each_request_begins_at_the_first_delay_and_has_its_own_attempts() {
    let mut engine = driven();
    let (mut service, calls) = retrying(engine.handle(), u64::MAX, 100);
    for _ in 0..2 {
        let mut response = pin!(service.call(()));
        for wait in [50 * MS, 100 * MS, 200 * MS] {
            assert!(poll(response.as_mut()).is_pending());
            engine.advance(wait);
        }
        assert_eq!(poll(response.as_mut()), Poll::Ready(Err("refused")));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 8);
}

#[test]
fn a_budget_that_is_used_up_ends_the_retries() {
    let mut engine = driven();
    let (mut service, calls) = retrying(engine.handle(), u64::MAX, 1);
    let mut response = pin!(service.call(()));
    assert!(poll(response.as_mut()).is_pending());
    engine.advance(50 * MS);
    assert_eq!(poll(response.as_mut()), Poll::Ready(Err("refused")), "the budget has one retry");
    assert_eq!(poll(pin!(service.call(()))), Poll::Ready(Err("refused")), "all requests share it");
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[test]
fn a_dropped_response_is_not_retried_and_leaves_no_timer() {
    let mut engine = driven();
    let (mut service, calls) = retrying(engine.handle(), u64::MAX, 100);
    let mut response = Box::pin(service.call(()));
    assert!(poll(response.as_mut()).is_pending());
    assert_eq!(engine.handle().stats().owned.alive, 1);
    drop(response);
    assert_eq!(engine.handle().stats().owned.alive, 0);
    engine.advance(10 * SECOND);
    assert_eq!((calls.load(Ordering::Relaxed), engine.handle().stats().owned.fired), (1, 0));
}

#[test]
fn no_retry_is_early_by_the_caller_s_clock_outside_of_a_runtime() {
    let mut backoff = ExponentialBackoff::new(2 * MS, 4 * MS).without_jitter();
    for bound in [2 * MS, 4 * MS, 4 * MS] {
        let begin = Instant::now();
        pollster::block_on(backoff.next_backoff());
        assert!(begin.elapsed() >= bound);
    }
    let mut backoff = ExponentialBackoff::new(5 * MS, 5 * MS);
    for _ in 0..20 {
        let begin = tourbillon::Timestamp::from(Instant::now());
        let wait = backoff.next_backoff();
        let deadline = wait.deadline();
        pollster::block_on(wait);
        let end = tourbillon::Timestamp::from(Instant::now());
        assert!(end >= deadline && deadline <= begin + 5 * MS + SECOND, "{begin:?} {deadline:?} {end:?}");
    }
}

/// The README names two differences from tower's own backoff. If this test fails, tower has changed.
#[test]
fn tower_s_own_backoff_repeats_its_delays_and_has_no_jitter_at_its_cap() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    let (first, cap) = (100 * SECOND, 150 * SECOND);
    let mut maker = ExponentialBackoffMaker::new(first, cap, 0.5, HasherRng::new()).unwrap();
    let mut delays = || -> Vec<u64> {
        let mut backoff = maker.make_backoff();
        // To the second: the moments of the calls differ by less.
        let delay =
            |_| (backoff.next_backoff().deadline() - tokio::time::Instant::now() + SECOND / 2).as_secs();
        (0..4).map(delay).collect()
    };
    let (one, other) = (delays(), delays());
    assert_eq!(one, other);
    assert_eq!(one[1..], [150, 150, 150]);
}

#[test]
fn it_may_be_shared_and_sent() {
    fn assert_spawnable<F: Send + Sync + 'static>(_: &F) {}
    let engine = driven();
    let (mut service, _) = retrying(engine.handle(), 0, 1);
    assert_spawnable(&service);
    assert_spawnable(&service.call(()));
}
