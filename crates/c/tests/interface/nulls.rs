//! Passes a null for each pointer of each function.

use crate::MS;
use crate::support::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use tb_status::*;
use tourbillon_c::*;

/// A call of a C function with null for one pointer that must not be null.
type Call<'a> = Box<dyn Fn() -> tb_status + 'a>;

unsafe extern "C" fn wake(_: *mut c_void) {}

/// Returns each function of the header with its wrong calls. In each wrong call, exactly one required pointer is null.
/// A function without required pointers has no wrong calls.
fn null_calls(world: &World) -> Vec<(&'static str, Vec<Call<'_>>)> {
    let World { engine, polled, looping, event_loop } = *world;
    let (none, user) = (null::<tb_engine>(), null_mut::<c_void>());
    let call: tb_callback = Some(count_call);
    macro_rules! table {
        ($($name:ident [$($args:tt),*])*) => {
            vec![$((stringify!($name), vec![$(Box::new(move || unsafe { $name $args }) as Call<'_>),*])),*]
        };
    }
    table! {
        tb_last_error []
        tb_status_name []
        tb_version []
        tb_annotate_with []
        tb_hand_over []
        tb_engine_create [(null(), null_mut())]
        tb_engine_create_driven [(null(), null_mut())]
        tb_engine_advance [(none, 0)]
        tb_engine_shutdown [(none, None, null_mut())]
        tb_engine_free [(null_mut())]
        tb_now [(none, &mut 0), (engine, null_mut())]
        tb_schedule [(none, 0, call, user, null_mut()), (engine, 0, None, user, null_mut())]
        tb_schedule_at [(none, 0, call, user, null_mut()), (engine, 0, None, user, null_mut())]
        tb_cancel [(none, 1, null_mut())]
        tb_cancel_and_wait [(none, 1, null_mut())]
        tb_reschedule [(none, 1, 0, &mut 0), (engine, 1, 0, null_mut())]
        tb_schedule_keyed [
            (none, c"k".as_ptr(), 0, call, user, null_mut()),
            (engine, null(), 0, call, user, null_mut()),
            (engine, c"k".as_ptr(), 0, None, user, null_mut())
        ]
        tb_reschedule_keyed [(none, c"k".as_ptr(), 0), (engine, null(), 0)]
        tb_cancel_keyed_and_wait [
            (none, c"k".as_ptr(), null_mut(), null_mut()),
            (engine, null(), null_mut(), null_mut())
        ]
        tb_cancel_keyed [
            (none, c"k".as_ptr(), null_mut(), null_mut()),
            (engine, null(), null_mut(), null_mut())
        ]
        tb_timer_create [
            (none, call, user, &mut null_mut()),
            (engine, None, user, &mut null_mut()),
            (engine, call, user, null_mut())
        ]
        tb_timer_user [(null(), &mut null_mut())]
        tb_timer_arm [(null(), 0)]
        tb_timer_arm_at [(null(), 0)]
        tb_timer_disarm [(null(), null_mut())]
        tb_timer_disarm_and_wait [(null(), null_mut())]
        tb_timer_free [(null_mut())]
        tb_every [(none, MS, call, user, null_mut()), (engine, MS, None, user, null_mut())]
        tb_task_stop [(null(), null_mut())]
        tb_task_stop_and_wait [(null(), null_mut())]
        tb_task_free [(null_mut())]
        tb_poll [
            (none, &mut no_event(), 1, &mut 0),
            (polled, null_mut(), 1, &mut 0),
            (polled, &mut no_event(), 1, null_mut())
        ]
        tb_event_fd [(none, &mut 0), (polled, null_mut())]
        tb_engine_stats [(none, &mut no_stats()), (engine, null_mut())]
        tb_loop_create [(none, 0, &mut null_mut()), (looping, 0, null_mut())]
        tb_loop_fd [(null(), &mut 0), (event_loop, null_mut())]
        tb_loop_wake_by [(null(), Some(wake), user), (event_loop, None, user)]
        tb_loop_next_deadline [(null(), &mut 0), (event_loop, null_mut())]
        tb_loop_timeout [(null(), 0, &mut 0), (event_loop, 0, null_mut())]
        tb_loop_turn [(null(), 0, 1, null_mut())]
        tb_loop_free [(null_mut())]
        tb_schedule_on [(none, 0, 0, call, user, null_mut()), (looping, 0, 0, None, user, null_mut())]
        tb_reschedule_on [(none, 0, 1, 0, &mut 0), (looping, 0, 1, 0, null_mut())]
        tb_timer_arm_on [(null(), 0, 0)]
    }
}

#[test]
fn every_function_detects_a_null() {
    let world = World::new();
    for (name, calls) in null_calls(&world) {
        for (index, call) in calls.iter().enumerate() {
            assert_eq!(call(), TB_NULL, "{name}, call {index}");
            assert!(message().ends_with(" is null"), "{name}: {}", message());
        }
    }
}

/// If the header gets a new function, the table of `null_calls` must name it.
#[test]
fn every_function_of_the_header_is_in_the_table_of_nulls() {
    let world = World::new();
    let tested: Vec<&str> = null_calls(&world).into_iter().map(|(name, _)| name).collect();
    let header = std::fs::read_to_string(root().join("include/tourbillon.h")).unwrap();
    let declarations = header.split("extern \"C\" {").nth(1).unwrap();
    let code = declarations.lines().filter(|line| !line.starts_with("//")).collect::<Vec<_>>().join(" ");
    let declared: Vec<&str> = code
        .split(';')
        .filter_map(|declaration| declaration.split_once('('))
        .map(|(before, _)| before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
        .filter(|name| name.starts_with("tb_"))
        .collect();
    assert!(declared.len() >= 25, "{declared:?}");
    for name in &declared {
        assert!(tested.contains(name), "{name} is not in the table");
    }
    assert_eq!(declared.len(), tested.len());
}

#[test]
fn results_that_need_not_be_wanted_may_be_null() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    let log = Log::default();
    unsafe {
        assert_eq!(tb_schedule(driven.engine, 0, Some(log_call), log.user(), null_mut()), TB_OK);
        assert_eq!(tb_every(driven.engine, MS, Some(log_call), log.user(), null_mut()), TB_OK);
        assert_eq!(tb_cancel(driven.engine, 17, null_mut()), TB_OK);
        assert_eq!(tb_cancel_keyed(driven.engine, c"none".as_ptr(), null_mut(), null_mut()), TB_OK);
        driven.advance(10 * MS);
        assert_eq!(tb_engine_shutdown(driven.engine, None, null_mut()), TB_OK);
    }
    assert_eq!(log.len(), 11);
}
