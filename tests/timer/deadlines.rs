//! Deadlines of all lengths, from any phase of a tick. No timer fires early, or a tick late.

use crate::support::{HOUR, MS, Rng, payloads, recording};
use crate::{SECOND, UNIT, YEAR, at, due, nanos, on_time};
use std::time::Duration;
use tourbillon::{Armed, Builder, Disarm, Timer, Timestamp};

#[test]
fn zero_and_past_deadlines_fire_on_the_next_turn() {
    let (mut engine, log) = recording(Builder::new());
    engine.advance(5 * SECOND);
    let timers: Vec<_> = (0..4).map(|n| engine.handle().timer(n).unwrap()).collect();
    timers[0].arm(Duration::ZERO).unwrap();
    timers[1].arm_at(engine.handle().now()).unwrap();
    timers[2].arm_at(at(SECOND)).unwrap();
    timers[3].arm_at(Timestamp::ZERO).unwrap();
    assert_eq!(timers[3].deadline(), Some(Timestamp::ZERO), "a deadline in the past was changed");
    assert_eq!(log.len(), 0, "an arming fired by itself, before a turn");
    engine.turn();
    let shots = log.take();
    assert_eq!(payloads(&shots), [0, 1, 2, 3], "a deadline that has come waits for another turn");
    assert!(shots.iter().all(|shot| shot.at == at(5 * SECOND)), "the firings are not of this turn");
    assert!(
        engine.handle().stats().total.lateness.max >= 5 * SECOND,
        "the lateness of a past deadline is not counted"
    );
    // Next, the timers get a deadline that has passed while a ticket for a later deadline is queued.
    for timer in &timers {
        timer.arm(HOUR).unwrap();
    }
    engine.advance(SECOND);
    timers[0].arm(Duration::ZERO).unwrap();
    timers[1].arm_at(engine.handle().now()).unwrap();
    timers[2].arm_at(at(SECOND)).unwrap();
    timers[3].arm_at(Timestamp::ZERO).unwrap();
    engine.turn();
    let shots = log.take();
    assert_eq!(
        payloads(&shots),
        [0, 1, 2, 3],
        "a deadline that has come waits for the ticket of the later one"
    );
    assert!(shots.iter().all(|shot| shot.at == at(6 * SECOND)), "the firings are not of this turn");
    engine.advance(2 * HOUR);
    assert_eq!(log.len(), 0, "a replaced deadline fired");
}

#[test]
fn a_timer_armed_for_never_does_not_fire_and_may_be_armed_for_sooner() {
    let (mut engine, log) = recording(Builder::new().tick(Duration::from_micros(1)));
    let timers: Vec<_> = (0..3).map(|n| engine.handle().timer(n).unwrap()).collect();
    timers[0].arm(Duration::MAX).unwrap();
    timers[1].arm_at(Timestamp::MAX).unwrap();
    timers[2].arm(Duration::MAX).unwrap();
    for timer in &timers {
        assert!(timer.deadline().unwrap() >= nanos(u64::MAX - 1), "never is a moment: {timer:?}");
    }
    engine.advance(500 * YEAR);
    assert_eq!(log.len(), 0, "a timer that is armed for never fired");
    assert_eq!(timers[0].disarm(), Disarm::Disarmed, "a timer that waits for the end of time is not armed");
    timers[1].arm(SECOND).unwrap();
    engine.advance(2 * SECOND);
    assert_eq!(
        log.take(),
        [on_time(1, at(500 * YEAR + SECOND))],
        "a timer that was armed for never hides a deadline that comes sooner"
    );
    assert_eq!(
        (timers[0].is_armed(), timers[1].is_armed(), timers[2].is_armed()),
        (false, false, true),
        "one call changed the arming of another timer"
    );
}

