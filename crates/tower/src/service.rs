//! The layer that limits the time of responses, and its service.

use crate::error::TimeoutError;
use crate::future::ResponseFuture;
use crate::timers::Timers;
use std::task::{Context, Poll};
use std::time::Duration;
use tourbillon::Handle;
use tourbillon::future::Wakeup;
use tower_layer::Layer;
use tower_service::Service;

/// Limits the time that a service takes from its call to its response: see [`Timeout`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_tower::TimeoutLayer;
///
/// let own = TimeoutLayer::new(Duration::from_secs(5)); // on the current engine of each thread
/// let engine = Builder::new().start_futures()?;
/// let given = TimeoutLayer::new(Duration::from_secs(5)).on(engine.handle());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TimeoutLayer {
    limit: Duration,
    timers: Timers,
}

impl TimeoutLayer {
    /// Makes a layer that limits services to `limit`. The limit of a call runs on the current engine of the
    /// thread that first finds the response pending: see [`tourbillon::future`].
    ///
    /// With a limit of zero, the response must be ready at the first poll; [`Duration::MAX`] means no limit.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, timers: Timers::default() }
    }

    /// Makes the limit run on `engine`. If the engine is shut down, requests in flight fail with an
    /// [`Elapsed`](crate::Elapsed) whose [`is_shut_down`](crate::Elapsed::is_shut_down) is true.
    #[must_use]
    pub fn on(self, engine: &Handle<Wakeup>) -> Self {
        Self { timers: Timers::on(engine), ..self }
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout { inner, limit: self.limit, timers: self.timers.clone() }
    }
}

/// A service whose responses have a time limit.
///
/// The time begins when [`call`](Service::call) begins, and ends when the response is ready. Two spans are *not*
/// included. The first is the wait until the service is ready: `poll_ready` has no limit, because a service whose
/// `poll_ready` has failed must be discarded, and a service that is only slow should be kept. The second is the body of
/// an HTTP response, which is sent after the response; `TimeoutBody`, with the feature `http-body`, limits the body.
///
/// A response that is ready at the first poll costs a clock read. A response that comes later costs an owned timer of
/// the engine, in O(1) and without a lock. While the engine is full, the future has no timer. Each poll then wakes the
/// task, so that the task polls again. When the limit has passed, the response's future returns the error. The
/// response's future drops the service's future only when it is dropped itself.
///
/// # Errors
///
/// Fails with [`TimeoutError::Inner`] when the service fails, and with [`TimeoutError::Elapsed`] when the limit has
/// passed or the engine was shut down.
///
/// # Panics
///
/// A call panics if the inner service's call panics. A call also panics if the limit runs on the process's own engine
/// and the system cannot start the engine's threads.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use std::future::{Pending, pending};
/// use std::task::{Context, Poll};
/// use std::time::Duration;
/// use tourbillon_tower::{Timeout, TimeoutError};
/// use tower_service::Service;
///
/// struct Silent;
///
/// impl Service<()> for Silent {
///     type Response = ();
///     type Error = Infallible;
///     type Future = Pending<Result<(), Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, _: ()) -> Self::Future {
///         pending()
///     }
/// }
///
/// let mut service = Timeout::new(Silent, Duration::from_millis(2));
/// let error = pollster::block_on(service.call(())).unwrap_err();
/// assert!(matches!(error, TimeoutError::Elapsed(elapsed) if !elapsed.is_shut_down()));
/// assert_eq!(error.to_string(), "no response within 2ms");
/// ```
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    inner: S,
    limit: Duration,
    timers: Timers,
}

impl<S> Timeout<S> {
    /// Wraps `inner` with a limit: see [`TimeoutLayer::new`].
    pub fn new(inner: S, limit: Duration) -> Self {
        TimeoutLayer::new(limit).layer(inner)
    }

    /// Makes the time limit run on `engine`: see [`TimeoutLayer::on`].
    #[must_use]
    pub fn on(self, engine: &Handle<Wakeup>) -> Self {
        Self { timers: Timers::on(engine), ..self }
    }

    /// Returns the service that this value wraps.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the service that this value wraps, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the service that this value wraps, and drops the limit.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Service<Request>, Request> Service<Request> for Timeout<S> {
    type Response = S::Response;
    type Error = TimeoutError<S::Error>;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(TimeoutError::Inner)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The deadline is taken before the call, so that the time of the call itself counts.
        let deadline = self.timers.deadline(self.limit);
        ResponseFuture::new(self.timers.timeout_at(deadline, self.inner.call(request)), self.limit)
    }
}
