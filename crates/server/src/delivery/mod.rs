//! Deliveries: what happens when a timer is due.

mod callback;

use crate::service::{Events, Namespaces};
use crate::work::CALLBACK;
use std::sync::Arc;
use tourbillon_callback::{Caller, Rules};
use tourbillon_durable::Builder;

/// Adds the handlers of all kinds.
pub(crate) fn add_handlers(
    builder: Builder,
    caller: &Caller,
    namespaces: &Arc<Namespaces>,
    events: &Events,
    rules: Rules,
) -> Builder {
    let callbacks =
        Arc::new(callback::Callbacks::new(caller.clone(), Arc::clone(namespaces), events.clone(), rules));
    builder.bytes_handler(CALLBACK, move |work, delivery| {
        let callbacks = Arc::clone(&callbacks);
        async move { callbacks.deliver(&work, &delivery).await }
    })
}
