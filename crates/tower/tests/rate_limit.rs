//! Tests the limit of a rate on a clock that the test moves, also against a plain model. Tests that need threads run in
//! real time.

use proptest::prelude::*;
use proptest::test_runner::Config;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::future::Wakeup;
use tourbillon::{Builder, DrivenEngine};
use tourbillon_tower::{InvalidRate, RateLimit, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

/// A service that counts its calls, and may be not ready or broken.
#[derive(Clone, Debug, Default)]
struct Counting {
    calls: Arc<AtomicU64>,
    readiness: Readiness,
}

#[derive(Clone, Copy, Debug, Default)]
enum Readiness {
    #[default]
    Ready,
    Waiting,
    Broken,
}

impl Service<()> for Counting {
    type Response = u64;
    type Error = &'static str;
    type Future = Ready<Result<u64, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        match self.readiness {
            Readiness::Ready => Poll::Ready(Ok(())),
            Readiness::Waiting => Poll::Pending,
            Readiness::Broken => Poll::Ready(Err("broken")),
        }
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(self.calls.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

type Limited = RateLimit<Counting>;

fn driven(calls: u64, period: Duration) -> (DrivenEngine<Wakeup>, Limited) {
    let engine = Builder::new().driven_futures().unwrap();
    let layer = RateLimitLayer::new(calls, period).unwrap().on(engine.handle());
    (engine, layer.layer(Counting::default()))
}

/// Returns whether the service is ready.
fn poll(service: &mut Limited) -> bool {
    poll_with(service, Waker::noop())
}

fn poll_with(service: &mut Limited, waker: &Waker) -> bool {
    match service.poll_ready(&mut Context::from_waker(waker)) {
        Poll::Ready(outcome) => outcome.is_ok(),
        Poll::Pending => false,
    }
}

fn call(service: &mut Limited) {
    drop(service.call(()));
}

/// Calls the service until it is not ready. Returns the number of calls. The service waits for a slot afterwards.
fn exhaust(service: &mut Limited) -> u64 {
    let mut calls = 0;
    while poll(service) {
        call(service);
        calls += 1;
    }
    calls
}

fn alive(engine: &DrivenEngine<Wakeup>) -> u64 {
    engine.handle().stats().owned.alive
}

// --- The rate ---

#[test]
fn a_period_has_its_calls_and_ends_at_its_length_and_not_before() {
    let (mut engine, mut service) = driven(3, SECOND);
    for _ in 0..4 {
        assert_eq!(exhaust(&mut service), 3);
        engine.advance(SECOND - NANO);
        assert!(!poll(&mut service));
        engine.advance(NANO);
    }
    assert_eq!(service.get_ref().calls.load(Ordering::Relaxed), 12);
}

#[test]
fn a_period_begins_with_its_first_call() {
    let (mut engine, mut service) = driven(2, SECOND);
    assert!(poll(&mut service));
    engine.advance(10 * SECOND);
    call(&mut service);
    engine.advance(SECOND / 2);
    assert_eq!(exhaust(&mut service), 1);
    engine.advance(SECOND / 2);
    assert!(poll(&mut service), "the period began with the call, and not when the service became ready");
    // Pauses between periods do not add up to calls.
    call(&mut service);
    engine.advance(100 * SECOND);
    assert_eq!(exhaust(&mut service), 2);
}

#[test]
fn the_end_of_a_period_and_the_beginning_of_the_next_have_the_calls_of_both() {
    let (mut engine, mut service) = driven(10, SECOND);
    assert!(poll(&mut service));
    call(&mut service);
    engine.advance(SECOND - NANO);
    assert_eq!(exhaust(&mut service), 9);
    engine.advance(NANO);
    assert_eq!(exhaust(&mut service), 10);
}

#[test]
fn a_slot_that_is_reserved_before_the_end_of_a_period_counts_after_it() {
    let (mut engine, mut service) = driven(2, SECOND);
    let mut kept = service.clone();
    assert_eq!((poll(&mut kept), exhaust(&mut service)), (true, 1));
    engine.advance(SECOND);
    assert_eq!(exhaust(&mut service), 1, "the other slot is reserved");
    call(&mut kept);
    assert!(!poll(&mut service));
    engine.advance(SECOND);
    assert_eq!(exhaust(&mut service), 2);
}

#[test]
fn a_rate_of_nothing_is_refused_and_the_greatest_is_no_limit() {
    assert_eq!(RateLimitLayer::new(0, SECOND).unwrap_err(), InvalidRate::NoCalls);
    assert_eq!(RateLimitLayer::new(1, Duration::ZERO).unwrap_err(), InvalidRate::NoPeriod);
    assert_eq!(
        RateLimit::new((), 0, Duration::ZERO).unwrap_err().to_string(),
        "a rate of zero calls allows no call at all"
    );
    assert_eq!(InvalidRate::NoPeriod.to_string(), "the period of a rate is zero");
    let (mut engine, mut service) = driven(u64::MAX, Duration::MAX);
    for _ in 0..1_000 {
        assert!(poll(&mut service));
        call(&mut service);
        engine.advance(SECOND);
    }
}

#[test]
fn the_longest_period_does_not_end_and_the_shortest_does() {
    let (mut engine, mut service) = driven(2, Duration::MAX);
    assert_eq!(exhaust(&mut service), 2);
    engine.advance(Duration::from_secs(100 * 365 * 24 * 3_600));
    assert!(!poll(&mut service));
    drop(service);
    assert_eq!(alive(&engine), 0);

    let (mut engine, mut service) = driven(2, NANO);
    assert_eq!(exhaust(&mut service), 2);
    engine.advance(NANO);
    assert_eq!(exhaust(&mut service), 2);
}

// --- Clones ---

#[test]
fn clones_and_services_of_one_layer_share_the_limit() {
    let engine = Builder::new().driven_futures().unwrap();
    let layer = RateLimitLayer::new(4, SECOND).unwrap().on(engine.handle());
    let mut services = vec![layer.layer(Counting::default()), layer.clone().layer(Counting::default())];
    services.extend(services.clone());
    for service in &mut services {
        assert!(poll(service));
        call(service);
    }
    assert!(services.iter_mut().all(|service| !poll(service)));
    // A limit on another engine has all of its slots, as the limit of another layer has.
    let mut other = services[0].clone().on(engine.handle());
    assert_eq!(exhaust(&mut other), 4);
}

#[test]
fn slots_go_to_clones_in_the_order_of_their_first_poll() {
    let (mut engine, mut service) = driven(2, SECOND);
    assert_eq!(exhaust(&mut service), 2);
    let mut clones: Vec<Limited> = (0..6).map(|_| service.clone()).collect();
    drop(service);
    assert!(clones.iter_mut().all(|clone| !poll(clone)));
    for first in [0, 2, 4] {
        engine.advance(SECOND);
        // The last clones poll first, and overtake nobody.
        let ready: Vec<usize> = (0..6).rev().filter(|&index| poll(&mut clones[index])).collect();
        assert_eq!(ready, [first + 1, first]);
        call(&mut clones[first]);
        call(&mut clones[first + 1]);
    }
}

#[test]
fn a_waiting_clone_is_woken_twice_however_many_wait() {
    const CLONES: usize = 500;
    let (mut engine, service) = driven(2, SECOND);
    assert_eq!(exhaust(&mut service.clone()), 2);
    let bells: Vec<Arc<Bell>> = (0..CLONES).map(|_| Arc::default()).collect();
    let wakers: Vec<Waker> = bells.iter().map(|bell| Waker::from(Arc::clone(bell))).collect();
    let mut clones: Vec<Limited> = (0..CLONES).map(|_| service.clone()).collect();
    assert!(clones.iter_mut().zip(&wakers).all(|(clone, waker)| !poll_with(clone, waker)));
    assert_eq!(alive(&engine), 2, "a timer for each slot of the next period");
    let mut seen = vec![0; CLONES];
    let mut done = BTreeSet::new();
    while done.len() < CLONES {
        engine.advance(SECOND);
        // Polls only the clones that were woken, until none is.
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for index in 0..CLONES {
                if bells[index].count() > seen[index] {
                    seen[index] = bells[index].count();
                    is_quiet = false;
                    if poll_with(&mut clones[index], &wakers[index]) {
                        call(&mut clones[index]);
                        assert!(done.insert(index));
                    }
                }
            }
        }
    }
    assert_eq!(engine.handle().now().as_nanos(), 250 * 1_000_000_000, "no slot was left unused");
    assert!(bells.iter().all(|bell| bell.count() <= 2));
    assert_eq!(alive(&engine), 0);
}

#[test]
fn a_dropped_clone_leaves_its_slot_to_the_next_at_once() {
    let (engine, mut service) = driven(2, SECOND);
    let mut ready = service.clone();
    assert_eq!((poll(&mut ready), exhaust(&mut service)), (true, 1));
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    assert!(!poll_with(&mut service, &waker));
    assert_eq!(alive(&engine), 1);
    drop(ready);
    assert_eq!(bell.count(), 1);
    let mut late = service.clone();
    assert!(!poll(&mut late), "the slot has gone to the one that waited");
    assert!(poll_with(&mut service, &waker));
    drop(service.into_inner());
    assert!(poll(&mut late));
    assert_eq!(alive(&engine), 0);
}

#[test]
fn a_clone_that_gives_up_its_place_leaves_it_to_the_next() {
    let (mut engine, mut service) = driven(1, SECOND);
    assert_eq!(exhaust(&mut service), 1);
    let mut first = service.clone();
    let mut second = service.clone();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    assert!(!poll(&mut service) && !poll(&mut first) && !poll_with(&mut second, &waker));
    // The first in the queue has a timer, and those behind it have none.
    assert_eq!(alive(&engine), 1);
    drop(first);
    assert_eq!(bell.count(), 0);
    drop(service);
    assert_eq!(bell.count(), 1, "it is the next now");
    assert!(!poll_with(&mut second, &waker));
    engine.advance(SECOND - NANO);
    assert_eq!(bell.count(), 1);
    engine.advance(NANO);
    assert_eq!(bell.count(), 2);
    assert!(poll(&mut second));
}

#[test]
fn a_clone_that_got_a_slot_unseen_gives_it_back() {
    let (mut engine, mut service) = driven(1, SECOND);
    assert_eq!(exhaust(&mut service.clone()), 1);
    let mut waiting = service.clone();
    let mut third = service.clone();
    assert!(!poll(&mut waiting) && !poll(&mut third));
    engine.advance(SECOND);
    // The period's end is seen here, and the slot goes to the clone that does not poll.
    assert!(!poll(&mut third) && !poll(&mut service));
    drop(waiting);
    assert!(poll(&mut third) && !poll(&mut service));
}

// --- The inner service ---

#[test]
fn the_inner_service_is_asked_when_there_is_a_slot() {
    let (engine, mut service) = driven(1, SECOND);
    let mut cx = Context::from_waker(Waker::noop());
    service.get_mut().readiness = Readiness::Waiting;
    assert!(service.poll_ready(&mut cx).is_pending());
    service.get_mut().readiness = Readiness::Broken;
    assert_eq!(service.poll_ready(&mut cx), Poll::Ready(Err("broken")));
    service.get_mut().readiness = Readiness::Ready;
    assert!(poll(&mut service) && poll(&mut service), "it reserves one slot however often it is polled");
    call(&mut service);
    service.get_mut().readiness = Readiness::Broken;
    assert!(service.poll_ready(&mut cx).is_pending());
    assert_eq!(alive(&engine), 1);
}

#[test]
fn a_call_of_a_service_that_is_not_ready_panics_and_costs_nothing() {
    let (_engine, mut service) = driven(1, SECOND);
    assert!(catch_unwind(AssertUnwindSafe(|| service.call(()))).is_err());
    assert_eq!(exhaust(&mut service), 1);
    assert!(!poll(&mut service));
    assert!(catch_unwind(AssertUnwindSafe(|| service.call(()))).is_err());
    assert_eq!(service.get_ref().calls.load(Ordering::Relaxed), 1);
}

#[test]
fn a_wait_on_an_engine_that_was_shut_down_panics_for_each_clone_in_turn() {
    let (engine, mut service) = driven(1, SECOND);
    assert_eq!(exhaust(&mut service), 1);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut behind = service.clone();
    assert!(!poll(&mut service) && !poll_with(&mut behind, &waker));
    drop(engine);
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut service))).is_err());
    drop(service);
    assert_eq!(bell.count(), 1, "it does not wait in silence");
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut behind))).is_err());
}

