//! Shards that the program's own loops turn: their moments, their wakes, their ends, and what may go wrong.

mod support;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use support::{Log, MS, Rng, assert_settled, wait_until};
use tourbillon::{
    Armed, Builder, Cancel, Condition, Disarm, Engine, Fired, Left, LoopShard, ManualClock, RescheduleError,
    Shards, Timestamp,
};

const BUDGET: usize = 1 << 20;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// Loops on a clock that stands still, at time zero, and an engine that notes the payloads that fire.
fn stepped(loops: usize) -> (Engine<u64>, Vec<LoopShard>, Log<u64>) {
    let (shards, loops) = Builder::new().clock(ManualClock::new()).loops(loops).unwrap();
    let (engine, log) = recording(&shards);
    (engine, loops, log)
}

fn recording(shards: &Shards) -> (Engine<u64>, Log<u64>) {
    let log = Log::new();
    let sink = log.clone();
    let engine = shards.engine().start(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    (engine, log)
}

fn index(n: u64) -> usize {
    usize::try_from(n).expect("a small number")
}

/// Turns until nothing is left.
fn settle(shard: &mut LoopShard, now: Timestamp) {
    while shard.turn(now, BUDGET) == Left::More {}
}

/// Counts the wakes of a loop.
fn count_wakes(shard: &mut LoopShard) -> Arc<AtomicU64> {
    let wakes = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&wakes);
    shard.wake_by(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    wakes
}

/// Runs `f` on another thread, to its end.
fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(f).join().unwrap())
}

#[test]
fn a_loop_fires_its_timers_in_its_turns_and_never_early() {
    let (engine, mut loops, log) = stepped(1);
    let shard = &mut loops[0];
    assert_eq!(shard.next_deadline(), Some(Timestamp::ZERO), "a loop that has not turned should turn");
    settle(shard, at(0));
    assert_eq!(shard.next_deadline(), None);
    for n in [5, 3, 9] {
        engine.handle().schedule_at(at(n), n).unwrap();
    }
    assert_eq!(shard.next_deadline(), Some(at(3)));
    assert_eq!(shard.timeout(at(1)), Some(2 * MS));
    for now in 0..3 {
        assert_eq!(shard.turn(at(now), BUDGET), Left::Nothing);
        assert!(log.len() == 0, "fired early");
    }
    settle(shard, at(3));
    assert_eq!((log.take_sorted(), shard.next_deadline()), (vec![3], Some(at(5))));
    settle(shard, at(20));
    assert_eq!((log.take_sorted(), shard.next_deadline()), (vec![5, 9], None));
    assert_settled(&engine.handle().stats());
}

#[test]
fn owned_timers_are_armed_and_disarmed_by_their_loop() {
    let clock = ManualClock::new();
    let (shards, mut loops) = Builder::new().clock(clock.clone()).loops(1).unwrap();
    let (engine, log) = recording(&shards);
    let timer = engine.handle().timer(7).unwrap();
    let turn = |shard: &mut LoopShard, now| {
        clock.set(now);
        settle(shard, now);
    };
    turn(&mut loops[0], at(0));
    for round in 1..100 {
        assert_eq!(timer.arm_at(at(round + 50)), Ok(Armed::Pending));
        turn(&mut loops[0], at(round));
        assert_eq!(timer.disarm(), Disarm::Disarmed);
    }
    assert!(log.len() == 0);
    assert!(engine.handle().stats().owned.posted < 5, "a ticket for each arming");
    timer.arm_at(at(300)).unwrap();
    turn(&mut loops[0], at(299));
    assert!(log.len() == 0);
    turn(&mut loops[0], at(300));
    assert_eq!((log.take_sorted(), timer.disarm()), (vec![7], Disarm::Idle));
}

