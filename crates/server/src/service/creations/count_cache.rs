//! The last count of stored timers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The numbers of stored timers by namespace.
pub(super) type Numbers = BTreeMap<Box<str>, u64>;

/// The numbers of stored timers as they were a moment ago, and that moment.
#[derive(Debug, Default)]
pub(super) struct CountCache(Mutex<Option<(Instant, Arc<Numbers>)>>);

impl CountCache {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Arc<Numbers>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last count and its moment, if there was one.
    pub(super) fn last(&self) -> Option<(Instant, Arc<Numbers>)> {
        self.lock().clone()
    }

    /// Keeps the count of this moment.
    pub(super) fn note(&self, numbers: Numbers) -> Arc<Numbers> {
        let numbers = Arc::new(numbers);
        *self.lock() = Some((Instant::now(), Arc::clone(&numbers)));
        numbers
    }
}
