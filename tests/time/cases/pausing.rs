//! A clock that stands: `pause`, `advance`, `resume`, and the moments at which the clock moves by itself.

use super::time::{self, Duration, Instant};
use super::{NANO, SECOND, Task, YEAR, current_thread, standing};
use crate::support::{HOUR, Log, MS, PATIENCE, Rng, within_patience};
use std::future::{pending, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Poll, ready};
use std::thread;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking, yield_now};

// --- Standing still ---

#[tokio::test(start_paused = true)]
async fn a_clock_that_stands_shows_the_same_moment() {
    let now = Instant::now();
    for _ in 0..5 {
        thread::sleep(MS);
        assert_eq!(Instant::now(), now);
        assert_eq!(now.elapsed(), Duration::ZERO);
    }
}

#[tokio::test]
async fn the_clock_is_paused_by_the_main_future() {
    time::pause();
    let now = Instant::now();
    thread::sleep(MS);
    assert_eq!(Instant::now(), now);
}

#[tokio::test]
async fn the_clock_is_paused_by_a_task() {
    tokio::spawn(async { time::pause() }).await.unwrap();
    let now = Instant::now();
    thread::sleep(MS);
    assert_eq!(Instant::now(), now);
}

#[tokio::test(start_paused = true)]
async fn a_clock_without_timers_stands_while_something_else_is_awaited() {
    let start = Instant::now();
    let (sender, answer) = oneshot::channel();
    let thread = thread::spawn(move || {
        thread::sleep(5 * MS);
        sender.send(17)
    });
    assert_eq!(answer.await, Ok(17));
    assert_eq!(start.elapsed(), Duration::ZERO);
    thread.join().unwrap().unwrap();
}

// --- Moving by itself ---

