//! Counts things, such as receivers or claims, for each namespace.

use std::collections::HashMap;

/// The number of things, such as receivers or claims, that each namespace has. A namespace is removed once its number
/// becomes zero.
#[derive(Debug, Default)]
pub(super) struct Tally(HashMap<Box<str>, usize>);

impl Tally {
    pub(super) fn get(&self, namespace: &str) -> usize {
        self.0.get(namespace).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, namespace: &str) {
        *self.0.entry(namespace.into()).or_default() += 1;
    }

    pub(super) fn remove(&mut self, namespace: &str) {
        let Some(number) = self.0.get_mut(namespace) else { return };
        *number -= 1;
        if *number == 0 {
            self.0.remove(namespace);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
