//! Cases with a single task.

use super::{BlockOn, HOUR, MS, PATIENCE, await_alive, engine};
use std::convert::Infallible;
use std::future::{pending, poll_fn, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::Handle;
use tourbillon::future::{self, Sleep, Wakeup};
use tourbillon_tower::{RateLimit, Timeout, TimeoutError};
use tower_service::Service;

/// Polls the sleep once. Returns whether the sleep is over.
async fn is_ready_at_once(sleep: &mut Sleep) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *sleep).poll(cx).is_ready())).await
}

pub(crate) fn a_sleep_is_never_early(runtime: &impl BlockOn) {
    let engine = engine();
    runtime.block_on(async {
        for delay in [Duration::ZERO, Duration::from_nanos(1), MS / 2, MS, 3 * MS, 40 * MS] {
            let begin = engine.handle().now();
            engine.handle().sleep(delay).await;
            assert!(engine.handle().now() >= begin + delay);
            let deadline = engine.handle().now() + delay;
            engine.handle().sleep_until(deadline).await;
            assert!(engine.handle().now() >= deadline);
        }
    });
}

pub(crate) fn a_sleep_of_the_process_s_engine_is_never_early(runtime: &impl BlockOn) {
    runtime.block_on(async {
        let begin = future::now();
        future::sleep(5 * MS).await;
        assert!(future::now() >= begin + 5 * MS);
        assert!(future::timeout(5 * MS, pending::<()>()).await.is_err());
        assert!(future::now() >= begin + 10 * MS);
    });
}

pub(crate) fn a_timeout_elapses_and_not_early(runtime: &impl BlockOn) {
    let engine = engine();
    runtime.block_on(async {
        let begin = engine.handle().now();
        assert!(engine.handle().timeout(20 * MS, pending::<()>()).await.is_err());
        assert!(engine.handle().now() >= begin + 20 * MS);
        assert!(engine.handle().timeout(MS, engine.handle().sleep(HOUR)).await.is_err());
    });
}

pub(crate) fn a_timeout_passes_the_value_on(runtime: &impl BlockOn) {
    let engine = engine();
    runtime.block_on(async {
        assert_eq!(engine.handle().timeout(Duration::ZERO, ready(17)).await, Ok(17));
        let late = async {
            engine.handle().sleep(3 * MS).await;
            18
        };
        assert_eq!(engine.handle().timeout(HOUR, late).await, Ok(18));
    });
}

pub(crate) fn a_timeout_is_used_for_one_future_after_the_other(runtime: &impl BlockOn) {
    let engine = engine();
    runtime.block_on(async {
        let mut timeout = engine.handle().reusable_timeout();
        for round in 0..20 {
            assert_eq!(timeout.timeout(HOUR, ready(round)).await, Ok(round));
            assert!(timeout.timeout(HOUR, engine.handle().sleep(MS)).await.is_ok());
            let begin = engine.handle().now();
            assert!(timeout.timeout(2 * MS, pending::<()>()).await.is_err());
            assert!(engine.handle().now() >= begin + 2 * MS);
        }
        assert_eq!(engine.handle().stats().owned.alive, 1);
    });
}

pub(crate) fn an_interval_ticks_on_time_and_not_early(runtime: &impl BlockOn) {
    const PERIOD: Duration = Duration::from_millis(3);
    let engine = engine();
    runtime.block_on(async {
        let start = engine.handle().now();
        let mut interval = engine.handle().interval_at(start, PERIOD).unwrap();
        for count in 0..20 {
            let due = interval.tick().await;
            assert_eq!(due, start + count * PERIOD);
            assert!(engine.handle().now() >= due);
        }
    });
}

