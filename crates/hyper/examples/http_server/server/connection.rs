//! Serves one connection, from its first byte to its end.

use super::Timeouts;
use super::activity::{Activity, Handling, ObservedStream};
use super::routes::{self, Reply};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use tokio::net::TcpStream;
use tourbillon::future::Wakeup;
use tourbillon::{Handle, Timestamp};
use tourbillon_hyper::TourbillonTimer;

/// The way in which a connection ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The connection ended in order, after all of its requests were answered.
    Closed,
    /// The client was silent for the idle timeout.
    Idle,
    /// The client did not send a header within the header timeout.
    HeaderTimeout,
    /// The client left, or did not speak HTTP.
    Failed(hyper::Error),
}

impl Ending {
    fn of(result: hyper::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Closed,
            Err(error) if error.is_timeout() => Self::HeaderTimeout,
            Err(error) => Self::Failed(error),
        }
    }
}

/// Serves the requests of a connection until it ends, and returns how it ended.
pub(super) async fn serve(stream: TcpStream, engine: Handle<Wakeup>, timeouts: Timeouts) -> Ending {
    let activity = Arc::new(Activity::new(engine.clone()));
    let service = service_fn(|request| {
        let handling = Handling::begin(&activity);
        let deadline = engine.now() + timeouts.request;
        let reply = answer(engine.clone(), deadline, request);
        async move {
            let _handling = handling;
            Ok::<_, Infallible>(reply.await)
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TourbillonTimer::new(engine.clone()))
            .header_read_timeout(timeouts.header)
            .serve_connection(ObservedStream::new(stream, Arc::clone(&activity)), service)
    );
    let mut idle = engine.sleep(timeouts.idle);
    poll_fn(|cx| {
        // The connection is polled before the timeout, so that bytes that have arrived count as a sign of life.
        if let Poll::Ready(result) = connection.as_mut().poll(cx) {
            return Poll::Ready(Ending::of(result));
        }
        let deadline = activity.silent_since() + timeouts.idle;
        if idle.deadline() != deadline {
            idle.reset(deadline);
        }
        Pin::new(&mut idle).poll(cx).map(|()| Ending::Idle)
    })
    .await
}

/// Returns the handler's answer. If the body or the handler takes too long, returns an answer that says so.
async fn answer(engine: Handle<Wakeup>, deadline: Timestamp, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let body = match engine.timeout_at(deadline, routes::read(body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(refusal)) => return refusal,
        Err(_elapsed) => return routes::close_with(StatusCode::REQUEST_TIMEOUT),
    };
    let handler = routes::handle(&engine, &head.method, &head.uri, body);
    match engine.timeout_at(deadline, handler).await {
        Ok(reply) => reply,
        Err(_elapsed) => routes::status(StatusCode::SERVICE_UNAVAILABLE),
    }
}
