//! Holds the namespaces of timers that are delivered at most once, during their deliveries.
//!
//! The claim of such a timer has removed it from the store, so the counts of stored timers leave it out. If the
//! delivery does not begin, the timer is stored again. A namespace that was removed in between would then come back at
//! the next start, without its limits and secrets. A removal of a namespace looks for holders
//! ([`Namespace::is_held`](crate::state::Namespace::is_held)), so the namespace is held until the timer is stored again
//! or has ended.

use super::pending_ends::DeliveryKey;
use crate::state::{Namespace, Namespaces};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon_durable::{Delivery, Event};

/// The namespaces of the deliveries whose timers are not stored.
#[derive(Debug)]
pub(super) struct Unstored {
    namespaces: Arc<Namespaces>,
    held: Mutex<HashMap<DeliveryKey, Arc<Namespace>>>,
}

impl Unstored {
    pub(super) fn new(namespaces: Arc<Namespaces>) -> Self {
        Self { namespaces, held: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DeliveryKey, Arc<Namespace>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the namespace of a delivery that begins, if its timer is not stored. Also holds a namespace that is being
    /// removed, because the removal may not have looked for holders yet.
    pub(super) fn hold(&self, delivery: &Delivery) {
        if !delivery.is_once() {
            return;
        }
        let Some(namespace) = self.namespaces.find(&delivery.namespace) else { return };
        let key = (delivery.id, delivery.delivery);
        self.lock().insert(key, namespace);
        // The event about the end may have come before the insertion.
        if delivery.is_over() {
            self.lock().remove(&key);
        }
    }

    /// Handles an event of the runtime. If the event reports the end of a delivery, no longer holds its namespace.
    pub(super) fn observe(&self, event: &Event) {
        if let Event::Ended { attempt, .. }
        | Event::LeaseLost { attempt, .. }
        | Event::EndLost { attempt, .. } = event
        {
            self.lock().remove(&(attempt.id, attempt.delivery));
        }
    }
}
