//! Limits on the time that a future may take.

use super::error::Elapsed;
use super::sleep::{Sleep, sleep, sleep_until};
use crate::system::clock::runtime::Instant;
use core::future::IntoFuture;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use pin_project_lite::pin_project;

/// Returns a future that completes with the output of `future`. If `future` has not completed `duration` from now, the
/// returned future completes with [`Elapsed`]. See `tokio::time::timeout`.
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { value: future.into_future(), delay: sleep(duration) }
}

/// Returns a future that completes with the output of `future`. If `future` has not completed at `deadline`, the
/// returned future completes with [`Elapsed`]. See `tokio::time::timeout_at`.
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { value: future.into_future(), delay: sleep_until(deadline) }
}

pin_project! {
    /// A future with a limit on its time: see [`timeout`] and [`timeout_at`].
    ///
    /// Each poll polls the inner future first, so a future that is ready never times out.
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    #[derive(Debug)]
    pub struct Timeout<T> {
        #[pin]
        value: T,
        delay: Sleep,
    }
}

impl<T> Timeout<T> {
    /// Returns a reference to the inner future.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// Returns a mutable reference to the inner future.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the inner future, without the limit on its time.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T: Future> Future for Timeout<T> {
    type Output = Result<T::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.value.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        // The time limit is polled even if the inner future has used up the task's budget.
        this.delay.poll_elapsed(cx).map(|()| Err(Elapsed::new()))
    }
}