#[test]
fn a_loop_is_woken_once_for_each_earlier_moment_and_for_no_later_one() {
    let (engine, mut loops, log) = stepped(1);
    let shard = &mut loops[0];
    let wakes = count_wakes(shard);
    settle(shard, at(0));
    let timers = engine.handle();
    let from_elsewhere = |moment| {
        elsewhere(|| timers.schedule_at(at(moment), moment)).unwrap();
        wakes.load(Ordering::SeqCst)
    };
    assert_eq!(from_elsewhere(50), 1);
    assert_eq!([60, 50, 55].map(from_elsewhere), [1, 1, 1]);
    assert_eq!(from_elsewhere(20), 2);
    assert_eq!(from_elsewhere(30), 2);
    // Turns at which nothing is due change nothing.
    assert_eq!((shard.next_deadline(), shard.turn(at(19), BUDGET)), (Some(at(20)), Left::Nothing));
    assert_eq!(from_elsewhere(25), 2);
    settle(shard, at(20));
    assert_eq!((log.take_sorted(), shard.next_deadline()), (vec![20], Some(at(25))));
    assert_eq!(from_elsewhere(26), 2);
    assert_eq!(from_elsewhere(24), 3);
    // The loop's own thread wakes nobody.
    timers.schedule_at(at(22), 22).unwrap();
    assert_eq!((shard.next_deadline(), wakes.load(Ordering::SeqCst)), (Some(at(22)), 3));
    settle(shard, at(100));
    assert_eq!(log.take_sorted(), [22, 24, 25, 26, 30, 50, 50, 55, 60]);
}

#[test]
fn a_turn_stops_at_its_budget_and_says_so() {
    let (engine, mut loops, log) = stepped(1);
    settle(&mut loops[0], at(0));
    for n in 0..1_000 {
        engine.handle().schedule_at(at(5), n).unwrap();
    }
    let mut fired = 0;
    while loops[0].turn(at(5), 100) == Left::More {
        let now = log.len();
        assert!(now - fired <= 132, "{} in a turn", now - fired);
        fired = now;
        assert!(loops[0].next_deadline().unwrap() <= at(5));
    }
    assert!(log.len() == 1_000 && fired >= 500, "all in one turn");
    // A budget of nothing still gets on.
    engine.handle().schedule_at(at(7), 1).unwrap();
    let turns = (0..100).take_while(|_| loops[0].turn(at(7), 0) == Left::More).count();
    assert!(turns < 100 && log.len() == 1_001);
}

#[test]
fn a_timer_goes_to_the_loop_that_is_named() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(3).unwrap();
    let log = Log::new();
    let sink = log.clone();
    let engine = shards.engine().start(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    loops.iter_mut().for_each(|shard| settle(shard, at(0)));
    let fired_by = |shard: &mut LoopShard, now| {
        settle(shard, at(now));
        log.take_sorted()
    };
    elsewhere(|| {
        for n in 0..6 {
            engine.handle().on(index(n)).schedule_at(at(5), n).unwrap();
        }
    });
    assert_eq!(fired_by(&mut loops[1], 5), [1, 4]);
    assert_eq!(fired_by(&mut loops[2], 5), [2, 5]);
    assert_eq!(fired_by(&mut loops[0], 5), [0, 3]);
    // A one-shot moves, and its old id is stale.
    let id = engine.handle().on(0).schedule_at(at(8), 8).unwrap();
    let moved = engine.handle().on(2).reschedule_at(id, at(9)).unwrap();
    assert!(matches!(engine.handle().reschedule_at(id, at(7)), Err(RescheduleError::Gone)));
    assert_eq!(fired_by(&mut loops[0], 20), []);
    assert_eq!(fired_by(&mut loops[2], 20), [8]);
    assert_eq!(engine.handle().cancel(moved), Cancel::Gone);
}

