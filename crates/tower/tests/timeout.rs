//! Tests the layer on a clock that the test moves. Tests that need threads run in real time.

use std::convert::Infallible;
use std::error::Error;
use std::future::{pending, ready};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon::future::Wakeup;
use tourbillon::{Builder, DrivenEngine};
use tourbillon_tower::{Elapsed, Part, ResponseFuture, Timeout, TimeoutError, TimeoutLayer};
use tower_layer::Layer;
use tower_service::Service;

const SECOND: Duration = Duration::from_secs(1);
/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request that tells the service how to behave.
#[derive(Clone, Copy, Debug)]
enum Order {
    Answer,
    Fail,
    NeverAnswer,
    PanicInCall,
    PanicInPoll,
}

/// A service that behaves as the request says. `alive` counts the service's futures that were not dropped yet.
#[derive(Clone, Debug, Default)]
struct Obedient {
    alive: Arc<AtomicU64>,
    readiness: Readiness,
}

#[derive(Clone, Copy, Debug, Default)]
enum Readiness {
    #[default]
    Ready,
    Waiting,
    Broken,
}

/// A future that a counter includes until the future is dropped.
struct Counted<F>(F, Arc<AtomicU64>);

impl<F> Drop for Counted<F> {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Service<Order> for Obedient {
    type Response = u32;
    type Error = io::Error;
    type Future = Counted<Pin<Box<dyn Future<Output = Result<u32, io::Error>> + Send>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        match self.readiness {
            Readiness::Ready => Poll::Ready(Ok(())),
            Readiness::Waiting => Poll::Pending,
            Readiness::Broken => Poll::Ready(Err(io::Error::other("broken"))),
        }
    }

    fn call(&mut self, order: Order) -> Self::Future {
        let future: Pin<Box<dyn Future<Output = Result<u32, io::Error>> + Send>> = match order {
            Order::Answer => Box::pin(ready(Ok(17))),
            Order::Fail => Box::pin(ready(Err(io::Error::other("refused")))),
            Order::NeverAnswer => Box::pin(pending()),
            Order::PanicInCall => panic!("ordered in call"),
            Order::PanicInPoll => Box::pin(async { panic!("ordered in poll") }),
        };
        self.alive.fetch_add(1, Ordering::Relaxed);
        Counted(future, Arc::clone(&self.alive))
    }
}

type Response = ResponseFuture<<Obedient as Service<Order>>::Future>;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn driven(limit: Duration) -> (DrivenEngine<Wakeup>, Timeout<Obedient>) {
    let engine = Builder::new().driven_futures().unwrap();
    let service = TimeoutLayer::new(limit).on(engine.handle()).layer(Obedient::default());
    (engine, service)
}

fn alive(engine: &DrivenEngine<Wakeup>) -> u64 {
    engine.handle().stats().owned.alive
}

/// Returns the error of the limit from a response that failed because its limit has passed.
fn elapsed(outcome: Poll<Result<u32, TimeoutError<io::Error>>>) -> Elapsed {
    match outcome {
        Poll::Ready(Err(TimeoutError::Elapsed(elapsed))) => elapsed,
        other => panic!("{other:?}"),
    }
}

fn is_answered(response: &mut Response) -> bool {
    matches!(poll(response), Poll::Ready(Ok(17)))
}

// --- Answers and errors that are passed on ---

#[test]
fn an_answer_and_an_error_are_passed_on_and_cost_no_timer() {
    let (engine, mut service) = driven(SECOND);
    assert!(is_answered(&mut service.call(Order::Answer)));
    let Poll::Ready(Err(TimeoutError::Inner(error))) = poll(&mut service.call(Order::Fail)) else { panic!() };
    assert_eq!(error.to_string(), "refused");
    let stats = engine.handle().stats();
    assert_eq!((stats.owned.alive, stats.owned.fired), (0, 0));
}

#[test]
fn readiness_is_passed_through() {
    let (engine, mut service) = driven(SECOND);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(service.poll_ready(&mut cx), Poll::Ready(Ok(()))));
    service.get_mut().readiness = Readiness::Waiting;
    assert!(service.poll_ready(&mut cx).is_pending());
    service.get_mut().readiness = Readiness::Broken;
    let Poll::Ready(Err(TimeoutError::Inner(error))) = service.poll_ready(&mut cx) else { panic!() };
    assert_eq!(error.to_string(), "broken");
    assert_eq!(alive(&engine), 0);
}

