//! One virtual time: under tokio's paused clock, the timers of this engine and of tokio share the clock.
#![cfg(feature = "test-util")]

mod support;

use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant as SystemInstant};
use support::{HOUR, MS, Rng};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::Instant;
use tourbillon::{Fired, future, time};

const DAY_MS: u64 = 86_400_000;
const DAY: Duration = Duration::from_millis(DAY_MS);

fn standing() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// An event of a server's life: the virtual time from the server's start, and a name.
type Event = (Duration, String);

/// Returns the events of a server's life of 30 days. Its tasks wait by the timers of tokio and of this crate, by turns.
/// An engine with a handler has timers on the same clock.
fn thirty_days(seed: u64) -> Vec<Event> {
    let runtime = standing();
    LocalSet::new().block_on(&runtime, async move {
        let (begin, log) = (Instant::now(), Rc::new(RefCell::new(Vec::new())));
        let note = {
            let log = Rc::clone(&log);
            move |name: String| log.borrow_mut().push((begin.elapsed(), name))
        };
        let (fired, firings) = mpsc::channel();
        let handler = move |timer: Fired<'_, u64>| fired.send((Instant::now(), timer.payload)).unwrap();
        let engine = time::shards().expect("inside a runtime").engine().start(handler).unwrap();
        let mut rng = Rng::new(seed);
        for task in 0..8 {
            let (note, mut rng) = (note.clone(), Rng::new(rng.below(u64::MAX)));
            spawn_local(async move {
                for n in 0.. {
                    let delay = Duration::from_millis(1 + rng.below(DAY_MS));
                    let deadline = begin.elapsed() + delay;
                    match rng.below(4) {
                        0 => tokio::time::sleep(delay).await,
                        1 => time::sleep(delay).await,
                        2 => future::sleep(delay).await,
                        _ => assert!(future::timeout(delay, pending::<()>()).await.is_err()),
                    }
                    let late = begin.elapsed() - deadline;
                    assert!(late <= MS, "task {task}, wait {n}: {late:?} late");
                    note(format!("task {task}, wait {n}"));
                }
            });
        }
        let mut deadlines = Vec::new();
        for timer in 0..20 {
            let delay = Duration::from_millis(rng.below(30 * DAY_MS));
            engine.handle().schedule(delay, timer).unwrap();
            deadlines.push(begin + delay);
        }
        time::sleep(30 * DAY).await;
        for (at, timer) in firings.try_iter() {
            let late = at - deadlines[usize::try_from(timer).unwrap()];
            assert!(at >= deadlines[usize::try_from(timer).unwrap()] && late <= 2 * MS, "{late:?} late");
            note(format!("timer {timer} at {:?}", at - begin));
        }
        log.take()
    })
}

#[test]
fn thirty_days_take_a_second_and_are_the_same_for_each_of_a_thousand_seeds() {
    let begin = SystemInstant::now();
    for seed in 0..1_000 {
        let log = thirty_days(seed);
        assert!(log.len() > 200, "seed {seed}: {} events", log.len());
        assert_eq!(log.iter().filter(|(_, name)| name.starts_with("timer")).count(), 20, "seed {seed}");
        assert_eq!(log, thirty_days(seed), "seed {seed}");
    }
    eprintln!("30 days take {:?} of the system's time", begin.elapsed() / 2_000);
}

/// Returns the order in which sleeps end. `is_ours` chooses the sleeps that are of this crate; the others are tokio's.
fn order(is_ours: fn(usize) -> bool) -> Vec<usize> {
    let runtime = standing();
    LocalSet::new().block_on(&runtime, async move {
        let ended = Rc::new(RefCell::new(Vec::new()));
        for n in 0..200 {
            let ended = Rc::clone(&ended);
            let delay = Duration::from_millis((n * 7_919 % 50) as u64);
            spawn_local(async move {
                match is_ours(n) {
                    true => time::sleep(delay).await,
                    false => tokio::time::sleep(delay).await,
                }
                ended.borrow_mut().push(n);
            });
        }
        tokio::time::sleep(HOUR).await;
        ended.take()
    })
}

#[test]
fn sleeps_end_in_the_order_of_tokio() {
    let tokios = order(|_| false);
    assert_eq!(tokios.len(), 200);
    assert_eq!(order(|_| true), tokios);
    assert_eq!(order(|n| n % 2 == 0), tokios);
    assert_eq!(order(|n| n % 3 == 0), tokios);
}

#[test]
fn a_timer_that_was_armed_before_the_pause_follows_the_clock() {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let sleep = tokio::spawn(future::sleep(HOUR));
        tokio::task::yield_now().await;
        time::pause();
        let begin = Instant::now();
        sleep.await.unwrap();
        assert!(begin.elapsed() <= HOUR + 2 * MS, "{:?}", begin.elapsed());
        assert!(begin.elapsed() > HOUR / 2);
    });
}

#[test]
fn an_advance_moves_handlers_and_futures() {
    standing().block_on(async {
        let (fired, firings) = mpsc::channel();
        let handler = move |timer: Fired<'_, u64>| fired.send(timer.payload).unwrap();
        let engine = time::shards().unwrap().engine().start(handler).unwrap();
        engine.handle().schedule(HOUR, 1).unwrap();
        let sleep = tokio::spawn(time::sleep(HOUR));
        tokio::task::yield_now().await;
        time::advance(HOUR - MS).await;
        assert!(firings.try_recv().is_err() && !sleep.is_finished());
        time::advance(3 * MS).await;
        // The task that turns the shard, and the task that it wakes.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(firings.try_recv(), Ok(1));
        assert!(sleep.is_finished());
    });
}

#[test]
fn a_sleep_does_not_end_early_with_its_runtime() {
    let runtime = standing();
    let mut sleep = Box::pin(time::sleep(HOUR));
    runtime.block_on(async {
        std::future::poll_fn(|cx| {
            assert!(sleep.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    });
    drop(runtime);
    let poll = || {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        sleep.as_mut().poll(&mut cx).is_ready()
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll)).is_err(), "as tokio's");
}

#[test]
fn a_future_that_uses_up_its_budget_is_cut_off() {
    standing().block_on(async {
        time::advance(MS).await;
        let busy = async {
            loop {
                tokio::task::coop::consume_budget().await;
                time::advance(MS).await;
            }
        };
        assert!(time::timeout(HOUR / 1_000, busy).await.is_err());
    });
}

#[test]
fn a_disarmed_sleep_stops_the_clock_of_nobody() {
    standing().block_on(async {
        let begin = Instant::now();
        let mut sleep = future::sleep(HOUR);
        let task = std::future::poll_fn(|cx| {
            assert!(std::pin::Pin::new(&mut sleep).poll(cx).is_pending());
            sleep.reset(tourbillon::Timestamp::MAX);
            std::task::Poll::Ready(())
        });
        task.await;
        tokio::time::sleep(2 * HOUR).await;
        assert!(begin.elapsed() < 3 * HOUR, "{:?}", begin.elapsed());
    });
}
