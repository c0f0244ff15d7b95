//! The boxes that C holds.
//!
//! In debug builds a handle that was freed keeps its memory, empty, so that its address is never given out again: the
//! [register](crate::register) recognises a later use of the handle.

use crate::origin::Origin;
use crate::register;
use crate::status::{Failure, tb_status};
use std::mem::MaybeUninit;

/// A type whose handles C holds.
pub(crate) trait Handle: Sync + Send {
    /// The name of the type in C.
    const NAME: &'static str;

    fn origin(&self) -> Origin;
}

/// Gives `value` to C. Returns its handle.
pub(crate) fn give<T: Handle>(value: T) -> *mut T {
    let handle = Box::into_raw(Box::new(value));
    register::insert(handle.addr(), T::NAME);
    handle
}

/// The value of a handle. Fails in a child process: the child has the memory of the handle's engine, and not its
/// threads.
///
/// # Safety
///
/// The [contract](crate#contract).
#[inline(always)]
pub(crate) unsafe fn lend<'a, T: Handle>(handle: *const T) -> Result<&'a T, Failure> {
    if handle.is_null() {
        return Err(Failure::null(T::NAME));
    }
    register::check(handle.addr(), T::NAME)?;
    // SAFETY: `give` made the caller's handle, and no thread frees it during the call.
    let value = unsafe { &*handle };
    if value.origin().is_of_parent() { Err(forked()) } else { Ok(value) }
}

#[cold]
#[inline(never)]
fn forked() -> Failure {
    let message = "the engine was made before a fork, and its threads are in the parent process";
    Failure::new(tb_status::TB_FORKED, message)
}

/// Takes a handle back from C, and returns its value. Returns `None` in a child process, where the value is left alone.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn take<T: Handle>(handle: *mut T) -> Result<Option<T>, Failure> {
    if handle.is_null() {
        return Err(Failure::null(T::NAME));
    }
    register::remove(handle.addr(), T::NAME)?;
    // SAFETY: `give` made the handle, and no other thread uses it.
    if unsafe { &*handle }.origin().is_of_parent() {
        return Ok(None);
    }
    #[cfg(debug_assertions)]
    {
        // SAFETY: `give` made the handle, the handle was live until now, and its box is not read again.
        let value = unsafe { handle.read() };
        // Without pointers in it, the memory leads a leak checker nowhere.
        // SAFETY: the memory has room for the value, which was moved out.
        unsafe { handle.write_bytes(0, 1) };
        Ok(Some(value))
    }
    #[cfg(not(debug_assertions))]
    {
        // SAFETY: `give` made the handle, and the caller may free it.
        Ok(Some(*unsafe { Box::from_raw(handle) }))
    }
}

/// The place for a required result. Fails if the pointer is null.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn place<'a, T>(place: *mut T, name: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    // SAFETY: the contract: the pointer is null, or has room for a `T`.
    let place = unsafe { place.cast::<MaybeUninit<T>>().as_mut() };
    place.ok_or_else(|| Failure::null(name))
}

/// Writes an optional result: does nothing if the pointer is null.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    // SAFETY: the contract: the pointer is null, or has room for a `T`.
    if let Some(place) = unsafe { place.cast::<MaybeUninit<T>>().as_mut() } {
        place.write(value);
    }
}