#[test]
fn a_clone_is_limited_as_the_original_is() {
    let (mut engine, mut service) = driven(SECOND);
    let mut clone = service.clone();
    let (mut one, mut other) = (service.call(Order::NeverAnswer), clone.call(Order::NeverAnswer));
    assert!(poll(&mut one).is_pending() && poll(&mut other).is_pending());
    assert_eq!(alive(&engine), 2);
    engine.advance(SECOND);
    assert_eq!(elapsed(poll(&mut one)), elapsed(poll(&mut other)));
}

// --- The limit ---

#[test]
fn it_elapses_at_its_limit_and_not_before() {
    let (mut engine, mut service) = driven(SECOND);
    let mut response = service.call(Order::NeverAnswer);
    assert!(poll(&mut response).is_pending());
    assert_eq!(alive(&engine), 1, "one timer for a request");
    engine.advance(SECOND - Duration::from_nanos(1));
    assert!(poll(&mut response).is_pending());
    engine.advance(Duration::from_nanos(1));
    let elapsed = elapsed(poll(&mut response));
    assert_eq!((elapsed.part(), elapsed.limit(), elapsed.is_shut_down()), (Part::Response, SECOND, false));
    assert_eq!(elapsed.to_string(), "no response within 1s");
    drop(response);
    assert_eq!(alive(&engine), 0);
}

#[test]
fn the_time_begins_with_the_call_and_not_with_the_first_poll() {
    let (mut engine, mut service) = driven(SECOND);
    let mut response = service.call(Order::NeverAnswer);
    engine.advance(SECOND);
    elapsed(poll(&mut response));
}

#[test]
fn an_answer_that_is_there_is_never_too_late() {
    let (mut engine, mut service) = driven(SECOND);
    let mut response = service.call(Order::Answer);
    engine.advance(10 * SECOND);
    assert!(is_answered(&mut response));
}

#[test]
fn a_limit_of_zero_leaves_what_is_there_at_once() {
    let (engine, mut service) = driven(Duration::ZERO);
    assert!(is_answered(&mut service.call(Order::Answer)));
    assert_eq!(elapsed(poll(&mut service.call(Order::NeverAnswer))).limit(), Duration::ZERO);
    assert_eq!(alive(&engine), 0);
    // The same holds on an engine with a running clock.
    let engine = Builder::new().start_futures().unwrap();
    let mut service = Timeout::new(Obedient::default(), Duration::ZERO).on(engine.handle());
    for _ in 0..100 {
        assert!(is_answered(&mut service.call(Order::Answer)));
        elapsed(poll(&mut service.call(Order::NeverAnswer)));
    }
}

#[test]
fn the_longest_limit_is_none() {
    let (mut engine, mut service) = driven(Duration::MAX);
    let mut response = service.call(Order::NeverAnswer);
    for _ in 0..3 {
        assert!(poll(&mut response).is_pending());
        engine.advance(Duration::from_secs(100 * 365 * 24 * 3_600));
    }
    assert!(poll(&mut response).is_pending());
    drop(response);
    assert_eq!(alive(&engine), 0);
}

// --- Ends of other kinds ---

#[test]
fn a_dropped_response_drops_the_service_s_future_and_its_timer() {
    let (mut engine, mut service) = driven(SECOND);
    let mut response = service.call(Order::NeverAnswer);
    assert!(poll(&mut response).is_pending());
    drop(response);
    assert_eq!(service.get_ref().alive.load(Ordering::Relaxed), 0);
    assert_eq!(alive(&engine), 0);
    engine.advance(2 * SECOND);
    assert_eq!(engine.handle().stats().owned.fired, 0);
}

#[test]
fn a_service_that_panics_leaves_no_timer_and_can_be_called_again() {
    let (engine, mut service) = driven(SECOND);
    assert!(catch_unwind(AssertUnwindSafe(|| service.call(Order::PanicInCall))).is_err());
    let mut response = service.call(Order::PanicInPoll);
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut response))).is_err());
    drop(response);
    assert_eq!((alive(&engine), service.get_ref().alive.load(Ordering::Relaxed)), (0, 0));
    assert!(is_answered(&mut service.call(Order::Answer)));
}

#[test]
fn requests_in_flight_fail_when_the_engine_is_shut_down() {
    let (engine, mut service) = driven(SECOND);
    let mut responses: Vec<Response> = (0..100).map(|_| service.call(Order::NeverAnswer)).collect();
    assert!(responses.iter_mut().all(|response| poll(response).is_pending()));
    drop(engine);
    for response in &mut responses {
        let elapsed = elapsed(poll(response));
        assert!(elapsed.is_shut_down());
        assert_eq!(elapsed.to_string(), "the engine that limits a response to 1s was shut down");
    }
    // Later requests fail as well, except for requests that are answered at once.
    assert!(elapsed(poll(&mut service.call(Order::NeverAnswer))).is_shut_down());
    assert!(is_answered(&mut service.call(Order::Answer)));
}

