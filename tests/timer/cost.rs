//! The cost of an arming. It rarely takes a ticket. It wakes a shard or reads a clock only if necessary.

use crate::support::{HOUR, Log, MS, Shot, recording, wait_until};
use crate::{SECOND, UNIT, YEAR, at, due, nanos, on_time};
use std::cell::Cell;
use std::thread;
use std::time::Duration;
use tourbillon::{Armed, Builder, Cancel, Clock, Disarm, Fired, ManualClock, MonotonicClock, Timestamp};

#[test]
fn one_deadline_again_and_again_posts_once() {
    // The caller caches the time. The deadlines are around the edges of units and ticks.
    for offset in [0, 1, 17, 500_000, UNIT - 1, UNIT, UNIT + 1, 999_999, 1_000_000, 1_000_001] {
        for units in [0, 1, 10_000] {
            let (mut engine, log) = recording(Builder::new());
            let (timer, deadline) = (engine.handle().timer(7).unwrap(), nanos(units * UNIT + offset));
            for round in 0..100 {
                timer.arm_at(deadline).unwrap();
                if round % 3 == 0 {
                    assert_eq!(timer.disarm(), Disarm::Disarmed);
                    timer.arm_at(deadline).unwrap();
                }
                assert_eq!(timer.deadline(), Some(deadline), "the same arming left another deadline");
            }
            assert_eq!(
                engine.handle().stats().owned.posted,
                1,
                "an arming for the same deadline took another ticket: {deadline}"
            );
            engine.advance(HOUR);
            let shots = log.take();
            assert_eq!(
                (shots.len(), shots[0].deadline),
                (1, deadline),
                "it fired for another deadline, or not once"
            );
            assert_eq!(shots[0].at, due(deadline, MS), "early or late: {deadline}");
        }
    }
}

#[test]
fn one_far_deadline_again_and_again_posts_once() {
    // The delays exceed the range of the timer's word. The docs say: "A store and a load while a ticket is out,
    // whatever the deadlines."
    for delay in [50 * YEAR, Duration::MAX] {
        let (engine, _log) = recording(Builder::new());
        let timer = engine.handle().timer(7).unwrap();
        for _ in 0..100 {
            timer.arm(delay).unwrap();
        }
        assert_eq!(
            engine.handle().stats().owned.posted,
            1,
            "an arming for the same far deadline took another ticket: {delay:?}"
        );
    }
}

#[test]
fn a_timer_armed_again_before_its_ticket_is_due_uses_that_ticket() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    for n in 0..500 {
        timer.arm(SECOND).unwrap();
        engine.advance(MS);
        assert_eq!(timer.disarm(), Disarm::Disarmed, "round {n} was not armed");
        engine.advance(MS / 2);
    }
    assert_eq!(
        (engine.handle().stats().owned.posted, log.len()),
        (1, 0),
        "an arming before its ticket is due took another ticket, or a disarmed timer fired"
    );
    timer.arm(SECOND).unwrap();
    engine.advance(10 * SECOND);
    assert_eq!(log.take(), [on_time(7, at(1_750 * MS))], "the last arming did not fire once, on time");
}

#[test]
fn short_and_long_timeouts_in_turn_cost_no_ticket_per_turn() {
    // A connection has 10,000 requests of 10 ms, 10 ms apart. The timeout is 30 s for a request, and 60 s between
    // requests.
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    for _ in 0..10_000 {
        timer.arm(30 * SECOND).unwrap();
        engine.advance(10 * MS);
        timer.arm(60 * SECOND).unwrap();
        engine.advance(10 * MS);
    }
    assert_eq!(log.len(), 0, "a connection that talks was closed");
    let owned = engine.handle().stats().owned;
    // The test lasts 200 s. A ticket is checked every 30 s. After a check that finds the long timeout, the short
    // timeout posts a ticket.
    assert!(
        owned.posted <= 8 && owned.postponed <= 8,
        "tickets or looks are counted by the request: {owned:?}"
    );
    assert!(engine.handle().stats().total.tickets <= 16, "tickets pile up with the requests");
    engine.advance(120 * SECOND);
    assert_eq!(
        log.take(),
        [on_time(7, at(199_990 * MS + 60 * SECOND))],
        "the silent connection was not closed once, on time"
    );
}

