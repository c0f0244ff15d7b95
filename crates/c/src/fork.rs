//! Forks: how handles are refused in a child process.
//!
//! The child has the memory of its parent and none of its threads: no timer would ever fire, and a lock that another
//! thread held stays locked. So the origin of each handle has the number of forks before its engine was started. The
//! handle is refused once there were more.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the first process that started an engine and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// See [`FORKS`].
#[inline]
pub(crate) fn count() -> u32 {
    // Ordering: Relaxed. The count changes only while its process has one thread.
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(watch_forks);
}

#[cfg(unix)]
fn watch_forks() {
    use crate::register::{lock, unlock};
    use std::ffi::c_int;

    type Handler = Option<extern "C" fn()>;
    // The declaration of POSIX.
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }
    extern "C" fn child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
        unlock();
    }
    // SAFETY: the three are functions of this library, which is not unloaded. If there is no memory, the call fails,
    // and forks stay unnoticed.
    let _ = unsafe { pthread_atfork(Some(lock), Some(unlock), Some(child)) };
}

#[cfg(not(unix))]
fn watch_forks() {}
