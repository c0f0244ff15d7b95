//! Wakers. The tests check which waker is woken, how often a waker is cloned and dropped, and which calls a waker may
//! make.

use crate::support::{HOUR, Log, MS, lock, within_patience};
use crate::tasks::{
    Bell, Probe, SECOND, Shared, Task, bell, driven, driven_with, expect_panic, on_wake, poll_with,
};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use tourbillon::future::Sleep;
use tourbillon::{Builder, Clock, Timestamp};

// --- Which waker is woken ---

/// Row R24 of the pitfalls in `src/DESIGN.md`: a task moves from thread to thread. The task is woken where it was
/// polled last, and nowhere else.
#[test]
fn the_waker_of_the_last_poll_is_the_one_that_is_woken() {
    let bells: Vec<(Arc<Bell>, Waker)> = (0..3).map(|_| bell()).collect();
    for order in [&[0, 1][..], &[0, 1, 0], &[0, 0, 2], &[0, 1, 2, 1], &[2]] {
        // The sleep is moved before its shard has seen it, or long after. It may be reset in between.
        for (turns, resets) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut engine = driven();
            let mut sleep = engine.handle().sleep(100 * MS);
            for &n in order {
                assert!(poll_with(&mut sleep, &bells[n].1).is_pending());
                if turns {
                    engine.advance(10 * MS);
                }
                if resets {
                    sleep.reset_after(100 * MS);
                }
            }
            engine.advance(100 * MS);
            let last = order[order.len() - 1];
            for (n, (bell, _)) in bells.iter().enumerate() {
                assert_eq!(bell.take(), usize::from(n == last), "{order:?}");
            }
            assert_eq!(poll_with(&mut sleep, &bells[0].1), Poll::Ready(()));
        }
    }
}

/// Row R24 of the pitfalls in `src/DESIGN.md`, for timeouts and intervals: each wakes the task that polled it last.
#[test]
fn timeouts_and_intervals_wake_where_they_were_polled_last() {
    let (first, first_waker) = bell();
    let (last, last_waker) = bell();
    let mut engine = driven();
    let mut timeout = Box::pin(engine.handle().timeout(10 * MS, pending::<()>()));
    let mut interval = engine.handle().interval_at(Timestamp::ZERO + 10 * MS, SECOND).unwrap();
    let mut reusable = engine.handle().reusable_timeout();
    let mut within = Box::pin(reusable.timeout(10 * MS, pending::<()>()));
    for waker in [&first_waker, &last_waker] {
        let mut cx = std::task::Context::from_waker(waker);
        assert!(timeout.as_mut().poll(&mut cx).is_pending());
        assert!(interval.poll_tick(&mut cx).is_pending());
        assert!(within.as_mut().poll(&mut cx).is_pending());
    }
    engine.advance(10 * MS);
    assert_eq!((first.take(), last.take()), (0, 3));
}

#[test]
fn a_task_that_polled_a_sleep_of_yore_is_not_woken_for_the_next_one() {
    // A reusable timeout passes its timer from a task to another.
    let mut engine = driven();
    let mut timeout = engine.handle().reusable_timeout();
    let mut first = Task::new(timeout.timeout(10 * MS, pending::<()>()));
    assert!(first.poll().is_pending());
    let first = first.drop_future();
    let mut second = Task::new(timeout.timeout(10 * MS, pending::<()>()));
    assert!(second.poll().is_pending());
    engine.advance(10 * MS);
    assert_eq!((first.take(), second.take_wakes()), (0, 1));
}

// --- Clones and drops ---

#[test]
fn a_waker_that_has_not_changed_is_not_cloned_again() {
    static ONE: Probe = Probe::new();
    static TWO: Probe = Probe::new();
    let (one, two) = (ONE.waker(), TWO.waker());
    let mut engine = driven();
    let mut sleep = engine.handle().sleep(SECOND);
    for _ in 0..10 {
        assert!(poll_with(&mut sleep, &one).is_pending());
        engine.advance(10 * MS);
        sleep.reset_after(SECOND);
    }
    assert_eq!(ONE.clones(), 1);
    // Another waker takes its place, and is then kept.
    for _ in 0..10 {
        assert!(poll_with(&mut sleep, &two).is_pending());
    }
    assert_eq!((ONE.clones(), TWO.clones(), ONE.drops.load(Ordering::SeqCst)), (1, 1, 1));
    engine.advance(SECOND);
    // The timer has fired. The waker's clone was woken, and is gone.
    assert_eq!((ONE.wakes(), TWO.wakes()), (0, 1));
    for _ in 0..10 {
        assert_eq!(poll_with(&mut sleep, &two), Poll::Ready(()));
    }
    assert_eq!((TWO.clones(), TWO.drops.load(Ordering::SeqCst)), (1, 1));
    drop(sleep);
    assert_eq!((TWO.clones(), TWO.drops.load(Ordering::SeqCst)), (1, 1));
}

