//! Functions that run when an engine has ended.

use crate::base::fork::ForkLock;

pub(crate) type Hook = Box<dyn FnOnce() + Send>;

/// The functions to run when an engine ends. `None` after the engine has ended.
pub(super) struct Hooks(ForkLock<Option<Vec<Hook>>>);

impl Hooks {
    pub(super) fn new() -> Self {
        Self(ForkLock::new(Some(Vec::new())))
    }

    /// Stores `hook`, which runs when the engine ends. Returns `hook` if the engine has ended. In the child of a fork,
    /// also returns `hook` if another thread of the parent held the lock at the fork.
    pub(super) fn keep(&self, hook: Hook) -> Option<Hook> {
        match self.0.lock().as_deref_mut() {
            Some(Some(kept)) => kept.push(hook),
            Some(None) | None => return Some(hook),
        }
        None
    }

    /// Takes out all hooks, the functions to run when the engine ends. Accepts no further hooks. In the child of a fork
    /// the lock may be held for ever. Then the result is empty.
    pub(super) fn take(&self) -> Vec<Hook> {
        self.0.lock().and_then(|mut hooks| hooks.take()).unwrap_or_default()
    }
}
