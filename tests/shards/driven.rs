//! Driven sets, in which engines and futures follow one manual clock.

use crate::support::{HOUR, Log, MS, lock, within_patience};
use crate::{driven, logging, witness};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Clock, Engine, Fired};

#[test]
fn driven_engines_fire_in_step_on_one_clock() {
    let mut shards = driven();
    let log = Log::new();
    let engines: Vec<Engine<u64>> = (0..3)
        .map(|number| {
            let log = log.clone();
            let handler = move |timer: Fired<'_, u64>| log.push((timer.deadline, number, timer.payload));
            shards.shards().engine().start(handler).expect("an engine")
        })
        .collect();
    for n in (0..30).rev() {
        engines[n as usize % 3].handle().schedule(MS * (1 + n), u64::from(n)).expect("room");
    }
    shards.advance(HOUR);
    let fired = log.take();
    assert!(fired.is_sorted() && fired.len() == 30, "the engines fired out of step: {fired:?}");
}

#[test]
fn a_driven_set_forgets_an_engine_that_was_dropped() {
    let mut shards = driven();
    let (witness, count) = witness();
    let engine = shards.shards().engine().start(move |_: Fired<'_, u64>| drop(Arc::clone(&witness)));
    let engine = engine.expect("an engine");
    engine.handle().schedule(HOUR, 1).expect("room");
    shards.advance(MS);
    assert_eq!(count(), 1);
    drop(engine);
    assert_eq!(count(), 0, "the set keeps an engine that was dropped");
    assert_eq!(shards.next_expiry(), None);
}

/// A driven set's driver is dropped. The set's engine goes on, and its time stands still.
#[test]
fn an_engine_outlives_the_driver_of_its_set() {
    let shards = driven();
    let (engine, log) = logging(shards.shards());
    engine.handle().schedule(MS, 1).expect("room");
    drop(shards);
    engine.handle().schedule(MS, 2).expect("room");
    assert_eq!((engine.handle().shutdown().len(), log.len()), (2, 0));
}

#[test]
#[cfg(feature = "async")]
fn a_future_on_a_driven_set_sleeps_for_a_year_at_once() {
    use tourbillon::{Clock, Timestamp, future};

    let year = 365 * 24 * HOUR;
    let start = Instant::now();
    let mut shards = driven();
    let ticks = shards.block_on(async {
        future::sleep(year).await;
        let mut interval = future::interval(HOUR).expect("not zero");
        let mut ticks = 0;
        let forever = async {
            loop {
                interval.tick().await;
                ticks += 1;
            }
        };
        let ended: Result<(), _> = future::timeout(24 * HOUR, forever).await;
        assert!(ended.is_err());
        ticks
    });
    let ticks = ticks.expect("timers wake it");
    assert!((24..=25).contains(&ticks), "{ticks} ticks in a day");
    assert_eq!(shards.clock().now() - Timestamp::ZERO, year + 24 * HOUR);
    assert!(start.elapsed() < Duration::from_secs(60), "a year passed by the wall clock");
}

/// No timer is pending, so time stands still until another thread wakes the future.
#[test]
#[cfg(feature = "async")]
fn a_future_that_another_thread_completes_is_awaited_in_real_time() {
    use std::future::poll_fn;
    use std::task::Poll;

    let calls = AtomicU64::new(0);
    driven()
        .block_on(poll_fn(|cx| {
            if calls.fetch_add(1, Ordering::Relaxed) > 0 {
                return Poll::Ready(());
            }
            let waker = cx.waker().clone();
            thread::spawn(move || {
                thread::sleep(5 * MS);
                waker.wake();
            });
            Poll::Pending
        }))
        .expect("a thread wakes it");
    assert_eq!(calls.into_inner(), 2);
}

#[test]
fn a_driven_timer_sees_its_own_time_while_other_threads_end_engines() {
    let mut driven = driven();
    let log = Log::new();
    let (sink, clock) = (log.clone(), driven.clock().clone());
    let engine = driven.shards().engine().start(move |timer: Fired<'_, u64>| {
        sink.push(clock.now() == timer.deadline);
        timer.engine().schedule(MS, 0).expect("room");
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule(MS, 0).expect("room");
    let is_over = AtomicBool::new(false);
    let shards = driven.shards().clone();
    let mut ticks = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1_000 {
                drop(logging(&shards));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            driven.advance(100 * MS);
            ticks += 100;
        }
    });
    let on_time = log.take();
    assert_eq!(
        (on_time.len(), on_time.iter().filter(|&&on_time| !on_time).count()),
        (ticks, 0),
        "firings in all, and firings at another time than the timer's own"
    );
}

