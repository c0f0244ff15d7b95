//! Makes answers that send events to the client as they happen.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};

/// Asks a proxy to pass on each event at once. Without this header, nginx holds an answer back until it has some
/// kilobytes.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Makes an answer that streams events. They reach the client as they happen, even through a proxy.
pub(crate) fn event_stream(events: impl IntoResponse) -> Response {
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    ([(CONTENT_TYPE, kind), UNBUFFERED], events).into_response()
}