#[test]
fn a_timer_armed_for_the_end_of_time_reads_as_armed_for_it() {
    // A scheduled timer also keeps the last moment of time as its deadline.
    let (engine, _log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    timer.arm_at(Timestamp::MAX).unwrap();
    assert_eq!(
        timer.deadline(),
        Some(Timestamp::MAX),
        "the deadline was changed on its way through the timer's word"
    );
}

#[test]
fn a_century_is_kept_to_the_tick_in_any_order_and_however_the_clock_jumps() {
    let deadlines = [10, 36, 37, 100, 101, 400].map(|years| at(years * YEAR + 12_345 * MS));
    for tick in [Duration::from_micros(1), MS, HOUR] {
        for from in deadlines {
            for to in deadlines {
                for jump in [false, true] {
                    let (mut engine, log) = recording(Builder::new().tick(tick));
                    let timer = engine.handle().timer(7).unwrap();
                    timer.arm_at(from).unwrap();
                    engine.turn();
                    timer.arm_at(to).unwrap();
                    let mut go_to = |moment| {
                        if jump {
                            engine.clock().set(moment);
                            engine.turn();
                        } else {
                            engine.advance_to(moment);
                        }
                    };
                    go_to(nanos(to.as_nanos() - 1));
                    assert_eq!(log.len(), 0, "early: {from} {to} {tick:?}");
                    go_to(due(to, tick));
                    // A check of an earlier ticket may find the timer due before its tick ends.
                    let shots = log.take();
                    assert_eq!(
                        (shots.len(), shots[0].deadline),
                        (1, to),
                        "not once for its last deadline: {from} {tick:?} {jump}"
                    );
                    assert!(
                        shots[0].at >= to && shots[0].at <= due(to, tick),
                        "early, or a tick late: {from} {to} {tick:?} {jump}"
                    );
                    assert!(!timer.is_armed(), "it is armed after its firing");
                    go_to(at(500 * YEAR));
                    assert_eq!(log.len(), 0, "it fired for the deadline that was replaced, too");
                }
            }
        }
    }
}

#[test]
fn deadlines_around_the_units_of_the_timers_word_fire_on_their_ticks() {
    // Goal: deadlines within a unit, or on its edges, are never confused. Method: the deadlines are all triples around
    // a multiple of a unit, and the last deadline is in force. Each triple has its own timer. The timer may be disarmed
    // in between, and its ticket may be in the lane or in the wheel.
    let ticks = [Duration::from_micros(1), Duration::from_micros(100), MS, HOUR];
    for tick in ticks {
        for units in [1, 2, 1_000, 3_433_200, (1 << 40) - 2, (1 << 40) - 1, 1 << 40, (1 << 40) + 5] {
            let middle: u64 = units * UNIT;
            let mut deadlines = vec![
                middle - UNIT / 2,
                middle - 2,
                middle - 1,
                middle,
                middle + 1,
                middle + 2,
                middle + UNIT / 2,
                middle + UNIT - 1,
            ];
            if tick < Duration::from_nanos(UNIT / 2) || tick == MS {
                // The edge of a tick is inside a unit. There a nanosecond makes the difference of a tick.
                let tick = u64::try_from(tick.as_nanos()).unwrap();
                let edge = (middle + UNIT / 4).next_multiple_of(tick);
                deadlines.extend([edge - 1, edge, edge + 1]);
            }
            let (mut engine, log) = recording(Builder::new().tick(tick).lane_capacity(1 << 20));
            let (mut timers, mut expected) = (Vec::new(), Vec::new());
            let mut rng = Rng::new(units);
            for &first in &deadlines {
                for &second in &deadlines {
                    for &third in &deadlines {
                        let timer = engine.handle().timer(expected.len() as u64).unwrap();
                        for deadline in [first, second, third] {
                            assert_eq!(timer.arm_at(nanos(deadline)), Ok(Armed::Pending));
                            match rng.below(4) {
                                0 => assert_eq!(timer.disarm(), Disarm::Disarmed),
                                1 => engine.turn(),
                                _ => {}
                            }
                        }
                        timer.arm_at(nanos(third)).unwrap();
                        timers.push(timer);
                        expected.push(nanos(third));
                    }
                }
            }
            engine.advance_to(due(nanos(middle + 4 * UNIT), tick));
            let mut shots = log.take();
            shots.sort_unstable_by_key(|shot| shot.payload);
            assert_eq!(shots.len(), expected.len(), "a timer was lost, or fired twice: {tick:?} {units}");
            for (shot, deadline) in shots.iter().zip(expected) {
                assert_eq!(
                    shot.deadline, deadline,
                    "it fired for a deadline that was replaced: {tick:?} {units}"
                );
                assert!(
                    shot.at >= deadline && shot.at <= due(deadline, tick),
                    "early or late: {shot:?} {tick:?}"
                );
            }
        }
    }
}

#[test]
fn random_deadlines_at_random_phases_fire_on_their_ticks() {
    // The armings move the deadline by all lengths from all phases of a tick. Time passes in steps of all lengths.
    let mut rng = Rng::new(20);
    for _ in 0..60 {
        let tick = Duration::from_nanos(1_000 << rng.below(22));
        let (mut engine, log) = recording(Builder::new().tick(tick));
        let timers: Vec<_> = (0..20).map(|n| engine.handle().timer(n).unwrap()).collect();
        let mut armed: Vec<Option<Timestamp>> = vec![None; timers.len()];
        let length = |rng: &mut Rng| Duration::from_nanos(rng.next() >> (20 + rng.below(40)));
        for _ in 0..500 {
            let which = rng.index(timers.len());
            match rng.below(5) {
                0 => {
                    let expected = if armed[which].is_some() { Disarm::Disarmed } else { Disarm::Idle };
                    assert_eq!(
                        timers[which].disarm(),
                        expected,
                        "the disarm does not return whether it was armed"
                    );
                    armed[which] = None;
                }
                1..4 => {
                    let deadline = engine.handle().now() + length(&mut rng);
                    timers[which].arm_at(deadline).unwrap();
                    armed[which] = Some(deadline);
                }
                _ => {
                    let start = engine.handle().now();
                    engine.advance(length(&mut rng));
                    for shot in log.take() {
                        let which = usize::try_from(shot.payload).unwrap();
                        assert_eq!(
                            armed[which].take(),
                            Some(shot.deadline),
                            "it fired for a deadline that is not in force"
                        );
                        assert!(shot.at >= shot.deadline, "early: {shot:?}");
                        assert!(shot.at <= due(shot.deadline, tick).max(start), "late: {shot:?} {tick:?}");
                    }
                }
            }
            assert!(
                timers.iter().map(Timer::deadline).eq(armed.iter().copied()),
                "a deadline is not the one that was acknowledged last"
            );
        }
    }
}