/// A handler ends its own engine, the last engine that the set knows, and starts another engine.
#[test]
fn a_driven_set_keeps_nothing_of_engines_that_ended_in_a_handler() {
    let mut driven = driven();
    let shards = driven.shards().clone();
    let (witness, count) = witness();
    let own: Arc<Mutex<Option<Engine<u64>>>> = Arc::default();
    let slot = Arc::clone(&own);
    let engine = driven.shards().engine().start(move |_: Fired<'_, u64>| {
        let witness = Arc::clone(&witness);
        drop(shards.engine().start(move |_: Fired<'_, u64>| drop(Arc::clone(&witness))));
        drop(lock(&slot).take());
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule(MS, 0).expect("room");
    *lock(&own) = Some(engine);
    driven.clock().advance(MS);
    driven.turn();
    assert!(lock(&own).is_none(), "the handler has not run");
    drop(driven);
    assert_eq!(count(), 0, "an engine is kept");
}

/// A future waits for a timer that is already due. No time passes.
#[test]
#[cfg(feature = "async")]
fn a_timer_that_is_due_already_moves_no_time() {
    use std::task::{Poll, Waker};
    use tourbillon::Timestamp;

    let mut driven = driven();
    driven.advance(HOUR);
    let (waker, log) = (Arc::new(Mutex::new(None::<Waker>)), Log::new());
    let (woken, fired) = (Arc::clone(&waker), log.clone());
    let engine = driven.shards().engine().start(move |_: Fired<'_, ()>| {
        fired.push(());
        lock(&woken).take().expect("the future waits").wake();
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule_at(Timestamp::ZERO, ()).expect("room");
    driven
        .block_on(std::future::poll_fn(|cx| {
            *lock(&waker) = Some(cx.waker().clone());
            if log.len() > 0 { Poll::Ready(()) } else { Poll::Pending }
        }))
        .expect("a handler wakes it");
    assert_eq!(driven.clock().now() - Timestamp::ZERO, HOUR);
}

/// A future waits, and a thread that does not move the clock arms its timer. The time moves.
#[test]
#[cfg(feature = "async")]
fn a_timer_that_another_thread_arms_moves_the_time_of_a_future_that_waits() {
    within_patience(|| {
        let mut driven = driven();
        let waker = Arc::new(Mutex::new(None::<std::task::Waker>));
        let (fired, woken) = (Arc::new(AtomicBool::new(false)), Arc::clone(&waker));
        let has_fired = Arc::clone(&fired);
        let engine = driven.shards().engine().start(move |_: Fired<'_, ()>| {
            has_fired.store(true, Ordering::SeqCst);
            lock(&woken).take().expect("the future waits").wake();
        });
        let handle = engine.as_ref().expect("an engine").handle().clone();
        let mut is_begun = false;
        driven
            .block_on(std::future::poll_fn(|cx| {
                if fired.load(Ordering::SeqCst) {
                    return std::task::Poll::Ready(());
                }
                *lock(&waker) = Some(cx.waker().clone());
                if !std::mem::replace(&mut is_begun, true) {
                    let handle = handle.clone();
                    thread::spawn(move || {
                        thread::sleep(20 * MS);
                        handle.schedule(HOUR, ()).expect("room");
                    });
                }
                std::task::Poll::Pending
            }))
            .expect("a handler wakes it");
    });
}

/// A future waits without a waker. This is an error, with or without pending timers.
#[test]
#[cfg(feature = "async")]
fn a_future_that_nothing_can_wake_is_an_error() {
    within_patience(|| {
        let mut driven = driven();
        let stuck = driven.block_on(std::future::pending::<()>()).unwrap_err();
        assert_eq!(stuck.to_string(), "the future waits, and nothing is left that could wake it");
        let engine = driven.shards().engine().start(|_: Fired<'_, ()>| {}).expect("an engine");
        engine.handle().schedule(HOUR, ()).expect("room");
        assert_eq!(driven.block_on(std::future::pending::<()>()), Err(stuck));
        assert_eq!(engine.handle().len(), 1, "time stands still");
        // This waker is dropped on another thread, without a wake.
        let outcome = driven.block_on(std::future::poll_fn(|cx| {
            let waker = cx.waker().clone();
            thread::spawn(move || {
                thread::sleep(5 * MS);
                drop(waker);
            });
            std::task::Poll::<()>::Pending
        }));
        assert_eq!(outcome, Err(stuck));
        assert_eq!(driven.block_on(async { 7 }), Ok(7));
    });
}