/// Row P22 of the pitfalls in `src/DESIGN.md`: a waker is dropped as soon as it has been woken or its sleep has been
/// dropped. The sleep's deadline makes no difference.
#[test]
fn a_waker_is_let_go_with_its_wake_or_its_sleep() {
    let mut engine = driven();
    let (bell, waker) = bell();
    let mut woken = engine.handle().sleep(10 * MS);
    let mut dropped = engine.handle().sleep(HOUR);
    for sleep in [&mut woken, &mut dropped] {
        assert!(poll_with(sleep, &waker).is_pending());
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&bell), 3);
    engine.advance(10 * MS);
    assert_eq!(Arc::strong_count(&bell), 2);
    drop(dropped);
    assert_eq!((Arc::strong_count(&bell), bell.take()), (1, 1));
}

/// Row R22 of the pitfalls in `src/DESIGN.md`: a shutdown keeps no waker longer than its sleep.
#[test]
fn a_waker_is_let_go_after_a_shutdown() {
    let engine = driven();
    let handle = engine.handle().clone();
    let (bell, waker) = bell();
    let mut sleep = engine.handle().sleep(HOUR);
    assert!(poll_with(&mut sleep, &waker).is_pending());
    drop(waker);
    drop(engine);
    assert!(handle.is_shut_down());
    assert_eq!((Arc::strong_count(&bell), bell.take()), (1, 1));
    drop(sleep);
}

// --- Wakers that panic (row R21) ---

#[test]
fn a_waker_whose_clone_panics_costs_its_poll() {
    static BAD: Probe = Probe::new();
    let bad = BAD.waker();
    BAD.panics_in_clone.store(true, Ordering::SeqCst);
    let mut engine = driven();
    let mut sleep = engine.handle().sleep(10 * MS);
    let mut other = Task::new(engine.handle().sleep(10 * MS));
    assert!(other.poll().is_pending());
    expect_panic(|| poll_with(&mut sleep, &bad));
    let (bell, waker) = bell();
    assert!(poll_with(&mut sleep, &waker).is_pending());
    // Another waker is in place, and stays.
    expect_panic(|| poll_with(&mut sleep, &bad));
    engine.advance(10 * MS);
    assert_eq!((bell.take(), other.take_wakes(), BAD.wakes()), (1, 1, 0));
    assert_eq!(poll_with(&mut sleep, &bad), Poll::Ready(()));
    drop(sleep);
    assert_eq!((engine.handle().stats().total.panics, engine.handle().stats().owned.alive), (0, 1));
}