#[test]
fn a_shutdown_wakes_the_tasks_that_wait() {
    let engine = Builder::new().start_futures().unwrap();
    let service = Timeout::new(Obedient::default(), Duration::from_secs(3_600)).on(engine.handle());
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let mut service = service.clone();
            std::thread::spawn(move || pollster::block_on(service.call(Order::NeverAnswer)).unwrap_err())
        })
        .collect();
    let begin = Instant::now();
    while engine.handle().stats().owned.alive < 8 {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    drop(engine);
    for waiting in waiting {
        let error = waiting.join().unwrap();
        assert!(error.elapsed().is_some_and(|elapsed| elapsed.is_shut_down()), "{error:?}");
    }
}

// --- Many ---

#[test]
fn ten_thousand_concurrent_requests_with_one_limit_elapse_and_none_early() {
    const REQUESTS: u64 = 10_000;
    const LIMIT: Duration = Duration::from_millis(200);
    let engine = Builder::new().start_futures().unwrap();
    let service = Timeout::new(Obedient::default(), LIMIT).on(engine.handle());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let count = runtime.block_on(async {
        let tasks: Vec<_> = (0..REQUESTS)
            .map(|index| {
                let mut service = service.clone();
                tokio::spawn(async move {
                    let begin = Instant::now();
                    match index % 2 {
                        0 => u64::from(service.call(Order::Answer).await.is_err()),
                        _ => {
                            let error = service.call(Order::NeverAnswer).await.unwrap_err();
                            assert!(begin.elapsed() >= LIMIT, "{:?}", begin.elapsed());
                            u64::from(error.elapsed().is_some_and(|elapsed| !elapsed.is_shut_down()))
                        }
                    }
                })
            })
            .collect();
        let mut count = 0;
        for task in tasks {
            count += task.await.unwrap();
        }
        count
    });
    assert_eq!(count, REQUESTS / 2);
    let begin = Instant::now();
    while engine.handle().stats().owned.alive > 0 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", engine.handle().stats().owned);
        std::thread::yield_now();
    }
    assert_eq!(service.get_ref().alive.load(Ordering::Relaxed), 0);
}

#[test]
fn the_process_s_own_engine_serves_where_none_is_given() {
    let mut service = TimeoutLayer::new(Duration::from_millis(20)).layer(Obedient::default());
    let begin = Instant::now();
    let error = pollster::block_on(service.call(Order::NeverAnswer)).unwrap_err();
    assert!(begin.elapsed() >= Duration::from_millis(20));
    assert!(error.elapsed().is_some());
    assert!(pollster::block_on(service.call(Order::Answer)).is_ok());
}

// --- The error ---

#[test]
fn the_error_becomes_tower_s_boxed_one() {
    type Boxed = Box<dyn Error + Send + Sync>;

    let (_engine, mut service) = driven(Duration::ZERO);
    let Poll::Ready(Err(error)) = poll(&mut service.call(Order::NeverAnswer)) else { panic!() };
    assert_eq!(error.to_string(), "no response within 0ns");
    let elapsed = error.elapsed().unwrap();
    assert_eq!(io::Error::from(elapsed).kind(), io::ErrorKind::TimedOut);
    assert_eq!(Boxed::from(error).downcast_ref::<Elapsed>(), Some(&elapsed));
    let Poll::Ready(Err(error)) = poll(&mut service.call(Order::Fail)) else { panic!() };
    assert!(Boxed::from(error).downcast_ref::<io::Error>().is_some());
    // An error that is boxed already is not boxed again.
    let boxed: TimeoutError<Boxed> = TimeoutError::Inner(Box::new(elapsed));
    assert!(Boxed::from(boxed).is::<Elapsed>());
    let never: Option<TimeoutError<Infallible>> = None;
    assert!(never.map(Boxed::from).is_none());
}

/// Compiles only if the service and its future meet the bounds that servers have.
fn assert_spawnable<S: Service<Order> + Clone + Send + Sync + 'static>(_: &S)
where
    S::Future: Send + 'static,
{
}

#[test]
fn it_may_be_cloned_and_sent() {
    assert_spawnable(&driven(SECOND).1);
}
