//! Remembers the last count of stored timers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The number of stored timers of each namespace.
pub(super) type Numbers = BTreeMap<Box<str>, u64>;

/// The last count of stored timers, and its moment.
#[derive(Debug, Default)]
pub(super) struct CountCache(Mutex<Option<(Instant, Arc<Numbers>)>>);

impl CountCache {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Arc<Numbers>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last count and its moment, if timers were counted before.
    pub(super) fn last(&self) -> Option<(Instant, Arc<Numbers>)> {
        self.lock().clone()
    }

    /// Remembers a count that was made at this moment.
    pub(super) fn note(&self, numbers: Numbers) -> Arc<Numbers> {
        let numbers = Arc::new(numbers);
        *self.lock() = Some((Instant::now(), Arc::clone(&numbers)));
        numbers
    }
}
