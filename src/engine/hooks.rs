//! The functions that run when an engine has ended.

use crate::base::fork::ForkLock;

pub(crate) type Hook = Box<dyn FnOnce() + Send>;

/// The functions that are to run; `None` once the engine has ended.
pub(super) struct Hooks(ForkLock<Option<Vec<Hook>>>);

impl Hooks {
    pub(super) fn new() -> Self {
        Self(ForkLock::new(Some(Vec::new())))
    }

    /// Keeps a function until the engine ends. Returns the function if the engine has ended, or if this is the
    /// child of a fork and the lock is held for ever.
    pub(super) fn keep(&self, hook: Hook) -> Option<Hook> {
        match self.0.lock().as_deref_mut() {
            Some(Some(kept)) => kept.push(hook),
            Some(None) | None => return Some(hook),
        }
        None
    }

    /// Takes the functions out, for good. In the child of a fork they may be out of reach, and are not called.
    pub(super) fn take(&self) -> Vec<Hook> {
        self.0.lock().and_then(|mut hooks| hooks.take()).unwrap_or_default()
    }
}
