//! Passes events of the service to their readers as they happen.

use super::token_file::TokenHash;
use crate::clock::now;
use crate::share::Shares;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tourbillon_api::{Event, EventKind};
use tourbillon_durable::schedule::{ScheduleEvent, Schedules};
use tourbillon_durable::store::TimerStore;
use tracing::warn;

/// The number of events by which a reader may lag behind. A reader that lags further misses events.
pub(crate) const BEHIND: usize = 1_024;
/// The greatest number of readers of events. [`Shares`] limits how many of these readers may use the same token.
const MOST_READERS: usize = 256;

/// Sends the events of the service to its readers. Clones share the readers.
#[derive(Clone, Debug)]
pub(crate) struct Events(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    events: broadcast::Sender<Event>,
    /// The number of readers for each token. Readers without a token count under the key `None`.
    readers: Mutex<Shares<Option<TokenHash>>>,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Shares<Option<TokenHash>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        let readers = Mutex::new(Shares::new(MOST_READERS));
        Self(Arc::new(Inner { events: broadcast::Sender::new(BEHIND), readers }))
    }

    /// Sends an event to all readers. Calls `event` only if there is a reader.
    pub(crate) fn show(&self, event: impl FnOnce() -> Event) {
        if self.0.events.receiver_count() > 0 {
            let _nobody_reads = self.0.events.send(event());
        }
    }

    /// Begins to read events. Returns `None` if the token, or all tokens together, have too many readers.
    pub(crate) fn subscribe(&self, token: Option<TokenHash>) -> Option<Subscription> {
        let is_permitted = self.0.lock().take(&token, 1);
        is_permitted.then(|| {
            let receiver = self.0.events.subscribe();
            Subscription { receiver, token, events: Arc::clone(&self.0) }
        })
    }

    pub(crate) fn readers(&self) -> usize {
        self.0.events.receiver_count()
    }
}

/// A reader of the service's events. Dropping the value makes room for another reader.
#[derive(Debug)]
pub(crate) struct Subscription {
    receiver: broadcast::Receiver<Event>,
    token: Option<TokenHash>,
    events: Arc<Inner>,
}

impl Subscription {
    /// Waits for the next event. Fails with the number of missed events if this reader was too slow.
    pub(crate) async fn next(&mut self) -> Result<Event, RecvError> {
        self.receiver.recv().await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.events.lock().give_back(&self.token, 1);
    }
}

/// Makes an event that happens now. The caller sets its other details.
pub(crate) fn event(kind: EventKind, namespace: &str) -> Event {
    Event {
        at: now(),
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

/// Opens the schedules of a store, and shows their changes to readers of `events`.
pub(crate) fn schedules_of(store: Arc<dyn TimerStore>, events: &Events) -> Schedules {
    let events = events.clone();
    Schedules::observed(store, move |at, schedule_event| {
        // The log gets its line here, because `show` does nothing without a reader.
        if let ScheduleEvent::Parked(reason) = schedule_event {
            let (namespace, key) = (&*at.namespace, &*at.key);
            warn!(target: "schedule-parked", namespace, key, reason = &**reason, "the plan of a schedule cannot be followed");
        }
        let (kind, id, detail) = match schedule_event {
            ScheduleEvent::Fired { id, .. } => (EventKind::Created, Some(id.to_string()), None),
            ScheduleEvent::Missed(count) => (EventKind::Missed, None, Some(count.to_string())),
            ScheduleEvent::Skipped(count) => (EventKind::Skipped, None, Some(count.to_string())),
            ScheduleEvent::Parked(reason) => (EventKind::ScheduleParked, None, Some(reason.to_string())),
            ScheduleEvent::Ended => (EventKind::ScheduleEnded, None, None),
            // The API has no kind of event for other changes, such as a corrected next instant.
            _ => return,
        };
        let key = Some(at.key.to_string());
        events.show(|| Event { id, key, detail, ..event(kind, &at.namespace) });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_leaves_readers_to_the_others() {
        let events = Events::new();
        let greedy: Vec<_> = core::iter::from_fn(|| events.subscribe(Some([1; 32]))).collect();
        assert_eq!(greedy.len(), MOST_READERS * 3 / 4);
        let other: Vec<_> = core::iter::from_fn(|| events.subscribe(Some([2; 32]))).collect();
        assert_eq!(other.len(), MOST_READERS * 3 / 16);
        assert_eq!(events.readers(), greedy.len() + other.len());
        drop((greedy, other));
        assert!(events.0.lock().are_gone() && events.readers() == 0);
    }
}
