//! Answers requests for a stream of events. The stream has the format of server-sent events.

use super::answer::{Answer, Refused};
use super::auth::Permission;
use super::extract::Query;
use crate::client::Waits;
use crate::service::Service;
use crate::state::{Stop, Subscription};
use crate::stream::event_stream;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::{self, KeepAlive, Sse};
use core::convert::Infallible;
use core::time::Duration;
use futures_util::stream::{self, StreamExt as _};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tourbillon_api::{Event, Problem, ProblemKind, Role};

/// The time without an event after which a stream of events sends a comment. The comment shows the client that the
/// connection works.
const HEARTBEAT: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Shows only the events of this namespace.
    namespace: Option<String>,
}

/// Streams events as they happen, as server-sent events.
///
/// The data of each server-sent event is an `Event` in JSON. Events are not stored. A reader that falls more than a
/// thousand events behind misses some events. The field `missed` of its next event says how many events it has missed,
/// counted over all namespaces. After every 15 seconds without an event, the service sends a comment. The stream ends
/// when the service stops, and when the token is revoked or expires. The number of streams is limited, for each token
/// and for all tokens together.
#[utoipa::path(
    get, path = "/v1/events", tag = "service", params(EventsQuery),
    responses(
        (status = 200, description = "The events.", body = Event, content_type = "text/event-stream"),
        (status = 404, description = "There is no such namespace.", body = Problem),
        (status = 429, description = "There are too many readers.", body = Problem),
    )
)]
pub(super) async fn events(
    State(service): State<Service>,
    permission: Permission,
    Query(EventsQuery { namespace }): Query<EventsQuery>,
    // The stream of a client that has gone must end, so the end of its connection ends the request.
    waits: Waits,
) -> Answer<Response> {
    // The role is checked first, so a client without the role does not learn whether the namespace exists.
    permission.require(Role::Reader, namespace.as_deref())?;
    if let Some(namespace) = &namespace {
        service.namespaces().require(namespace)?;
    }
    waits.begin()?;
    let Some(events) = service.events().subscribe(permission.token()) else {
        let problem = Problem::new(ProblemKind::LimitReached, "there are too many readers of events");
        return Err(Refused(problem.with_retry_after_ms(10_000)));
    };
    let reader = Reader { events, namespace, missed: 0, stop: service.stop().clone() };
    let events = stream::unfold(reader, async |mut reader| {
        let event = reader.next().await?;
        // The JSON has a single line. A line feed in it would end the event's data.
        let event = serde_json::to_string(&event).unwrap_or_default();
        Some((Ok::<_, Infallible>(sse::Event::default().data(event)), reader))
    });
    let events = events.take_until(Box::pin(permission.ended(&service)));
    Ok(event_stream(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("heartbeat"))))
}

struct Reader {
    events: Subscription,
    namespace: Option<String>,
    /// The number of events that the client has missed since the last event that it received.
    missed: u64,
    stop: Stop,
}

impl Reader {
    /// Waits for the next event that the client may see. Returns `None` once the service stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.begun() => return None,
                event = self.events.next() => event,
            };
            match event {
                Ok(mut event) => {
                    if self.namespace.as_ref().is_none_or(|namespace| *namespace == event.namespace) {
                        event.missed = core::mem::take(&mut self.missed);
                        return Some(event);
                    }
                }
                Err(RecvError::Lagged(missed)) => self.missed += missed,
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