#[test]
fn a_waker_whose_wake_panics_is_counted_and_costs_nobody_else_anything() {
    static BAD: Probe = Probe::new();
    let bad = BAD.waker();
    BAD.panics_in_wake.store(true, Ordering::SeqCst);
    let heard = Log::new();
    let mut engine = {
        let heard = heard.clone();
        driven_with(Builder::new().on_panic(move |panic| {
            heard.push(*panic.downcast_ref::<&str>().expect("a message"));
        }))
    };
    let mut bad_ones: Vec<Sleep> = (0..10).map(|n| engine.handle().sleep(n % 3 * MS + MS)).collect();
    let mut good_ones: Vec<_> = (0..100).map(|n| Task::new(engine.handle().sleep(n % 3 * MS + MS))).collect();
    for (n, good) in good_ones.iter_mut().enumerate() {
        assert!(good.poll().is_pending());
        if n % 10 == 0 {
            assert!(poll_with(&mut bad_ones[n / 10], &bad).is_pending());
        }
    }
    engine.advance(10 * MS);
    assert!(good_ones.iter_mut().all(|good| good.take_wakes() == 1 && good.poll().is_ready()));
    assert_eq!((BAD.wakes(), engine.handle().stats().total.panics), (10, 10));
    assert_eq!(heard.take(), ["a wake panics"; 10]);
    // These sleeps are over in spite of the panics, and can be used again.
    for sleep in &mut bad_ones {
        assert_eq!(poll_with(sleep, &bad), Poll::Ready(()));
        sleep.reset_after(10 * MS);
        let (bell, waker) = bell();
        assert!(poll_with(sleep, &waker).is_pending());
        engine.advance(10 * MS);
        assert_eq!(bell.take(), 1);
    }
    drop((bad_ones, good_ones));
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

#[test]
fn a_waker_whose_drop_panics_does_so_to_whoever_drops_it() {
    static BAD: Probe = Probe::new();
    static WORSE: Probe = Probe::new();
    let mut engine = driven();
    let mut sleep = engine.handle().sleep(10 * MS);
    let bad = BAD.waker();
    assert!(poll_with(&mut sleep, &bad).is_pending());
    BAD.panics_in_drop.store(true, Ordering::SeqCst);
    // The bad waker is dropped when another waker takes its place.
    let (bell, waker) = bell();
    expect_panic(|| poll_with(&mut sleep, &waker));
    assert_eq!(Arc::strong_count(&bell), 3);
    assert!(poll_with(&mut sleep, &waker).is_pending());
    // The bad waker is dropped together with its sleep, whose slot is then free.
    let mut other = engine.handle().sleep(10 * MS);
    let worse = WORSE.waker();
    assert!(poll_with(&mut other, &worse).is_pending());
    WORSE.panics_in_drop.store(true, Ordering::SeqCst);
    expect_panic(|| drop(other));
    assert_eq!(engine.handle().stats().owned.alive, 1);
    engine.advance(10 * MS);
    assert_eq!((bell.take(), BAD.wakes(), WORSE.wakes(), engine.handle().stats().total.panics), (1, 0, 0, 0));
    assert_eq!(poll_with(&mut sleep, &waker), Poll::Ready(()));
    for probe in [&BAD, &WORSE] {
        probe.panics_in_drop.store(false, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_that_the_engine_drops_may_panic_in_that() {
    // All sleeps are due in one tick. The task that is woken first drops all other sleeps while the engine still has
    // their wakers.
    static BAD: Probe = Probe::new();
    let bad = BAD.waker();
    let mut engine = driven();
    let sleeps: Arc<Mutex<Vec<Sleep>>> = Arc::default();
    let mut first = engine.handle().sleep(10 * MS);
    let waker = on_wake({
        let sleeps = Arc::clone(&sleeps);
        move || {
            BAD.panics_in_drop.store(true, Ordering::SeqCst);
            let dropped = std::mem::take(&mut *lock(&sleeps));
            drop(dropped);
        }
    });
    assert!(poll_with(&mut first, &waker).is_pending());
    for _ in 0..50 {
        let mut sleep = engine.handle().sleep(10 * MS);
        assert!(poll_with(&mut sleep, &bad).is_pending());
        lock(&sleeps).push(sleep);
    }
    let mut after = Task::new(engine.handle().sleep(20 * MS));
    assert!(after.poll().is_pending());
    engine.advance(20 * MS);
    assert_eq!((after.take_wakes(), engine.handle().stats().owned.alive), (1, 2));
    BAD.panics_in_drop.store(false, Ordering::SeqCst);
    // Each of the 50 wakers was dropped: either after its wake, or with its sleep.
    assert_eq!(BAD.drops.load(Ordering::SeqCst), 50);
}

// --- The calls that a waker may make (row R20: the engine holds no lock when it wakes) ---

#[test]
fn a_waker_may_poll_its_own_sleep() {
    let polls = within_patience(|| {
        let mut engine = driven();
        let shared = Shared::default();
        shared.put(engine.handle().sleep(10 * MS));
        let polls = Log::new();
        let waker = on_wake({
            let (shared, polls) = (shared.clone(), polls.clone());
            move || polls.push(shared.poll(Waker::noop()))
        });
        assert!(shared.poll(&waker).is_pending());
        engine.advance(SECOND);
        assert_eq!(engine.handle().stats().owned.fired, 1);
        polls.take()
    });
    assert_eq!(polls, [Poll::Ready(())]);
}

#[test]
fn a_waker_may_reset_its_own_sleep() {
    // The waker resets its sleep repeatedly. If it also polls the sleep, it is woken again.
    for polls in [false, true] {
        let (wakes, fired) = within_patience(move || {
            let mut engine = driven();
            let (shared, wakes) = (Shared::default(), Log::new());
            shared.put(engine.handle().sleep(10 * MS));
            // The waker contains itself, once it was made.
            let own: Arc<Mutex<Option<Waker>>> = Arc::default();
            let waker = on_wake({
                let (shared, wakes, own, clock) =
                    (shared.clone(), wakes.clone(), Arc::clone(&own), engine.clock().clone());
                move || {
                    wakes.push(clock.now());
                    if wakes.len() < 5 {
                        shared.with(|sleep| sleep.reset_after(7 * MS));
                        let own = lock(&own).clone().expect("made");
                        assert!(!polls || shared.poll(&own).is_pending());
                    }
                }
            });
            *lock(&own) = Some(waker.clone());
            assert!(shared.poll(&waker).is_pending());
            engine.advance(SECOND);
            lock(&own).take();
            (wakes.take(), engine.handle().stats().owned.fired)
        });
        let at = |ms| Timestamp::ZERO + ms * MS;
        if polls {
            assert_eq!(wakes, [at(10), at(17), at(24), at(31), at(38)]);
            assert_eq!(fired, 5);
        } else {
            assert_eq!(wakes, [at(10)], "who was woken polls, to be woken again");
        }
    }
}

/// Row P16 of the pitfalls in `src/DESIGN.md`: a waker resets its sleep to the present moment at each wake. Other
/// timers still fire.
#[test]
fn a_waker_that_resets_its_sleep_to_now_starves_nobody() {
    let wakes = within_patience(|| {
        let mut engine = driven();
        let (shared, own) = (Shared::default(), Arc::<Mutex<Option<Waker>>>::default());
        let wakes = Arc::new(AtomicUsize::new(0));
        let waker = on_wake({
            let (shared, own, wakes) = (shared.clone(), Arc::clone(&own), Arc::clone(&wakes));
            move || {
                wakes.fetch_add(1, Ordering::SeqCst);
                let own = lock(&own).clone().expect("made");
                shared.with(|sleep| sleep.reset_after(std::time::Duration::ZERO));
                let _ = shared.poll(&own);
            }
        });
        *lock(&own) = Some(waker.clone());
        shared.put(engine.handle().sleep(MS));
        assert!(shared.poll(&waker).is_pending());
        let mut other = Task::new(engine.handle().sleep(50 * MS));
        assert!(other.poll().is_pending());
        engine.advance(100 * MS);
        assert_eq!(other.take_wakes(), 1);
        lock(&own).take();
        wakes.load(Ordering::SeqCst)
    });
    assert!(wakes <= 200, "{wakes} wakes in 100 ticks");
}

/// Row P17 of the pitfalls in `src/DESIGN.md`, and a case of tokio: the first wake of a hundred sleeps drops all of
/// them.
#[test]
fn a_waker_may_drop_its_own_sleep_and_all_others() {
    for count in [1, 100] {
        let (wakes, alive) = within_patience(move || {
            let mut engine = driven();
            let sleeps: Arc<Mutex<Vec<Sleep>>> = Arc::default();
            let wakes = Arc::new(AtomicUsize::new(0));
            let waker = on_wake({
                let (sleeps, wakes) = (Arc::clone(&sleeps), Arc::clone(&wakes));
                move || {
                    wakes.fetch_add(1, Ordering::SeqCst);
                    let dropped = std::mem::take(&mut *lock(&sleeps));
                    drop(dropped);
                }
            });
            for _ in 0..count {
                let mut sleep = engine.handle().sleep(10 * MS);
                assert!(poll_with(&mut sleep, &waker).is_pending());
                lock(&sleeps).push(sleep);
            }
            engine.advance(11 * MS);
            assert_eq!(engine.handle().stats().total.panics, 0);
            (wakes.load(Ordering::SeqCst), engine.handle().stats().owned.alive)
        });
        assert_eq!((wakes, alive), (1, 0));
    }
}

#[test]
fn a_waker_may_use_the_engine() {
    let woken = within_patience(|| {
        let mut engine = driven();
        let handle = engine.handle().clone();
        let sleeps: Arc<Mutex<Vec<Sleep>>> = Arc::default();
        let late = bell();
        let waker = on_wake({
            let (sleeps, late) = (Arc::clone(&sleeps), late.1.clone());
            move || {
                // The reset is to a later moment, to now, or to a moment that has passed.
                for (delay, is_ready) in [(5, false), (0, true)] {
                    let mut sleep = handle.sleep(delay * MS);
                    assert_eq!(poll_with(&mut sleep, &late).is_ready(), is_ready);
                    lock(&sleeps).push(sleep);
                }
                let mut dropped = handle.sleep(5 * MS);
                assert!(poll_with(&mut dropped, &late).is_pending());
                drop(dropped);
                assert_eq!(handle.stats().owned.alive, 2);
            }
        });
        let mut first = engine.handle().sleep(10 * MS);
        assert!(poll_with(&mut first, &waker).is_pending());
        engine.advance(14 * MS);
        assert_eq!(late.0.take(), 0);
        engine.advance(MS);
        assert_eq!((engine.handle().stats().total.panics, engine.handle().stats().owned.fired), (0, 2));
        late.0.take()
    });
    assert_eq!(woken, 1);
}

/// Row P17 of the pitfalls in `src/DESIGN.md`: a waker shuts the engine down, on the shard's own thread or without
/// threads.
#[test]
fn a_waker_may_shut_the_engine_down() {
    within_patience(|| {
        let mut engine = driven();
        let handle = engine.handle().clone();
        let waker = on_wake(move || assert_eq!(handle.shutdown().len(), 0));
        let mut first = engine.handle().sleep(10 * MS);
        assert!(poll_with(&mut first, &waker).is_pending());
        let mut second = Task::new(engine.handle().sleep(20 * MS));
        assert!(second.poll().is_pending());
        engine.advance(SECOND);
        assert!(engine.handle().is_shut_down());
        assert_eq!((second.take_wakes(), engine.handle().stats().total.panics), (1, 0));
        assert_eq!(poll_with(&mut first, &waker), Poll::Ready(()));
    });
    within_patience(|| {
        let engine = Builder::new().shards(1).start_futures().unwrap();
        let mut sleep = engine.handle().sleep(100 * MS);
        let owned = Arc::new(Mutex::new(None));
        let (done, is_done) = std::sync::mpsc::channel();
        let waker = on_wake({
            let owned = Arc::clone(&owned);
            move || {
                drop(lock(&owned).take());
                done.send(()).expect("somebody waits");
            }
        });
        *lock(&owned) = Some(engine);
        assert!(poll_with(&mut sleep, &waker).is_pending());
        is_done.recv().expect("it was woken");
        // The sleep has fired, and is dropped after the end of its engine.
        assert_eq!(poll_with(&mut sleep, &waker), Poll::Ready(()));
        drop((sleep, waker));
    });
}

#[test]
fn a_task_that_lives_by_its_waker_alone_may_end_in_it() {
    // An executor has the same cycle: the waker has the task, the task has the sleep, and the sleep has the waker.
    struct Own {
        sleep: Mutex<Option<Sleep>>,
        ended: Arc<()>,
    }
    impl Wake for Own {
        fn wake(self: Arc<Self>) {
            let sleep = lock(&self.sleep).take();
            drop(sleep);
            assert_eq!(Arc::strong_count(&self), 1, "somebody else has the task");
        }
    }
    let mut engine = driven();
    let ended = Arc::new(());
    for _ in 0..10 {
        let own = Arc::new(Own { sleep: Mutex::new(None), ended: Arc::clone(&ended) });
        let mut sleep = engine.handle().sleep(10 * MS);
        assert!(poll_with(&mut sleep, &Arc::clone(&own).into()).is_pending());
        *lock(&own.sleep) = Some(sleep);
        assert_eq!(Arc::strong_count(&own.ended), Arc::strong_count(&ended));
    }
    assert_eq!(Arc::strong_count(&ended), 11);
    engine.advance(10 * MS);
    assert_eq!((Arc::strong_count(&ended), engine.handle().stats().owned.alive), (1, 0));
    assert_eq!(engine.handle().stats().total.panics, 0);
}
