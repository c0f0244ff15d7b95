//! Futures with a limit of time.

use crate::limit::{Limit, Running};
use pin_project_lite::pin_project;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A limit of time, whose type says which timer measures it. Programs need not use this trait.
pub trait ToTimeout {
    /// Makes a future that completes when the time of the limit has passed after this call.
    fn timeout(&self) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

    /// Makes a limit of the time `d`.
    fn create(d: Duration) -> Self;
}

/// A limit that tokio's timer measures: see [`tokio_timeout`].
#[derive(Debug)]
pub struct TokioTimeout(Duration);

impl ToTimeout for TokioTimeout {
    fn timeout(&self) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>> {
        Box::pin(Limit::Tokio(self.0).start())
    }

    fn create(d: Duration) -> Self {
        Self(d)
    }
}

/// The error of a future that did not complete in time.
#[derive(Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timeout Elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Limits the time of `future` by tokio's timer, in a runtime with a timer: the future completes with the output of
/// `future`, or with [`Elapsed`] once `duration` has passed after the first poll that found `future` pending.
pub fn tokio_timeout<T>(duration: Duration, future: T) -> Timeout<T, TokioTimeout>
where
    T: Future,
{
    Timeout::new(future, Limit::Tokio(duration))
}

pin_project! {
    /// Completes with the output of a future, or with [`Elapsed`] once its time has passed.
    ///
    /// The inner future is polled first: a future that is ready uses no timer, and never times out. The time counts
    /// from the first poll that finds the inner future pending.
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    #[derive(Debug)]
    pub struct Timeout<T, F> {
        #[pin]
        future: T,
        limit: Limit,
        running: Option<Running>,
        kind: PhantomData<F>,
    }
}

impl<T, F> Timeout<T, F> {
    pub(crate) fn new(future: T, limit: Limit) -> Self {
        Self { future, limit, running: None, kind: PhantomData }
    }
}

impl<T, F> Future for Timeout<T, F>
where
    T: Future,
    F: ToTimeout,
{
    type Output = Result<T::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let running = this.running.get_or_insert_with(|| this.limit.start());
        Pin::new(running).poll(cx).map(|()| Err(Elapsed))
    }
}
