//! Gives values to C as handles, and looks them up in each call.
//!
//! In debug builds, a freed handle keeps its emptied memory, so that its address is never used again. So the
//! [register](crate::register) can recognise a later use of the handle.

use crate::origin::Origin;
use crate::register;
use crate::status::{Failure, tb_status};
use std::mem::MaybeUninit;

/// A type of the library that C programs use through handles.
pub(crate) trait Handle: Sync + Send {
    /// The name of the type in C programs.
    const NAME: &'static str;

    fn origin(&self) -> Origin;
}

/// Moves `value` to the heap, and returns the handle that a C program uses for the value.
pub(crate) fn give<T: Handle>(value: T) -> *mut T {
    let handle = Box::into_raw(Box::new(value));
    register::insert(handle.addr(), T::NAME);
    handle
}

/// Returns the value behind a handle. Fails in the child of a fork, because the child has the engine's memory but not
/// its threads.
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

/// Takes a handle back from a C program, and returns the value behind it. In the child of a fork, returns `None` and
/// leaves the value alone.
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
        // The memory stays allocated. Its pointers are cleared, because a leak checker would count the memory behind
        // them as in use.
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

/// Returns the memory behind the pointer `place`, into which a function of the library writes a result. Fails if the
/// pointer is null. `name` is the name of the function's parameter, for the error message.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn place<'a, T>(place: *mut T, name: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    // SAFETY: the contract: the pointer is null, or has room for a `T`.
    let place = unsafe { place.cast::<MaybeUninit<T>>().as_mut() };
    place.ok_or_else(|| Failure::null(name))
}

/// Stores the result `value` in the memory behind the pointer `place`. Does nothing if the pointer is null, because the
/// C program then does not want the result.
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
