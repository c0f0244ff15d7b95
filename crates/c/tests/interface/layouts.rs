//! Tests the version, and structures of other versions of the library.

use crate::MS;
use crate::support::*;
use std::ffi::CStr;
use std::ptr::null_mut;
use tb_status::*;
use tourbillon_c::*;

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

/// Programs have arrays of events. So a later version may give a reserved word a meaning, but must not move a field.
#[test]
fn an_event_keeps_its_layout() {
    assert_eq!(size_of::<tb_event>(), 3 * size_of::<usize>() + 9 * 8);
    assert_eq!(std::mem::offset_of!(tb_event, reserved), size_of::<tb_event>() - 5 * 8);
}

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
