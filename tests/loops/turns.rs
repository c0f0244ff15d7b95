//! Turns of loops: the timers that a turn fires, the wakes of the loops, and the shard of each timer.

use crate::support::{Log, MS, assert_settled, wait_until};
use crate::{BUDGET, at, count_wakes, elsewhere, index, recording, settle, stepped};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{
    Armed, Builder, Cancel, Disarm, Fired, LoopLeft, LoopShard, ManualClock, RescheduleError, Timestamp,
};

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

/// A timer moves to another loop, and leaves its ticket behind. The ticket finds a later ticket's check in the timer's
/// words, and must not take the timer back.
#[test]
fn a_ticket_left_at_another_loop_does_not_take_the_timer_back() {
    let clock = ManualClock::new();
    let (shards, mut loops) = Builder::new().clock(clock.clone()).loops(2).unwrap();
    let (engine, log) = recording(&shards);
    loops.iter_mut().for_each(|shard| settle(shard, at(0)));
    let timer = engine.handle().timer(7).unwrap();
    // With these moments a hash of sequence and moment gave the first and the third ticket one stamp.
    let far = Timestamp::from_nanos(397 << 20);
    assert_eq!(engine.handle().on(0).arm_at(&timer, far), Ok(Armed::Pending));
    assert_eq!(engine.handle().on(1).arm_at(&timer, at(100)), Ok(Armed::Pending));
    assert_eq!(timer.arm_at(at(10_240)), Ok(Armed::Pending));
    let mut turn = |n: usize, now| {
        clock.set(at(now));
        settle(&mut loops[n], at(now));
        log.take_sorted()
    };
    assert_eq!(turn(1, 100), []);
    assert_eq!(turn(0, 417), []);
    assert_eq!(turn(1, 10_240), [7], "the timer is not at the loop where it was armed");
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
    // A turn at which nothing is due changes nothing.
    assert_eq!((shard.next_deadline(), shard.turn(at(19), BUDGET)), (Some(at(20)), LoopLeft::Nothing));
    assert_eq!(from_elsewhere(25), 2);
    settle(shard, at(20));
    assert_eq!((log.take_sorted(), shard.next_deadline()), (vec![20], Some(at(25))));
    assert_eq!(from_elsewhere(26), 2);
    assert_eq!(from_elsewhere(24), 3);
    // A call on the loop's own thread wakes no loop.
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
    // With a budget of zero, a turn still makes progress.
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
        // The timer moves to a later moment, to an earlier moment, and to the same moment.
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

/// A timer without a delay is due even at the clock's first moment.
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

/// A handler holds up other timers of its batch, a group of due timers. The loop's next check gives them to another
/// thread, even if ticks are long.
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
    // Both timers are due in the same tick, and the first timer begins first.
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
