//! Polls an engine for events.

use crate::engine::tb_engine;
use crate::event::tb_event;
use crate::status::{Failure, guard, tb_status};
use crate::{events, handles};
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Takes up to `n` events into `events`, and puts their number into `count`. If the number is less than `n`, no more
/// events were waiting at that moment. There may be no event although the descriptor from `tb_event_fd` was readable.
/// The call does not wait for events. Several threads may call it: each event goes to one of them. A timer is pending
/// until its event is polled: the timer can be cancelled, moved or armed again.
///
/// A shard hands over its due timers in batches. A batch has the timers that the shard has found due at once, 1,024 at
/// most. While 128 batches of a shard wait for a poll, the shard holds further due timers back. When a poll has made
/// room, the shard hands these timers over, too, and the descriptor becomes readable again.
///
/// # Safety
///
/// The [contract](crate#contract): there is room for `n` events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_poll(
    engine: *const tb_engine,
    events: *mut tb_event,
    n: usize,
    count: *mut usize,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let place = unsafe { handles::place(count, "count") }?;
        if events.is_null() {
            return Err(Failure::null("events"));
        }
        // SAFETY: the contract.
        let room = unsafe { std::slice::from_raw_parts_mut(events.cast::<MaybeUninit<tb_event>>(), n) };
        events::forget_keys();
        place.write(engine.poll(room)?);
        Ok(())
    })
}

/// Gets a descriptor that is readable while events wait, for `poll`, `epoll` and the like. The descriptor belongs to
/// the engine: do not read, write or close it. It is level-triggered. A program that watches it with `EPOLLET` must
/// repeat `tb_poll` until a call takes fewer events than the array has room for. Linux only: elsewhere
/// `TB_UNSUPPORTED`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_event_fd(engine: *const tb_engine, fd: *mut c_int) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let place = unsafe { handles::place(fd, "fd") }?;
        let none = || Failure::new(tb_status::TB_UNSUPPORTED, "this system has no eventfd");
        place.write(engine.events()?.descriptor().ok_or_else(none)?);
        Ok(())
    })
}
