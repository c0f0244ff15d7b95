//! Makes children, and uses what they inherit on other threads of the parent at the same time.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread;

/// Returns the number of children that a test makes, unless it needs fewer.
pub(crate) fn forks() -> u32 {
    std::env::var("TOURBILLON_FORKS").map_or(1_000, |forks| forks.parse().expect("a number"))
}

/// Sets a flag when it is dropped, so also after a panic. Otherwise the threads that wait for the flag would never end,
/// and the scope that joins them would hang instead of failing.
pub(crate) struct SetAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Makes `forks` children by `fork_once`, while three other threads repeat `use_once`. Fails if a child hung or failed.
pub(crate) fn fork_while_used(forks: u32, use_once: impl Fn() + Sync, fork_once: impl Fn(u32) -> i32) {
    let ends = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        let _end = SetAtEnd(&ends);
        for _ in 0..3 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    use_once();
                }
            });
        }
        (0..forks).map(|fork| (fork, fork_once(fork))).find(|(_, status)| *status != 0)
    });
    assert_eq!(failed, None, "a child of {forks} hung (then its status is 14), or failed");
}

/// Fails if a child with this status hung or failed.
pub(crate) fn check(status: i32) {
    assert_eq!(status, 0, "the child hung (then its status is 14), or failed");
}

/// Returns a copy of `original`, which only a child may drop: the child has its own copy of all memory.
pub(crate) fn copy_for_a_child<T>(original: &T) -> ManuallyDrop<T> {
    // SAFETY: the copy is used only in a child, which does not use the original.
    ManuallyDrop::new(unsafe { ptr::read(original) })
}

/// Forks, runs `f` in the child, and returns the status with which the child ended.
pub(crate) fn in_child(f: impl FnOnce()) -> i32 {
    // SAFETY: the child uses only calls that work after a fork of a process with threads, on the systems of this test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the alarm ends this process in time.
        unsafe { libc::alarm(10) };
        let outcome = catch_unwind(AssertUnwindSafe(f));
        // SAFETY: the call ends this process, without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    assert!(child > 0, "it forks");
    let mut status = 0;
    // SAFETY: the process is a child of this process, and `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// A waker that notes its call.
#[derive(Debug, Default)]
pub(crate) struct Called(pub(crate) AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
