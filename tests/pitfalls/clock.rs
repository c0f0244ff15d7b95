//! Deadlines at every phase and magnitude, and clocks that stand, jump or step back.

use crate::support::{HOUR, MS, PATIENCE, Rng, payloads, recording};
use crate::{MICRO, stepped, ticks};
use std::sync::mpsc;
use std::time::Duration;
use tourbillon::{BuildError, Builder, Cancel, Fired, Timestamp};

/// Guards against fault P9 of other engines: deadlines were truncated to ticks, so that timers fired early. Guards
/// against fault R7 of other engines: timers fired early: delays were rounded down, or longer than the wheel. Guards
/// against fault R8 of other engines: timers fired late, by a tick or by a revolution.
#[test]
fn no_timer_fires_early_or_a_tick_late_at_any_phase() {
    let mut rng = Rng::new(9);
    for tick in [1, 3, 10, 999, 1_000, 17_321].map(Duration::from_micros) {
        let (mut engine, log) = recording(Builder::new().tick(tick));
        for payload in 0..2_000 {
            engine.handle().schedule(rng.nanos_below(1_000 * tick), payload).unwrap();
            engine.advance(rng.nanos_below(3 * tick));
        }
        engine.advance(1_001 * tick);
        let shots = log.take();
        assert_eq!(payloads(&shots), (0..2_000).collect::<Vec<u64>>());
        assert!(shots.iter().all(|shot| shot.at >= shot.deadline && shot.at - shot.deadline < tick));
    }
}

/// Guards against fault P10 of other engines: index arithmetic was wrong: a narrowing cast before the modulo, a
/// negative modulo, off by one at the last level.
#[test]
fn deadlines_around_every_power_of_two_fire_on_their_tick() {
    for start in [0, 12_345_678, (1 << 33) - 1] {
        let (mut engine, log) = recording(Builder::new().tick(MICRO));
        engine.advance(Duration::from_nanos(start));
        let mut payload = 0;
        for power in 0..54 {
            for nanos in [-1_001, -1_000, -999, -1, 0, 1, 999, 1_000, 1_001] {
                let deadline = (1_000_u64 << power).saturating_add_signed(nanos);
                engine.handle().schedule_at(Timestamp::from_nanos(deadline), payload).unwrap();
                payload += 1;
            }
        }
        engine.advance_to(ticks(1 << 54, MICRO));
        let shots = log.take();
        assert_eq!(payloads(&shots), (0..payload).collect::<Vec<u64>>());
        for shot in shots {
            let due = shot.deadline.as_nanos().next_multiple_of(1_000);
            assert_eq!(shot.at.as_nanos(), due.max(start), "{}", shot.deadline);
        }
    }
}

/// Guards against fault P11 of other engines: the clock's base moved backwards, or the wall clock jumped. Guards
/// against fault R9 of other engines: the clock went backwards, or the wall clock was set.
#[test]
fn a_clock_that_steps_back_fires_nothing_early() {
    let (mut engine, log) = recording(Builder::new());
    engine.advance(Duration::from_secs(10));
    engine.clock().set(ticks(2_000, MS));
    engine.handle().schedule(Duration::from_secs(5), 1).unwrap();
    engine.turn();
    assert_eq!(log.len(), 0);
    engine.advance(Duration::from_secs(4));
    assert_eq!(log.len(), 0);
    engine.advance(Duration::from_secs(10));
    let shots = log.take();
    assert!(shots.len() == 1 && shots[0].at >= shots[0].deadline, "{shots:?}");
}

/// Guards against fault P12 of other engines: a tick thread that was late by more than a revolution did not catch up.
#[test]
fn a_stall_of_three_revolutions_fires_each_timer_once_in_bounded_slices() {
    let (mut engine, log) = recording(Builder::new().tick(MICRO));
    let mut rng = Rng::new(12);
    for payload in 0..50_000 {
        engine.handle().schedule(rng.nanos_below(3 * 65_536 * MICRO), payload).unwrap();
    }
    engine.turn();
    let turns = engine.handle().stats().total.turns;
    engine.clock().advance(3 * 65_536 * MICRO);
    engine.turn();
    assert_eq!(payloads(&log.take()), (0..50_000).collect::<Vec<u64>>());
    assert!(engine.handle().stats().total.turns - turns > 3, "all in one slice");
}

/// Guards against fault P13 of other engines: a thread that had overslept ran fresh timers too early, or at once.
#[test]
fn a_timer_armed_after_a_long_pause_keeps_its_delay() {
    let (mut engine, log) = recording(Builder::new());
    engine.handle().schedule(MS, 0).unwrap();
    engine.clock().advance(100 * HOUR);
    engine.handle().schedule(7 * MS, 1).unwrap();
    engine.turn();
    assert_eq!(payloads(&log.take()), [0]);
    engine.advance(6 * MS);
    assert_eq!(log.len(), 0);
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), [1]);
}

/// Guards against fault P14 of other engines: the tick counter wrapped.
#[test]
fn an_engine_goes_on_until_the_last_tick() {
    let (mut engine, log) = recording(Builder::new());
    let last = u64::MAX / 1_000_000;
    engine.clock().set(ticks(last - 10, MS));
    engine.handle().schedule(5 * MS, 5).unwrap();
    engine.handle().schedule(10 * MS, 10).unwrap();
    let beyond = engine.handle().schedule(20 * MS, 20).unwrap();
    engine.advance_to(Timestamp::MAX);
    let expected = [(5, last - 5), (10, last)].map(|(payload, at)| (payload, ticks(at, MS)));
    assert_eq!(log.take().iter().map(|shot| (shot.payload, shot.at)).collect::<Vec<_>>(), expected);
    assert_eq!(engine.handle().cancel(beyond), Cancel::Cancelled(20));
}

