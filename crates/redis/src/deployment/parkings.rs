//! Tells subscribers in this process that a process has parked timers.

use std::sync::{PoisonError, RwLock};

/// The functions that are called after a process has parked timers (set them aside for a reason).
#[derive(Default)]
pub(crate) struct Parkings(RwLock<Vec<OnParked>>);

/// The argument is the reason, or `None` if messages about parked timers may have been missed.
type OnParked = Box<dyn Fn(Option<&str>) + Send + Sync>;

impl Parkings {
    pub(crate) fn subscribe(&self, on_parked: OnParked) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(on_parked);
    }

    /// Calls the subscribed functions. `reason` is `None` if messages about parked timers may have been missed.
    pub(crate) fn tell(&self, reason: Option<&str>) {
        for tell in &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            tell(reason);
        }
    }
}
