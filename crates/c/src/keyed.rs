//! One-shots that are named by keys.

use crate::annotate;
use crate::engine::tb_engine;
use crate::event::tb_callback;
use crate::handles;
use crate::keys::Found;
use crate::outcome::tb_outcome;
use crate::status::{Failure, guard, tb_status};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::time::Duration;

/// Reads a key from a C program. Fails if the pointer is null or the key is not UTF-8.
///
/// # Safety
///
/// The [contract](crate#contract): the pointer is null, or the key ends with a NUL.
unsafe fn key<'a>(key: *const c_char) -> Result<&'a CStr, Failure> {
    if key.is_null() {
        return Err(Failure::null("key"));
    }
    // SAFETY: the contract.
    let key = unsafe { CStr::from_ptr(key) };
    let not_utf8 = |error| Failure::new(tb_status::TB_NOT_UTF8, format!("key: {error}"));
    key.to_str().map(|_| key).map_err(not_utf8)
}

/// Schedules a one-shot under a key. The key is UTF-8, ends with a NUL, and is copied. If a one-shot is pending under
/// the key, the new one-shot replaces it in its slot, so that this also works on a full engine, and `replaced` gets the
/// `user` of the old one-shot. Otherwise `replaced` gets NULL: no one-shot was pending, or its callback has begun and
/// the key has two one-shots until that returns. The pointer `replaced` may itself be NULL.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_schedule_keyed(
    engine: *const tb_engine,
    key: *const c_char,
    delay_ns: u64,
    callback: tb_callback,
    user: *mut c_void,
    replaced: *mut *mut c_void,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let key = unsafe { self::key(key) }?;
        let target = engine.delivery().target(callback, user)?;
        let deadline = engine.tasks().now() + Duration::from_nanos(delay_ns);
        annotate::handed_over(user);
        let old = engine.keys().schedule(engine.tasks(), key, deadline, target)?;
        let old = old.map_or(ptr::null_mut(), |target| target.user);
        annotate::arrived(old);
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(replaced, old) };
        Ok(())
    })
}

/// Moves the pending one-shot of a key to `delay_ns` from now, in its slot. Fails with `TB_NOT_PENDING` if the key has
/// no pending one-shot, or if its callback has begun. After any other failure the one-shot is as it was.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_reschedule_keyed(
    engine: *const tb_engine,
    key: *const c_char,
    delay_ns: u64,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let key = unsafe { self::key(key) }?;
        let deadline = engine.tasks().now() + Duration::from_nanos(delay_ns);
        annotate::moved();
        engine.keys().reschedule(engine.tasks(), key, deadline)
    })
}

/// Cancels the one-shot of a key. If the one-shot was pending, the outcome is `TB_CANCELLED`, and the pointer `user`
/// gets the one-shot's `user`. With any other outcome, `user` gets NULL. `TB_RUNNING` means that a callback of the key
/// runs. `TB_GONE` means that the key has no one-shot, or that the event of its one-shot was polled. A key may be
/// scheduled again while its callback runs. Then the new one-shot is pending, and this call cancels it. `outcome` and
/// `user` may be NULL.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_cancel_keyed(
    engine: *const tb_engine,
    key: *const c_char,
    outcome: *mut tb_outcome,
    user: *mut *mut c_void,
) -> tb_status {
    // SAFETY: the contract.
    unsafe { cancel(engine, key, outcome, user, false) }
}

/// As `tb_cancel_keyed`, but waits until all running callbacks of the key have returned, even if the outcome is
/// `TB_CANCELLED`. In a callback of this engine, in a turn of a loop and in the child of a fork the call does not wait,
/// and the outcome may be `TB_RUNNING`. Elsewhere it is never `TB_RUNNING`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_cancel_keyed_and_wait(
    engine: *const tb_engine,
    key: *const c_char,
    outcome: *mut tb_outcome,
    user: *mut *mut c_void,
) -> tb_status {
    // SAFETY: the contract.
    unsafe { cancel(engine, key, outcome, user, true) }
}

/// # Safety
///
/// The [contract](crate#contract).
unsafe fn cancel(
    engine: *const tb_engine,
    key: *const c_char,
    outcome: *mut tb_outcome,
    user: *mut *mut c_void,
    and_wait: bool,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let key = unsafe { self::key(key) }?;
        let means = engine.delivery().means();
        let found = engine.keys().cancel(engine.tasks(), key, and_wait && means.has_callbacks());
        if and_wait {
            annotate::waited_for_callbacks();
        }
        let (cancelled, old) = match found {
            Found { cancelled: Some(target), .. } => (tb_outcome::TB_CANCELLED, target.user),
            Found { is_running: true, .. } => (means.outcome(tb_outcome::TB_RUNNING), ptr::null_mut()),
            Found { .. } => (tb_outcome::TB_GONE, ptr::null_mut()),
        };
        annotate::arrived(old);
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(outcome, cancelled) };
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(user, old) };
        Ok(())
    })
}