/// Compiles only if the service meets the bounds that servers have.
fn assert_spawnable<S: Service<()> + Clone + Send + Sync + 'static>(_: &S) {}

#[test]
fn it_may_be_cloned_and_sent() {
    assert_spawnable(&driven(1, SECOND).1);
}

// --- A model ---

/// A plain model of the rate limit. It keeps the waiting services in a list, and decides by a service's position in the
/// list.
#[derive(Debug)]
struct Model {
    calls: u64,
    period: Duration,
    now: Duration,
    end: Duration,
    used: u64,
    ready: BTreeSet<usize>,
    queue: Vec<usize>,
}

impl Model {
    fn free(&self) -> usize {
        let used = if self.now >= self.end { 0 } else { self.used };
        usize::try_from(self.calls - used).unwrap() - self.ready.len()
    }

    fn position(&self, service: usize) -> usize {
        self.queue.iter().position(|waiting| *waiting == service).unwrap_or(self.queue.len())
    }

    fn poll(&mut self, service: usize) -> bool {
        if self.ready.contains(&service) {
            return true;
        }
        let position = self.position(service);
        let is_ready = position < self.free();
        if is_ready {
            self.queue.retain(|waiting| *waiting != service);
            self.ready.insert(service);
        } else if position == self.queue.len() {
            self.queue.push(service);
        }
        is_ready
    }

