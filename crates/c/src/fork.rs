//! Counts forks, so that a child process refuses the handles of its parent.
//!
//! A child process has the memory of its parent, but none of its threads. No timer would ever fire there, and a lock
//! that another thread held at the fork stays locked. So each handle stores the number of forks before the start of its
//! engine. The handle is refused if the number of forks has grown since then.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the first process that started an engine and this process. In the first process it is 0.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of forks between the first process that started an engine and this process.
#[inline]
pub(crate) fn count() -> u32 {
    // Ordering: Relaxed. The count changes only while its process has one thread.
    FORKS.load(Ordering::Relaxed)
}

/// Starts to count forks. Later calls have no effect.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(watch_forks);
}

#[cfg(unix)]
fn watch_forks() {
    use crate::register::{lock, unlock};
    use std::ffi::c_int;

    type Handler = Option<extern "C" fn()>;
    // POSIX declares the function with these types.
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }
    extern "C" fn child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
        unlock();
    }
    // SAFETY: these are functions of this library, which is never unloaded. If no memory is left, the call fails, and
    // forks stay unnoticed.
    let _ = unsafe { pthread_atfork(Some(lock), Some(unlock), Some(child)) };
}

#[cfg(not(unix))]
fn watch_forks() {}
