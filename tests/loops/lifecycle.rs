//! Loops that stand still, move to another thread or end. Also wake functions that panic.

use crate::support::{HOUR, Log, MS, assert_settled, wait_until};
use crate::{BUDGET, at, count_wakes, elsewhere, recording, settle, stepped};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{
    Armed, Builder, Cancel, Condition, Engine, Fired, LoopShard, ManualClock, Timer, Timestamp,
};

#[test]
fn a_loop_that_is_dropped_loses_nothing_and_another_one_takes_its_shard() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(2).unwrap();
    let (engine, log) = recording(&shards);
    loops.iter_mut().for_each(|shard| settle(shard, at(0)));
    assert!(shards.take_loop(0).is_none() && shards.take_loop(2).is_none());
    let cancelled = engine.handle().on(1).schedule_at(at(5), 1).unwrap();
    engine.handle().on(1).schedule_at(at(5), 2).unwrap();
    drop(loops.pop());
    engine.handle().on(1).schedule_at(at(6), 3).unwrap();
    settle(&mut loops[0], at(10));
    assert!(log.len() == 0, "stolen");
    assert_eq!(engine.handle().cancel(cancelled), Cancel::Cancelled(1));
    let mut another = shards.take_loop(1).unwrap();
    assert_eq!((another.index(), another.next_deadline()), (1, Some(at(5))));
    settle(&mut another, at(10));
    assert_eq!(log.take_sorted(), [2, 3]);
    // All loops end with pending timers, which the shutdown returns.
    let timer = engine.handle().timer(9).unwrap();
    timer.arm_at(at(20)).unwrap();
    engine.handle().on(0).schedule_at(at(20), 4).unwrap();
    engine.handle().on(1).schedule_at(at(20), 5).unwrap();
    drop((loops, another));
    let mut returned: Vec<u64> =
        elsewhere(|| engine.handle().shutdown()).into_iter().map(|left| left.payload).collect();
    returned.sort_unstable();
    assert_eq!(returned, [4, 5]);
    assert!(timer.arm_at(at(30)).is_err());
    assert_settled(&engine.handle().stats());
}

/// After a turn for a moment in the future, no timer fires until that moment. An engine that is made later begins at
/// the present.
#[test]
fn health_sees_a_loop_that_has_turned_for_the_future() {
    let (shards, mut loops) = Builder::new().loops(1).unwrap();
    let engine = shards.engine().start(|_: Fired<'_, u64>| {}).unwrap();
    let is_late = |engine: &Engine<u64>| engine.handle().health().condition == Condition::Late;
    settle(&mut loops[0], Instant::now().into());
    assert!(!is_late(&engine));
    engine.handle().schedule(MS, 1).unwrap();
    settle(&mut loops[0], Timestamp::from(Instant::now()) + HOUR);
    assert!(is_late(&engine), "{}", engine.handle().health());
    assert_eq!(engine.handle().stats().fired, 1, "early");
    engine.handle().schedule(MS, 2).unwrap();
    thread::sleep(5 * MS);
    let other = shards.engine().start(|_: Fired<'_, u64>| {}).unwrap();
    other.handle().schedule(MS, 3).unwrap();
    thread::sleep(5 * MS);
    settle(&mut loops[0], Instant::now().into());
    assert_eq!((engine.handle().stats().fired, other.handle().stats().fired), (1, 1));
    assert!(is_late(&engine) && !is_late(&other), "{}", other.handle().health());
    assert!(engine.handle().health().why.ends_with("ahead, and fires no timer before it"));
}

#[test]
fn health_sees_a_loop_that_never_turned_stands_still_or_has_gone() {
    let (shards, mut loops) = Builder::new().stall_after(10 * MS).loops(2).unwrap();
    let seen = Log::new();
    let sink = seen.clone();
    let look = move |timer: Fired<'_, u64>| {
        thread::sleep(20 * MS);
        sink.push(timer.engine().health().condition == Condition::Late);
    };
    let engine = shards.engine().start(look).unwrap();
    let why = || {
        let health = engine.handle().health();
        (health.condition == Condition::Late).then_some(health.why)
    };
    let turn =
        |loops: &mut Vec<LoopShard>| loops.iter_mut().for_each(|shard| settle(shard, Instant::now().into()));
    thread::sleep(20 * MS);
    assert!(why().unwrap().ends_with("its loop does not turn"), "never turned");
    turn(&mut loops);
    assert_eq!(why(), None);
    thread::sleep(20 * MS);
    assert_eq!(why(), None, "an idle loop is not late");
    // A timer comes from another thread or from the loop's own thread, while the loop is busy with something else.
    for own in [false, true] {
        let deadline = engine.handle().now();
        let arm = || engine.handle().on(1).schedule_at(deadline, 1).unwrap();
        if own {
            arm()
        } else {
            elsewhere(arm)
        };
        thread::sleep(20 * MS);
        assert!(why().unwrap().starts_with("shard 1 "), "stands still");
        assert!(engine.handle().stats().shards[1].behind >= 10 * MS);
        turn(&mut loops);
        assert_eq!(seen.take(), [true], "inside of a handler that takes long");
        assert_eq!(why(), None);
    }
    assert!(engine.handle().stats().shards[1].stalls > 0);
    elsewhere(|| engine.handle().on(1).schedule(MS, 1)).unwrap();
    drop(loops.pop());
    thread::sleep(20 * MS);
    assert!(why().unwrap().ends_with("it has no loop"));
}

#[test]
fn a_wake_function_that_panics_costs_the_caller_nothing() {
    let (engine, mut loops, log) = stepped(1);
    loops[0].wake_by(|| panic!("no wake"));
    settle(&mut loops[0], at(0));
    elsewhere(|| {
        let timers = engine.handle();
        timers.schedule_at(at(9), 9).unwrap();
        let timer = timers.timer(5).unwrap();
        assert_eq!(timer.arm_at(at(5)), Ok(Armed::Pending));
    });
    assert_eq!(loops[0].next_deadline(), Some(at(5)));
    settle(&mut loops[0], at(9));
    settle(&mut loops[0], at(10));
    assert_eq!(log.take_sorted(), [9]);
    // The wake function is replaced, and the new function is called.
    let wakes = count_wakes(&mut loops[0]);
    elsewhere(|| engine.handle().schedule_at(at(20), 20)).unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst), 1);
}

