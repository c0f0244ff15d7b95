//! The functions that run when an engine has ended.

use super::{Core, ignore_poison};
use crate::base::sync::Mutex;

pub(crate) type Hook = Box<dyn FnOnce() + Send>;

/// The functions that are to run; `None` once the engine has ended.
pub(super) struct Hooks(Mutex<Option<Vec<Hook>>>);

impl Hooks {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }

    /// Keeps a function until the engine ends. Returns the function if the engine has ended.
    fn keep(&self, hook: Hook) -> Option<Hook> {
        match &mut *ignore_poison(self.0.lock()) {
            Some(kept) => kept.push(hook),
            None => return Some(hook),
        }
        None
    }

    /// Takes the functions out, for good.
    fn take(&self) -> Vec<Hook> {
        ignore_poison(self.0.lock()).take().unwrap_or_default()
    }
}

impl<T: Send + 'static> Core<T> {
    /// Runs `hook` when the engine has ended, or now if it has.
    pub(crate) fn at_shutdown(&self, hook: Hook) {
        let late = if self.is_forked() { Some(hook) } else { self.hooks.keep(hook) };
        if let Some(hook) = late {
            self.guarded.run(hook);
        }
    }

    /// Runs the hooks, where no lock is held.
    pub(super) fn run_hooks(&self) {
        for hook in self.hooks.take() {
            self.guarded.run(hook);
        }
    }
}
