//! Timers that this process has claimed, as they were when it claimed them.

use crate::layout::{Found, Shard};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_durable::timer::TimerId;

/// Claimed timers that are kept for their ends. A process with more of them reads the others again.
const MOST: usize = 100_000;

/// Claimed timers. The end of a delivery is computed from the timer as it was claimed, without a read; the commit
/// compares it with the stored timer, which may have changed since.
#[derive(Default)]
pub(crate) struct Held(Mutex<HashMap<TimerId, Found>>);

impl Held {
    fn timers(&self) -> MutexGuard<'_, HashMap<TimerId, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a timer for its end.
    pub(crate) fn keep(&self, found: &Found) {
        let mut timers = self.timers();
        if timers.len() < MOST {
            timers.insert(found.id(), found.clone());
        }
    }

    /// The timer as it was claimed.
    pub(crate) fn get(&self, id: TimerId) -> Option<Found> {
        self.timers().get(&id).cloned()
    }

    /// Whether the timer was claimed here and belongs to no series.
    pub(crate) fn has_single(&self, id: TimerId) -> bool {
        self.timers().get(&id).is_some_and(|found| found.timer.series.is_none())
    }

    /// The shard of a timer.
    pub(crate) fn shard_of(&self, id: TimerId) -> Option<Shard> {
        self.timers().get(&id).map(|found| found.shard)
    }

    pub(crate) fn let_go(&self, id: TimerId) {
        self.timers().remove(&id);
    }

    /// Forgets all timers, which were those of another deployment.
    pub(crate) fn clear(&self) {
        self.timers().clear();
    }
}
