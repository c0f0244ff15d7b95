//! Blocks signals on the threads of shards, so that other threads of the program get them.
//!
//! A signal that is sent to a process goes to any thread that does not block it. A program may block SIGTERM on its own
//! threads and wait for it, but it cannot block a signal on threads of shards that were started before. So the threads
//! of shards are started with signals blocked: a thread inherits the mask of the thread that starts it.
//!
//! Some signals are not blocked. A thread's own instruction raises SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP and SIGSYS.
//! If these were blocked, they would end the process before a handler could report them. The same is true of SIGABRT,
//! which an abort sends to its own thread.

/// Blocks signals on the calling thread until this value is dropped on that thread.
#[derive(Debug)]
#[must_use]
pub(crate) struct Blocked(imp::Mask);

impl Blocked {
    pub(crate) fn new() -> Self {
        Self(imp::block())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        imp::restore(&self.0);
    }
}

#[cfg(all(unix, not(all(test, tourbillon_loom))))]
mod imp {
    use core::mem::MaybeUninit;
    use core::{fmt, ptr};

    const LEFT_OPEN: [libc::c_int; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];

    /// The thread's signal mask before the blocking. `None` if the system did not report it.
    pub(super) struct Mask(Option<libc::sigset_t>);

    impl fmt::Debug for Mask {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Mask")
        }
    }

    pub(super) fn block() -> Mask {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the call initialises the set, and cannot fail.
        unsafe { libc::sigfillset(set.as_mut_ptr()) };
        for signal in LEFT_OPEN {
            // SAFETY: the set is initialised.
            unsafe { libc::sigdelset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: the first set is initialised, the second set is written if the call succeeds.
        let outcome = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: the call has succeeded.
        Mask((outcome == 0).then(|| unsafe { before.assume_init() }))
    }

    pub(super) fn restore(Mask(before): &Mask) {
        if let Some(before) = before {
            // SAFETY: the mask came from the system.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

#[cfg(not(all(unix, not(all(test, tourbillon_loom)))))]
mod imp {
    #[derive(Debug)]
    pub(super) struct Mask;

    pub(super) fn block() -> Mask {
        Mask
    }

    pub(super) fn restore(_: &Mask) {}
}
