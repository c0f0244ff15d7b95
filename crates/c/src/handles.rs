//! The boxes that C holds.
//!
//! In debug builds a register knows the live handles. A handle that was freed keeps its memory, empty, so that its
//! address is never given out again: for as long as the process lives, a later use of the freed handle is recognised.
//! The price is a lock for each call, and the memory. Release builds have neither register nor check: there, as
//! everywhere in C, the use of a freed handle is undefined.

use crate::fork;
use crate::status::{Failure, tb_status};
use std::mem::MaybeUninit;

/// A type whose handles C holds.
pub(crate) trait Handle: Sync + Send {
    /// The name of the type in C.
    const NAME: &'static str;
}

/// The box that a handle points to.
struct Boxed<T> {
    value: T,
    /// The number of forks before this handle was made.
    forks: u32,
}

/// Gives `value` to C. Returns its handle.
pub(crate) fn give<T: Handle>(value: T) -> *mut T {
    fork::watch();
    let handle = Box::into_raw(Box::new(Boxed { value, forks: fork::count() }));
    register::insert(handle.addr(), T::NAME);
    handle.cast()
}

/// The value of a handle. Fails in a child process: the child has the memory of the handle's engine, and not its
/// threads.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn lend<'a, T: Handle>(handle: *const T) -> Result<&'a T, Failure> {
    if handle.is_null() {
        return Err(Failure::null(T::NAME));
    }
    register::check(handle.addr(), T::NAME)?;
    // SAFETY: `give` made the caller's handle, and no thread frees it meanwhile.
    let boxed = unsafe { &*handle.cast::<Boxed<T>>() };
    if boxed.forks != fork::count() {
        let message = "the engine was made before a fork, and its threads are in the parent process";
        return Err(Failure::new(tb_status::TB_FORKED, message));
    }
    Ok(&boxed.value)
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
    let handle = handle.cast::<Boxed<T>>();
    // SAFETY: `give` made the handle, and no other thread uses it.
    if unsafe { &*handle }.forks != fork::count() {
        return Ok(None);
    }
    #[cfg(debug_assertions)]
    {
        // SAFETY: `give` made the handle, the handle was live until now, and its box is not read again.
        let boxed = unsafe { handle.read() };
        // Without pointers in it, the memory leads a leak checker nowhere.
        // SAFETY: the memory has room for a `Boxed`, whose value was moved out.
        unsafe { handle.write_bytes(0, 1) };
        Ok(Some(boxed.value))
    }
    #[cfg(not(debug_assertions))]
    {
        // SAFETY: `give` made the handle, and the caller may free it.
        Ok(Some(unsafe { Box::from_raw(handle) }.value))
    }
}

#[cfg(debug_assertions)]
pub(crate) mod register {
    use crate::status::{Failure, tb_status};
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    struct Entry {
        name: &'static str,
        lives: bool,
    }

    /// All handles that there ever were, by their addresses. Leak checkers find the freed ones through this map.
    static HANDLES: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

    fn handles() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
        HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    thread_local! {
        /// The lock of the register, held by a thread that forks.
        static GUARD: Cell<Option<MutexGuard<'static, BTreeMap<usize, Entry>>>> = const { Cell::new(None) };
    }

    /// Locks the register, so that no other thread holds the lock at the moment of a fork.
    pub(crate) extern "C" fn lock() {
        let _ = GUARD.try_with(|guard| guard.set(Some(handles())));
    }

    /// Unlocks the register after a fork, in either process.
    pub(crate) extern "C" fn unlock() {
        // The access fails if the thread is ending; then `lock` failed too.
        drop(GUARD.try_with(Cell::take));
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
pub(crate) mod register {
    use crate::status::Failure;

    pub(crate) extern "C" fn lock() {}

    pub(crate) extern "C" fn unlock() {}

    pub(super) fn insert(_: usize, _: &'static str) {}

    pub(super) fn check(_: usize, _: &'static str) -> Result<(), Failure> {
        Ok(())
    }

    pub(super) fn remove(_: usize, _: &'static str) -> Result<(), Failure> {
        Ok(())
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
