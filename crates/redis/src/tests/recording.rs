//! Records the deliveries of a runtime.

use crate::RedisStore;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon_durable::store::TimerStore;
use tourbillon_durable::{Builder, Delivery, Durable};

/// The lateness of each delivery, by the ids of the timers.
pub(super) type Late = Arc<Mutex<BTreeMap<u128, Vec<Duration>>>>;

/// Returns the settings of a runtime that records the lateness of its deliveries, and the record.
pub(super) fn recording(store: &Arc<RedisStore>) -> (Builder, Late) {
    let late = Late::default();
    let (noted, clock) = (Arc::clone(&late), Arc::clone(store));
    let handler = move |_: Box<[u8]>, delivery: Delivery| {
        let late = clock.now() - delivery.due;
        noted.lock().unwrap().entry(delivery.id.as_u128()).or_default().push(late);
        async {}
    };
    let store: Arc<dyn TimerStore> = Arc::<RedisStore>::clone(store);
    (Durable::builder_on(store).bytes_handler("kind", handler), late)
}
