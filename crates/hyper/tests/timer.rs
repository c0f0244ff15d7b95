//! Tests an engine as hyper's timer, without a server.

use hyper::rt::{Sleep, Timer};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::future::Wakeup;
use tourbillon::{Builder, Clock, DrivenEngine, Engine, Timestamp};
use tourbillon_hyper::TourbillonTimer;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const YEARS: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

fn threaded() -> (Engine<Wakeup>, TourbillonTimer) {
    let engine = Builder::new().start_futures().unwrap();
    let timer = TourbillonTimer::new(engine.handle().clone());
    (engine, timer)
}

fn driven() -> (DrivenEngine<Wakeup>, TourbillonTimer) {
    let engine = Builder::new().driven_futures().unwrap();
    let timer = TourbillonTimer::new(engine.handle().clone());
    (engine, timer)
}

fn is_ready(sleep: &mut Pin<Box<dyn Sleep>>) -> bool {
    sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A sleep that does not come from this crate. The sleep is over at once.
struct Foreign;

impl Sleep for Foreign {}

impl Future for Foreign {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

// --- Sleeping ---

#[test]
fn it_sleeps_for_a_time_and_until_a_moment_and_not_less() {
    let (_engine, timer) = threaded();
    for timer in [timer, TourbillonTimer::current()] {
        for delay in [Duration::ZERO, MS, 20 * MS] {
            let begin = Instant::now();
            pollster::block_on(timer.sleep(delay));
            assert!(begin.elapsed() >= delay);
            let deadline = Instant::now() + delay;
            pollster::block_on(timer.sleep_until(deadline));
            assert!(Instant::now() >= deadline);
            // hyper computes its deadlines from the timer's `now`, too.
            let (begin, deadline) = (Instant::now(), timer.now() + delay);
            pollster::block_on(timer.sleep_until(deadline));
            assert!(begin.elapsed() >= delay);
        }
    }
}

#[test]
fn a_moment_that_has_passed_is_not_waited_for() {
    let (_engine, timer) = threaded();
    let past = Instant::now();
    thread::sleep(MS);
    assert!(is_ready(&mut timer.sleep_until(past)));
}

#[test]
fn the_longest_sleeps_never_end() {
    let (mut engine, timer) = driven();
    let mut sleeps = [timer.sleep(Duration::MAX), timer.sleep_until(timer.now() + 3 * YEARS)];
    for _ in 0..2 {
        assert!(!sleeps.iter_mut().any(is_ready));
        engine.advance(YEARS);
    }
    // The same holds after the engine was shut down.
    drop(engine);
    assert!(!is_ready(&mut sleeps[0]));
}

#[test]
fn the_clock_is_the_engine_s() {
    let (mut engine, timer) = driven();
    let start = timer.now();
    let mut sleep = timer.sleep_until(start + HOUR);
    assert!(!is_ready(&mut sleep));
    engine.advance(HOUR - Duration::from_nanos(1));
    assert_eq!(timer.now(), start + HOUR - Duration::from_nanos(1));
    assert!(!is_ready(&mut sleep));
    engine.advance(Duration::from_nanos(1));
    assert!(is_ready(&mut sleep));

    let (_engine, timer) = threaded();
    let before = Instant::now();
    let now = timer.now();
    assert!(before <= now && now <= Instant::now() + MS, "the clock runs ahead by microseconds at most");
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    let (mut engine, timer) = driven();
    let mut sleeps: Vec<_> = (0..10_000).map(|_| timer.sleep(HOUR)).collect();
    assert!(!sleeps.iter_mut().any(is_ready));
    assert_eq!(engine.handle().stats().owned.alive, 10_000);
    drop(sleeps);
    assert_eq!(engine.handle().stats().owned.alive, 0);
    engine.advance(2 * HOUR);
    assert_eq!(engine.handle().stats().owned.fired, 0);
}

// --- Resetting ---

#[test]
fn a_reset_moves_the_same_timer() {
    let (mut engine, timer) = driven();
    let bell = Arc::new(Bell::default());
    let waker = Arc::clone(&bell).into();
    let mut cx = Context::from_waker(&waker);
    let mut sleep = timer.sleep(SECOND);
    let address = ptr::from_ref(&*sleep).cast::<()>();
    assert!(sleep.as_mut().poll(&mut cx).is_pending());
    for _ in 0..1_000 {
        engine.advance(SECOND / 2);
        timer.reset(&mut sleep, timer.now() + SECOND);
    }
    // The resets made no second timer, and put the sleep into no new box. The task polled once. It is woken at the last
    // deadline without another poll.
    let stats = engine.handle().stats().owned;
    assert_eq!((stats.alive, stats.fired), (1, 0));
    assert_eq!(ptr::from_ref(&*sleep).cast::<()>(), address);
    assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    engine.advance(SECOND);
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert!(is_ready(&mut sleep));
    // A reset also arms the timer again after it has fired.
    timer.reset(&mut sleep, timer.now() + SECOND);
    assert!(!is_ready(&mut sleep));
    assert_eq!(ptr::from_ref(&*sleep).cast::<()>(), address);
    assert_eq!(engine.handle().stats().owned.alive, 1);
}

#[test]
fn a_reset_brings_forward() {
    let (mut engine, timer) = driven();
    let mut sleep = timer.sleep(HOUR);
    assert!(!is_ready(&mut sleep));
    timer.reset(&mut sleep, timer.now() + SECOND);
    engine.advance(SECOND);
    assert!(is_ready(&mut sleep));
    assert_eq!(engine.handle().stats().owned.alive, 1);
}

#[test]
fn a_reset_in_real_time_is_not_early() {
    let (_engine, timer) = threaded();
    let mut sleep = timer.sleep(20 * MS);
    let first = Instant::now();
    assert!(!is_ready(&mut sleep) || first.elapsed() >= 20 * MS);
    let deadline = Instant::now() + 60 * MS;
    timer.reset(&mut sleep, deadline);
    pollster::block_on(sleep);
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_sleep_of_another_timer_is_replaced() {
    let (_engine, timer) = threaded();
    let mut sleep: Pin<Box<dyn Sleep>> = Box::pin(Foreign);
    assert!(is_ready(&mut sleep));
    timer.reset(&mut sleep, Instant::now() + HOUR);
    assert!(!is_ready(&mut sleep));
}

// --- Shutting down ---

#[test]
fn a_sleep_outlives_its_engine_and_is_not_early() {
    const DELAY: Duration = Duration::from_millis(80);
    let (engine, timer) = threaded();
    let begin = Instant::now();
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let sleep = timer.sleep(DELAY);
            thread::spawn(move || {
                pollster::block_on(sleep);
                begin.elapsed()
            })
        })
        .collect();
    thread::sleep(DELAY / 4);
    drop(engine);
    for waiting in waiting {
        assert!(waiting.join().unwrap() >= DELAY);
    }
    // After the shutdown, a new sleep and a sleep that is reset still complete, and not early.
    let begin = Instant::now();
    let mut sleep = timer.sleep(5 * MS);
    assert!(!is_ready(&mut sleep) || begin.elapsed() >= 5 * MS);
    let deadline = timer.now() + 20 * MS;
    timer.reset(&mut sleep, deadline);
    pollster::block_on(sleep);
    assert!(begin.elapsed() >= 20 * MS);
}

#[test]
fn a_sleep_that_outlives_its_engine_lets_its_task_rest() {
    let (engine, timer) = threaded();
    drop(engine);
    let bell = Arc::new(Bell::default());
    let waker = Arc::clone(&bell).into();
    let mut sleep = timer.sleep(30 * MS);
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let begin = Instant::now();
    while bell.0.load(Ordering::Relaxed) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(30));
        thread::sleep(MS);
    }
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert!(is_ready(&mut sleep));
}

