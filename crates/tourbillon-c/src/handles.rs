//! The boxes that C holds.
//!
//! In debug builds a register says which of them live. One that was freed keeps its memory, empty, so that its address is never
//! given again: whatever is done with it afterwards is told from a handle that lives, for as long as the process does. The price
//! is a lock for each call, and the memory. Release builds have neither: there, as everywhere in C, who uses a handle that was
//! freed is on his own.

use crate::status::Failure;
use std::mem::MaybeUninit;

/// A type whose handles C holds.
pub(crate) trait Handle: Sync + Send {
    /// What C calls it.
    const NAME: &'static str;
}

/// Gives `value` to C.
pub(crate) fn give<T: Handle>(value: T) -> *mut T {
    let handle = Box::into_raw(Box::new(value));
    register::insert(handle.addr(), T::NAME);
    handle
}

/// What a handle stands for.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn lend<'a, T: Handle>(handle: *const T) -> Result<&'a T, Failure> {
    if handle.is_null() {
        return Err(Failure::null(T::NAME));
    }
    register::check(handle.addr(), T::NAME)?;
    // SAFETY: the caller's handle is one that `give` made, and nobody frees it meanwhile.
    Ok(unsafe { &*handle })
}

/// Takes a handle back from C.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn take<T: Handle>(handle: *mut T) -> Result<T, Failure> {
    if handle.is_null() {
        return Err(Failure::null(T::NAME));
    }
    register::remove(handle.addr(), T::NAME)?;
    #[cfg(debug_assertions)]
    {
        // SAFETY: it is one that `give` made, it lived until now, and what it held is not looked at again.
        let value = unsafe { handle.read() };
        // So that a leak checker finds nothing through it.
        // SAFETY: it has room for a `T`, and holds none any more.
        unsafe { handle.write_bytes(0, 1) };
        Ok(value)
    }
    #[cfg(not(debug_assertions))]
    {
        // SAFETY: it is one that `give` made, and the caller's to free.
        Ok(*unsafe { Box::from_raw(handle) })
    }
}

#[cfg(debug_assertions)]
mod register {
    use crate::status::{Failure, tb_status};
    use std::collections::BTreeMap;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    struct Entry {
        name: &'static str,
        lives: bool,
    }

    /// All handles that there ever were, by their addresses: leak checkers find them here.
    static HANDLES: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

    fn handles() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
        HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(address: usize, name: &'static str) {
        handles().insert(address, Entry { name, lives: true });
    }

    pub(super) fn check(address: usize, name: &'static str) -> Result<(), Failure> {
        look_up(&mut handles(), address, name).map(drop)
    }

    pub(super) fn remove(address: usize, name: &'static str) -> Result<(), Failure> {
        look_up(&mut handles(), address, name).map(|entry| entry.lives = false)
    }

    fn look_up<'a>(
        handles: &'a mut BTreeMap<usize, Entry>,
        address: usize,
        name: &'static str,
    ) -> Result<&'a mut Entry, Failure> {
        let stale = |why| Err(Failure::new(tb_status::TB_STALE, why));
        match handles.get_mut(&address) {
            Some(entry) if entry.name != name => {
                stale(format!("{address:#x} is a {}, not a {name}", entry.name))
            }
            Some(entry) if !entry.lives => stale(format!("the {name} at {address:#x} was freed before")),
            Some(entry) => Ok(entry),
            None => stale(format!("{address:#x} is not a {name}")),
        }
    }
}

#[cfg(not(debug_assertions))]
mod register {
    use crate::status::Failure;

    pub(super) fn insert(_: usize, _: &'static str) {}

    pub(super) fn check(_: usize, _: &'static str) -> Result<(), Failure> {
        Ok(())
    }

    pub(super) fn remove(_: usize, _: &'static str) -> Result<(), Failure> {
        Ok(())
    }
}

/// Where C wants a result, if it does.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn place<'a, T>(place: *mut T, name: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    // SAFETY: it is null, or there is room for a `T`, as the caller says.
    let place = unsafe { place.cast::<MaybeUninit<T>>().as_mut() };
    place.ok_or_else(|| Failure::null(name))
}

/// As [`place`], for a result that need not be wanted.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    // SAFETY: it is null, or there is room for a `T`, as the caller says.
    if let Some(place) = unsafe { place.cast::<MaybeUninit<T>>().as_mut() } {
        place.write(value);
    }
}
