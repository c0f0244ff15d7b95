//! An engine as hyper's timer, by itself.

use hyper::rt::{Sleep, Timer};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon::{Builder, SystemClock};
use tourbillon_integrations::TourbillonTimer;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// On the clock by which hyper names moments.
fn timer() -> (tourbillon::Engine<tourbillon::future::Wakeup>, TourbillonTimer) {
    let engine = Builder::new().clock(SystemClock::new()).build_async().unwrap();
    let timer = TourbillonTimer::new(engine.handle().clone());
    (engine, timer)
}

fn is_ready(sleep: &mut Pin<Box<dyn Sleep>>) -> bool {
    sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// A sleep of another timer, which is over at once.
struct Foreign;

impl Sleep for Foreign {}

impl Future for Foreign {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

#[test]
fn it_sleeps_for_a_time_and_until_a_moment_and_not_less() {
    let (_engine, timer) = timer();
    for delay in [Duration::ZERO, MS, 20 * MS] {
        let begin = Instant::now();
        pollster::block_on(timer.sleep(delay));
        assert!(begin.elapsed() >= delay);
        let deadline = Instant::now() + delay;
        pollster::block_on(timer.sleep_until(deadline));
        assert!(Instant::now() >= deadline);
    }
}

#[test]
fn a_moment_that_has_passed_is_not_waited_for() {
    let (_engine, timer) = timer();
    let past = Instant::now();
    std::thread::sleep(MS);
    assert!(is_ready(&mut timer.sleep_until(past)));
}

#[test]
fn a_sleep_is_put_off_and_brought_forward_on_the_same_timer() {
    let (engine, timer) = timer();
    let mut sleep = timer.sleep(20 * MS);
    assert!(!is_ready(&mut sleep) || engine.handle().stats().owned.fired == 1);
    timer.reset(&mut sleep, Instant::now() + HOUR);
    std::thread::sleep(30 * MS);
    assert!(!is_ready(&mut sleep));
    assert_eq!(engine.handle().stats().owned.alive, 1);

    let deadline = Instant::now() + 5 * MS;
    timer.reset(&mut sleep, deadline);
    pollster::block_on(sleep);
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_sleep_of_another_timer_is_replaced() {
    let (_engine, timer) = timer();
    let mut sleep: Pin<Box<dyn Sleep>> = Box::pin(Foreign);
    assert!(is_ready(&mut sleep));
    timer.reset(&mut sleep, Instant::now() + HOUR);
    assert!(!is_ready(&mut sleep));
}