/// Guards against fault P24 of other engines: a tick below the clock's resolution was accepted, and the thread spun.
#[test]
fn a_tick_that_cannot_be_honoured_is_refused() {
    for tick in [Duration::ZERO, Duration::from_nanos(999), HOUR + Duration::from_nanos(1)] {
        let error = Builder::new().tick(tick).start(|_: Fired<'_, ()>| {}).unwrap_err();
        assert!(matches!(error, BuildError::OutOfBounds { option: "tick", .. }), "{error}");
    }
}

/// Guards against fault R1 of other engines: a wheel's horizon wrapped, and a far timer hid near timers.
#[test]
fn a_far_timer_hides_no_near_one_after_years_of_uptime() {
    let (mut engine, log) = recording(Builder::new());
    let far = engine.handle().schedule(ticks((1 << 43) + 5, MS) - Timestamp::ZERO, u64::MAX).unwrap();
    for uptime in [77, 1 << 30, (1 << 31) + 77, 1 << 36, (1 << 36) + (1 << 25), 1 << 42] {
        engine.advance_to(ticks(uptime, MS));
        for delay in [1, 63, 64, 255, 256, 257, 4_336, 9_358, 65_536, 1 << 24] {
            engine.handle().schedule(ticks(delay, MS) - Timestamp::ZERO, delay).unwrap();
        }
        engine.advance(ticks(1 << 24, MS) - Timestamp::ZERO);
        let shots = log.take();
        assert_eq!(shots.len(), 10);
        assert!(shots.iter().all(|shot| shot.at == ticks(uptime + shot.payload, MS)), "{shots:?}");
    }
    assert_eq!(engine.handle().cancel(far), Cancel::Cancelled(u64::MAX));
}

/// Guards against fault R2 of other engines: long uptimes overflowed an index, or a deadline equalled a sentinel value
/// of the state.
#[test]
fn deadlines_that_look_like_sentinels_are_deadlines() {
    let (engine, _clock) = stepped(|_| {});
    for (nanos, payload) in
        [u64::MAX, u64::MAX - 1, u64::MAX - 2, 1 << 63, u64::MAX / 1_000_000].into_iter().zip(0..)
    {
        let deadline = Timestamp::from_nanos(nanos);
        let id = engine.handle().schedule_at(deadline, payload).unwrap();
        assert_eq!(engine.handle().deadline(id), Some(deadline));
        let id = engine.handle().reschedule_at(id, deadline).unwrap();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(payload));
    }
    let (mut engine, log) = recording(Builder::new());
    for nanos in [0, 1, 2] {
        engine.handle().schedule_at(Timestamp::from_nanos(nanos), nanos).unwrap();
    }
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), [0, 1, 2]);
}

/// Guards against fault R3 of other engines: the sum of an instant and a duration overflowed and panicked.
#[test]
fn no_delay_overflows() {
    let (mut engine, log) = recording(Builder::new());
    engine.advance(HOUR);
    let ids = [
        engine.handle().schedule(Duration::MAX, 0).unwrap(),
        engine.handle().try_schedule(Duration::from_secs(u64::MAX), 1).unwrap(),
        engine.handle().schedule_batch([(Duration::MAX, 2)]).unwrap()[0],
        engine.handle().schedule_at(Timestamp::MAX, 3).unwrap(),
    ];
    engine.advance(1_000_000 * HOUR);
    for (id, payload) in ids.into_iter().zip(0..) {
        assert_eq!(engine.handle().deadline(id), Some(Timestamp::MAX));
        let id = engine.handle().reschedule(id, Duration::MAX).unwrap();
        assert_eq!(engine.handle().remaining(id), Some(Timestamp::MAX - engine.handle().now()));
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(payload));
    }
    assert_eq!(log.len(), 0);
}

/// Guards against fault R4 of other engines: a wake-up was lost when the next deadline was published.
#[test]
fn a_step_of_the_clock_is_never_slept_through() {
    // The step of the clock races with the shard on its way to sleep, as a push would.
    let (sender, fired) = mpsc::channel();
    let (engine, clock) = stepped(move |timer| sender.send(timer.payload).unwrap());
    let mut rng = Rng::new(4);
    for round in 0..3_000 {
        engine.handle().schedule(MS, round).unwrap();
        for _ in 0..rng.below(400) {
            std::hint::spin_loop();
        }
        clock.advance(MS);
        assert_eq!(fired.recv_timeout(PATIENCE), Ok(round));
    }
}

/// Guards against fault R11 of other engines: after a stall the wheel walked over each empty tick, or lost the time.
#[test]
fn a_long_stall_costs_no_walk_over_empty_ticks() {
    let (mut engine, log) = recording(Builder::new().tick(MICRO));
    engine.handle().schedule(HOUR, 0).unwrap();
    engine.handle().schedule(100_000 * HOUR, 1).unwrap();
    engine.clock().advance(87_660 * HOUR);
    engine.turn();
    engine.advance(20_000 * HOUR);
    assert_eq!(payloads(&log.take()), [0, 1]);
    assert!(engine.handle().stats().total.turns < 20, "{}", engine.handle().stats().total.turns);
}
