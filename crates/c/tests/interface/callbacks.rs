//! Tests callbacks and their events, until the shutdown.

use crate::MS;
use crate::support::*;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tb_outcome::*;
use tb_status::*;
use tourbillon_c::*;

#[test]
fn callbacks_come_with_their_event() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    let log = Log::default();
    let (mut id, mut timer, mut task, mut outcome) = (0, null_mut(), null_mut(), TB_RUNNING);
    unsafe {
        assert_eq!(tb_schedule(driven.engine, 5 * MS, Some(log_call), log.user(), &mut id), TB_OK);
        driven.advance(5 * MS);
        let event = log.take().pop().unwrap();
        assert_eq!((event.id, event.deadline_ns, event.count, event.user), (id, 5 * MS, 1, log.user()));
        assert_ne!(id, 0);
        assert_eq!(tb_cancel(driven.engine, id, &mut outcome), TB_OK);
        assert_eq!(outcome, TB_GONE);

        assert_eq!(tb_schedule_at(driven.engine, 20 * MS, Some(log_call), log.user(), &mut id), TB_OK);
        let old = id;
        assert_eq!(tb_reschedule(driven.engine, old, 25 * MS, &mut id), TB_OK);
        assert_eq!(tb_cancel(driven.engine, old, &mut outcome), TB_OK);
        assert_eq!(outcome, TB_GONE);
        assert_eq!(tb_cancel_and_wait(driven.engine, id, &mut outcome), TB_OK);
        assert_eq!(outcome, TB_CANCELLED);
        driven.advance(100 * MS);
        assert_eq!(log.len(), 0);

        assert_eq!(tb_timer_create(driven.engine, Some(log_call), log.user(), &mut timer), TB_OK);
        let mut user = null_mut();
        assert_eq!(tb_timer_user(timer, &mut user), TB_OK);
        assert_eq!(user, log.user());
        assert_eq!(tb_timer_arm(timer, 10 * MS), TB_OK);
        assert_eq!(tb_timer_disarm(timer, &mut outcome), TB_OK);
        assert_eq!(outcome, TB_CANCELLED);
        assert_eq!(tb_timer_disarm_and_wait(timer, &mut outcome), TB_OK);
        assert_eq!(outcome, TB_GONE);
        driven.advance(20 * MS);
        assert_eq!(log.len(), 0);
        assert_eq!(tb_timer_arm_at(timer, driven.now() + 3 * MS), TB_OK);
        driven.advance(3 * MS);
        assert_eq!(log.take().len(), 1);
        assert_eq!(tb_timer_free(timer), TB_OK);

        assert_eq!(tb_every(driven.engine, 10 * MS, Some(log_call), log.user(), &mut task), TB_OK);
        driven.advance(35 * MS);
        assert_eq!(log.take().iter().map(|event| event.count).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(tb_task_stop(task, &mut outcome), TB_OK);
        assert_eq!(outcome, TB_CANCELLED);
        assert_eq!(tb_task_stop_and_wait(task, &mut outcome), TB_OK);
        assert_eq!(outcome, TB_GONE);
        assert_eq!(tb_task_free(task), TB_OK);
        driven.advance(35 * MS);
        assert_eq!(log.len(), 0);
    }
}

#[test]
fn keys_are_replaced_and_cancelled() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    let (first, second) = (Log::default(), Log::default());
    let (mut old, mut outcome) = (17 as *mut c_void, TB_RUNNING);
    unsafe {
        let schedule = |log: &Log, old| {
            let key = String::from("order 17 é");
            let key = CString::new(key).unwrap();
            tb_schedule_keyed(driven.engine, key.as_ptr(), MS, Some(log_call), log.user(), old)
        };
        assert_eq!(schedule(&first, &mut old), TB_OK);
        assert!(old.is_null());
        assert_eq!(schedule(&second, &mut old), TB_OK);
        assert_eq!(old, first.user());
        assert_eq!(tb_cancel_keyed(driven.engine, c"order 18".as_ptr(), &mut outcome, &mut old), TB_OK);
        assert_eq!((outcome, old), (TB_GONE, null_mut()));
        assert_eq!(tb_cancel_keyed(driven.engine, c"order 17 é".as_ptr(), &mut outcome, &mut old), TB_OK);
        assert_eq!((outcome, old), (TB_CANCELLED, second.user()));
        assert_eq!(schedule(&first, null_mut()), TB_OK);
        driven.advance(5 * MS);
    }
    assert_eq!((first.len(), second.len()), (1, 0));
}

unsafe extern "C" fn advance_and_free(user: *mut c_void, _: *const tb_event) {
    let engine = user.cast::<tb_engine>();
    unsafe {
        assert_eq!(tb_engine_advance(engine, 1), TB_BUSY);
        assert_eq!(tb_engine_free(engine), TB_BUSY);
        assert_eq!(tb_schedule(engine, 0, Some(count_call), null_mut(), null_mut()), TB_OK);
    }
}

#[test]
fn a_callback_may_schedule_but_not_advance_nor_free_its_engine() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    let user = driven.engine.cast();
    assert_eq!(unsafe { tb_schedule(driven.engine, 0, Some(advance_and_free), user, null_mut()) }, TB_OK);
    driven.advance(10 * MS);
    assert_eq!(driven.stats().fired, 2);
}

struct FreesItsEngine {
    engine: AtomicPtr<tb_engine>,
    freed: AtomicBool,
}