pub(crate) fn ten_thousand_sleeps_in_one_task_complete_and_none_early(runtime: &impl BlockOn) {
    let engine = engine();
    let now = engine.handle().now();
    let mut sleeps: Vec<Sleep> =
        (0..10_000).map(|index| engine.handle().sleep_until(now + index % 100 * MS)).collect();
    runtime
        .block_on(engine.handle().timeout(
            PATIENCE,
            poll_fn(|cx| {
                sleeps.retain_mut(|sleep| {
                    let is_done = Pin::new(&mut *sleep).poll(cx).is_ready();
                    assert!(!is_done || engine.handle().now() >= sleep.deadline());
                    !is_done
                });
                if sleeps.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            }),
        ))
        .expect("all complete");
    await_alive(&engine, 0);
}

pub(crate) fn a_sleep_wakes_the_thread_that_polled_it_last<R: BlockOn>(runtime: &R) {
    let engine = engine();
    let deadline = engine.handle().now() + 50 * MS;
    let mut sleep = engine.handle().sleep_until(deadline);
    let was_ready = runtime.block_on(is_ready_at_once(&mut sleep));
    // On a busy machine the sleep may be over already, but it must not be over early.
    assert!(!was_ready || engine.handle().now() >= deadline);
    let woken = thread::spawn(move || R::new().block_on(sleep));
    woken.join().unwrap();
    assert!(engine.handle().now() >= deadline);
}

pub(crate) fn a_dropped_future_leaves_no_timer(runtime: &impl BlockOn) {
    let engine = engine();
    runtime.block_on(async {
        let mut sleeps: Vec<Sleep> = (0..1_000).map(|_| engine.handle().sleep(HOUR)).collect();
        assert_eq!(engine.handle().stats().owned.alive, 0);
        for sleep in &mut sleeps {
            assert!(!is_ready_at_once(sleep).await);
        }
        assert_eq!(engine.handle().stats().owned.alive, 1_000);
        drop(sleeps);
        assert_eq!(engine.handle().stats().owned.alive, 0);
        assert!(engine.handle().timeout(MS, engine.handle().timeout(HOUR, pending::<()>())).await.is_err());
    });
    // The timer that fired may have been dropped while its shard still woke the task.
    await_alive(&engine, 0);
}

/// A service that answers after the time that the request names. A request without a time gets no answer.
#[derive(Clone)]
struct AfterSleep(Handle<Wakeup>);

impl Service<Option<Duration>> for AfterSleep {
    type Response = u32;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<u32, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, delay: Option<Duration>) -> Self::Future {
        let sleep = delay.map(|delay| self.0.sleep(delay));
        Box::pin(async {
            match sleep {
                Some(sleep) => sleep.await,
                None => pending().await,
            }
            Ok(17)
        })
    }
}

pub(crate) fn a_service_is_limited(runtime: &impl BlockOn) {
    let engine = engine();
    let mut patient = Timeout::new(AfterSleep(engine.handle().clone()), PATIENCE).on(engine.handle());
    let mut hasty = Timeout::new(AfterSleep(engine.handle().clone()), 5 * MS).on(engine.handle());
    runtime.block_on(async {
        assert_eq!(patient.call(Some(2 * MS)).await, Ok(17));
        let begin = Instant::now();
        let error = hasty.call(None).await.unwrap_err();
        assert!(begin.elapsed() >= 5 * MS);
        assert!(matches!(error, TimeoutError::Elapsed(elapsed) if !elapsed.is_shut_down()), "{error:?}");
    });
    await_alive(&engine, 0);
}

pub(crate) fn a_service_has_a_limited_rate(runtime: &impl BlockOn) {
    const PERIOD: Duration = Duration::from_millis(5);
    let engine = engine();
    let service = AfterSleep(engine.handle().clone());
    let mut limited = RateLimit::new(service, 2, PERIOD).unwrap().on(engine.handle());
    runtime.block_on(async {
        let mut period_began: Option<Instant> = None;
        for call in 0..6 {
            poll_fn(|cx| limited.poll_ready(cx)).await.unwrap();
            if call % 2 == 0 {
                let earlier = period_began.replace(Instant::now());
                assert!(earlier.is_none_or(|earlier| earlier.elapsed() >= PERIOD));
            }
            assert_eq!(limited.call(Some(Duration::ZERO)).await, Ok(17));
        }
    });
    drop(limited);
    await_alive(&engine, 0);
}
