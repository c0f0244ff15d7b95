//! tokio's own timer in a server, or its alternative timer.

use super::tokio_alternative::{self, WHY_NOT};
use super::{ServerTimers, TOO_LATE};
use axum::error_handling::HandleErrorLayer;
use axum::{BoxError, Router};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::runtime::{self, Runtime};
use tokio::time;
use tower::timeout::TimeoutLayer;

pub(crate) struct TokioServer<const IS_ALTERNATIVE: bool>;

impl<const IS_ALTERNATIVE: bool> ServerTimers for TokioServer<IS_ALTERNATIVE> {
    const NAME: &'static str = if IS_ALTERNATIVE { "tokio, alternative timer" } else { "tokio" };
    const WHY_NOT: Option<&'static str> = if IS_ALTERNATIVE { WHY_NOT } else { None };

    type Sleep = time::Sleep;

    fn runtime() -> Runtime {
        let mut builder = runtime::Builder::new_multi_thread();
        if IS_ALTERNATIVE {
            tokio_alternative::enable(&mut builder);
        }
        builder.enable_all().build().expect("the system gives us threads")
    }

    type Limit = ();

    async fn timeout<F: Future<Output: Send> + Send>(
        (): &mut (),
        delay: Duration,
        future: F,
    ) -> Option<F::Output> {
        time::timeout(delay, future).await.ok()
    }

    fn limit_headers(http: &mut auto::Builder<TokioExecutor>, limit: Duration) {
        http.http1().timer(TokioTimer::new()).header_read_timeout(limit);
    }

    fn limit_requests(app: Router, limit: Duration) -> Router {
        let too_late = async |_: BoxError| TOO_LATE;
        app.layer((HandleErrorLayer::new(too_late), TimeoutLayer::new(limit)))
    }

    fn sleep_until(deadline: Instant) -> Self::Sleep {
        time::sleep_until(deadline.into())
    }

    fn reset(sleep: Pin<&mut Self::Sleep>, deadline: Instant) {
        sleep.reset(deadline.into());
    }
}