/// A loop's thread waits for a handler in another loop's turn. The thread may wait, because it is outside of its own
/// turns.
#[test]
fn a_loops_thread_waits_for_a_handler_in_another_loops_turn() {
    let (shards, mut loops) = Builder::new().loops(2).unwrap();
    let (begun, may_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let has_ended = Arc::new(AtomicBool::new(false));
    let (began, end, ended) = (Arc::clone(&begun), Arc::clone(&may_end), Arc::clone(&has_ended));
    let engine = shards
        .engine()
        .start(move |_: Fired<'_, u64>| {
            began.store(true, Ordering::SeqCst);
            while !end.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            ended.store(true, Ordering::SeqCst);
        })
        .unwrap();
    let mut here = loops.remove(0);
    settle(&mut here, Instant::now().into());
    let id = engine.handle().on(1).schedule(Duration::ZERO, 1).unwrap();
    let mut other = loops.remove(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::SeqCst) {
                settle(&mut other, Instant::now().into());
            }
        });
        wait_until("the handler has begun", || begun.load(Ordering::SeqCst));
        scope.spawn(|| {
            thread::sleep(20 * MS);
            may_end.store(true, Ordering::SeqCst);
        });
        assert_eq!(engine.handle().cancel_and_wait(id), Cancel::Gone);
        assert!(has_ended.load(Ordering::SeqCst), "the call waited for the handler");
    });
}

/// A thread that arms a timer drops a loop's wake function, and the drop panics. The caller notices nothing.
#[test]
fn a_wake_function_whose_drop_panics_costs_the_caller_nothing() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("no drop");
        }
    }
    let (engine, mut loops, _log) = stepped(1);
    let (called, may_return) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (call, go_on, bomb) = (Arc::clone(&called), Arc::clone(&may_return), Bomb);
    loops[0].wake_by(move || {
        let _kept = &bomb;
        call.store(true, Ordering::SeqCst);
        while !go_on.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    });
    settle(&mut loops[0], at(0));
    thread::scope(|scope| {
        let armed = scope.spawn(|| engine.handle().schedule_at(at(9), 9));
        wait_until("it is called", || called.load(Ordering::SeqCst));
        loops[0].wake_by(|| {});
        may_return.store(true, Ordering::SeqCst);
        assert!(armed.join().unwrap().is_ok());
    });
}

#[test]
fn a_loop_moves_to_another_thread() {
    let (engine, mut loops, log) = stepped(2);
    loops.iter_mut().for_each(|shard| settle(shard, at(0)));
    let mut shard = loops.remove(1);
    let wakes = count_wakes(&mut shard);
    engine.handle().on(1).schedule_at(at(50), 1).unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst), 0, "woken by its own thread");
    let timers = engine.handle().clone();
    let mut shard = elsewhere(move || {
        settle(&mut shard, at(1));
        timers.schedule_at(at(40), 2).unwrap();
        assert_eq!(shard.next_deadline(), Some(at(40)), "the thread's timers do not go to its loop");
        shard
    });
    assert_eq!(wakes.load(Ordering::SeqCst), 0, "woken by its own thread");
    // The loop has moved, so its former thread must wake it now.
    engine.handle().on(1).schedule_at(at(30), 3).unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst), 1);
    assert_eq!(shard.next_deadline(), Some(at(30)));
    settle(&mut shard, at(50));
    assert_eq!(log.take_sorted(), [1, 2, 3]);
}

/// Schedules a one-shot and arms an owned timer on the calling thread, both due at once. Returns the timer.
fn schedule_and_arm(engine: &Engine<u64>, payload: u64) -> Timer<u64> {
    engine.handle().schedule(Duration::ZERO, payload).unwrap();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(Duration::ZERO).unwrap();
    timer
}

