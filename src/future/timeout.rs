//! Timeouts: limits on the time that a future may take.

use super::sleep::{ShutDown, Sleep};
use super::source::{Source, current};
use crate::base::tick::Timestamp;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use pin_project_lite::pin_project;

/// The error of a timeout: the future did not complete in time, or the engine of the timeout was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    shut_down: Option<ShutDown>,
}

impl Elapsed {
    /// Returns whether the engine was shut down before the deadline came.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.shut_down.is_some()
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shut_down {
            None => f.write_str("the deadline has elapsed"),
            Some(shut_down) => shut_down.fmt(f),
        }
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> Self {
        let kind =
            if elapsed.is_shut_down() { std::io::ErrorKind::Other } else { std::io::ErrorKind::TimedOut };
        Self::new(kind, elapsed)
    }
}

pin_project! {
    /// A future that completes with the output of an inner future, or with [`Elapsed`] once the deadline has passed or
    /// the engine was shut down.
    ///
    /// Each poll polls the inner future first. So an inner future that is ready at once uses no timer, reads no clock,
    /// and never times out. The delay of [`timeout`](super::timeout) counts from the first poll that finds the inner
    /// future pending.
    ///
    /// After the deadline has passed, the timeout keeps the inner future until the timeout itself is dropped.
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        limit: Limit,
    }
}

/// The state of a limit on the time of a future.
#[derive(Debug)]
enum Limit {
    /// No poll has found the inner future pending yet, so the limit has no timer.
    Ahead(Option<Source>, End),
    Begun(Sleep),
}

/// When the time of a limited future ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    At(Timestamp),
    /// The limit is this long after the first poll that finds the future pending.
    After(Duration),
}

impl Limit {
    /// Polls the sleep that ends at the limit. The first call begins the sleep.
    #[inline]
    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ShutDown>> {
        loop {
            match self {
                Self::Begun(sleep) => return sleep.poll_elapsed(cx),
                Self::Ahead(source, end) => {
                    let source = source.clone().unwrap_or_else(current);
                    *self = Self::Begun(match *end {
                        End::At(deadline) => Sleep::new(source, deadline),
                        End::After(delay) => Sleep::begin(source, delay),
                    });
                }
            }
        }
    }
}

impl<F> Timeout<F> {
    /// Makes a timeout on the engine of `source`. If `source` is `None`, the timeout uses the engine of the thread that
    /// first finds the inner future pending.
    #[inline]
    pub(super) fn new(future: F, source: Option<Source>, end: End) -> Self {
        Self { future, limit: Limit::Ahead(source, end) }
    }

    /// Returns a reference to the inner future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns a mutable reference to the inner future.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Returns the inner future, without the limit on its time.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        poll_within(this.future, |cx| this.limit.poll_elapsed(cx), cx)
    }
}

#[inline]
fn poll_within<F: Future>(
    future: Pin<&mut F>,
    poll_limit: impl FnOnce(&mut Context<'_>) -> Poll<Result<(), ShutDown>>,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, Elapsed>> {
    if let Poll::Ready(output) = future.poll(cx) {
        return Poll::Ready(Ok(output));
    }
    poll_limit(cx).map(|outcome| Err(Elapsed { shut_down: outcome.err() }))
}

/// A timeout that limits one future after the other. For example, a connection has a timeout and uses it for each
/// request.
///
/// The timeout keeps its timer. So a request costs an arming and a disarming of the timer. If the answer is ready at
/// once, the request costs only the clock read of [`timeout`](Self::timeout).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
/// #     match std::pin::pin!(future).poll(&mut cx) {
/// #         std::task::Poll::Ready(output) => output,
/// #         std::task::Poll::Pending => unreachable!(),
/// #     }
/// # }
/// let engine = Builder::new().driven_futures()?;
/// let mut timeout = engine.handle().reusable_timeout();
/// block_on(async {
///     for request in 0..3 {
///         let answer = timeout.timeout(Duration::from_secs(5), async { request }).await;
///         assert_eq!(answer, Ok(request));
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ReusableTimeout {
    sleep: Sleep,
}

impl ReusableTimeout {
    pub(super) fn new(sleep: Sleep) -> Self {
        Self { sleep }
    }

    /// Returns a future that completes with the output of `future`. If `future` has not completed `delay` from now, the
    /// returned future completes with [`Elapsed`].
    ///
    /// The returned future borrows the timeout. Dropping the returned future disarms the timer.
    pub fn timeout<F: IntoFuture>(&mut self, delay: Duration, future: F) -> Within<'_, F::IntoFuture> {
        self.sleep.put_after(delay);
        Within { future: future.into_future(), sleep: &mut self.sleep }
    }

    /// Limits the time of `future` as [`timeout`](Self::timeout) does, but by an absolute deadline. Reads no clock
    /// before the future is pending.
    pub fn timeout_at<F: IntoFuture>(&mut self, deadline: Timestamp, future: F) -> Within<'_, F::IntoFuture> {
        self.sleep.put(deadline);
        Within { future: future.into_future(), sleep: &mut self.sleep }
    }
}

pin_project! {
    /// A future whose time a [`ReusableTimeout`] limits.
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Within<'a, F> {
        #[pin]
        future: F,
        sleep: &'a mut Sleep,
    }

    impl<F> PinnedDrop for Within<'_, F> {
        fn drop(this: Pin<&mut Self>) {
            this.project().sleep.stop();
        }
    }
}

impl<F: Future> Future for Within<'_, F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        poll_within(this.future, |cx| this.sleep.poll_elapsed(cx), cx)
    }
}
