//! Makes answers that stream events to the client.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};

/// A header that makes a proxy pass each event on at once. Without it, nginx collects several kilobytes first.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Makes an answer that streams events. The client gets each event at once, even through a proxy.
pub(crate) fn event_stream(events: impl IntoResponse) -> Response {
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    ([(CONTENT_TYPE, kind), UNBUFFERED], events).into_response()
}
