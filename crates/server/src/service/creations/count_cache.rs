//! Remembers how many timers were stored when they were last counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The number of stored timers in each namespace.
pub(super) type Numbers = BTreeMap<Box<str>, u64>;

/// The last count of the stored timers in each namespace, with the moment of the count.
#[derive(Debug, Default)]
pub(super) struct CountCache(Mutex<Option<(Instant, Arc<Numbers>)>>);

impl CountCache {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Arc<Numbers>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last count of stored timers, with its moment. Returns `None` if the timers were never counted.
    pub(super) fn last(&self) -> Option<(Instant, Arc<Numbers>)> {
        self.lock().clone()
    }

    /// Remembers a count of stored timers that was made just now. Returns the count.
    pub(super) fn note(&self, numbers: Numbers) -> Arc<Numbers> {
        let numbers = Arc::new(numbers);
        *self.lock() = Some((Instant::now(), Arc::clone(&numbers)));
        numbers
    }
}