#[test]
fn an_owned_timer_moves_with_its_connection() {
    let clock = ManualClock::new();
    let (shards, mut loops) = Builder::new().clock(clock.clone()).loops(2).unwrap();
    let (engine, log) = recording(&shards);
    loops.iter_mut().for_each(|shard| settle(shard, at(0)));
    let timer = engine.handle().timer(7).unwrap();
    let fires_at = |shard: &mut LoopShard, now| {
        clock.set(at(now));
        settle(shard, at(now));
        !log.take_sorted().is_empty()
    };
    for (from, to, now) in [(0, 1, 100), (1, 0, 200), (0, 1, 300)] {
        assert_eq!(engine.handle().on(from).arm_at(&timer, at(now + 40)), Ok(Armed::Pending));
        // To a later moment, to an earlier one, and to the same one.
        for moved in [60, 20, 20] {
            assert_eq!(engine.handle().on(to).arm_at(&timer, at(now + moved)), Ok(Armed::Pending));
        }
        assert!(!fires_at(&mut loops[to], now + 19), "early");
        assert!(!fires_at(&mut loops[from], now + 50), "fired where it was");
        assert!(fires_at(&mut loops[to], now + 50), "not fired where it is");
        assert_eq!(timer.deadline(), None);
    }
    let (other, _log) = recording(&shards);
    let foreign = other.handle().timer(1).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| engine.handle().on(0).arm_at(&foreign, at(1)))).is_err());
}

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
    // All loops end with timers pending: the shutdown returns them.
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

#[test]
fn a_moment_that_steps_back_fires_nothing_early() {
    let (engine, mut loops, log) = stepped(1);
    settle(&mut loops[0], at(100));
    engine.handle().schedule_at(at(110), 1).unwrap();
    for now in [50, 109, 3, 109] {
        settle(&mut loops[0], at(now));
        assert!(log.len() == 0, "fired at {now} ms");
        assert_eq!(loops[0].next_deadline(), Some(at(110)));
    }
    engine.handle().schedule_at(at(60), 2).unwrap();
    settle(&mut loops[0], at(40));
    assert!(log.len() == 0);
    settle(&mut loops[0], at(110));
    settle(&mut loops[0], at(111));
    assert_eq!(log.take_sorted(), [1, 2]);
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
    // A timer from elsewhere, and one of the loop's own thread, while the loop is busy with something else.
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
    // Replaced, and called with another engine's lock held by nobody.
    let wakes = count_wakes(&mut loops[0]);
    elsewhere(|| engine.handle().schedule_at(at(20), 20)).unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst), 1);
}

#[test]
fn a_full_lane_of_the_loops_own_thread_is_drained_by_that_thread() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(1).unwrap();
    let log: Log<u64> = Log::new();
    let sink = log.clone();
    let engine = shards
        .engine()
        .lane_capacity(64)
        .start(move |timer: Fired<'_, u64>| sink.push(timer.payload))
        .unwrap();
    settle(&mut loops[0], at(0));
    for n in 0..1_000 {
        engine.handle().schedule_at(at(5), n).unwrap();
    }
    settle(&mut loops[0], at(5));
    assert_eq!(log.len(), 1_000);
}

/// Many more timers than a lane holds, from a thread that no loop runs on, and from the loops' own.
#[test]
fn a_full_lane_waits_for_no_loop_that_does_not_turn() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(2).unwrap();
    let engine_of = |log: &Log<u64>| {
        let sink = log.clone();
        let engine = shards.engine().lane_capacity(64);
        engine.start(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap()
    };
    let log = Log::new();
    let engine = engine_of(&log);
    let fill = |engine: &Engine<u64>, shard: usize| {
        (0..500).for_each(|n| assert!(engine.handle().on(shard).schedule_at(at(5), n).is_ok()));
    };
    // No loop has turned yet.
    elsewhere(|| fill(&engine, 0));
    loops.iter_mut().for_each(|shard| settle(shard, at(1)));
    // Both loops run on this thread. Neither has seen the second engine.
    let late = engine_of(&log);
    for shard in 0..2 {
        fill(&engine, shard);
        fill(&late, shard);
    }
    elsewhere(|| fill(&late, 1));
    drop(loops.pop());
    fill(&engine, 1);
    elsewhere(|| fill(&engine, 1));
    let mut second = shards.take_loop(1).unwrap();
    settle(&mut loops[0], at(5));
    settle(&mut second, at(5));
    assert_eq!(log.len(), 8 * 500);
}

