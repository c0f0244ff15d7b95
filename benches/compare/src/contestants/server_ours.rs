//! Our timers by default, in a server on tokio: a task of the runtime turns them, and the program configures nothing.

use super::{ServerTimers, TOO_LATE};
use axum::Router;
use axum::error_handling::HandleErrorLayer;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tourbillon::time;
use tourbillon_hyper::TourbillonTimer;
use tourbillon_tower::{TimeoutError, TimeoutLayer};

pub(crate) struct OursServer;

impl ServerTimers for OursServer {
    const NAME: &'static str = "engine, turned by the runtime";
    const IS_OURS: bool = true;

    type Sleep = time::Sleep;

    async fn timeout<F: Future<Output: Send> + Send>(delay: Duration, future: F) -> Option<F::Output> {
        time::timeout(delay, future).await.ok()
    }

    fn limit_headers(http: &mut auto::Builder<TokioExecutor>, limit: Duration) {
        http.http1().timer(TourbillonTimer::global()).header_read_timeout(limit);
    }

    fn limit_requests(app: Router, limit: Duration) -> Router {
        let too_late = async |_: TimeoutError<Infallible>| TOO_LATE;
        app.layer((HandleErrorLayer::new(too_late), TimeoutLayer::new(limit)))
    }

    fn sleep_until(deadline: Instant) -> Self::Sleep {
        time::sleep_until(deadline.into())
    }

    fn reset(sleep: Pin<&mut Self::Sleep>, deadline: Instant) {
        sleep.reset(deadline.into());
    }
}