/// A clock that is a day ahead of the machine's.
struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp::from(Instant::now()) + 24 * HOUR
    }
}

/// An engine's end does not change the meaning of deadlines: they are moments of the engine's clock, which may stand
/// still or show another time than the machine's.
#[test]
fn a_sleep_that_is_reset_after_the_end_of_its_engine_counts_by_the_engine_s_clock() {
    let engine = Builder::new().clock(Ahead).start_futures().unwrap();
    let ahead = TourbillonTimer::new(engine.handle().clone());
    let (standing_engine, standing) = driven();
    drop((engine, standing_engine));
    for timer in [ahead, standing] {
        let mut sleep = timer.sleep(HOUR);
        assert!(!is_ready(&mut sleep));
        // Not early, even in a second reset.
        for _ in 0..2 {
            timer.reset(&mut sleep, timer.now() + HOUR);
            assert!(!is_ready(&mut sleep));
            thread::sleep(20 * MS);
            assert!(!is_ready(&mut sleep));
        }
        let begin = Instant::now();
        timer.reset(&mut sleep, timer.now() + 50 * MS);
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            pollster::block_on(sleep);
            sender.send(begin.elapsed()).unwrap();
        });
        assert!(ended.recv_timeout(30 * SECOND).expect("it ends") >= 50 * MS);
    }
}