/// Inside of a turn nobody can make room: the lane's loop is in it.
#[test]
fn a_lane_that_fills_up_inside_of_its_loops_turn_refuses() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(1).unwrap();
    let refused = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&refused);
    let engine = shards
        .engine()
        .lane_capacity(64)
        .start(move |timer: Fired<'_, u64>| {
            let timers = timer.engine();
            let full = (0..200).filter(|n| timers.schedule_at(at(9), *n).is_err()).count();
            count.fetch_add(full as u64, Ordering::SeqCst);
        })
        .unwrap();
    engine.handle().schedule_at(at(1), 0).unwrap();
    settle(&mut loops[0], at(1));
    let refused = refused.load(Ordering::SeqCst);
    assert!((1..200).contains(&refused), "{refused} of 200 timers, and a lane for some 64");
}

/// A loop's thread may wait for the handlers of another loop, outside of its own turns.
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

/// What is wanted at once is wanted at the clock's first moment, too.
#[test]
fn a_loop_looks_at_once_in_the_first_tick_of_time() {
    let (_engine, mut loops, _log) = stepped(1);
    settle(&mut loops[0], at(0));
    assert_eq!(loops[0].next_deadline(), None);
    let (engine, log) = recording(&loops[0].shards().clone());
    assert_eq!(loops[0].next_deadline(), Some(Timestamp::ZERO), "an engine has joined");
    settle(&mut loops[0], at(0));
    elsewhere(|| engine.handle().schedule_at(Timestamp::ZERO, 1)).unwrap();
    assert_eq!(loops[0].next_deadline(), Some(Timestamp::ZERO));
    settle(&mut loops[0], at(0));
    assert_eq!((loops[0].next_deadline(), log.take_sorted()), (None, vec![1]));
}

/// A handler holds up the others of its batch: the next check gives them to another thread, however long the ticks are.
#[test]
fn a_loop_checks_its_batches_within_a_tick() {
    let (shards, mut loops) = Builder::new().tick(Duration::from_secs(1)).loops(1).unwrap();
    let second = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&second);
    let engine = shards
        .engine()
        .executor(|job: tourbillon::Job| drop(thread::spawn(|| job.run())))
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload == 0 {
                wait_until("the other one has fired", || seen.load(Ordering::SeqCst));
            } else {
                seen.store(true, Ordering::SeqCst);
            }
        })
        .unwrap();
    let shard = &mut loops[0];
    settle(shard, Instant::now().into());
    // Both are due in the same tick, and the first one begins first.
    for n in 0..2 {
        engine.handle().schedule(Duration::ZERO, n).unwrap();
    }
    let due = shard.next_deadline().unwrap();
    while !second.load(Ordering::SeqCst) {
        thread::sleep(MS);
        let now = Timestamp::from(Instant::now());
        settle(shard, now);
        assert!(now < due + Duration::from_millis(900), "no check within the tick");
    }
    assert_eq!(engine.handle().shutdown().len(), 0);
}

/// A wake function that is dropped by a thread that arms, and whose drop panics.
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

/// A loop that is a task does not ask for its next deadline again when another task of its thread has armed a timer.
#[test]
fn a_task_is_woken_for_earlier_timers_of_its_own_thread() {
    let (engine, mut loops, log) = stepped(1);
    let shard = &mut loops[0];
    let wakes = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&wakes);
    shard.wake_task_by(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    settle(shard, at(0));
    let wakes_after = |n: u64| {
        engine.handle().schedule_at(at(n), n).unwrap();
        wakes.load(Ordering::SeqCst)
    };
    assert_eq!(wakes_after(50), 1);
    assert_eq!(wakes_after(60), 1, "a later timer is found at the earlier moment");
    assert_eq!(wakes_after(40), 2);
    assert_eq!(elsewhere(|| wakes_after(30)), 3);
    settle(shard, at(60));
    assert_eq!(log.take(), [30, 40, 50, 60]);
    // With the other function, the thread's own timers wake nobody again.
    let wakes = count_wakes(shard);
    engine.handle().schedule_at(at(70), 70).unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst), 0);
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
    // Its former thread wakes it now.
    engine.handle().on(1).schedule_at(at(30), 3).unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst), 1);
    assert_eq!(shard.next_deadline(), Some(at(30)));
    settle(&mut shard, at(50));
    assert_eq!(log.take_sorted(), [1, 2, 3]);
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

