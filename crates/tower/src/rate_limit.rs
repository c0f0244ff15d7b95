//! The layer that limits the rate of calls, and its service.

use crate::slot::{Limit, Slot};
use crate::slots::Rate;
use crate::timers::Timers;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tourbillon::Handle;
use tourbillon::future::Wakeup;
use tower_layer::Layer;
use tower_service::Service;

/// The reason why a rate is invalid: it allows no call, or its period is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InvalidRate {
    /// The number of calls is zero. No call could ever be made.
    NoCalls,
    /// The period is zero. The rate would limit nothing.
    NoPeriod,
}

impl fmt::Display for InvalidRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCalls => "a rate of zero calls allows no call at all",
            Self::NoPeriod => "the period of a rate is zero",
        })
    }
}

impl Error for InvalidRate {}

/// Checks a rate of `calls` calls in each period, and makes its limit, which uses the current engine of each thread.
fn limit(calls: u64, period: Duration) -> Result<Arc<Limit>, InvalidRate> {
    if calls == 0 {
        return Err(InvalidRate::NoCalls);
    }
    if period.is_zero() {
        return Err(InvalidRate::NoPeriod);
    }
    Ok(Limit::new(Rate { calls, period }, Timers::default()))
}

/// Makes a new limit on `engine`, with the rate of `limit`. All slots of the new limit are free.
fn moved(limit: &Limit, engine: &Handle<Wakeup>) -> Arc<Limit> {
    Limit::new(limit.rate(), Timers::on(engine))
}

/// Limits the rate at which services are called: see [`RateLimit`].
///
/// The layer, its clones and all services that they make share *one* limit. For a second limit, make a second layer.
/// This differs from tower's layer, which gives each service a limit of its own. A server such as axum makes a service
/// for each connection or each route. With a limit for each service, such a server would limit nothing.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_tower::{InvalidRate, RateLimitLayer};
///
/// let own = RateLimitLayer::new(100, Duration::from_secs(1))?; // on the current engine of each thread
/// let engine = Builder::new().start_futures()?;
/// let given = RateLimitLayer::new(100, Duration::from_secs(1))?.on(engine.handle());
/// assert_eq!(RateLimitLayer::new(0, Duration::from_secs(1)).unwrap_err(), InvalidRate::NoCalls);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    limit: Arc<Limit>,
}

impl RateLimitLayer {
    /// Makes a layer that allows `calls` calls in each period of length `period`. The limit runs on the
    /// current engine of each thread that uses it: see [`RateLimit`].
    ///
    /// With [`Duration::MAX`], the first period does not end: only `calls` calls are ever made.
    ///
    /// # Errors
    ///
    /// Fails if `calls` or `period` is zero.
    pub fn new(calls: u64, period: Duration) -> Result<Self, InvalidRate> {
        Ok(Self { limit: limit(calls, period)? })
    }

    /// Makes the limit run on `engine`. The returned layer has a limit of its own. Earlier clones of this layer keep
    /// their limit.
    #[must_use]
    pub fn on(self, engine: &Handle<Wakeup>) -> Self {
        Self { limit: moved(&self.limit, engine) }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, slot: Slot::new(Arc::clone(&self.limit)) }
    }
}

/// A service whose calls have a limited rate. The service is not ready while the present period has no free slot.
///
/// # The limit
///
/// A period begins with the first call after the end of the period before it. At most a fixed number of calls is made
/// in each period, as in tower's `RateLimit`. So a span of time that covers the end of a period and the beginning of
/// the next period may contain nearly twice that number. A caller that measures a period with `Instant` never finds it
/// too short.
///
/// Clones share the limit. In `poll_ready`, a clone reserves a slot: the permission for one call. The slot counts as
/// taken until the clone is called or dropped. A clone that finds no slot waits in a queue. Slots go to the clones in
/// the order of their first `poll_ready`, and no clone overtakes another. A waiting clone is woken only twice: when a
/// slot of the next period is promised to it, and when it has a slot. If a clone is dropped, the next clone gets its
/// slot or its place, and is woken.
///
/// So a program should poll a clone that is not ready until it is ready, or drop it. A clone that is neither polled nor
/// dropped may reserve a slot for which other clones wait. The same is true of tower's `ConcurrencyLimit`.
///
/// `poll_ready` reserves a slot before it polls the inner service. So a service that waits for its inner service has
/// already reserved a slot.
///
/// # The engine
///
/// Without an engine of its own ([`on`](Self::on)), a limit uses the current engine of the thread that polls or calls a
/// service: see [`tourbillon::future`]. So a service in a tokio runtime may wait on an engine of that runtime. If the
/// runtime ends during the wait, the wait goes on where the service is polled next. The clocks of these engines must
/// agree. A clock that a test pauses or moves does not agree with others. So the services of one limit should not be
/// used both in a runtime with a paused clock and outside of it.
///
/// # Time complexity
///
/// A call and its `poll_ready` take the limit's lock once each, and read the clock once. Waiting is O(log n) for n
/// waiting clones. A clone has a timer of the engine only while it waits for the end of the present period.
///
/// # Errors
///
/// Fails only when the inner service fails.
///
/// # Panics
///
/// A call panics if the service is not ready, as tower allows. A call and `poll_ready` panic if the limit runs on the
/// process's own engine and the system cannot start the engine's threads. `poll_ready` also panics if the service has
/// to wait and the engine was shut down, as [`Sleep`](tourbillon::future::Sleep) does.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use std::task::{Context, Poll, Waker};
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_tower::RateLimit;
/// use tower_service::Service;
///
/// # use std::future::{Ready, ready};
/// # #[derive(Clone)]
/// # struct Echo;
/// # impl Service<u32> for Echo {
/// #     type Response = u32;
/// #     type Error = Infallible;
/// #     type Future = Ready<Result<u32, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
/// #     fn call(&mut self, request: u32) -> Self::Future { ready(Ok(request)) }
/// # }
/// let second = Duration::from_secs(1);
/// let mut engine = Builder::new().driven_futures()?;
/// let mut cx = Context::from_waker(Waker::noop());
/// let mut echo = RateLimit::new(Echo, 2, second)?.on(engine.handle());
/// let mut clone = echo.clone();
/// for request in 0..2 {
///     assert!(echo.poll_ready(&mut cx).is_ready());
///     drop(echo.call(request));
/// }
/// assert!(clone.poll_ready(&mut cx).is_pending());
/// engine.advance(second);
/// assert!(clone.poll_ready(&mut cx).is_ready());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    slot: Slot,
}

impl<S> RateLimit<S> {
    /// Wraps `inner` with a limit of its own: see [`RateLimitLayer::new`].
    ///
    /// # Errors
    ///
    /// Fails as [`RateLimitLayer::new`] does.
    pub fn new(inner: S, calls: u64, period: Duration) -> Result<Self, InvalidRate> {
        Ok(RateLimitLayer::new(calls, period)?.layer(inner))
    }

    /// Makes the limit run on `engine`. The returned service has a limit of its own. Earlier clones of this service
    /// keep their limit.
    #[must_use]
    pub fn on(self, engine: &Handle<Wakeup>) -> Self {
        let slot = Slot::new(moved(self.slot.limit(), engine));
        Self { inner: self.inner, slot }
    }

    /// Returns the service that this value wraps.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the service that this value wraps, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the service that this value wraps, and releases the reserved slot.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Service<Request>, Request> Service<Request> for RateLimit<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.slot.poll_reserve(cx));
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        assert!(self.slot.use_up(), "the service is not ready: `poll_ready` has not returned `Ready`");
        self.inner.call(request)
    }
}