unsafe extern "C" fn free_engine(user: *mut c_void, _: *const tb_event) {
    unsafe {
        let this = &*user.cast::<FreesItsEngine>();
        // Waits until the call that scheduled this callback has returned.
        while this.engine.load(Ordering::Acquire).is_null() {
            thread::yield_now();
        }
        let engine = this.engine.load(Ordering::Acquire);
        assert_eq!(tb_engine_shutdown(engine, None, null_mut()), TB_OK);
        assert_eq!(tb_engine_free(engine), TB_OK);
        this.freed.store(true, Ordering::Release);
    }
}

#[test]
fn a_callback_on_a_thread_may_free_its_engine() {
    for delivery in [tb_delivery::TB_POOL, tb_delivery::TB_INLINE] {
        let mut engine = null_mut();
        let frees = FreesItsEngine { engine: AtomicPtr::default(), freed: AtomicBool::new(false) };
        assert_eq!(unsafe { tb_engine_create(&options(delivery), &mut engine) }, TB_OK);
        let user = (&raw const frees).cast_mut().cast();
        assert_eq!(unsafe { tb_schedule(engine, MS, Some(free_engine), user, null_mut()) }, TB_OK);
        frees.engine.store(engine, Ordering::Release);
        let begin = Instant::now();
        while !frees.freed.load(Ordering::Acquire) {
            assert!(begin.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_shutdown_returns_unfired_one_shots_and_later_calls_are_refused() {
    for delivery in [tb_delivery::TB_POOL, tb_delivery::TB_INLINE, tb_delivery::TB_POLLED] {
        let mut engine = null_mut();
        let (log, returned) = (Log::default(), Log::default());
        let (mut id, mut timer, mut task, mut count, mut outcome) =
            (0, null_mut(), null_mut(), 99, TB_RUNNING);
        let hour = 3_600_000 * MS;
        unsafe {
            assert_eq!(tb_engine_create(&options(delivery), &mut engine), TB_OK);
            let mut now = 0;
            assert_eq!(tb_now(engine, &mut now), TB_OK);
            let in_an_hour = now + hour;
            assert_eq!(tb_schedule_at(engine, in_an_hour, Some(log_call), returned.user(), &mut id), TB_OK);
            let key = c"key".as_ptr();
            assert_eq!(
                tb_schedule_keyed(engine, key, hour, Some(log_call), returned.user(), null_mut()),
                TB_OK
            );
            assert_eq!(tb_timer_create(engine, Some(log_call), log.user(), &mut timer), TB_OK);
            assert_eq!(tb_timer_arm(timer, hour), TB_OK);
            assert_eq!(tb_every(engine, hour, Some(log_call), log.user(), &mut task), TB_OK);

            assert_eq!(tb_engine_shutdown(engine, Some(log_call), &mut count), TB_OK);
            let mut events = returned.take();
            events.sort_by_key(|event| event.id);
            assert_eq!((count, events.len()), (2, 2));
            assert_eq!((events[1].id, events[1].deadline_ns), (id, in_an_hour));
            assert!(events[0].id == 0 && events[0].deadline_ns >= in_an_hour);
            assert!(events.iter().all(|event| event.callback.is_some()));
            assert_eq!(tb_engine_shutdown(engine, Some(log_call), &mut count), TB_OK);
            assert_eq!((count, returned.len()), (0, 0));

            for _ in 0..2 {
                assert_eq!(tb_schedule(engine, 0, Some(log_call), log.user(), &mut id), TB_SHUT_DOWN);
                assert_eq!(message(), "the engine was shut down");
                assert_eq!(tb_schedule_at(engine, 0, Some(log_call), log.user(), &mut id), TB_SHUT_DOWN);
                let status = tb_schedule_keyed(engine, key, 0, Some(log_call), log.user(), null_mut());
                assert_eq!(status, TB_SHUT_DOWN);
                assert_eq!(tb_timer_arm(timer, 0), TB_SHUT_DOWN);
                assert_eq!(tb_timer_arm_at(timer, 0), TB_SHUT_DOWN);
                assert_eq!(
                    tb_timer_create(engine, Some(log_call), log.user(), &mut null_mut()),
                    TB_SHUT_DOWN
                );
                assert_eq!(tb_every(engine, MS, Some(log_call), log.user(), null_mut()), TB_SHUT_DOWN);
                assert_eq!(tb_reschedule(engine, id, 0, &mut id), TB_NOT_PENDING);
                assert_eq!(tb_cancel(engine, id, &mut outcome), TB_OK);
                assert_eq!(outcome, TB_GONE);
                assert_eq!(tb_cancel_keyed(engine, key, &mut outcome, null_mut()), TB_OK);
                assert_eq!(outcome, TB_GONE);
                assert_eq!(tb_task_stop(task, &mut outcome), TB_OK);
                assert_eq!(outcome, TB_GONE);
                assert_eq!(tb_now(engine, &mut 0), TB_OK);
            }
            assert_eq!(tb_engine_free(engine), TB_OK);
            assert_eq!(tb_timer_arm(timer, 0), TB_SHUT_DOWN);
            assert_eq!(tb_timer_disarm(timer, null_mut()), TB_OK);
            assert_eq!(tb_timer_free(timer), TB_OK);
            assert_eq!(tb_task_stop(task, null_mut()), TB_OK);
            assert_eq!(tb_task_free(task), TB_OK);
        }
        assert_eq!(log.len(), 0);
    }
}
