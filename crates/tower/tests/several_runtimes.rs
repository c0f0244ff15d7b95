//! A limit whose services are used in several tokio runtimes, where these have timers of their own.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tourbillon_tower::{RateLimit, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Clone)]
struct Echo;

impl Service<u64> for Echo {
    type Response = u64;
    type Error = Infallible;
    type Future = Ready<Result<u64, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(Ok(request))
    }
}

fn runtimes() -> [Runtime; 2] {
    let several = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    [Builder::new_current_thread().enable_time().build().unwrap(), several.unwrap()]
}

async fn call(service: &mut RateLimit<Echo>) {
    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    assert_eq!(service.call(17).await, Ok(17));
}

/// A service begins to wait in a runtime that ends. It goes on in another runtime, in a task or not, and outside of
/// runtimes. Its limit holds.
#[test]
fn a_service_outlives_the_runtime_in_which_it_began_to_wait() {
    const PERIOD: Duration = Duration::from_millis(200);
    for elsewhere in 0..3 {
        for (runtime, other) in runtimes().into_iter().zip(runtimes()) {
            let mut first = RateLimitLayer::new(1, PERIOD).unwrap().layer(Echo);
            let (mut waiting, mut behind) = (first.clone(), first.clone());
            let begin = runtime.block_on(async {
                call(&mut first).await;
                let begin = Instant::now();
                for service in [&mut waiting, &mut behind] {
                    assert!(service.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending());
                }
                begin
            });
            drop(runtime);
            let calls = async move {
                call(&mut waiting).await;
                let between = Instant::now();
                call(&mut behind).await;
                between
            };
            let between = match elsewhere {
                0 => other.block_on(calls),
                1 => other.block_on(other.spawn(calls)).unwrap(),
                _ => thread::spawn(|| pollster::block_on(calls)).join().unwrap(),
            };
            // The first instant is taken after the call.
            assert!(between - begin >= PERIOD - Duration::from_millis(50), "{:?}", between - begin);
            assert!(between.elapsed() < Duration::from_secs(30));
        }
    }
}

#[test]
fn a_limit_follows_the_clock_of_a_runtime_that_a_test_has_paused() {
    let begin = Instant::now();
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
        let mut service = RateLimit::new(Echo, 1, HOUR).unwrap();
        for _ in 0..3 {
            call(&mut service).await;
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(60));
}
