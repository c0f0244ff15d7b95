//! Catches panics of handlers, so that a panic affects only the handler that raised it.

use crate::base::trace;
use core::any::Any;
use core::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A function that gets the payload of a handler's panic, on the thread that ran the handler.
pub type PanicHook = dyn Fn(&(dyn Any + Send)) + Send + Sync;

/// Runs code of the user, catches its panics, and reports them to the user's hook.
pub(crate) struct Guarded {
    hook: Option<Box<PanicHook>>,
}

impl Guarded {
    pub(crate) fn new(hook: Option<Box<PanicHook>>) -> Self {
        Self { hook }
    }

    /// Runs `f`, and catches its panic. If `f` panicked, calls the hook and returns false.
    pub(crate) fn run(&self, f: impl FnOnce()) -> bool {
        let Err(panic) = catch_unwind(AssertUnwindSafe(f)) else { return true };
        // The subscriber, the hook and the drop of the panic's payload may panic themselves. All these panics are
        // swallowed here, since no caller could use them.
        drop_quietly(catch_unwind(AssertUnwindSafe(|| trace::panicked(&*panic))).err());
        if let Some(hook) = &self.hook {
            drop_quietly(catch_unwind(AssertUnwindSafe(|| hook(&*panic))).err());
        }
        drop_quietly(Some(panic));
        false
    }
}

/// Runs `f`, and catches its panic. Returns false if `f` panicked.
pub(crate) fn survives(f: impl FnOnce()) -> bool {
    let panic = catch_unwind(AssertUnwindSafe(f)).err();
    if let Some(panic) = &panic {
        // The subscriber may panic itself.
        drop_quietly(catch_unwind(AssertUnwindSafe(|| trace::panicked(&**panic))).err());
    }
    let survived = panic.is_none();
    drop_quietly(panic);
    survived
}

fn drop_quietly(panic: Option<Box<dyn Any + Send>>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // The drop of the payload panicked with another payload, whose drop may panic, too. Leaking that payload ends
        // the chain.
        Box::leak(another);
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("hook", &self.hook.is_some()).finish()
    }
}