#[tokio::test(start_paused = true)]
async fn a_month_passes_at_once() {
    let (start, real) = (Instant::now(), std::time::Instant::now());
    time::sleep(30 * 24 * HOUR).await;
    assert_eq!(start.elapsed(), 30 * 24 * HOUR);
    assert!(real.elapsed() < PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn the_clock_stops_at_each_deadline() {
    let start = Instant::now();
    let sleeps = [30, 10, 20].map(|millis| {
        tokio::spawn(async move {
            time::sleep(millis * MS).await;
            (millis * MS, start.elapsed())
        })
    });
    time::sleep(100 * MS).await;
    assert_eq!(start.elapsed(), 100 * MS);
    for sleep in sleeps {
        let (due, came) = sleep.await.unwrap();
        assert_eq!(came, due);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_yields_does_not_let_time_pass() {
    let start = Instant::now();
    let yields = async {
        for _ in 0..1_000 {
            yield_now().await;
        }
    };
    time::timeout(MS, yields).await.expect("the clock stands");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_message_between_tasks_takes_no_time() {
    let start = Instant::now();
    let (sender, answer) = oneshot::channel();
    let receives = tokio::spawn(async move { (answer.await.unwrap(), start.elapsed()) });
    let waits = tokio::spawn(async move {
        time::sleep(20 * MS).await;
        start.elapsed()
    });
    time::sleep(10 * MS).await;
    sender.send(17).unwrap();
    assert_eq!(receives.await.unwrap(), (17, 10 * MS));
    assert_eq!(waits.await.unwrap(), 20 * MS);
}

#[tokio::test]
async fn a_pause_ends_a_wait_that_began_before() {
    let mut task = Task::new(time::sleep(HOUR));
    assert!(task.poll().is_pending());
    let real = std::time::Instant::now();
    time::pause();
    task.future.await;
    assert!(real.elapsed() < PATIENCE);
}

/// A thread outside the runtime works for a task. The runtime cannot know this, so its paused clock moves on.
#[tokio::test(start_paused = true)]
async fn the_clock_does_not_wait_for_foreign_threads() {
    let (sender, answer) = oneshot::channel();
    let (open, gate) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        gate.recv().unwrap();
        sender.send(17)
    });
    assert!(time::timeout(HOUR, answer).await.is_err());
    open.send(()).unwrap();
    thread.join().unwrap().unwrap_err();
}

/// A paused clock gives 10,000 sleeps of any length the same times in two runs.
#[test]
fn the_same_sleeps_take_the_same_time() {
    fn moments() -> Vec<Duration> {
        standing().block_on(async {
            let mut rng = Rng::new(1);
            let start = Instant::now();
            let mut moments = Vec::new();
            for _ in 0..10_000 {
                time::sleep(rng.nanos_below(SECOND)).await;
                moments.push(start.elapsed());
            }
            moments
        })
    }
    let first = moments();
    thread::sleep(MS / 3);
    assert!(first == moments());
}

/// Tasks use sleeps, timeouts and intervals on a paused clock. The order of their events depends only on the seed.
#[test]
fn the_same_seed_gives_the_same_events() {
    fn events(seed: u64) -> Vec<(u64, Duration)> {
        standing().block_on(async {
            let (mut rng, log, start) = (Rng::new(seed), Log::new(), Instant::now());
            let tasks: Vec<_> = (0..20)
                .map(|id| {
                    let (log, mut rng) = (log.clone(), Rng::new(rng.next()));
                    tokio::spawn(async move {
                        let mut interval = time::interval(MS + rng.nanos_below(50 * MS));
                        for _ in 0..50 {
                            let work = time::sleep(rng.nanos_below(100 * MS));
                            let is_done = time::timeout(rng.nanos_below(100 * MS), work).await.is_ok();
                            log.push((2 * id + u64::from(is_done), start.elapsed()));
                            interval.tick().await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            log.take()
        })
    }
    for seed in 0..5 {
        assert!(events(seed) == events(seed), "seed {seed}");
    }
}

// --- Events of the system come first ---

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_datagram_that_has_arrived_is_received_before_the_clock_moves() {
    let (near, far) = tokio::net::UnixDatagram::pair().unwrap();
    let start = Instant::now();
    let sends = async {
        near.send(&[1]).await.unwrap();
        time::sleep(100 * MS).await;
        start.elapsed()
    };
    let receives = async {
        far.recv(&mut [0]).await.unwrap();
        start.elapsed()
    };
    assert_eq!(tokio::join!(sends, receives), (100 * MS, Duration::ZERO));
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_datagram_that_has_arrived_wakes_a_task_before_the_clock_moves() {
    let (near, far) = tokio::net::UnixDatagram::pair().unwrap();
    let start = Instant::now();
    near.send(&[1]).await.unwrap();
    let receives = tokio::spawn(async move {
        far.recv(&mut [0]).await.unwrap();
        start.elapsed()
    });
    time::sleep(100 * MS).await;
    assert_eq!(receives.await.unwrap(), Duration::ZERO);
    assert_eq!(start.elapsed(), 100 * MS);
}

// --- Calls that block ---

#[tokio::test(start_paused = true)]
async fn the_clock_stands_while_a_blocking_call_runs() {
    let start = Instant::now();
    for (limit, call) in [(HOUR, MS), (MS, 50 * MS)] {
        let call = spawn_blocking(move || thread::sleep(call));
        time::timeout(limit, call).await.expect("the clock stands").unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// The paused clock stands during a blocking call, and the runtime sleeps in real time. If the end of the call did not
/// wake the runtime, it would sleep for an hour.
#[test]
fn the_clock_goes_on_after_a_blocking_call() {
    within_patience(|| {
        standing().block_on(async {
            let start = Instant::now();
            let call = spawn_blocking(|| thread::sleep(MS));
            time::sleep(HOUR).await;
            assert_eq!(start.elapsed(), HOUR);
            call.await.unwrap();
        });
    });
}

#[test]
fn the_clock_goes_on_after_a_blocking_call_that_panics() {
    within_patience(|| {
        standing().block_on(async {
            let call: JoinHandle<()> = spawn_blocking(|| {
                thread::sleep(MS);
                panic!("the call panics");
            });
            let outcome = time::timeout(HOUR, call).await.expect("the clock stands during the call");
            assert!(outcome.unwrap_err().is_panic());
            time::sleep(HOUR).await;
        });
    });
}

// --- Whose clock it is ---

#[tokio::test(start_paused = true)]
async fn threads_outside_of_the_runtime_are_on_real_time() {
    let now = Instant::now();
    let thread = thread::spawn(|| {
        let first = Instant::now();
        thread::sleep(MS);
        assert!(Instant::now() - first >= MS);
    });
    thread.join().unwrap();
    assert_eq!(Instant::now(), now);
}

#[tokio::test(start_paused = true)]
async fn threads_that_enter_the_runtime_see_its_clock() {
    let now = Instant::now();
    assert_eq!(spawn_blocking(Instant::now).await.unwrap(), now);
    let runtime = Handle::current();
    let thread = thread::spawn(move || {
        let _entered = runtime.enter();
        Instant::now()
    });
    assert_eq!(thread.join().unwrap(), now);
}

#[test]
fn each_runtime_has_a_clock_of_its_own() {
    let (still, running) = (standing(), current_thread());
    let _outer = still.enter();
    let now = Instant::now();
    {
        let _inner = running.enter();
        let first = Instant::now();
        thread::sleep(MS);
        assert!(Instant::now() - first >= MS);
    }
    assert_eq!(Instant::now(), now);
    still.block_on(time::advance(HOUR));
    assert_eq!(now.elapsed(), HOUR);
}

// --- Advancing ---

#[tokio::test(start_paused = true)]
async fn an_advance_moves_the_clock_by_exactly_its_time() {
    let start = Instant::now();
    let mut sum = Duration::ZERO;
    for micros in [0, 1, 1_000, 1_000, 51_592, 1, 3_141_592, 3_123_456, 100_000] {
        let by = Duration::from_micros(micros);
        let before = Instant::now();
        time::advance(by).await;
        sum += by;
        assert_eq!((before.elapsed(), start.elapsed()), (by, sum));
    }
    time::advance(NANO).await;
    time::advance(10 * YEAR).await;
    assert_eq!(start.elapsed(), sum + NANO + 10 * YEAR);
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_before_an_advance_is_polled() {
    let now = Instant::now();
    {
        let _never_polled = time::advance(HOUR);
        assert_eq!(Instant::now(), now);
    }
    assert_eq!(Instant::now(), now);
}

#[tokio::test(start_paused = true)]
async fn an_advance_leaves_later_sleeps_pending() {
    for by in [100 * MS, Duration::from_micros(51_592)] {
        for is_polled_before in [true, false] {
            let start = Instant::now();
            let mut task = Task::new(time::sleep(60 * SECOND));
            assert!(!is_polled_before || task.poll().is_pending());
            time::advance(by).await;
            assert_eq!((start.elapsed(), task.take_wakes()), (by, 0));
            assert!(task.poll().is_pending());
        }
    }
}

/// The clock advances from the start of a millisecond, in steps of microseconds. The step that reaches the deadline
/// wakes the sleep.
#[test]
fn the_advance_that_reaches_a_deadline_wakes_the_sleep() {
    for steps in [&[250, 1_500][..], &[250, 250, 250, 250], &[999, 1]] {
        standing().block_on(async {
            let mut task = Task::new(time::sleep(MS));
            assert!(task.poll().is_pending());
            let (last, others) = steps.split_last().unwrap();
            for micros in others {
                time::advance(Duration::from_micros(*micros)).await;
                assert_eq!(task.take_wakes(), 0);
                assert!(task.poll().is_pending());
            }
            time::advance(Duration::from_micros(*last)).await;
            assert_eq!(task.take_wakes(), 1);
            assert!(task.poll().is_ready());
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_may_wait_for_a_sleep_and_for_an_advance() {
    for is_polled_before in [true, false] {
        let start = Instant::now();
        let mut sleep = pin!(time::sleep(300 * MS));
        let mut advance = pin!(time::advance(100 * MS));
        let mut is_first = true;
        poll_fn(|cx| {
            if mem::replace(&mut is_first, false) && is_polled_before {
                assert!(sleep.as_mut().poll(cx).is_pending());
            }
            ready!(advance.as_mut().poll(cx));
            assert!(sleep.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(start.elapsed(), 100 * MS);
        sleep.await;
        assert_eq!(start.elapsed(), 300 * MS);
    }
}

/// An advance of the clock passes several deadlines. All the sleeps complete at the moment of the advance's end.
#[tokio::test(start_paused = true)]
async fn an_advance_is_one_jump() {
    let start = Instant::now();
    let sleeps = [10, 20, 30].map(|millis| {
        tokio::spawn(async move {
            time::sleep(millis * MS).await;
            start.elapsed()
        })
    });
    yield_now().await;
    time::advance(100 * MS).await;
    for sleep in sleeps {
        assert_eq!(sleep.await.unwrap(), 100 * MS);
    }
    assert_eq!(start.elapsed(), 100 * MS);
}

#[tokio::test(start_paused = true)]
async fn an_advance_lets_other_tasks_run() {
    let log = Log::new();
    let other = log.clone();
    let task = tokio::spawn(async move { other.push(()) });
    time::advance(Duration::ZERO).await;
    assert_eq!(log.len(), 1);
    task.await.unwrap();
}

// --- Resuming ---

#[tokio::test]
async fn a_clock_that_is_resumed_goes_on_from_where_it_stood() {
    let start = Instant::now();
    time::pause();
    time::advance(10 * SECOND).await;
    let stood = Instant::now();
    assert!(stood - start >= 10 * SECOND);
    time::resume();
    assert!(Instant::now() >= stood);
    thread::sleep(MS);
    assert!(Instant::now() - stood >= MS);
}

#[tokio::test]
async fn a_clock_that_was_resumed_can_be_paused_again() {
    let start = Instant::now();
    for round in 1..=3 {
        time::pause();
        time::advance(10 * SECOND).await;
        let now = Instant::now();
        thread::sleep(MS);
        assert_eq!(Instant::now(), now);
        assert!(now - start >= round * 10 * SECOND);
        time::resume();
    }
}

#[tokio::test]
async fn sleeps_take_real_time_after_a_resume() {
    time::pause();
    time::advance(HOUR).await;
    let mut task = Task::new(time::sleep(20 * MS));
    assert!(task.poll().is_pending());
    let real = std::time::Instant::now();
    time::resume();
    task.future.await;
    assert!(real.elapsed() >= 20 * MS);
    let never = time::timeout(5 * MS, pending::<()>());
    assert!(never.await.is_err());
    assert!(real.elapsed() >= 25 * MS);
}
