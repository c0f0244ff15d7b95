//! Tests the clocks that an engine may run on.

use crate::MS;
use crate::support::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tb_status::*;
use tourbillon_c::*;

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
            // The sleep was measured by `Instant`, which is CLOCK_MONOTONIC. If the machine was suspended, the
            // boot-time clock differs from it.
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
