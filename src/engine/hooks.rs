//! The functions that run when an engine has ended.

use crate::base::sync::{Mutex, ignore_poison};

pub(crate) type Hook = Box<dyn FnOnce() + Send>;

/// The functions that are to run; `None` once the engine has ended.
pub(super) struct Hooks(Mutex<Option<Vec<Hook>>>);

impl Hooks {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }

    /// Keeps a function until the engine ends. Returns the function if the engine has ended.
    pub(super) fn keep(&self, hook: Hook) -> Option<Hook> {
        match &mut *ignore_poison(self.0.lock()) {
            Some(kept) => kept.push(hook),
            None => return Some(hook),
        }
        None
    }

    /// Takes the functions out, for good.
    pub(super) fn take(&self) -> Vec<Hook> {
        ignore_poison(self.0.lock()).take().unwrap_or_default()
    }
}