/// The origin of a user's clock may be anywhere: in 1970, or as far back as a clock can show. No arming costs a ticket
/// (an entry in the wheel) for this.
#[test]
fn a_clock_with_an_origin_long_ago_costs_no_ticket_per_arming() {
    for years in [0, 30, 57, 126, 583] {
        let (clock, log) = (ManualClock::new(), Log::new());
        clock.set(at(years * 365 * 24 * HOUR));
        let sink = log.clone();
        let engine = Builder::new()
            .clock(clock.clone())
            .shards(1)
            .unpinned()
            .inline()
            .start(move |fired: Fired<'_, u64>| sink.push(Shot::of(&fired)))
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        let last = engine.handle().now() + 1_000 * MS + SECOND;
        for n in 1..=1_000 {
            timer.arm_at(engine.handle().now() + n * MS + SECOND).unwrap();
            if n == 1 {
                // In this time a shard looks, if the arming has woken it.
                thread::sleep(5 * MS);
            }
        }
        assert_eq!(engine.handle().stats().owned.posted, 1, "each arming takes a ticket: {years} years");
        // A deadline that has passed fires at once, even if it is before the engine's start. So does the next arming.
        timer.arm_at(nanos(1)).unwrap();
        clock.advance(MS);
        wait_until("the past comes", || log.len() == 1);
        timer.arm_at(last).unwrap();
        clock.advance(SECOND);
        assert_eq!(log.take()[0].deadline, nanos(1), "the past did not fire first");
        clock.advance(1_000 * MS);
        wait_until("it fires", || log.len() == 1);
        assert_eq!(log.take()[0].deadline, last, "the last deadline was lost");
    }
}

#[test]
fn arming_again_and_again_wakes_no_shard() {
    let engine = Builder::new().shards(1).start(|_: Fired<'_, u64>| {}).unwrap();
    let timers: Vec<_> = (0..10).map(|n| engine.handle().timer(n).unwrap()).collect();
    for timer in &timers {
        timer.arm(HOUR).unwrap();
    }
    wait_until("the shard has turned", || engine.handle().stats().total.turns > 0);
    let before = engine.handle().stats();
    for n in 0..10_000_u32 {
        for timer in &timers {
            if n % 3 == 0 {
                assert_eq!(timer.disarm(), Disarm::Disarmed);
            }
            assert_eq!(timer.arm(HOUR), Ok(Armed::Pending));
        }
    }
    let after = engine.handle().stats();
    assert_eq!(
        (after.total.unparks, after.owned.posted),
        (before.total.unparks, 10),
        "an arming that needs no ticket woke the shard, or took one"
    );
    assert!(after.total.tickets <= 10, "tickets pile up: {after:?}");
    assert_eq!(after.owned.postponed, 0, "a shard looked at a timer that is not due for an hour");
}

#[test]
fn arming_for_later_than_the_next_wake_up_wakes_nobody() {
    let engine = Builder::new().shards(1).start(|_: Fired<'_, u64>| {}).unwrap();
    engine.handle().schedule(HOUR, 0).unwrap();
    wait_until("the shard sleeps on it", || engine.handle().stats().total.tickets == 1);
    thread::sleep(5 * MS);
    let timers: Vec<_> = (0..100).map(|n| engine.handle().timer(n).unwrap()).collect();
    let before = engine.handle().stats().total.unparks;
    for timer in &timers {
        timer.arm(2 * HOUR).unwrap();
    }
    assert_eq!(
        (engine.handle().stats().total.unparks, engine.handle().stats().owned.posted),
        (before, 100),
        "an arming for later than the end of the shard's sleep woke it"
    );
    // An arming for an earlier moment wakes the shard.
    timers[0].arm(HOUR / 2).unwrap();
    assert_eq!(
        engine.handle().stats().total.unparks,
        before + 1,
        "an arming for sooner than the end of the shard's sleep did not wake it"
    );
}

thread_local! {
    /// The number of times that this thread has read a `Watched` clock.
    static READINGS: Cell<u64> = const { Cell::new(0) };
}

/// A clock that counts each thread's readings.
struct Watched(MonotonicClock);

impl Clock for Watched {
    fn now(&self) -> Timestamp {
        READINGS.set(READINGS.get() + 1);
        self.0.now()
    }
}

#[test]
fn who_brings_the_time_along_reads_no_clock_of_the_program() {
    let engine = Builder::new().clock(Watched(MonotonicClock::new())).start(|_: Fired<'_, u64>| {}).unwrap();
    let now = engine.handle().now();
    let timer = engine.handle().timer(1).unwrap();
    READINGS.set(0);
    for n in 0..1_000 {
        let deadline = now + HOUR + n * MS;
        timer.arm_at(deadline).unwrap();
        timer.arm_at(now + (HOUR - n * MS)).unwrap();
        assert!(timer.is_armed(), "the arming is not in force");
        timer.disarm();
        let id = engine.handle().schedule_at(deadline, 2).unwrap();
        let id = engine.handle().reschedule_at(id, deadline + MS).unwrap();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(2));
        let id = engine.handle().try_schedule_at(deadline, 3).unwrap();
        let id = engine.handle().try_reschedule_at(id, deadline + MS).unwrap();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(3));
    }
    drop(timer);
    assert_eq!(READINGS.get(), 0, "a call that has the time already read the clock");
    // This shows that the counter itself works.
    assert!(engine.handle().now() > now && READINGS.get() == 1, "the readings are not counted");
}
