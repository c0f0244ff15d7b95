//! Events as they happen.

use std::time::SystemTime;
use tokio::sync::broadcast;
use tourbillon_api::{Event, EventKind, Moment};

/// The number of events that a reader may be behind.
const BEHIND: usize = 1_024;

/// The events of a service. It can be cloned; the clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Events(broadcast::Sender<Event>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(BEHIND))
    }

    /// Shows an event to all readers. `event` is called only if there are any.
    pub(crate) fn show(&self, event: impl FnOnce() -> Event) {
        if self.0.receiver_count() > 0 {
            let _nobody_reads = self.0.send(event());
        }
    }

    /// Whether there are readers.
    pub(crate) fn has_readers(&self) -> bool {
        self.0.receiver_count() > 0
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}

/// An event of this moment, without details.
pub(crate) fn event(kind: EventKind, namespace: &str) -> Event {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Event {
        at: Moment::from_millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX)),
        kind,
        namespace: namespace.to_owned(),
        id: None,
        key: None,
        attempt: None,
        late_ms: None,
        took_ms: None,
        detail: None,
        missed: 0,
    }
}
