//! Events as they happen.

use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::broadcast;
use tourbillon_api::{Event, EventKind, Moment};
use tourbillon_durable::schedule::{ScheduleEvent, Schedules};
use tourbillon_durable::store::TimerStore;

/// The number of events that a reader may be behind.
pub(crate) const BEHIND: usize = 1_024;
/// The greatest number of readers.
const MOST_READERS: usize = 256;

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

    /// A reader of the events from now on, none if there are too many readers.
    pub(crate) fn subscribe(&self) -> Option<broadcast::Receiver<Event>> {
        (self.readers() < MOST_READERS).then(|| self.0.subscribe())
    }

    pub(crate) fn readers(&self) -> usize {
        self.0.receiver_count()
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

/// The schedules of a store, with their events.
pub(super) fn schedules_of(store: Arc<dyn TimerStore>, events: &Events) -> Schedules {
    let events = events.clone();
    Schedules::observed(store, move |at, what| {
        let (kind, id, detail) = match what {
            ScheduleEvent::Fired { id, .. } => (EventKind::Created, Some(id.to_string()), None),
            ScheduleEvent::Missed(count) => (EventKind::Missed, None, Some(count.to_string())),
            ScheduleEvent::Skipped(count) => (EventKind::Skipped, None, Some(count.to_string())),
            ScheduleEvent::Parked(reason) => (EventKind::ScheduleParked, None, Some(reason.to_string())),
            ScheduleEvent::Ended => (EventKind::ScheduleEnded, None, None),
            _ => return,
        };
        let key = Some(at.key.to_string());
        events.show(|| Event { id, key, detail, ..event(kind, &at.namespace) });
    })
}
