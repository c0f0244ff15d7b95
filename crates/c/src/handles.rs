//! The boxes that C holds.
//!
//! In debug builds a register has those that live. A handle that was freed keeps its memory, empty, so that its address is never
//! given again: a later use of it stays distinguishable from that of a living handle as long as the process lives. The price is
//! a lock for each call, and the memory. Release builds have neither: there, as everywhere in C, the use of a freed handle is
//! undefined.

use crate::fork;
use crate::status::{Failure, tb_status};
use std::mem::MaybeUninit;

/// A type whose handles C holds.
pub(crate) trait Handle: Sync + Send {
    /// What C calls it.
    const NAME: &'static str;
}

/// What a handle points to.
struct Held<T> {
    value: T,
    /// How many forks lie before it.
    forks: u32,
}

/// Gives `value` to C.
pub(crate) fn give<T: Handle>(value: T) -> *mut T {
    fork::watch();
    let handle = Box::into_raw(Box::new(Held { value, forks: fork::count() }));
    register::insert(handle.addr(), T::NAME);
    handle.cast()
}

/// What a handle stands for. Fails in a child process: it has the memory of the handle's engine, and not its threads.
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
    let held = unsafe { &*handle.cast::<Held<T>>() };
    if held.forks != fork::count() {
        let message = "the engine was made before a fork, and its threads are in the parent process";
        return Err(Failure::new(tb_status::TB_FORKED, message));
    }
    Ok(&held.value)
}

/// Takes a handle back from C: what it stands for; `None` in a child process, where that is left alone.
///
/// # Safety
///
/// The [contract](crate#contract).
pub(crate) unsafe fn take<T: Handle>(handle: *mut T) -> Result<Option<T>, Failure> {
    if handle.is_null() {
        return Err(Failure::null(T::NAME));
    }
    register::remove(handle.addr(), T::NAME)?;
    let handle = handle.cast::<Held<T>>();
    // SAFETY: it is one that `give` made, and nobody else uses it.
    if unsafe { &*handle }.forks != fork::count() {
        return Ok(None);
    }
    #[cfg(debug_assertions)]
    {
        // SAFETY: it is one that `give` made, it lived until now, and what it held is not looked at again.
        let held = unsafe { handle.read() };
        // So that a leak checker finds nothing through it.
        // SAFETY: it has room for a `Held`, and holds none any more.
        unsafe { handle.write_bytes(0, 1) };
        Ok(Some(held.value))
    }
    #[cfg(not(debug_assertions))]
    {
        // SAFETY: it is one that `give` made, and the caller's to free.
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

    /// All handles that there ever were, by their addresses: leak checkers find them here.
    static HANDLES: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

    fn handles() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
        HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    thread_local! {
        /// The register, in the hands of a thread that forks.
        static HELD: Cell<Option<MutexGuard<'static, BTreeMap<usize, Entry>>>> = const { Cell::new(None) };
    }

    /// Locks the register, so that no other thread has it in the instant of a fork.
    pub(crate) extern "C" fn hold() {
        let _ = HELD.try_with(|held| held.set(Some(handles())));
    }

    /// After a fork, in either process.
    pub(crate) extern "C" fn let_go() {
        // It fails at the very end of a thread, where nothing was held.
        drop(HELD.try_with(Cell::take));
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

    pub(crate) extern "C" fn hold() {}

    pub(crate) extern "C" fn let_go() {}

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
