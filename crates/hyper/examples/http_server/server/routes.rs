//! The routes of the server.

use super::content::Content;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::{Method, Response, StatusCode, Uri};
use std::time::Duration;
use tourbillon::Handle;
use tourbillon::future::Wakeup;

pub(super) type Reply = Response<Content>;

/// The longest body that a request may have, in bytes.
const MOST_RECEIVED: usize = 1 << 20;

/// Reads the whole body of a request. If the body is too long or broken, returns an answer for the client that says so.
pub(super) async fn read(body: Incoming) -> Result<Bytes, Reply> {
    if body.size_hint().lower() > MOST_RECEIVED as u64 {
        return Err(close_with(StatusCode::PAYLOAD_TOO_LARGE));
    }
    match Limited::new(body, MOST_RECEIVED).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(close_with(StatusCode::PAYLOAD_TOO_LARGE)),
        Err(_) => Err(close_with(StatusCode::BAD_REQUEST)),
    }
}

/// Answers a request for one of the routes `/`, `/echo`, `/slow?ms=` and `/bytes?count=`.
pub(super) async fn handle(engine: &Handle<Wakeup>, method: &Method, uri: &Uri, body: Bytes) -> Reply {
    match (method, uri.path()) {
        (&Method::GET, "/") => Reply::new(Content::once("hello\n")),
        (&Method::POST, "/echo") => Reply::new(Content::once(body)),
        (&Method::GET, "/slow") => match number(uri, "ms") {
            Some(millis) => {
                engine.sleep(Duration::from_millis(millis)).await;
                Reply::new(Content::once("slept well\n"))
            }
            None => status(StatusCode::BAD_REQUEST),
        },
        (&Method::GET, "/bytes") => match number(uri, "count") {
            Some(count) => Reply::new(Content::dots(count)),
            None => status(StatusCode::BAD_REQUEST),
        },
        _ => status(StatusCode::NOT_FOUND),
    }
}

/// Returns the number that stands after `key=` in the query of `uri`.
fn number(uri: &Uri, key: &str) -> Option<u64> {
    let mut pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|&(name, _)| name == key)?.1.parse().ok()
}

/// Makes an answer whose body is the text of a status.
pub(super) fn status(status: StatusCode) -> Reply {
    let mut reply = Reply::new(Content::once(format!("{status}\n")));
    *reply.status_mut() = status;
    reply
}

/// Makes the last answer of a connection. The connection must end, because the request was not read to its end.
pub(super) fn close_with(code: StatusCode) -> Reply {
    let mut reply = status(code);
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}
