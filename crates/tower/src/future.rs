//! The future of a response whose time is limited.

use crate::error::{Elapsed, Part, TimeoutError};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tourbillon::future;

pin_project! {
    /// The future that a [`Timeout`](crate::Timeout) returns. The future completes with the response of the service, or
    /// with the error of the limit.
    ///
    /// The service's own future is polled first: a response that is ready is returned, even if this future is polled
    /// after the limit has passed. A response that is ready at once costs no timer. Dropping this future drops the
    /// service's future, and disarms the timer.
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        response: future::Timeout<F>,
        limit: Duration,
    }
}

impl<F> ResponseFuture<F> {
    pub(crate) fn new(response: future::Timeout<F>, limit: Duration) -> Self {
        Self { response, limit }
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<R, E>>,
{
    type Output = Result<R, TimeoutError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(match ready!(this.response.poll(cx)) {
            Ok(response) => response.map_err(TimeoutError::Inner),
            Err(elapsed) => {
                Err(TimeoutError::Elapsed(Elapsed::new(Part::Response, *this.limit, elapsed.is_shut_down())))
            }
        })
    }
}
