//! Tells an open page when to fetch itself again, by a stream of events.
//!
//! The events have no data. An event says that something may have changed, and then the page requests itself again. So
//! only the page's handler checks permissions, and a page that misses events loses no data.

use super::visitor::Visitor;
use crate::client::Waits;
use crate::service::Service;
use crate::state::{Stop, Subscription};
use crate::stream::event_stream;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use core::convert::Infallible;
use core::time::Duration;
use futures_util::stream::{self, StreamExt as _};
use http::StatusCode;
use tokio::sync::broadcast::error::RecvError;

/// The shortest time between two refreshes of an open page.
const FLOOR: Duration = Duration::from_secs(2);
/// The longest time between two refreshes of an open page. The page shows ages, which grow even if nothing happens.
const CEILING: Duration = Duration::from_secs(10);

/// Opens a stream of events to a page. Each event makes the page refresh itself. The stream ends when the service
/// stops, or when the visitor's permissions change.
pub(super) async fn stream(State(service): State<Service>, visitor: Visitor, waits: Waits) -> Response {
    let events = waits.begin().ok().and_then(|()| service.events().subscribe(visitor.token()));
    let Some(events) = events else {
        // There are too many streams. The script of the page tries again after a pause.
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let ended = Box::pin(visitor.ended(&service));
    let reader = Reader { events, visitor, stop: service.stop().clone(), is_new: true };
    drop(service);
    let ticks = stream::unfold(reader, async |mut reader| {
        reader.next().await?;
        Some((Ok::<_, Infallible>(Event::default().event("tick").data("refresh")), reader))
    });
    event_stream(Sse::new(ticks.take_until(ended)))
}

struct Reader {
    events: Subscription,
    visitor: Visitor,
    stop: Stop,
    is_new: bool,
}

impl Reader {
    /// Waits until the page needs a refresh. Returns `None` once the service stops.
    async fn next(&mut self) -> Option<()> {
        // A page that connects again may have missed events. So the first refresh comes at once.
        if core::mem::take(&mut self.is_new) {
            return Some(());
        }
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.begun() => return None,
            // The subscription keeps the events of this time, so they still cause a refresh afterwards.
            () = tokio::time::sleep(FLOOR) => {}
        }
        tokio::select! {
            biased;
            () = stop.begun() => None,
            seen = self.seen() => seen,
            // The script of the page opens a new stream after 30 s without an event, because a connection may end
            // unnoticed. So the stream sends an event even if nothing has happened.
            () = tokio::time::sleep(CEILING - FLOOR) => Some(()),
        }
    }

    /// Waits for an event that the visitor may see. Also returns if this reader has missed events, because the visitor
    /// may have been permitted to see some of them. Returns `None` once the service stops.
    async fn seen(&mut self) -> Option<()> {
        loop {
            match self.events.next().await {
                Ok(event) if self.visitor.reads(&event.namespace) => return Some(()),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return Some(()),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
