//! Our timers by default, in a server on tokio: a task of the runtime turns them, and the program configures nothing.

use super::{ServerTimers, TOO_LATE};
use axum::Router;
use axum::error_handling::HandleErrorLayer;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tourbillon::future::{self, ReusableTimeout};
use tourbillon::time;
use tourbillon_hyper::TourbillonTimer;
use tourbillon_tower::{TimeoutError, TimeoutLayer};

/// A server with our timers. With `REUSES`, a connection has a timer for each of its waits. Without `REUSES`, each
/// request makes new timers.
pub(crate) struct OursServer<const REUSES: bool>;

impl<const REUSES: bool> ServerTimers for OursServer<REUSES> {
    const NAME: &'static str =
        if REUSES { "engine, a reusable timeout each" } else { "engine, turned by the runtime" };
    const IS_OURS: bool = true;

    type Sleep = time::Sleep;

    type Limit = Option<ReusableTimeout>;

    async fn timeout<F: Future<Output: Send> + Send>(
        limit: &mut Self::Limit,
        delay: Duration,
        future: F,
    ) -> Option<F::Output> {
        if REUSES {
            limit.get_or_insert_with(future::reusable_timeout).timeout(delay, future).await.ok()
        } else {
            time::timeout(delay, future).await.ok()
        }
    }

    fn limit_headers(http: &mut auto::Builder<TokioExecutor>, limit: Duration) {
        http.http1().timer(TourbillonTimer::current()).header_read_timeout(limit);
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
