//! The cases, for each thing that the tests of the original show, and for the rest of its documented behaviour. The
//! text is our own. `subject` is the crate that they run against.

mod borders;

use crate::subject::Delay;
use pollster::block_on;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// The longest time that a loaded machine needs to wake a task.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A task that reports each wake-up.
struct Task(Sender<()>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // A test that has ended receives nothing.
        let _ = self.0.send(());
    }
}

fn task() -> (Waker, Receiver<()>) {
    let (woken, wakes) = channel();
    (Arc::new(Task(woken)).into(), wakes)
}

pub(crate) fn poll(delay: &mut Delay, waker: &Waker) -> Poll<()> {
    Pin::new(delay).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_delay_is_never_early() {
    for delay in [Duration::ZERO, Duration::from_nanos(1), MS / 2, MS, 3 * MS, 40 * MS] {
        let begin = Instant::now();
        block_on(Delay::new(delay));
        assert!(begin.elapsed() >= delay, "{delay:?}");
    }
}

#[test]
fn one_delay_follows_another() {
    let begin = Instant::now();
    block_on(async {
        Delay::new(10 * MS).await;
        Delay::new(10 * MS).await;
    });
    assert!(begin.elapsed() >= 20 * MS);
}

#[test]
fn a_complete_delay_waits_again_after_a_reset() {
    let mut delay = Delay::new(10 * MS);
    block_on(&mut delay);
    for time in [10 * MS, 30 * MS, 20 * MS] {
        let begin = Instant::now();
        delay.reset(time);
        block_on(&mut delay);
        assert!(begin.elapsed() >= time, "{time:?}");
    }
}

#[test]
fn a_complete_delay_stays_complete() {
    let mut delay = Delay::new(10 * MS);
    block_on(&mut delay);
    for _ in 0..3 {
        assert_eq!(poll(&mut delay, Waker::noop()), Poll::Ready(()));
    }
}

#[test]
fn a_reset_makes_a_pending_delay_shorter() {
    let begin = Instant::now();
    let mut delay = Delay::new(HOUR);
    assert!(poll(&mut delay, Waker::noop()).is_pending());
    delay.reset(10 * MS);
    block_on(delay);
    assert!((10 * MS..PATIENCE).contains(&begin.elapsed()));
}

#[test]
fn a_reset_makes_a_pending_delay_longer() {
    let mut delay = Delay::new(200 * MS);
    let _ = poll(&mut delay, Waker::noop());
    let begin = Instant::now();
    delay.reset(300 * MS);
    block_on(delay);
    assert!(begin.elapsed() >= 300 * MS);
}

#[test]
fn a_reset_delay_wakes_its_task_without_another_poll() {
    let (waker, wakes) = task();
    let mut delay = Delay::new(HOUR);
    assert!(poll(&mut delay, &waker).is_pending());
    delay.reset(10 * MS);
    assert_eq!(wakes.recv_timeout(PATIENCE), Ok(()));
    assert_eq!(poll(&mut delay, &waker), Poll::Ready(()));
}

#[test]
fn a_delay_that_was_not_polled_is_reset_too() {
    let mut delay = Delay::new(HOUR);
    delay.reset(10 * MS);
    block_on(delay);
}

#[test]
fn the_longest_delay_neither_panics_nor_completes() {
    let mut delay = Delay::new(Duration::MAX);
    assert!(poll(&mut delay, Waker::noop()).is_pending());
    delay.reset(Duration::MAX);
    assert!(poll(&mut delay, Waker::noop()).is_pending());
    delay.reset(10 * MS);
    block_on(delay);
}

#[test]
fn time_counts_from_the_creation_of_a_delay() {
    let mut early = Delay::new(10 * MS);
    block_on(Delay::new(50 * MS));
    assert_eq!(poll(&mut early, Waker::noop()), Poll::Ready(()));
}

#[test]
fn the_task_that_polled_last_is_woken() {
    let ((first, first_wakes), (last, last_wakes)) = (task(), task());
    let mut delay = Delay::new(HOUR);
    assert!(poll(&mut delay, &first).is_pending());
    assert!(poll(&mut delay, &last).is_pending());
    delay.reset(10 * MS);
    assert_eq!(last_wakes.recv_timeout(PATIENCE), Ok(()));
    assert!(first_wakes.try_recv().is_err());
}

#[test]
fn a_dropped_delay_wakes_no_task() {
    let (waker, wakes) = task();
    let mut delay = Delay::new(1_000 * MS);
    assert!(poll(&mut delay, &waker).is_pending());
    drop(delay);
    block_on(Delay::new(1_200 * MS));
    assert!(wakes.try_recv().is_err());
}

#[test]
fn a_polled_delay_moves_to_another_thread() {
    let begin = Instant::now();
    let mut delay = Delay::new(50 * MS);
    let _ = poll(&mut delay, Waker::noop());
    thread::spawn(move || block_on(delay)).join().expect("it completes");
    assert!(begin.elapsed() >= 50 * MS);
}

#[test]
fn the_delays_of_many_threads_complete() {
    let complete = || {
        let begin = Instant::now();
        let times = (0..250).map(|n| MS * (n * 7 % 40));
        let delays: Vec<_> = times.map(|time| (time, Delay::new(time))).collect();
        for (time, delay) in delays {
            block_on(delay);
            assert!(begin.elapsed() >= time, "{time:?}");
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(complete);
        }
    });
}

#[test]
fn a_delay_goes_anywhere() {
    fn anywhere<T: Future<Output = ()> + Send + Sync + Unpin + Debug + 'static>() {}
    anywhere::<Delay>();
    assert_eq!(format!("{:?}", Delay::new(HOUR)), "Delay");
}
