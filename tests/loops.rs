//! Shards that the program's own loops turn: their moments, their wakes, their ends, and what may go wrong.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use support::{HOUR, Log, MS, PATIENCE, Rng, assert_settled, wait_until};
use tourbillon::extend::{Base, Due};
use tourbillon::{
    ArmError, Armed, Builder, Cancel, Condition, Disarm, Engine, Fired, Handle, LoopLeft, LoopShard,
    ManualClock, Refusal, RescheduleError, Shards, Stats, Timer, TimerId, Timestamp,
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
    while shard.turn(now, BUDGET) == LoopLeft::More {}
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
        assert_eq!(shard.turn(at(now), BUDGET), LoopLeft::Nothing);
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
    assert_eq!((shard.next_deadline(), shard.turn(at(19), BUDGET)), (Some(at(20)), LoopLeft::Nothing));
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
    while loops[0].turn(at(5), 100) == LoopLeft::More {
        let now = log.len();
        assert!(now - fired <= 132, "{} in a turn", now - fired);
        fired = now;
        assert!(loops[0].next_deadline().unwrap() <= at(5));
    }
    assert!(log.len() == 1_000 && fired >= 500, "all in one turn");
    // A budget of nothing still gets on.
    engine.handle().schedule_at(at(7), 1).unwrap();
    let turns = (0..100).take_while(|_| loops[0].turn(at(7), 0) == LoopLeft::More).count();
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

/// A layer waits by `await_room`, which makes the room on a loop's own thread.
#[test]
fn a_layer_gets_room_in_a_full_lane_of_the_loops_own_thread() {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(1).unwrap();
    let (engine, base) = Base::start(shards.engine().lane_capacity(64), |_: Due<'_, u64>| {}).unwrap();
    settle(&mut loops[0], at(0));
    for n in 0..1_000 {
        let mut rounds = 0;
        while let Err(error) = base.handle().try_schedule_at(at(5), n) {
            assert_eq!(error.kind, Refusal::LaneFull);
            assert!(base.await_room(&mut rounds), "timer {n} was refused");
        }
    }
    settle(&mut loops[0], at(5));
    assert_eq!(engine.handle().stats().fired, 1_000);
    drop(engine);
    assert!(!base.await_room(&mut 0));
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

// --- Loops that poll, against foreign threads ---

/// Threads that no loop runs on.
const PLAYERS: u64 = 3;
/// Owned timers of each of them.
const OWN_TIMERS: u64 = 40;
/// Loops that end while the players play, and then once more for each shard while they do not.
const HANDOVERS: usize = 4;
/// Timers that become due at each handover, while the shard has no loop.
const ORPHANS: usize = 50;
/// One-shots that the main thread schedules.
const EXTRA: u64 = ((HANDOVERS + 2) * ORPHANS) as u64 + 6;
/// One-shots that the players remember, for any of them to cancel or to move.
const REMEMBERED: usize = 60;
const LONGEST_DELAY: Duration = Duration::from_millis(3);
/// A loop that polls for longer waits for a timer that is due in an hour.
const LONG_POLL: Duration = Duration::from_secs(60);

/// In a payload: it is a one-shot that is due in an hour or later, so no outcome of a cancel is left to chance.
const FAR: u64 = 1 << 62;
/// In a payload: it is an owned timer.
const OWNED: u64 = 1 << 63;

fn number(payload: u64) -> usize {
    index(payload & !(FAR | OWNED))
}

/// Each timer ends once, and none early. Each shard has timers that are due in an hour, so a timer whose loop is not
/// woken waits in vain.
#[test]
fn loops_and_foreign_threads_end_each_timer_once() {
    play_on_loops(true);
}

/// The same, with a shutdown while a shard has no loop.
#[test]
fn loops_and_foreign_threads_end_each_timer_once_though_a_loop_is_missing() {
    play_on_loops(false);
}

fn play_on_loops(loops_stay: bool) {
    let each = std::env::var("TOURBILLON_STRESS").map_or(20_000, |n| n.parse::<u64>().unwrap() / 20);
    let (shards, loops) = Builder::new().loops(2).unwrap();
    let ledger = Arc::new(Ledger::new(PLAYERS * each));
    let sink = Arc::clone(&ledger);
    let engine = shards.engine().start(move |timer: Fired<'_, u64>| sink.on_fire(&timer)).unwrap();
    let stage = Stage {
        timers: engine.handle().clone(),
        ledger,
        remembered: Mutex::default(),
        allowed: AtomicU64::new(0),
    };
    let mut loops: Vec<_> = loops.into_iter().map(|shard| Polling::spawn(move || shard)).collect();
    let mut players: Vec<_> = (0..PLAYERS).map(|n| Player::new(&stage, n, each)).collect();
    let far = [0, 1, 0, 1].map(|shard| stage.schedule_extra(shard, HOUR));

    // The first half: loops end, and other threads take their shards.
    thread::scope(|scope| {
        players.iter_mut().for_each(|player| drop(scope.spawn(move || player.play(each / 2))));
        let part = PLAYERS * (each / 2) / HANDOVERS as u64;
        for n in 0..HANDOVERS {
            let before = part * n as u64;
            stage.allow(before + part / 2);
            stage.await_submitted(before + part / 2);
            // The other half is played meanwhile.
            stage.allow(before + part);
            hand_over(&stage, &shards, &mut loops, n % 2);
        }
        stage.allow(u64::MAX);
    });
    // At rest: no outcome is a matter of chance.
    wait_until("all that is not far has ended", || stage.ledger.is_at_rest());
    players.iter_mut().for_each(Player::arm_and_await_all);
    for one in stage.remembered.lock().unwrap().drain(..).chain(far[..2].iter().copied()) {
        assert_eq!(stage.cancel(one, true), one.payload & FAR != 0, "{one:?}");
    }
    (0..2).for_each(|shard| hand_over(&stage, &shards, &mut loops, shard));
    for (n, polling) in loops.iter().enumerate() {
        wait_until("the loop polls for long", || polling.polls_for_long());
        let before = polling.wakes();
        stage.schedule_extra(n, Duration::ZERO);
        assert!(polling.wakes() > before, "loop {n} is not woken");
        wait_until("the loop has fired it", || stage.ledger.is_at_rest());
    }

    // The second half: the shutdown cuts it off.
    let returned = thread::scope(|scope| {
        players.iter_mut().for_each(|player| drop(scope.spawn(move || player.play(u64::MAX))));
        stage.await_submitted(PLAYERS * each * 5 / 8);
        if !loops_stay {
            loops.pop().expect("two loops").end();
        }
        stage.await_submitted(PLAYERS * each * 3 / 4);
        stage.timers.shutdown()
    });
    loops.into_iter().for_each(Polling::end);
    returned.iter().for_each(|timer| stage.ledger.note_end(timer.payload));
    let owned_fired = players.into_iter().map(Player::end).sum();
    stage.ledger.check(&stage.timers.stats(), returned.len() as u64, owned_fired);
}

/// Ends the loop of a shard. Another thread takes the shard, and fires what has become due meanwhile.
fn hand_over(stage: &Stage, shards: &Shards, loops: &mut Vec<Polling>, shard: usize) {
    assert!(shards.take_loop(shard).is_none(), "a loop has the shard");
    loops.remove(shard).end();
    let orphans: Vec<_> = (0..ORPHANS).map(|_| stage.schedule_extra(shard, Duration::ZERO)).collect();
    let have_ended = |count| orphans.iter().all(|one| stage.ledger.ends_of(one.payload) == count);
    assert!(have_ended(0), "fired at a shard that has no loop");
    let shards = shards.clone();
    loops.insert(shard, Polling::spawn(move || shards.take_loop(shard).expect("no loop has the shard")));
    wait_until("the next loop has fired them", || have_ended(1));
}

/// A loop on a thread of its own, with a condition variable for a poll.
struct Polling {
    poll: Arc<Poll>,
    thread: thread::JoinHandle<()>,
}

#[derive(Default)]
struct Poll {
    state: Mutex<PollState>,
    changed: Condvar,
    wakes: AtomicU64,
}

#[derive(Default)]
struct PollState {
    is_woken: bool,
    is_over: bool,
    /// Whether the loop is in a poll that lasts for long unless it is woken.
    is_long: bool,
}

impl Poll {
    /// Lets the present poll return, or the next one.
    fn wake(&self, is_over: bool) {
        let mut state = self.state.lock().unwrap();
        state.is_woken = true;
        state.is_over |= is_over;
        self.changed.notify_one();
    }

    /// Returns false if the loop is over.
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.unwrap_or(HOUR);
        let mut state = self.state.lock().unwrap();
        state.is_long = timeout > LONG_POLL;
        let sleeps = |state: &mut PollState| !state.is_woken;
        let (mut state, _) = self.changed.wait_timeout_while(state, timeout, sleeps).unwrap();
        (state.is_woken, state.is_long) = (false, false);
        !state.is_over
    }
}

impl Polling {
    /// Turns the loop that `take` returns, on a new thread.
    fn spawn(take: impl FnOnce() -> LoopShard + Send + 'static) -> Self {
        let poll = Arc::new(Poll::default());
        let (own, woken) = (Arc::clone(&poll), Arc::clone(&poll));
        let run = move || {
            let mut shard = take();
            shard.wake_by(move || {
                woken.wakes.fetch_add(1, Ordering::SeqCst);
                woken.wake(false);
            });
            while own.wait(shard.timeout(Instant::now())) {
                let _ = shard.turn(Instant::now(), 256);
            }
        };
        Self { poll, thread: thread::spawn(run) }
    }

    fn polls_for_long(&self) -> bool {
        let state = self.poll.state.lock().unwrap();
        state.is_long && !state.is_woken
    }

    /// The number of times that the engine has woken the loop.
    fn wakes(&self) -> u64 {
        self.poll.wakes.load(Ordering::SeqCst)
    }

    /// Ends the loop: its shard has none afterwards.
    fn end(self) {
        self.poll.wake(true);
        self.thread.join().unwrap();
    }
}

/// The books: what became of each timer.
struct Ledger {
    /// How often each one-shot ended.
    ends: Vec<AtomicU64>,
    /// The deadlines for which each owned timer fired.
    owned_fired: Vec<Mutex<Vec<Timestamp>>>,
    /// One-shots that the players have begun to schedule, and those of the main thread.
    submitted: AtomicU64,
    extra: AtomicU64,
    /// One-shots that are not far: begun to be scheduled, and ended.
    near: AtomicU64,
    near_ended: AtomicU64,
    scheduled: AtomicU64,
    fired: AtomicU64,
    cancelled: AtomicU64,
    moved: AtomicU64,
    disarmed: AtomicU64,
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

/// Adds one, and returns the number from before.
fn add_one(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::SeqCst)
}

impl Ledger {
    /// The books of players that schedule this number of one-shots. Those of the main thread have the numbers after
    /// them.
    fn new(one_shots: u64) -> Self {
        Self {
            ends: (0..one_shots + EXTRA).map(|_| AtomicU64::new(0)).collect(),
            owned_fired: (0..PLAYERS * OWN_TIMERS).map(|_| Mutex::default()).collect(),
            submitted: AtomicU64::new(0),
            extra: AtomicU64::new(one_shots),
            near: AtomicU64::new(0),
            near_ended: AtomicU64::new(0),
            scheduled: AtomicU64::new(0),
            fired: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            disarmed: AtomicU64::new(0),
        }
    }

    /// The handler of all timers.
    fn on_fire(&self, timer: &Fired<'_, u64>) {
        assert!(Timestamp::from(Instant::now()) >= timer.deadline, "early");
        if timer.payload & OWNED != 0 {
            self.owned_fired[number(timer.payload)].lock().unwrap().push(timer.deadline);
        } else {
            add_one(&self.fired);
            self.note_end(timer.payload);
        }
    }

    fn note_end(&self, payload: u64) {
        add_one(&self.ends[number(payload)]);
        if payload & FAR == 0 {
            add_one(&self.near_ended);
        }
    }

    fn note_cancelled(&self, payload: u64) {
        add_one(&self.cancelled);
        self.note_end(payload);
    }

    fn ends_of(&self, payload: u64) -> u64 {
        count(&self.ends[number(payload)])
    }

    /// Whether each one-shot that is not far has ended.
    fn is_at_rest(&self) -> bool {
        count(&self.near_ended) == count(&self.near)
    }

    /// Balances the books after a shutdown.
    fn check(&self, stats: &Stats, returned: u64, owned_fired: u64) {
        let submitted = count(&self.submitted) + EXTRA;
        assert!(self.ends.iter().all(|ends| count(ends) <= 1), "a one-shot ended twice");
        assert_eq!(self.ends.iter().map(count).sum::<u64>(), submitted, "a one-shot was lost");
        let [scheduled, fired, cancelled, moved, disarmed] =
            [&self.scheduled, &self.fired, &self.cancelled, &self.moved, &self.disarmed].map(count);
        let all = [fired, cancelled, moved, disarmed, returned, owned_fired];
        assert!(all.iter().all(|&number| number > 0), "{all:?}");
        assert_eq!(fired + cancelled + returned, scheduled);
        assert_eq!((stats.fired, stats.returned), (fired, returned));
        // A move counts as a cancel and as a timer that is scheduled.
        assert_eq!((stats.scheduled, stats.cancelled), (scheduled + moved, cancelled + moved));
        assert_eq!((stats.owned.fired, stats.owned.alive), (owned_fired, 0));
        assert_eq!(stats.total.panics, 0);
        assert_settled(stats);
    }
}

/// A one-shot that was pending when it was put down.
#[derive(Clone, Copy, Debug)]
struct OneShot {
    id: TimerId,
    payload: u64,
}

/// The engine, its books, and what the players leave to each other.
struct Stage {
    timers: Handle<u64>,
    ledger: Arc<Ledger>,
    remembered: Mutex<Vec<OneShot>>,
    /// The number of one-shots at which the players wait for the main thread.
    allowed: AtomicU64,
}

impl Stage {
    /// Schedules a one-shot, on the chosen shard or the thread's own. `None` after a shutdown.
    fn schedule(&self, shard: Option<usize>, delay: Duration, payload: u64) -> Option<OneShot> {
        let (timers, ledger) = (&self.timers, &self.ledger);
        if payload & FAR == 0 {
            add_one(&ledger.near);
        }
        let deadline = timers.now() + delay;
        let attempt = || match shard {
            Some(shard) => timers.on(shard).schedule_at(deadline, payload),
            None => timers.schedule_at(deadline, payload),
        };
        let start = Instant::now();
        loop {
            match attempt() {
                Ok(id) => {
                    add_one(&ledger.scheduled);
                    return Some(OneShot { id, payload });
                }
                // The shard has no loop, and another thread drains the lane.
                Err(error) if error.kind == Refusal::LaneFull && start.elapsed() < PATIENCE => {
                    thread::yield_now();
                }
                Err(error) => {
                    assert_eq!((error.kind, error.payload), (Refusal::ShutDown, payload));
                    ledger.note_end(payload);
                    return None;
                }
            }
        }
    }

    /// Schedules a one-shot of the main thread.
    fn schedule_extra(&self, shard: usize, delay: Duration) -> OneShot {
        let far = if delay >= HOUR { FAR } else { 0 };
        self.schedule(Some(shard), delay, add_one(&self.ledger.extra) | far)
            .expect("the shutdown comes later")
    }

    /// Cancels a one-shot. Returns whether this ended the one-shot.
    fn cancel(&self, OneShot { id, payload }: OneShot, waits: bool) -> bool {
        let outcome = if waits { self.timers.cancel_and_wait(id) } else { self.timers.cancel(id) };
        match outcome {
            Cancel::Cancelled(own) => {
                assert_eq!(own, payload);
                self.ledger.note_cancelled(payload);
                return true;
            }
            Cancel::Running => assert!(payload & FAR == 0 && !waits, "one-shot {payload:#x} runs"),
            _ => assert!(payload & FAR == 0 || self.timers.is_shut_down(), "one-shot {payload:#x} has gone"),
        }
        false
    }

    /// Moves a one-shot to a shard. Returns the one-shot unless it has ended.
    fn reschedule(&self, one: OneShot, shard: usize, delay: Duration) -> Option<OneShot> {
        let is_far = one.payload & FAR != 0;
        match self.timers.on(shard).reschedule_at(one.id, self.timers.now() + delay) {
            Ok(id) => {
                add_one(&self.ledger.moved);
                return Some(OneShot { id, ..one });
            }
            // As in `schedule`. The one-shot is where it was.
            Err(RescheduleError::LaneFull) => return Some(one),
            Err(RescheduleError::ShutDown(payload)) => self.ledger.note_cancelled(payload),
            Err(RescheduleError::Running) => assert!(!is_far, "{one:?} runs"),
            Err(RescheduleError::Gone) => assert!(!is_far || self.timers.is_shut_down(), "{one:?} has gone"),
            Err(error) => panic!("{error}"),
        }
        None
    }

    fn allow(&self, one_shots: u64) {
        self.allowed.store(one_shots, Ordering::SeqCst);
    }

    fn is_allowed(&self) -> bool {
        count(&self.ledger.submitted) < count(&self.allowed)
    }

    /// Waits until the players have scheduled this number of one-shots.
    fn await_submitted(&self, enough: u64) {
        while count(&self.ledger.submitted) < enough {
            let before = count(&self.ledger.submitted);
            wait_until("the players go on", || count(&self.ledger.submitted) != before);
        }
    }
}

/// A thread that no loop runs on, and that schedules, cancels and moves one-shots, and arms and disarms owned timers.
struct Player<'a> {
    stage: &'a Stage,
    rng: Rng,
    payloads: std::ops::Range<u64>,
    own: Vec<Own>,
}

impl<'a> Player<'a> {
    fn new(stage: &'a Stage, n: u64, payloads: u64) -> Self {
        let numbers = n * OWN_TIMERS..(n + 1) * OWN_TIMERS;
        let own = numbers.map(|number| Own::new(stage.timers.timer(number | OWNED).unwrap())).collect();
        Self { stage, rng: Rng::new(n + 1), payloads: n * payloads..(n + 1) * payloads, own }
    }

    /// Schedules the next one-shots, this number at most, until a shutdown.
    fn play(&mut self, most: u64) {
        for _ in 0..most {
            wait_until("the main thread goes on", || self.stage.is_allowed());
            let Some(number) = self.payloads.next() else { return };
            let is_far = number.is_multiple_of(8);
            let delay = self.delay(is_far);
            let shard = (!number.is_multiple_of(3)).then(|| self.rng.index(2));
            add_one(&self.stage.ledger.submitted);
            let payload = if is_far { number | FAR } else { number };
            let Some(one) = self.stage.schedule(shard, delay, payload) else { return };
            self.remember(one);
            if self.rng.chance(20) && self.use_an_owned_timer().is_err() {
                return;
            }
        }
    }

    fn delay(&mut self, is_far: bool) -> Duration {
        if is_far { HOUR + self.rng.nanos_below(HOUR) } else { self.rng.nanos_below(LONGEST_DELAY) }
    }

    /// Puts a one-shot down. If there are many, cancels or moves one of them, which may be another player's.
    fn remember(&mut self, one: OneShot) {
        let picked = {
            let mut remembered = self.stage.remembered.lock().unwrap();
            remembered.push(one);
            if remembered.len() <= REMEMBERED {
                return;
            }
            let at = self.rng.index(remembered.len());
            remembered.swap_remove(at)
        };
        match self.rng.below(10) {
            0..5 => drop(self.stage.cancel(picked, self.rng.chance(20))),
            5..8 => {
                let (shard, delay) = (self.rng.index(2), self.delay(picked.payload & FAR != 0));
                let moved = self.stage.reschedule(picked, shard, delay);
                self.stage.remembered.lock().unwrap().extend(moved);
            }
            // It fires, or the shutdown returns it.
            _ => {}
        }
    }

    /// Arms, moves or disarms an owned timer.
    fn use_an_owned_timer(&mut self) -> Result<(), ArmError> {
        let (at, shard, pick) = (self.rng.index(self.own.len()), self.rng.index(2), self.rng.below(10));
        if pick < 3 {
            self.own[at].disarm(self.stage, pick == 0);
            return Ok(());
        }
        let delay = if pick < 6 { self.delay(true) } else { self.rng.nanos_below(MS) };
        self.own[at].arm(self.stage, shard, delay)
    }

    /// Arms each owned timer for an hour and disarms it, then arms it for soon and waits until it has fired.
    fn arm_and_await_all(&mut self) {
        for (shard, own) in self.own.iter_mut().enumerate() {
            own.disarm(self.stage, true);
            own.arm(self.stage, shard, HOUR).unwrap();
            assert_eq!(own.disarm(self.stage, false), Disarm::Disarmed);
            own.arm(self.stage, shard + 1, MS).unwrap();
        }
        for own in &mut self.own {
            wait_until("an owned timer fires", || !own.timer.is_armed());
            assert_eq!(own.disarm(self.stage, true), Disarm::Idle);
        }
    }

    /// Checks and drops the owned timers after the shutdown. Returns how often they have fired.
    fn end(self) -> u64 {
        self.own.into_iter().map(|own| own.end(&self.stage.ledger)).sum()
    }
}

/// An owned timer. Only its player arms it.
struct Own {
    timer: Timer<u64>,
    /// The deadlines of all armings, none of them twice, and what is known of them.
    armings: BTreeMap<Timestamp, Arming>,
    /// The deadline that is in force, unless the timer was disarmed.
    last: Option<Timestamp>,
    /// A handler ran at an arming, and may not have ended. A disarm that meets its end may answer that the timer was
    /// idle (`Timer::disarm_and_wait`).
    may_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arming {
    HasFired,
    DoesNotFire,
    /// It was replaced or forgotten by the shutdown: it fires once at most.
    Unknown,
}

impl Own {
    fn new(timer: Timer<u64>) -> Self {
        Self { timer, armings: BTreeMap::new(), last: None, may_run: false }
    }

    /// Arms the timer on a shard, or moves it there.
    fn arm(&mut self, stage: &Stage, shard: usize, delay: Duration) -> Result<(), ArmError> {
        let mut deadline = stage.timers.now() + delay;
        while self.armings.contains_key(&deadline) {
            deadline = deadline + Duration::from_nanos(1);
        }
        self.armings.insert(deadline, Arming::Unknown);
        self.may_run |= stage.timers.on(shard).arm_at(&self.timer, deadline)? == Armed::Running;
        self.last = Some(deadline);
        Ok(())
    }

    fn disarm(&mut self, stage: &Stage, waits: bool) -> Disarm {
        let outcome = if waits { self.timer.disarm_and_wait() } else { self.timer.disarm() };
        let is_sure = !self.may_run && !stage.timers.is_shut_down();
        self.may_run = outcome == Disarm::Running;
        assert!(!(waits && self.may_run), "it has waited");
        if let Some(last) = self.last.take() {
            let arming = match outcome {
                Disarm::Disarmed => Arming::DoesNotFire,
                Disarm::Idle if is_sure => Arming::HasFired,
                _ => Arming::Unknown,
            };
            self.armings.insert(last, arming);
            stage.ledger.disarmed.fetch_add(u64::from(outcome == Disarm::Disarmed), Ordering::SeqCst);
        }
        outcome
    }

    /// Compares the firings with the armings, after the shutdown. Returns the number of firings.
    fn end(self, ledger: &Ledger) -> u64 {
        assert_eq!((self.timer.deadline(), self.timer.disarm()), (None, Disarm::Idle));
        assert_eq!(self.timer.arm(MS), Err(ArmError::ShutDown));
        let payload = *self.timer.payload();
        let fired = std::mem::take(&mut *ledger.owned_fired[number(payload)].lock().unwrap());
        for deadline in &fired {
            let arming = self.armings.get(deadline).copied();
            assert!(matches!(arming, Some(Arming::HasFired | Arming::Unknown)), "{arming:?} fired");
        }
        let distinct: BTreeSet<_> = fired.iter().copied().collect();
        assert_eq!(distinct.len(), fired.len(), "fired twice for one arming");
        let mut have_fired = self.armings.iter().filter(|(_, arming)| **arming == Arming::HasFired);
        assert!(have_fired.all(|(deadline, _)| distinct.contains(deadline)), "neither fired nor disarmed");
        fired.len() as u64
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
                let late = list.values().find(|timer| timer.shard == shard && timer.deadline + MS <= now);
                assert!(late.is_none(), "seed {seed}: {late:?} has not fired at {now:?}");
            }
        }
    }
    let mut returned: Vec<u64> = timers.shutdown().into_iter().map(|left| left.payload).collect();
    returned.sort_unstable();
    assert_eq!(returned, ids.into_keys().collect::<Vec<_>>(), "seed {seed}");
    assert_settled(&timers.stats());
}
