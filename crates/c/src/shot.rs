//! One-shots that are named by ids.

use crate::annotate;
use crate::delivery::{id_of, one_shot, timer_of};
use crate::engine::tb_engine;
use crate::event::tb_callback;
use crate::handles;
use crate::outcome::tb_outcome;
use crate::status::{Failure, guard, tb_status};
use std::ffi::c_void;
use std::time::Duration;
use tourbillon::{Cancel, TimerId, Timestamp};

/// Says to which shard a one-shot is scheduled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The calling thread's own shard: the shard of the thread's loop, or the shard that the engine has chosen for a
    /// thread without a loop.
    Here,
    /// The shard that the loop with this index runs.
    Loop(usize),
}

/// Schedules a one-shot, and returns its id. For an engine without loops, the caller must pass [`Place::Here`].
#[inline(always)]
pub(crate) fn place(
    engine: &tb_engine,
    place: Place,
    deadline: Timestamp,
    (callback, user): (tb_callback, *mut c_void),
) -> Result<u64, Failure> {
    let target = engine.delivery().target(callback, user)?;
    let timer = match (engine.direct(), place) {
        (Some(direct), Place::Here) => {
            direct.handle().schedule_at(deadline, target).map_err(|error| error.kind)
        }
        (Some(direct), Place::Loop(index)) => {
            direct.handle().on(index).schedule_at(deadline, target).map_err(|error| error.kind)
        }
        (None, _) => engine.tasks().at_with(deadline, one_shot(target)).map_err(|error| error.kind),
    };
    Ok(id_of(timer?))
}

/// Converts the id of a one-shot that the caller is about to reschedule. Fails for 0, because ids are never 0.
pub(crate) fn timer_to_move(id: u64) -> Result<TimerId, Failure> {
    let none = || Failure::new(tb_status::TB_NOT_PENDING, "0 is the id of no timer");
    annotate::moved();
    timer_of(id).ok_or_else(none)
}

/// Schedules a one-shot for the deadline that `deadline` returns, and writes its id to `id` if this pointer is not
/// null.
///
/// # Safety
///
/// The [contract](crate#contract).
unsafe fn schedule(
    engine: *const tb_engine,
    deadline: impl FnOnce(&tb_engine) -> Timestamp,
    target: (tb_callback, *mut c_void),
    id: *mut u64,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        let shot = place(engine, Place::Here, deadline(engine), target)?;
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(id, shot) };
        Ok(())
    })
}

/// Schedules a one-shot: `callback` is called once with `user`, no earlier than `delay_ns` from now. With a delay of 0,
/// the one-shot is due at the end of the engine's present tick, whose length is `options.tick_ns`. With a delay of
/// `UINT64_MAX`, it is never due. `id` gets the one-shot's id, which is never 0; `id` may be NULL. If this function
/// fails, the callback is not called.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_schedule(
    engine: *const tb_engine,
    delay_ns: u64,
    callback: tb_callback,
    user: *mut c_void,
    id: *mut u64,
) -> tb_status {
    let deadline = |engine: &tb_engine| engine.tasks().now() + Duration::from_nanos(delay_ns);
    // SAFETY: the contract.
    unsafe { schedule(engine, deadline, (callback, user), id) }
}

/// As `tb_schedule`, but `deadline_ns` is a time on the engine's clock instead of a delay. The function does not read
/// the clock. So it is the cheaper choice for an event loop that has read the time with `tb_now`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_schedule_at(
    engine: *const tb_engine,
    deadline_ns: u64,
    callback: tb_callback,
    user: *mut c_void,
    id: *mut u64,
) -> tb_status {
    let deadline = |_: &tb_engine| Timestamp::from_nanos(deadline_ns);
    // SAFETY: the contract.
    unsafe { schedule(engine, deadline, (callback, user), id) }
}

/// Cancels a one-shot. `outcome` may be NULL. After `TB_CANCELLED`, the caller owns `user` again.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_cancel(engine: *const tb_engine, id: u64, outcome: *mut tb_outcome) -> tb_status {
    // SAFETY: the contract.
    unsafe { cancel(engine, id, outcome, false) }
}

/// As `tb_cancel`, but waits until a callback that has begun has returned. In a callback of this engine, in a turn of a
/// loop and in the child of a fork it does not wait, and may return `TB_RUNNING`. Elsewhere it never returns
/// `TB_RUNNING`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_cancel_and_wait(
    engine: *const tb_engine,
    id: u64,
    outcome: *mut tb_outcome,
) -> tb_status {
    // SAFETY: the contract.
    unsafe { cancel(engine, id, outcome, true) }
}

/// Cancels a one-shot. If `and_wait` is true, waits for a running callback as [`tb_cancel_and_wait`] does.
///
/// # Safety
///
/// The [contract](crate#contract).
unsafe fn cancel(engine: *const tb_engine, id: u64, outcome: *mut tb_outcome, and_wait: bool) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        let and_wait = and_wait && engine.delivery().means().has_callbacks();
        let cancelled = match (timer_of(id), engine.direct()) {
            (None, _) => Cancel::Gone,
            (Some(id), Some(direct)) => direct.cancel(id, and_wait),
            (Some(id), None) if and_wait => engine.tasks().cancel_and_wait(id),
            (Some(id), None) => engine.tasks().cancel(id),
        };
        if and_wait {
            annotate::waited_for_callbacks();
        }
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(outcome, engine.delivery().means().outcome(cancelled)) };
        Ok(())
    })
}

/// Moves a pending one-shot to `delay_ns` from now. The one-shot gets a new id, which is put into `new_id`; the old id
/// is stale. If the call fails with `TB_SHUT_DOWN`, the one-shot was cancelled; after any other failure it is as it
/// was.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_reschedule(
    engine: *const tb_engine,
    id: u64,
    delay_ns: u64,
    new_id: *mut u64,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let place = unsafe { handles::place(new_id, "new_id") }?;
        let (timer, delay) = (timer_to_move(id)?, Duration::from_nanos(delay_ns));
        let moved = match engine.direct() {
            Some(direct) => direct.handle().reschedule(timer, delay).map_err(Failure::from)?,
            None => engine.tasks().reschedule(timer, delay).map_err(Failure::from)?,
        };
        place.write(id_of(moved));
        Ok(())
    })
}