/// Goal: the timers of a thread with several loops go to a loop that is on the thread. Method: of three loops on a
/// thread, the first is dropped here, dropped on another thread, or turned on another thread; then also the second.
/// After each departure the thread's timers fire in the turn of the next loop.
#[test]
fn a_thread_with_several_loops_uses_one_that_is_left() {
    #[derive(Clone, Copy, Debug)]
    enum Departure {
        DroppedHere,
        DroppedElsewhere,
        TurnedElsewhere,
    }
    use Departure::*;
    for departure in [DroppedHere, DroppedElsewhere, TurnedElsewhere] {
        let (engine, loops, log) = stepped(3);
        let mut loops = std::collections::VecDeque::from(loops);
        loops.iter_mut().for_each(|shard| settle(shard, at(1)));
        let mut gone = Vec::new();
        for round in 0..3 {
            let _timer = schedule_and_arm(&engine, round);
            // An engine whose first timer comes now goes to the same loop.
            let (fresh, fresh_log) = recording(loops[0].shards());
            let _fresh_timer = schedule_and_arm(&fresh, round);
            settle(&mut loops[0], at(1_000));
            assert_eq!(log.take(), [round; 2], "{departure:?}");
            assert_eq!(fresh_log.take(), [round; 2], "{departure:?}, another engine");
            let mut leaving = loops.pop_front().unwrap();
            match departure {
                DroppedHere => drop(leaving),
                DroppedElsewhere => elsewhere(|| drop(leaving)),
                TurnedElsewhere => {
                    let turned = elsewhere(|| {
                        settle(&mut leaving, at(1_000));
                        leaving
                    });
                    gone.push(turned);
                }
            }
            if let (DroppedElsewhere | TurnedElsewhere, Some(next)) = (departure, loops.front_mut()) {
                settle(next, at(1_000));
            }
        }
    }
}

#[test]
fn a_shard_that_the_program_has_chosen_stays_chosen_when_a_loop_leaves() {
    let (engine, mut loops, log) = stepped(3);
    loops.iter_mut().for_each(|shard| settle(shard, at(1)));
    engine.handle().use_shard(2);
    drop(loops.remove(0));
    loops.iter_mut().for_each(|shard| settle(shard, at(1)));
    engine.handle().schedule(Duration::ZERO, 7).unwrap();
    settle(&mut loops[0], at(1_000));
    assert_eq!(log.take(), []);
    settle(&mut loops[1], at(1_000));
    assert_eq!(log.take(), [7]);
}

#[test]
fn handlers_use_their_engine_and_end_it() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(1).unwrap();
    let fired = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&fired);
    let engine = shards
        .engine()
        .start(move |timer: Fired<'_, u64>| {
            count.fetch_add(1, Ordering::SeqCst);
            match timer.payload {
                0 => drop(timer.engine().shutdown()),
                left => drop(timer.engine().schedule_at(timer.deadline + MS, left - 1)),
            }
        })
        .unwrap();
    let (other, log) = recording(&shards);
    settle(&mut loops[0], at(0));
    engine.handle().schedule_at(at(1), 5).unwrap();
    other.handle().schedule_at(at(100), 1).unwrap();
    for now in 1..20 {
        settle(&mut loops[0], at(now));
    }
    assert_eq!(fired.load(Ordering::SeqCst), 6);
    assert!(engine.handle().is_shut_down());
    settle(&mut loops[0], at(100));
    assert_eq!(log.take_sorted(), [1]);
}

#[test]
fn a_shutdown_elsewhere_waits_for_the_turn_and_returns_the_rest() {
    let (shards, mut loops) = Builder::new().loops(1).unwrap();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let open = Arc::clone(&gate);
    let (begun, has_ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (began, ended) = (Arc::clone(&begun), Arc::clone(&has_ended));
    let engine = shards
        .engine()
        .start(move |_: Fired<'_, u64>| {
            began.store(true, Ordering::SeqCst);
            let (lock, changed) = &*open;
            let mut is_open = lock.lock().unwrap();
            while !*is_open {
                is_open = changed.wait(is_open).unwrap();
            }
            drop(is_open);
            ended.store(true, Ordering::SeqCst);
        })
        .unwrap();
    engine.handle().on(0).schedule(Duration::ZERO, 1).unwrap();
    engine.handle().on(0).schedule(Duration::from_secs(60), 2).unwrap();
    let has_begun = Arc::clone(&begun);
    let turner = thread::spawn(move || {
        while !begun.load(Ordering::SeqCst) {
            let _ = loops[0].turn(Instant::now(), BUDGET);
        }
        loops
    });
    wait_until("the handler has begun", || has_begun.load(Ordering::SeqCst));
    let handle = engine.handle().clone();
    let ended = Arc::clone(&has_ended);
    let shutdown = thread::spawn(move || {
        let returned = handle.shutdown();
        (returned.len(), ended.load(Ordering::SeqCst))
    });
    thread::sleep(20 * MS);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let (returned, had_ended) = shutdown.join().unwrap();
    assert!(returned == 1 && had_ended, "{returned} returned");
    drop(turner);
    assert_settled(&engine.handle().stats());
}
