//! One-shots by key.

use crate::delivery::tb_callback;
use crate::engine::{tb_engine, tb_outcome};
use crate::handles;
use crate::status::{Failure, guard, tb_status};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::time::Duration;
use tourbillon::ScheduleErrorKind;
use tourbillon::keyed::KeyedErrorKind;

/// A key as C gives it.
///
/// # Safety
///
/// The [contract](crate#contract): it is null, or ends with a NUL.
unsafe fn key<'a>(key: *const c_char) -> Result<&'a str, Failure> {
    if key.is_null() {
        return Err(Failure::null("key"));
    }
    // SAFETY: the contract.
    let key = unsafe { CStr::from_ptr(key) };
    key.to_str().map_err(|error| Failure::new(tb_status::TB_NOT_UTF8, format!("key: {error}")))
}

/// Schedules a one-shot under a key: UTF-8, ended by a NUL, copied. One that the key has is replaced, and its `user` is put into
/// `replaced`, which may be NULL and otherwise gets NULL if there was none.
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
        let key = unsafe { self::key(key) }?.to_owned();
        let target = engine.delivery().target(callback, user)?;
        let placed = engine.keyed().schedule(key.clone(), Duration::from_nanos(delay_ns), target);
        let old = placed.map_err(|error| match error.kind {
            KeyedErrorKind::Refused(kind) => kind.into(),
            kind => Failure::new(tb_status::TB_INVALID, kind.to_string()),
        })?;
        if engine.tasks().is_shut_down() && engine.keyed().cancel(key.as_str()).is_some() {
            // The shutdown had looked before the key was there.
            return Err(ScheduleErrorKind::ShutDown.into());
        }
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(replaced, old.map_or(ptr::null_mut(), |target| target.user)) };
        Ok(())
    })
}

/// Cancels the one-shot of a key: `TB_CANCELLED`, and its `user` in `user`; or `TB_GONE`, and NULL: the key had none, or its
/// callback has begun, or its event was or will be polled. Both may be NULL.
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
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let key = unsafe { self::key(key) }?;
        let (cancelled, old) = match engine.keyed().cancel(key) {
            Some(target) => (tb_outcome::TB_CANCELLED, target.user),
            None => (tb_outcome::TB_GONE, ptr::null_mut()),
        };
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(outcome, cancelled) };
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(user, old) };
        Ok(())
    })
}
