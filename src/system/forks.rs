//! Runs actions in the child of a fork. The child has none of the parent's other threads.
//!
//! An engine that has threads registers an action. The action runs in each child, on the child's only thread, before
//! `fork` returns. Actions only change atomic words: they take no lock, since a thread that the child does not have may
//! hold the lock.
//!
//! # Invariants
//! J1. The list of places only grows, and its places are never freed. A place (an entry of the list) holds an action or
//!     null.
//! J2. An action is freed only after it was taken out of its place. The child is a copy of the process at one moment,
//!     so each place in the child has a whole action or null.

pub(crate) use imp::{Watch, listen, watch};

#[cfg(all(unix, not(all(test, tourbillon_loom))))]
mod imp {
    use crate::base::fork::begin_generation;
    use crate::base::sync::{OnceLock, Ordering};
    use core::ptr;
    use std::sync::atomic::AtomicPtr;

    /// A function that runs in the child of a fork, before `fork` returns.
    type InChild = Box<dyn Fn() + Send + Sync>;

    #[derive(Debug)]
    struct Place {
        action: AtomicPtr<InChild>,
        older: AtomicPtr<Place>,
    }

    static NEWEST: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
    static IS_LISTENING: OnceLock<()> = OnceLock::new();

    /// The registration of an action for the children of forks. The action runs in each child until the registration is
    /// dropped.
    #[derive(Debug)]
    pub(crate) struct Watch(&'static Place);

    impl Drop for Watch {
        fn drop(&mut self) {
            // Ordering: AcqRel [J2]. The action is out of its place before it is freed.
            let action = self.0.action.swap(ptr::null_mut(), Ordering::AcqRel);
            if !action.is_null() {
                // SAFETY: J2: `watch` put the action there, and we took it out.
                drop(unsafe { Box::from_raw(action) });
            }
        }
    }

    fn places() -> impl Iterator<Item = &'static Place> {
        // Ordering: Acquire [J1]. Pairs with `watch`: a new place.
        let mut next = NEWEST.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: J1: places are never freed.
            let place = unsafe { next.as_ref() }?;
            // Ordering: Relaxed. Published with the place.
            next = place.older.load(Ordering::Relaxed);
            Some(place)
        })
    }

    extern "C" fn in_child() {
        begin_generation();
        for place in places() {
            // Ordering: Acquire [J2]. Pairs with `watch`: the action.
            let action = place.action.load(Ordering::Acquire);
            // SAFETY: J2: the action was in its place at the fork, and the child has no other thread that takes it out.
            if let Some(action) = unsafe { action.as_ref() } {
                action();
            }
        }
    }

    /// Makes each later child of this process begin a generation of its own. Only the first call in a process has an
    /// effect.
    pub(crate) fn listen() {
        IS_LISTENING.get_or_init(|| {
            // SAFETY: the function lives as long as the process. If memory is short, the call fails, and children stay
            // unnoticed.
            let _refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
    }

    /// Registers `action`. From now on, the action runs in each forked child of this process.
    pub(crate) fn watch(action: InChild) -> Watch {
        listen();
        let action = Box::into_raw(Box::new(action));
        let empty = |place: &&Place| {
            // Ordering: Release [J2]. Publishes the action.
            place
                .action
                .compare_exchange(ptr::null_mut(), action, Ordering::Release, Ordering::Relaxed)
                .is_ok()
        };
        Watch(places().find(empty).unwrap_or_else(|| add_place(action)))
    }

    fn add_place(action: *mut InChild) -> &'static Place {
        let place: &'static Place = Box::leak(Box::new(Place {
            action: AtomicPtr::new(action),
            older: AtomicPtr::new(ptr::null_mut()),
        }));
        // Ordering: Relaxed. A hint for the CAS.
        let mut newest = NEWEST.load(Ordering::Relaxed);
        loop {
            // Ordering: Relaxed. Published by the CAS.
            place.older.store(newest, Ordering::Relaxed);
            let new = ptr::from_ref(place).cast_mut();
            // Ordering: Release [J1]. The place, and by the release sequence the places before it.
            match NEWEST.compare_exchange(newest, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return place,
                Err(newer) => newest = newer,
            }
        }
    }
}

#[cfg(not(all(unix, not(all(test, tourbillon_loom)))))]
mod imp {
    #[derive(Debug)]
    pub(crate) struct Watch;

    pub(crate) fn listen() {}

    pub(crate) fn watch(_: Box<dyn Fn() + Send + Sync>) -> Watch {
        Watch
    }
}

#[cfg(all(test, unix, not(tourbillon_loom)))]
pub(crate) mod tests {
    use super::listen;
    use crate::base::fork::ForkLock;
    use crate::base::sync::thread;

    /// Forks, and returns the result of `f` in the child. Returns false if the child hangs.
    pub(crate) fn in_child(f: impl FnOnce() -> bool) -> bool {
        listen();
        // SAFETY: the child calls `f` and ends; `f` uses what a fork leaves whole.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(10) };
            let status = i32::from(!f());
            // SAFETY: ends the child, without the exit handlers of the test's process.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: our child, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status == 0
    }

    #[test]
    fn a_child_goes_on_without_a_lock_that_its_parent_holds() {
        let lock = ForkLock::new(7);
        let held = lock.lock();
        // The thread that forks is not the holder.
        let fork = || thread::scope(|scope| scope.spawn(|| in_child(|| lock.lock().is_none())).join());
        assert!(fork().expect("it ends"));
        drop(held);
        assert_eq!(lock.lock().map(|value| *value), Some(7), "the parent has it as before");
    }

    #[test]
    fn a_child_uses_a_lock_that_was_free() {
        let lock = ForkLock::new(7);
        assert!(in_child(|| lock.lock().is_some_and(|value| *value == 7)));
    }

    #[test]
    fn a_child_waits_for_a_lock_of_its_own() {
        assert!(in_child(|| {
            let own = ForkLock::new(7);
            own.lock().is_some()
        }));
    }
}
