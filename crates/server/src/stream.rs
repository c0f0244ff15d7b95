//! Server-sent events as an answer.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};

/// Asks a proxy to pass each piece on. nginx keeps an answer back otherwise until it has some kilobytes of it.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// An answer with events, which reach the client as they happen, by way of a proxy too.
pub(crate) fn event_stream(events: impl IntoResponse) -> Response {
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    ([(CONTENT_TYPE, kind), UNBUFFERED], events).into_response()
}