/// Loops with a condition variable for a poll, against foreign threads: each timer ends once, none early, and none
/// waits for a loop that is not woken.
#[test]
fn loops_and_foreign_threads_end_each_timer_once() {
    const THREADS: u64 = 3;
    let each: u64 = std::env::var("TOURBILLON_STRESS").map_or(20_000, |n| n.parse::<u64>().unwrap() / 20);
    let (shards, loops) = Builder::new().loops(2).unwrap();
    let ends: Arc<Vec<AtomicU64>> = Arc::new((0..THREADS * each).map(|_| AtomicU64::new(0)).collect());
    let sink = Arc::clone(&ends);
    let engine = shards
        .engine()
        .start(move |timer: Fired<'_, u64>| {
            assert!(Timestamp::from(Instant::now()) >= timer.deadline, "early");
            sink[index(timer.payload)].fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let loops: Vec<_> = loops.into_iter().map(|shard| spawn_loop(shard, Arc::clone(&is_over))).collect();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (timers, ends) = (engine.handle().clone(), Arc::clone(&ends));
            thread::spawn(move || play(&timers, &ends, thread * each..(thread + 1) * each))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    wait_until("all have ended", || engine.handle().is_empty());
    is_over.store(true, Ordering::SeqCst);
    for (thread, waker) in loops {
        waker();
        thread.join().unwrap();
    }
    assert!(ends.iter().all(|end| end.load(Ordering::Relaxed) == 1), "a timer ended twice, or not at all");
    assert_eq!(engine.handle().stats().total.panics, 0);
    assert_settled(&engine.handle().stats());
}

type Waker = Box<dyn Fn() + Send>;

fn spawn_loop(mut shard: LoopShard, is_over: Arc<AtomicBool>) -> (thread::JoinHandle<()>, Waker) {
    let poll = Arc::new((Mutex::new(false), Condvar::new()));
    let waker = |poll: &Arc<(Mutex<bool>, Condvar)>| {
        let poll = Arc::clone(poll);
        move || {
            *poll.0.lock().unwrap() = true;
            poll.1.notify_one();
        }
    };
    shard.wake_by(waker(&poll));
    let waker = waker(&poll);
    let run = move || {
        while !is_over.load(Ordering::SeqCst) {
            let mut is_woken = poll.0.lock().unwrap();
            if !*is_woken {
                let now = Instant::now();
                is_woken = match shard.timeout(now) {
                    Some(timeout) => poll.1.wait_timeout(is_woken, timeout).unwrap().0,
                    None => poll.1.wait(is_woken).unwrap(),
                };
            }
            *is_woken = false;
            drop(is_woken);
            let _ = shard.turn(Instant::now(), 256);
        }
    };
    (thread::spawn(run), Box::new(waker))
}

/// Schedules, cancels and moves timers on both shards.
fn play(timers: &tourbillon::Handle<u64>, ends: &[AtomicU64], payloads: std::ops::Range<u64>) {
    let mut rng = Rng::new(payloads.start + 1);
    let mut pending = Vec::new();
    let end = |outcome: Cancel<u64>| {
        if let Cancel::Cancelled(payload) = outcome {
            ends[index(payload)].fetch_add(1, Ordering::Relaxed);
        }
    };
    for payload in payloads {
        let deadline = timers.now() + rng.nanos_below(3 * MS);
        let shard = index(payload % 2);
        pending.push(match payload % 3 {
            0 => timers.schedule_at(deadline, payload).unwrap(),
            _ => timers.on(shard).schedule_at(deadline, payload).unwrap(),
        });
        if pending.len() > 50 {
            let id = pending.swap_remove(index(payload * 7) % pending.len());
            match timers.on(1 - shard).reschedule_at(id, deadline + MS) {
                Ok(id) if payload % 2 == 0 => end(timers.cancel(id)),
                Err(RescheduleError::Running | RescheduleError::Gone) | Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// A timer of the sorted list that the loops are compared with.
#[derive(Clone, Copy, Debug)]
struct Expected {
    deadline: Timestamp,
    shard: usize,
}

/// Loops that are stepped by hand do what a sorted list does: each timer fires at the shard where it is, not before its
/// deadline, and at most a tick after it if the loop turns; what was cancelled or disarmed does not fire.
#[test]
fn stepped_loops_do_what_a_sorted_list_does() {
    let seed = std::env::var("TOURBILLON_SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in seed..seed + 20 {
        play_against_a_list(seed);
    }
}

fn play_against_a_list(seed: u64) {
    const LOOPS: usize = 3;
    const OWNED: u64 = 8;
    let clock = ManualClock::new();
    let (shards, mut loops) = Builder::new().clock(clock.clone()).loops(LOOPS).unwrap();
    let (engine, log) = recording(&shards);
    let timers = engine.handle();
    let owned: Vec<_> = (0..OWNED).map(|n| timers.timer(n).unwrap()).collect();
    let mut rng = Rng::new(seed);
    let (mut now, mut next) = (at(0), OWNED);
    let mut list: BTreeMap<u64, Expected> = BTreeMap::new();
    let mut ids = BTreeMap::new();
    loops.iter_mut().for_each(|shard| settle(shard, now));
    for step in 0..3_000 {
        let shard = rng.index(LOOPS);
        let deadline = now + rng.nanos_below(if step % 7 == 0 { 10_000 * MS } else { 30 * MS });
        let pick = rng.below(100);
        let one = ids.keys().copied().nth(index(pick) % ids.len().max(1));
        let own = pick % OWNED;
        match rng.below(9) {
            0..=2 => {
                let arm = || timers.on(shard).schedule_at(deadline, next).unwrap();
                ids.insert(next, if pick.is_multiple_of(2) { arm() } else { elsewhere(arm) });
                list.insert(next, Expected { deadline, shard });
                next += 1;
            }
            3 => {
                let Some((payload, id)) = one.and_then(|one| ids.remove_entry(&one)) else { continue };
                assert_eq!(timers.cancel(id), Cancel::Cancelled(payload), "seed {seed}");
                list.remove(&payload);
            }
            4 => {
                let Some(one) = one else { continue };
                let moved = timers.on(shard).reschedule_at(ids[&one], deadline).unwrap();
                ids.insert(one, moved);
                list.insert(one, Expected { deadline, shard });
            }
            5 => {
                let armed = timers.on(shard).arm_at(&owned[index(own)], deadline);
                assert_eq!(armed, Ok(Armed::Pending), "seed {seed}");
                list.insert(own, Expected { deadline, shard });
            }
            6 => {
                let was = owned[index(own)].disarm();
                assert_eq!(was == Disarm::Disarmed, list.remove(&own).is_some(), "seed {seed}");
            }
            _ => {
                now = now + rng.nanos_below(5 * MS);
                clock.set(now);
                // The moment is not behind what is due there.
                let first =
                    list.values().filter(|timer| timer.shard == shard).map(|timer| timer.deadline).min();
                if let Some(first) = first {
                    assert!(loops[shard].next_deadline().unwrap() <= first + MS, "seed {seed}: overslept");
                }
                settle(&mut loops[shard], now);
                for payload in log.take() {
                    ids.remove(&payload);
                    let timer =
                        list.remove(&payload).unwrap_or_else(|| panic!("seed {seed}: {payload} fired"));
                    assert!(
                        timer.deadline <= now && timer.shard == shard,
                        "seed {seed}: {timer:?} at {now:?}"
                    );
                }
                let late = list.values().find(|timer| timer.shard == shard && timer.deadline + 2 * MS <= now);
                assert!(late.is_none(), "seed {seed}: {late:?} has not fired at {now:?}");
            }
        }
    }
    let mut returned: Vec<u64> = timers.shutdown().into_iter().map(|left| left.payload).collect();
    returned.sort_unstable();
    assert_eq!(returned, ids.into_keys().collect::<Vec<_>>(), "seed {seed}");
    assert_settled(&timers.stats());
}
