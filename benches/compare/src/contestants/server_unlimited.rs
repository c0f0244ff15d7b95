//! A server without timers, which shows the costs of everything else.

use super::ServerTimers;
use axum::Router;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use std::future::{Pending, pending};
use std::pin::Pin;
use std::time::{Duration, Instant};

pub(crate) struct UnlimitedServer;

impl ServerTimers for UnlimitedServer {
    const NAME: &'static str = "without timeouts";
    const LIMITS: bool = false;

    type Sleep = Pending<()>;

    type Limit = ();

    async fn timeout<F: Future<Output: Send> + Send>(
        (): &mut (),
        _: Duration,
        future: F,
    ) -> Option<F::Output> {
        Some(future.await)
    }

    fn limit_headers(http: &mut auto::Builder<TokioExecutor>, _: Duration) {
        http.http1().header_read_timeout(None);
    }

    fn limit_requests(app: Router, _: Duration) -> Router {
        app
    }

    fn sleep_until(_: Instant) -> Self::Sleep {
        pending()
    }

    fn reset(_: Pin<&mut Self::Sleep>, _: Instant) {}
}