    fn call(&mut self, service: usize) {
        if self.now >= self.end {
            (self.used, self.end) = (0, self.now + self.period);
        }
        self.used += 1;
        self.ready.remove(&service);
    }

    fn forget(&mut self, service: usize) {
        self.ready.remove(&service);
        self.queue.retain(|waiting| *waiting != service);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Poll(usize),
    Call(usize),
    Replace(usize),
    Advance(u64),
}

const SERVICES: usize = 6;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..SERVICES).prop_map(Step::Poll),
        4 => (0..SERVICES).prop_map(Step::Call),
        1 => (0..SERVICES).prop_map(Step::Replace),
        3 => (0u64..=12).prop_map(Step::Advance),
    ];
    proptest::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    /// Each poll of the rate limit answers as the plain model does. No wake is lost: if a slot is ready for a waiting
    /// service, the service was woken after its last poll.
    #[test]
    fn it_does_what_a_plain_model_does(calls in 1u64..5, steps in steps()) {
        const TICK: Duration = Duration::from_millis(1);
        let (mut engine, service) = driven(calls, 10 * TICK);
        let mut model = Model {
            calls,
            period: 10 * TICK,
            now: Duration::ZERO,
            end: Duration::ZERO,
            used: 0,
            ready: BTreeSet::new(),
            queue: Vec::new(),
        };
        let bells: Vec<Arc<Bell>> = (0..SERVICES).map(|_| Arc::default()).collect();
        let mut services: Vec<Limited> = (0..SERVICES).map(|_| service.clone()).collect();
        let mut heard = [0; SERVICES];
        for step in steps {
            match step {
                Step::Poll(index) => {
                    heard[index] = bells[index].count();
                    let is_ready = poll_with(&mut services[index], &Waker::from(Arc::clone(&bells[index])));
                    prop_assert_eq!(is_ready, model.poll(index));
                }
                Step::Call(index) if model.ready.contains(&index) => {
                    call(&mut services[index]);
                    model.call(index);
                }
                Step::Call(_) => {}
                Step::Replace(index) => {
                    services[index] = service.clone();
                    model.forget(index);
                }
                Step::Advance(ticks) => {
                    let time = TICK * u32::try_from(ticks).unwrap();
                    engine.advance(time);
                    model.now += time;
                }
            }
            for (position, &index) in model.queue.iter().enumerate().take(model.free()) {
                prop_assert!(bells[index].count() > heard[index], "{index} at {position} after {step:?}");
            }
            let timers = usize::try_from(alive(&engine)).unwrap();
            prop_assert!(timers <= model.queue.len());
        }
        drop(services);
        prop_assert_eq!(alive(&engine), 0);
        prop_assert_eq!(exhaust(&mut service.clone()) + model.used_now(), calls);
    }
}

