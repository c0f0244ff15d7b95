//! Functions that run when an engine has ended.

use crate::base::fork::ForkLock;

pub(crate) type Hook = Box<dyn FnOnce() + Send>;

/// The functions to run when the engine ends. `None` once the engine has ended.
pub(super) struct Hooks(ForkLock<Option<Vec<Hook>>>);

impl Hooks {
    pub(super) fn new() -> Self {
        Self(ForkLock::new(Some(Vec::new())))
    }

    /// Keeps a function until the engine ends. Gives the function back if the engine has ended. Also gives it back in
    /// the child of a fork if the lock stays held for ever.
    pub(super) fn keep(&self, hook: Hook) -> Option<Hook> {
        match self.0.lock().as_deref_mut() {
            Some(Some(kept)) => kept.push(hook),
            Some(None) | None => return Some(hook),
        }
        None
    }

    /// Takes all functions out, and accepts no more. In the child of a fork the lock may stay held for ever: then no
    /// function is returned or called.
    pub(super) fn take(&self) -> Vec<Hook> {
        self.0.lock().and_then(|mut hooks| hooks.take()).unwrap_or_default()
    }
}
