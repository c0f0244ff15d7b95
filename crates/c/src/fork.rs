//! Forks: what is left of an engine in a child process.
//!
//! The child has the memory of its parent and none of its threads: nothing would ever fire, and a lock that another thread held
//! stays locked. So a handle remembers how many forks lie before it, and is refused once there are more.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between this process and the first one that made a handle.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// See [`FORKS`].
#[inline]
pub(crate) fn count() -> u32 {
    // Ordering: Relaxed. It changes while its process has one thread.
    FORKS.load(Ordering::Relaxed)
}

/// Has forks counted from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(watch_forks);
}

#[cfg(unix)]
fn watch_forks() {
    use crate::handles::register::{hold, let_go};
    use std::ffi::c_int;

    type Handler = Option<extern "C" fn()>;
    // As POSIX declares it.
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }
    extern "C" fn child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
        let_go();
    }
    // SAFETY: the three are functions of this library, which is not unloaded. Without memory the call
    // fails, and forks stay unnoticed.
    let _ = unsafe { pthread_atfork(Some(hold), Some(let_go), Some(child)) };
}

#[cfg(not(unix))]
fn watch_forks() {}
