//! Tests the codes and messages of errors.

use crate::MS;
use crate::support::*;
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};
use tb_status::*;
use tourbillon_c::*;

#[test]
fn errors_have_a_code_and_a_message() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    let mut other = null_mut();
    unsafe {
        let options = tb_options { tick_ns: 1, ..options(tb_delivery::TB_POOL) };
        assert_eq!(tb_engine_create(&options, &mut other), TB_INVALID);
        assert_eq!(message(), "tick is 1ns, but must be between 1µs and 3600s");
        assert_eq!(tb_every(driven.engine, 0, Some(log_call), null_mut(), null_mut()), TB_INVALID);
        assert_eq!(message(), "the period is zero");
        assert_eq!(tb_every(driven.engine, 10, Some(log_call), null_mut(), null_mut()), TB_INVALID);
        assert_eq!(tb_reschedule(driven.engine, 0, 0, &mut 0), TB_NOT_PENDING);
        assert_eq!(tb_reschedule(driven.engine, 17, 0, &mut 0), TB_NOT_PENDING);
        assert_eq!(message(), "the timer is gone");
        assert_eq!(tb_poll(driven.engine, &mut no_event(), 1, &mut 0), TB_WRONG_MODE);
        assert_eq!(tb_event_fd(driven.engine, &mut 0), TB_WRONG_MODE);
        let threads = World::new();
        assert_eq!(tb_engine_advance(threads.engine, 1), TB_WRONG_MODE);
        assert_eq!(CStr::from_ptr(tb_status_name(TB_WRONG_MODE as i32)), c"TB_WRONG_MODE");
    }
    assert!(other.is_null(), "results are written with TB_OK only");
}

#[test]
fn a_full_engine_refuses() {
    let options = tb_options { capacity: 1, ..options(tb_delivery::TB_INLINE) };
    let driven = Driven::with(&options);
    unsafe {
        assert_eq!(tb_schedule(driven.engine, MS, Some(count_call), null_mut(), null_mut()), TB_OK);
        assert_eq!(tb_schedule(driven.engine, MS, Some(count_call), null_mut(), null_mut()), TB_FULL);
        assert_eq!(tb_timer_create(driven.engine, Some(count_call), null_mut(), &mut null_mut()), TB_FULL);
    }
    let options = tb_options { lane_capacity: 64, ..self::options(tb_delivery::TB_INLINE) };
    let driven = Driven::with(&options);
    let schedule =
        |_: &i32| unsafe { tb_schedule(driven.engine, MS, Some(count_call), null_mut(), null_mut()) };
    assert_eq!((0..1_000).map(|i| schedule(&i)).find(|&status| status != TB_OK), Some(TB_BUSY));
}

#[test]
fn a_key_must_be_utf8() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    let key = CString::new(b"caf\xe9".to_vec()).unwrap();
    unsafe {
        let status =
            tb_schedule_keyed(driven.engine, key.as_ptr(), MS, Some(count_call), null_mut(), null_mut());
        assert_eq!(status, TB_NOT_UTF8);
        assert_eq!(message(), "key: incomplete utf-8 byte sequence from index 3");
        assert_eq!(tb_cancel_keyed(driven.engine, key.as_ptr(), null_mut(), null_mut()), TB_NOT_UTF8);
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_handle_that_was_freed_is_detected_in_debug_builds() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    unsafe {
        let (mut timer, mut task, mut engine) = (null_mut(), null_mut(), null_mut());
        assert_eq!(tb_timer_create(driven.engine, Some(count_call), null_mut(), &mut timer), TB_OK);
        assert_eq!(tb_every(driven.engine, MS, Some(count_call), null_mut(), &mut task), TB_OK);
        assert_eq!(tb_engine_create_driven(null(), &mut engine), TB_OK);
        assert_eq!(tb_timer_free(timer), TB_OK);
        assert_eq!(tb_task_free(task), TB_OK);
        assert_eq!(tb_engine_free(engine), TB_OK);
        // These timers have the same size. An allocator would put one of them at the freed address.
        let others: Vec<*mut tb_timer> = (0..100)
            .map(|_| {
                let mut other = null_mut();
                assert_eq!(tb_timer_create(driven.engine, Some(count_call), null_mut(), &mut other), TB_OK);
                other
            })
            .collect();
        assert!(!others.contains(&timer));
        assert_eq!(tb_timer_free(timer), TB_STALE);
        assert_eq!(message(), format!("the tb_timer at {:#x} was freed before", timer.addr()));
        assert_eq!(tb_timer_arm(timer, 0), TB_STALE);
        assert_eq!(tb_timer_disarm(timer, null_mut()), TB_STALE);
        assert_eq!(tb_task_free(task), TB_STALE);
        assert_eq!(tb_task_stop(task, null_mut()), TB_STALE);
        assert_eq!(tb_engine_free(engine), TB_STALE);
        assert_eq!(tb_now(engine, &mut 0), TB_STALE);
        assert_eq!(tb_now(others[0].cast(), &mut 0), TB_STALE);
        assert_eq!(message(), format!("{:#x} is a tb_timer, not a tb_engine", others[0].addr()));
        assert_eq!(tb_timer_arm((&raw const driven).cast(), 0), TB_STALE);
        others.into_iter().for_each(|other| assert_eq!(tb_timer_free(other), TB_OK));
    }
}
