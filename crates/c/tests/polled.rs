//! Tests the events that a poll may return after a cancel, and the state of the descriptor.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests keep the contract, as C has to")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![cfg(target_os = "linux")]

mod support;

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::*;
use tb_outcome::*;
use tb_status::*;
use tourbillon_c::*;

const MS: u64 = 1_000_000;

fn user(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

fn schedule(engine: *const tb_engine, delay_ns: u64, number: usize) -> u64 {
    let mut id = 0;
    assert_eq!(unsafe { tb_schedule(engine, delay_ns, None, user(number), &mut id) }, TB_OK);
    id
}

fn cancel(engine: *const tb_engine, id: u64) -> tb_outcome {
    let mut outcome = TB_RUNNING;
    assert_eq!(unsafe { tb_cancel(engine, id, &mut outcome) }, TB_OK);
    outcome
}

/// A timer that is freed when this value is dropped.
struct Timer(*mut tb_timer);

// SAFETY: timers may be used on any thread.
unsafe impl Send for Timer {}

impl Timer {
    fn new(engine: *const tb_engine, number: usize) -> Self {
        let mut timer = null_mut();
        assert_eq!(unsafe { tb_timer_create(engine, None, user(number), &mut timer) }, TB_OK);
        Self(timer)
    }

    fn arm(&self, delay_ns: u64) {
        assert_eq!(unsafe { tb_timer_arm(self.0, delay_ns) }, TB_OK);
    }

    fn arm_at(&self, deadline_ns: u64) {
        assert_eq!(unsafe { tb_timer_arm_at(self.0, deadline_ns) }, TB_OK);
    }

    fn disarm(&self) -> tb_outcome {
        let mut outcome = TB_RUNNING;
        assert_eq!(unsafe { tb_timer_disarm(self.0, &mut outcome) }, TB_OK);
        outcome
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        assert_eq!(unsafe { tb_timer_free(self.0) }, TB_OK);
    }
}

// --- One thread, a clock of its own ---

#[test]
fn the_descriptor_is_readable_while_there_is_something_to_poll() {
    let driven = Driven::new(tb_delivery::TB_POLLED);
    assert!(!driven.is_signalled());
    for number in 0..5 {
        schedule(driven.engine, MS, number);
    }
    assert!(!driven.is_signalled());
    driven.advance(5 * MS);
    assert!(driven.is_signalled());
    assert_eq!(driven.poll(0).len(), 0);
    assert_eq!(driven.poll(3).len(), 3);
    assert!(driven.is_signalled());
    assert_eq!(driven.poll(2).len(), 2);
    assert!(!driven.is_signalled());
    assert_eq!(driven.poll(2).len(), 0);
    schedule(driven.engine, MS, 5);
    driven.advance(5 * MS);
    assert!(driven.is_signalled());
    let event = driven.poll(2)[0];
    assert_eq!((event.user, event.count, event.deadline_ns), (user(5), 1, 6 * MS));
    assert_eq!(event.lateness_ns, 4 * MS, "at the time of the poll");
    assert!(!driven.is_signalled());
}

#[test]
fn a_one_shot_is_cancelled_or_polled() {
    let driven = Driven::new(tb_delivery::TB_POLLED);
    let [first, second] = [1, 2].map(|number| schedule(driven.engine, MS, number));
    let late = schedule(driven.engine, 10 * MS, 3);
    driven.advance(5 * MS);
    // One event was polled, and the event of the second one-shot still waits.
    assert_eq!(driven.poll(1)[0].id, first);
    assert_eq!(cancel(driven.engine, first), TB_GONE);
    assert_eq!(cancel(driven.engine, second), TB_CANCELLED);
    assert_eq!(cancel(driven.engine, second), TB_GONE);
    assert_eq!(cancel(driven.engine, late), TB_CANCELLED);
    driven.advance(50 * MS);
    assert_eq!(driven.poll(9).len(), 0);
    assert!(!driven.is_signalled());
}

#[test]
fn a_one_shot_whose_event_waits_is_moved() {
    let driven = Driven::new(tb_delivery::TB_POLLED);
    let id = schedule(driven.engine, MS, 1);
    driven.advance(5 * MS);
    let mut moved = 0;
    assert_eq!(unsafe { tb_reschedule(driven.engine, id, 10 * MS, &mut moved) }, TB_OK);
    assert_eq!(driven.poll(9).len(), 0);
    driven.advance(10 * MS);
    let events = driven.poll(9);
    assert_eq!(
        events.iter().map(|event| (event.id, event.deadline_ns)).collect::<Vec<_>>(),
        [(moved, 15 * MS)]
    );
}

#[test]
fn a_one_shot_with_a_key_is_cancelled_moved_and_replaced_while_its_event_waits() {
    let driven = Driven::new(tb_delivery::TB_POLLED);
    let schedule = |number, replaced: &mut *mut c_void| {
        let status =
            unsafe { tb_schedule_keyed(driven.engine, c"k".as_ptr(), MS, None, user(number), replaced) };
        assert_eq!(status, TB_OK);
        driven.advance(5 * MS);
        assert!(driven.is_signalled());
    };
    let cancel = || {
        let (mut outcome, mut old) = (TB_RUNNING, user(9));
        assert_eq!(unsafe { tb_cancel_keyed(driven.engine, c"k".as_ptr(), &mut outcome, &mut old) }, TB_OK);
        (outcome, old)
    };
    let mut replaced = user(9);
    schedule(1, &mut replaced);
    assert_eq!((replaced, cancel()), (null_mut(), (TB_CANCELLED, user(1))));
    assert_eq!(driven.poll(9).len(), 0);

    schedule(2, &mut replaced);
    schedule(3, &mut replaced);
    assert_eq!(replaced, user(2));
    assert_eq!(unsafe { tb_reschedule_keyed(driven.engine, c"k".as_ptr(), MS) }, TB_OK);
    assert_eq!(driven.poll(9).len(), 0);
    driven.advance(5 * MS);
    let event = driven.poll(9)[0];
    assert_eq!(event.user, user(3));
    // SAFETY: this thread has not polled again.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(event.key) }, c"k");
    assert_eq!(cancel(), (TB_GONE, null_mut()));
}

/// More events wait than the shards hand over at a time. The driven engine hands over the remaining events as polls
/// make room.
#[test]
fn however_many_events_wait_all_are_polled_and_the_descriptor_is_readable_until_then() {
    const COUNT: usize = 200_000;
    let driven = Driven::with(&tb_options { lane_capacity: 1 << 20, ..options(tb_delivery::TB_POLLED) });
    for number in 0..COUNT {
        schedule(driven.engine, MS, number);
    }
    driven.advance(5 * MS);
    let mut seen = vec![false; COUNT];
    let mut polled = 0;
    while polled < COUNT {
        assert!(driven.is_signalled(), "{polled} were polled");
        let events = driven.poll(777);
        assert_eq!(events.len(), 777.min(COUNT - polled));
        polled += events.len();
        events.iter().for_each(|event| assert!(!std::mem::replace(&mut seen[event.user.addr()], true)));
    }
    assert_eq!(driven.poll(777).len(), 0);
    assert!(!driven.is_signalled());
}

#[test]
fn events_behind_many_that_were_cancelled_while_they_waited_are_polled_at_once() {
    const CANCELLED: usize = 300_000;
    let driven = Driven::with(&tb_options { lane_capacity: 1 << 20, ..options(tb_delivery::TB_POLLED) });
    let ids: Vec<u64> = (0..CANCELLED + 100).map(|number| schedule(driven.engine, MS, number)).collect();
    driven.advance(5 * MS);
    ids[..CANCELLED].iter().for_each(|&id| assert_eq!(cancel(driven.engine, id), TB_CANCELLED));
    assert!(driven.is_signalled());
    let mut polled: Vec<usize> = driven.poll(1_000).iter().map(|event| event.user.addr()).collect();
    polled.sort_unstable();
    assert_eq!(polled, (CANCELLED..CANCELLED + 100).collect::<Vec<_>>());
    assert!(!driven.is_signalled());
}

#[test]
fn a_poll_without_room_leaves_everything_as_it_is() {
    let driven = Driven::new(tb_delivery::TB_POLLED);
    for number in 0..3 {
        schedule(driven.engine, MS, number);
    }
    driven.advance(5 * MS);
    assert_eq!(driven.poll(0).len(), 0);
    assert!(driven.is_signalled());
    assert_eq!(driven.poll(1).len(), 1);
    assert_eq!(driven.poll(0).len(), 0);
    assert!(driven.is_signalled());
    assert_eq!(driven.poll(9).len(), 2);
    assert!(!driven.is_signalled());
}

#[test]
fn no_event_of_an_earlier_arming_is_polled() {
    let driven = Driven::new(tb_delivery::TB_POLLED);
    let timer = Timer::new(driven.engine, 1);
    let fire = || {
        timer.arm(MS);
        driven.advance(5 * MS);
        assert!(driven.is_signalled());
    };
    fire();
    assert_eq!(timer.disarm(), TB_CANCELLED);
    assert_eq!(timer.disarm(), TB_GONE);
    assert_eq!(driven.poll(9).len(), 0);
    assert!(!driven.is_signalled());

    fire();
    timer.arm(10 * MS);
    assert_eq!(driven.poll(9).len(), 0);
    driven.advance(20 * MS);
    assert_eq!(driven.poll(9).len(), 1);

    // The timer is armed anew while the check of the earlier arming is still in the queue. Only one event may come.
    fire();
    timer.arm(MS);
    let deadline = driven.now() + MS;
    driven.advance(5 * MS);
    assert_eq!(driven.poll(9).iter().map(|event| event.deadline_ns).collect::<Vec<_>>(), [deadline]);

    // The timer is armed twice for the same deadline, which has passed by the second time.
    let deadline = driven.now();
    timer.arm_at(deadline);
    driven.advance(5 * MS);
    timer.arm_at(deadline);
    driven.advance(5 * MS);
    assert_eq!(driven.poll(9).len(), 1);
    assert_eq!(driven.poll(9).len(), 0);

    fire();
    assert_eq!(driven.poll(9).len(), 1);
    assert_eq!(timer.disarm(), TB_GONE);

    fire();
    drop(timer);
    assert_eq!(driven.poll(9).len(), 0);
    driven.advance(50 * MS);
    assert!(!driven.is_signalled());
    assert_eq!(driven.stats().timers_alive, 0);
}

#[test]
fn withdrawn_events_take_no_room_from_others() {
    let driven = Driven::new(tb_delivery::TB_POLLED);
    let timers: Vec<Timer> = (0..10).map(|number| Timer::new(driven.engine, number)).collect();
    timers.iter().for_each(|timer| timer.arm(MS));
    driven.advance(5 * MS);
    timers.iter().step_by(2).for_each(|timer| assert_eq!(timer.disarm(), TB_CANCELLED));
    let mut polled: Vec<usize> = driven.poll(5).iter().map(|event| event.user.addr()).collect();
    polled.sort_unstable();
    assert_eq!(polled, [1, 3, 5, 7, 9]);
    assert!(!driven.is_signalled());
}

#[test]
fn a_task_is_one_event_for_all_its_instants() {
    let driven = Driven::new(tb_delivery::TB_POLLED);
    let (mut task, mut outcome) = (null_mut(), TB_RUNNING);
    unsafe {
        assert_eq!(tb_every(driven.engine, 10 * MS, None, user(7), &mut task), TB_OK);
        driven.advance(35 * MS);
        let events = driven.poll(9);
        assert_eq!(
            events.iter().map(|e| (e.user, e.count, e.deadline_ns)).collect::<Vec<_>>(),
            [(user(7), 3, 10 * MS)],
            "the first of the three instants"
        );
        driven.advance(20 * MS);
        assert_eq!(driven.poll(9)[0].count, 2);
        driven.advance(10 * MS);
        assert_eq!(tb_task_stop(task, &mut outcome), TB_OK);
        assert_eq!(outcome, TB_CANCELLED);
        assert_eq!(driven.poll(9).len(), 0);
        assert_eq!(tb_task_stop_and_wait(task, &mut outcome), TB_OK);
        assert_eq!(outcome, TB_GONE);
        assert_eq!(tb_task_free(task), TB_OK);

        assert_eq!(tb_every(driven.engine, 10 * MS, None, user(8), &mut task), TB_OK);
        driven.advance(30 * MS);
        assert_eq!(tb_task_free(task), TB_OK);
        driven.advance(30 * MS);
        assert_eq!(driven.poll(9).len(), 0);
    }
    assert_eq!(driven.stats().timers_alive, 0);
}

#[test]
fn a_shutdown_returns_the_one_shots_whose_events_wait() {
    let driven = Driven::new(tb_delivery::TB_POLLED);
    let timer = Timer::new(driven.engine, 1);
    timer.arm(MS);
    for number in [2, 3] {
        schedule(driven.engine, MS, number);
    }
    unsafe { tb_schedule_keyed(driven.engine, c"k".as_ptr(), MS, None, user(4), null_mut()) };
    driven.advance(5 * MS);
    // A poll takes one event, so that a job has run in part.
    let first = driven.poll(1)[0].user;
    let mut count = 99;
    assert_eq!(unsafe { tb_engine_shutdown(driven.engine, None, &mut count) }, TB_OK);
    let timers = u64::from(first == user(1));
    assert_eq!(count, 2 + timers, "{first:?} was polled");
    assert!(!driven.is_signalled());
    assert_eq!(driven.poll(9).len(), 0);
    // An engine may also be freed while events wait, and before its timer.
    let other = Driven::new(tb_delivery::TB_POLLED);
    let its_timer = Timer::new(other.engine, 1);
    its_timer.arm(MS);
    other.advance(5 * MS);
    drop(other);
    drop(its_timer);
}

// --- Threads ---

fn threads(shards: u32) -> *mut tb_engine {
    let mut engine = null_mut();
    let options = tb_options { tick_ns: 50_000, shards, ..options(tb_delivery::TB_POLLED) };
    assert_eq!(unsafe { tb_engine_create(&options, &mut engine) }, TB_OK);
    engine
}

/// Goal: each one-shot is either cancelled or polled, once. The descriptor is readable while an event waits. Method:
/// two threads schedule and cancel one-shots. Two other threads poll, and sleep only on the descriptor.
#[test]
fn of_one_shots_that_race_with_polls_none_is_lost_and_none_comes_twice() {
    const EACH: usize = 40_000;
    let engine = threads(2);
    let (fd, address) = (event_fd(engine), engine.addr());
    let engine_here = move || std::ptr::with_exposed_provenance::<tb_engine>(address);
    let _ = engine.expose_provenance();
    let seen: Vec<AtomicU64> = (0..2 * EACH).map(|_| AtomicU64::new(0)).collect();
    let (seen, total, is_over) = (&seen, &AtomicU64::new(0), &AtomicBool::new(false));
    let end = |number: usize| {
        assert_eq!(seen[number].fetch_add(1, Ordering::Relaxed), 0, "{number} ended twice");
        total.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for begin in [0, EACH] {
            scope.spawn(move || {
                for number in begin..begin + EACH {
                    let id = schedule(engine_here(), 60_000 * (number % 4) as u64, number);
                    if number % 3 == 0 {
                        if number % 2 == 0 {
                            thread::yield_now();
                        }
                        if cancel(engine_here(), id) == TB_CANCELLED {
                            end(number);
                        }
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                let begin = Instant::now();
                while !is_over.load(Ordering::Relaxed) {
                    assert!(begin.elapsed() < PATIENCE, "{} ended", total.load(Ordering::Relaxed));
                    if is_readable(fd, Duration::from_secs(2)) {
                        poll(engine_here(), 16).iter().for_each(|event| end(event.user.addr()));
                    } else {
                        // No signal came for two seconds, so no event may be left.
                        assert_eq!(total.load(Ordering::Relaxed), 2 * EACH as u64);
                    }
                    if total.load(Ordering::Relaxed) == 2 * EACH as u64 {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut stats = no_stats();
    assert_eq!(unsafe { tb_engine_stats(engine, &mut stats) }, TB_OK);
    assert_eq!(stats.fired + stats.cancelled, 2 * EACH as u64);
    assert_eq!(unsafe { tb_engine_free(engine) }, TB_OK);
}

/// Goal: each polled event belongs to the last arming of its timer and is not early. A disarmed timer has no event.
/// Each arming that is not withdrawn has one event. Method: a thread arms and disarms timers at random while the shard
/// fires, and polls now and then.
#[test]
fn of_timers_that_race_with_the_shard_only_the_last_arming_is_polled_and_once() {
    let engine = threads(1);
    let timers: Vec<Timer> = (0..16).map(|number| Timer::new(engine, number)).collect();
    // The deadlines of the timers that are armed and whose event was not polled yet, by the timer's number.
    let mut expected: HashMap<usize, u64> = HashMap::new();
    let (mut seed, mut polled, mut withdrawn, mut now) = (7_u64, 0, 0, 0);
    let mut random = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % bound
    };
    let begin = Instant::now();
    let mut rounds = 0;
    while rounds < 200_000 || (polled < 1_000 && begin.elapsed() < PATIENCE) {
        rounds += 1;
        let number = random(16);
        match random(8) {
            0..4 => {
                assert_eq!(unsafe { tb_now(engine, &mut now) }, TB_OK);
                let deadline = now + random(150_000) as u64;
                timers[number].arm_at(deadline);
                expected.insert(number, deadline);
            }
            4..6 => {
                let is_expected = expected.remove(&number).is_some();
                let outcome = if is_expected { TB_CANCELLED } else { TB_GONE };
                assert_eq!(timers[number].disarm(), outcome);
                withdrawn += u32::from(is_expected);
            }
            _ => {
                for event in poll(engine, 4) {
                    let deadline = expected.remove(&event.user.addr());
                    assert_eq!(deadline, Some(event.deadline_ns), "timer {}", event.user.addr());
                    assert_eq!(unsafe { tb_now(engine, &mut now) }, TB_OK);
                    assert!(event.deadline_ns <= now, "early");
                    polled += 1;
                }
            }
        }
    }
    assert!(polled >= 1_000 && withdrawn >= 1_000, "{polled} polled, {withdrawn} withdrawn");
    let begin = Instant::now();
    while !expected.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "never polled: {expected:?}");
        if is_readable(event_fd(engine), Duration::from_millis(100)) {
            for event in poll(engine, 4) {
                assert_eq!(expected.remove(&event.user.addr()), Some(event.deadline_ns));
            }
        }
    }
    drop(timers);
    assert_eq!(unsafe { tb_engine_free(engine) }, TB_OK);
}

/// Goal: exactly one event counts each instant of a task, whenever the program polls. Method: the test polls at random
/// times. Each event must begin where the event before it ended.
#[test]
fn no_instant_of_a_task_is_lost() {
    const PERIOD: u64 = 50_000;
    let mut engine = null_mut();
    let options = tb_options { tick_ns: 1_000, ..options(tb_delivery::TB_POLLED) };
    let mut task = null_mut();
    unsafe {
        assert_eq!(tb_engine_create(&options, &mut engine), TB_OK);
        assert_eq!(tb_every(engine, PERIOD, None, user(1), &mut task), TB_OK);
    }
    let (mut next, mut seed) = (None, 7_u32);
    for _ in 0..5_000 {
        for event in poll(engine, 4) {
            assert_eq!(next.unwrap_or(event.deadline_ns), event.deadline_ns);
            next = Some(event.deadline_ns + event.count * PERIOD);
        }
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let pause = Instant::now() + Duration::from_nanos(u64::from(seed >> 14));
        while Instant::now() < pause {}
    }
    assert!(next.is_some());
    unsafe {
        assert_eq!(tb_task_free(task), TB_OK);
        assert_eq!(tb_engine_free(engine), TB_OK);
    }
}

/// Goal: if two shutdowns come at the same time, one shutdown returns all one-shots.
#[test]
fn of_two_shutdowns_one_returns_everything() {
    for _round in 0..50 {
        let engine = threads(1);
        for number in 0..100 {
            schedule(engine, 1_000_000 * MS, number);
            let key = std::ffi::CString::new(format!("{number}")).unwrap();
            let status = unsafe {
                tb_schedule_keyed(engine, key.as_ptr(), u64::MAX / 4, None, user(number), null_mut())
            };
            assert_eq!(status, TB_OK);
        }
        let address = engine.expose_provenance();
        let start = std::sync::Barrier::new(2);
        let shut_down = || {
            let mut count = 0;
            start.wait();
            let engine = std::ptr::with_exposed_provenance::<tb_engine>(address);
            assert_eq!(unsafe { tb_engine_shutdown(engine, None, &mut count) }, TB_OK);
            count
        };
        let counts = thread::scope(|scope| {
            [scope.spawn(shut_down), scope.spawn(shut_down)].map(|thread| thread.join().unwrap())
        });
        assert!(counts == [200, 0] || counts == [0, 200], "{counts:?}");
        assert_eq!(unsafe { tb_engine_free(engine) }, TB_OK);
    }
}

/// Goal: if threads arm one timer at the same time, the timer gets the deadline of one of the calls, and its event is
/// polled.
#[test]
fn of_threads_that_arm_one_timer_one_wins() {
    let engine = threads(1);
    let timer = Timer::new(engine, 1);
    let address = timer.0.expose_provenance();
    for _round in 0..300 {
        let mut now = 0;
        assert_eq!(unsafe { tb_now(engine, &mut now) }, TB_OK);
        let start = &AtomicU64::new(0);
        thread::scope(|scope| {
            for offset in [0, 5] {
                scope.spawn(move || {
                    let timer = std::ptr::with_exposed_provenance::<tb_timer>(address);
                    start.fetch_add(1, Ordering::Relaxed);
                    while start.load(Ordering::Relaxed) < 2 {
                        thread::yield_now();
                    }
                    for step in 0..20 {
                        let deadline = now + 200_000 * (1 + (step * 7 + offset) % 13);
                        assert_eq!(unsafe { tb_timer_arm_at(timer, deadline) }, TB_OK);
                    }
                });
            }
        });
        assert!(is_readable(event_fd(engine), PATIENCE), "the timer is lost");
        let begin = Instant::now();
        while poll(engine, 4).is_empty() {
            assert!(begin.elapsed() < PATIENCE, "the timer is lost");
            thread::yield_now();
        }
    }
    drop(timer);
    assert_eq!(unsafe { tb_engine_free(engine) }, TB_OK);
}
