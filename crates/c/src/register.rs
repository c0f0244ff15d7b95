//! The register of handles, which recognises freed handles in debug builds.
//!
//! In debug builds, the register keeps all handles, live and freed, for the life of the process. So it recognises the
//! use of a freed handle. The price is a lock for each call, and the memory. Release builds have no register and no
//! check. There, as everywhere in C, the use of a freed handle is undefined.

pub(crate) use imp::{check, insert, lock, remove, unlock};

#[cfg(debug_assertions)]
mod imp {
    use crate::status::{Failure, tb_status};
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    struct Entry {
        name: &'static str,
        lives: bool,
    }

    /// All handles, live and freed, by their addresses. The memory of a freed handle stays allocated. A leak checker
    /// finds it through this map, and so does not report it as a leak.
    static HANDLES: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

    fn handles() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
        HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    thread_local! {
        /// The guard of the register's lock while this thread forks. `None` at any other time.
        static GUARD: Cell<Option<MutexGuard<'static, BTreeMap<usize, Entry>>>> = const { Cell::new(None) };
    }

    /// Locks the register of handles before a fork, so that no other thread holds the lock during the fork.
    pub(crate) extern "C" fn lock() {
        let _ = GUARD.try_with(|guard| guard.set(Some(handles())));
    }

    /// Unlocks the register of handles after a fork, in the parent and in the child.
    pub(crate) extern "C" fn unlock() {
        // The access fails if the thread is ending. Then `lock` has failed, too.
        drop(GUARD.try_with(Cell::take));
    }

    pub(crate) fn insert(address: usize, name: &'static str) {
        handles().insert(address, Entry { name, lives: true });
    }

    pub(crate) fn check(address: usize, name: &'static str) -> Result<(), Failure> {
        look_up(&mut handles(), address, name).map(drop)
    }

    pub(crate) fn remove(address: usize, name: &'static str) -> Result<(), Failure> {
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
mod imp {
    use crate::status::Failure;

    pub(crate) extern "C" fn lock() {}

    pub(crate) extern "C" fn unlock() {}

    pub(crate) fn insert(_: usize, _: &'static str) {}

    pub(crate) fn check(_: usize, _: &'static str) -> Result<(), Failure> {
        Ok(())
    }

    pub(crate) fn remove(_: usize, _: &'static str) -> Result<(), Failure> {
        Ok(())
    }
}