impl Model {
    fn used_now(&self) -> u64 {
        if self.now >= self.end { 0 } else { self.used }
    }
}

// --- Real time ---

#[test]
fn no_period_is_early_by_the_caller_s_clock() {
    const PERIOD: Duration = Duration::from_millis(5);
    const CALLS: usize = 3;
    let engine = Builder::new().start_futures().unwrap();
    let mut service = RateLimit::new(Counting::default(), CALLS as u64, PERIOD).unwrap().on(engine.handle());
    let mut begin = None;
    for index in 0..20 * CALLS {
        pollster::block_on(std::future::poll_fn(|cx| service.poll_ready(cx))).unwrap();
        let now = Instant::now();
        if index % CALLS == 0 {
            let earlier = begin.replace(now);
            assert!(earlier.is_none_or(|earlier| now - earlier >= PERIOD), "{earlier:?} {now:?}");
        }
        drop(service.call(()));
    }
}

#[test]
fn threads_that_share_a_limit_keep_to_it_and_none_waits_for_ever() {
    const PERIOD: Duration = Duration::from_millis(5);
    const THREADS: u64 = 8;
    const EACH: u64 = 20;
    let service = RateLimit::new(Counting::default(), 4, PERIOD).unwrap();
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let mut service = service.clone();
            scope.spawn(move || {
                for _ in 0..EACH {
                    pollster::block_on(std::future::poll_fn(|cx| service.poll_ready(cx))).unwrap();
                    drop(service.call(()));
                }
            });
        }
    });
    let calls = service.get_ref().calls.load(Ordering::Relaxed);
    assert_eq!(calls, THREADS * EACH);
    let periods = u32::try_from(calls / 4).unwrap();
    assert!(begin.elapsed() >= PERIOD * (periods - 1), "{:?}", begin.elapsed());
}

// --- axum ---

#[test]
fn the_routes_and_connections_of_an_axum_server_share_the_limit() {
    use axum::Router;
    use axum::body::Body;
    use axum::http::Request;
    use axum::routing::get;

    let engine = Builder::new().driven_futures().unwrap();
    let layer = RateLimitLayer::new(3, SECOND).unwrap().on(engine.handle());
    let app: Router =
        Router::new().route("/one", get(async || "one")).route("/other", get(async || "other")).layer(layer);
    let mut cx = Context::from_waker(Waker::noop());
    let requests = ["/one", "/other", "/one", "/other"].map(|path| {
        // axum makes a service for each connection by a clone of the router.
        let request = Request::get(path).body(Body::empty()).unwrap();
        let mut response = Box::pin(tower::ServiceExt::oneshot(app.clone(), request));
        let outcome: Poll<Result<_, Infallible>> = response.as_mut().poll(&mut cx);
        outcome.is_ready()
    });
    assert_eq!(requests, [true, true, true, false]);
}
