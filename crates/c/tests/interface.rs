//! The functions as C calls them, one by one.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests keep the contract, as C has to")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
mod support;

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::*;
use tb_outcome::*;
use tb_status::*;
use tourbillon_c::*;

const MS: u64 = 1_000_000;

// --- Null ---

/// A call with a null where a null is not allowed.
type Call<'a> = Box<dyn Fn() -> tb_status + 'a>;

unsafe extern "C" fn wake(_: *mut c_void) {}

/// For each function, the calls with exactly one pointer wrong; none for functions without a required pointer.
fn null_calls(world: &World) -> Vec<(&'static str, Vec<Call<'_>>)> {
    let World { engine, polled, looping, looped } = *world;
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
        tb_loop_fd [(null(), &mut 0), (looped, null_mut())]
        tb_loop_wake_by [(null(), Some(wake), user), (looped, None, user)]
        tb_loop_next_deadline [(null(), &mut 0), (looped, null_mut())]
        tb_loop_timeout [(null(), 0, &mut 0), (looped, 0, null_mut())]
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

/// A new function must be added to the table above.
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

#[test]
fn the_version_of_header_and_library_is_that_of_the_crate() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(unsafe { CStr::from_ptr(tb_version()) }.to_str(), Ok(version));
    let header = std::fs::read_to_string(root().join("include/tourbillon.h")).unwrap();
    let macro_of = |name: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        line.unwrap_or_else(|| panic!("{name} is missing")).to_owned()
    };
    assert_eq!(macro_of("TB_VERSION"), format!("{version:?}"));
    let parts = ["MAJOR", "MINOR", "PATCH"].map(|part| macro_of(&format!("TB_VERSION_{part}")));
    assert_eq!(parts.join("."), version.split('-').next().unwrap());
}

/// Programs have arrays of events: a later version may give a meaning to a reserved word, and must not move the other
/// fields.
#[test]
fn an_event_keeps_its_layout() {
    assert_eq!(size_of::<tb_event>(), 3 * size_of::<usize>() + 9 * 8);
    assert_eq!(std::mem::offset_of!(tb_event, reserved), size_of::<tb_event>() - 5 * 8);
}

// --- Clocks ---

struct Sleeper {
    scheduled: Instant,
    slept: AtomicU64,
}

unsafe extern "C" fn note_elapsed(user: *mut c_void, _: *const tb_event) {
    let sleeper = unsafe { &*user.cast::<Sleeper>() };
    let slept = u64::try_from(sleeper.scheduled.elapsed().as_nanos()).unwrap();
    sleeper.slept.store(slept, Ordering::Release);
}

#[test]
fn an_engine_runs_on_the_clock_that_was_chosen() {
    let mut clocks = vec![tb_clock::TB_CLOCK_MONOTONIC, tb_clock::TB_CLOCK_SYSTEM];
    if cfg!(target_os = "linux") {
        clocks.push(tb_clock::TB_CLOCK_BOOT);
    }
    for clock in clocks {
        let (mut engine, mut before, mut after) = (null_mut(), 0, 0);
        let options = tb_options { clock: clock as u32, ..options(tb_delivery::TB_INLINE) };
        unsafe {
            assert_eq!(tb_engine_create(&options, &mut engine), TB_OK);
            assert_eq!(tb_now(engine, &mut before), TB_OK);
            let sleeper = Sleeper { scheduled: Instant::now(), slept: AtomicU64::new(0) };
            let user = (&raw const sleeper).cast_mut().cast();
            assert_eq!(tb_schedule(engine, 20 * MS, Some(note_elapsed), user, null_mut()), TB_OK);
            let begin = Instant::now();
            while sleeper.slept.load(Ordering::Acquire) == 0 {
                assert!(begin.elapsed() < PATIENCE);
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(tb_now(engine, &mut after), TB_OK);
            assert!(after - before >= 20 * MS, "{clock:?}");
            // Measured by `Instant`, which is CLOCK_MONOTONIC. The boot-time clock differs from it by the time of each
            // suspend.
            let slept = sleeper.slept.load(Ordering::Acquire);
            assert!(clock == tb_clock::TB_CLOCK_BOOT || slept >= 20 * MS, "{clock:?}: {slept} ns");
            assert_eq!(tb_engine_free(engine), TB_OK);
        }
    }
}

#[test]
fn a_driven_engine_has_a_clock_of_its_own_whatever_was_chosen() {
    for clock in [tb_clock::TB_CLOCK_MONOTONIC, tb_clock::TB_CLOCK_SYSTEM] {
        let driven = Driven::with(&tb_options { clock: clock as u32, ..options(tb_delivery::TB_INLINE) });
        driven.advance(5 * MS);
        assert_eq!(driven.now(), 5 * MS);
    }
}

// --- Errors ---

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
        // Other timers of the same size, which an allocator would put at the freed address.
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

// --- Options and counters of other versions ---

#[test]
fn options_of_another_size_are_read_as_far_as_both_know() {
    let mut engine = null_mut();
    #[repr(C)]
    struct Newer {
        known: tb_options,
        unknown: u64,
    }
    unsafe {
        let mut newer = Newer { known: options(tb_delivery::TB_POLLED), unknown: 0 };
        newer.known.size = size_of::<Newer>();
        assert_eq!(tb_engine_create_driven(&newer.known, &mut engine), TB_OK);
        assert_eq!(tb_engine_free(engine), TB_OK);
        newer.unknown = 1;
        assert_eq!(tb_engine_create_driven(&newer.known, &mut engine), TB_INVALID);
        let older = tb_options { size: size_of::<usize>(), delivery: 99, ..newer.known };
        assert_eq!(tb_engine_create_driven(&older, &mut engine), TB_OK);
        assert_eq!(tb_engine_free(engine), TB_OK);
        for size in [0, 7, 1 << 20] {
            let wrong = tb_options { size, ..newer.known };
            assert_eq!(tb_engine_create_driven(&wrong, &mut engine), TB_INVALID);
        }
        for wrong in [
            tb_options { delivery: 3, ..options(tb_delivery::TB_POOL) },
            tb_options { pinning: 2, ..options(tb_delivery::TB_POOL) },
            tb_options { clock: 3, ..options(tb_delivery::TB_POOL) },
        ] {
            assert_eq!(tb_engine_create(&wrong, &mut engine), TB_INVALID);
        }
    }
}

#[test]
fn counters_are_written_as_far_as_the_caller_has_room() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    unsafe {
        assert_eq!(tb_schedule(driven.engine, MS, Some(count_call), null_mut(), null_mut()), TB_OK);
        let mut stats = no_stats();
        stats.size = 16;
        stats.cancelled = 17;
        assert_eq!(tb_engine_stats(driven.engine, &mut stats), TB_OK);
        assert_eq!((stats.size, stats.scheduled, stats.cancelled), (16, 1, 17));
        stats.size = 0;
        assert_eq!(tb_engine_stats(driven.engine, &mut stats), TB_INVALID);
    }
    driven.advance(10 * MS);
    let stats = driven.stats();
    assert_eq!((stats.fired, stats.pending, stats.cancelled), (1, 0, 0));
    assert!(stats.lateness_max_ns < 2 * MS);
}

// --- Callbacks ---

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
        // Wait until the call that scheduled this callback has returned.
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

// --- Shutdown ---

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
