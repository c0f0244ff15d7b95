//! Offers the calls about a stored timer.

use crate::error::Error;
use crate::path::push;
use crate::transport::{Call, Transport};
use core::fmt;
use core::time::Duration;
use http::Method;
use tourbillon_api::{Cancelled, Changed, Delay, Moment, Past, Timer};

/// Gives access to a stored timer by its key or its id.
#[derive(Clone)]
pub struct TimerAt<'a> {
    transport: &'a Transport,
    path: String,
}

impl<'a> TimerAt<'a> {
    pub(crate) fn new(transport: &'a Transport, namespace: &str, kind: &'static str, name: &str) -> Self {
        let mut path = format!("{namespace}/{kind}");
        push(&mut path, name);
        Self { transport, path }
    }

    /// Returns the timer as the service has stored it.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if there is no such timer, or if it has ended.
    pub async fn get(&self) -> Result<Timer, Error> {
        self.transport.send(&Call::read(self.path.clone())).await
    }

    /// Returns the timer's past: its attempts and its end. If several timers have had the same key, returns the past of
    /// the last timer with this key. The service remembers an ended timer for some time.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if the service has no record of the timer.
    pub async fn past(&self) -> Result<Past, Error> {
        self.transport.send(&Call::read(format!("{}/past", self.path))).await
    }

    /// Cancels the timer. A dead timer is found only by its id, and is removed. If the service has no timer with this
    /// key or id, the call still succeeds, and [`Cancelled::result`] says that no timer was found.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn cancel(&self) -> Result<Cancelled, Error> {
        self.transport.send(&Call::change(Method::DELETE, self.path.clone())).await
    }

    /// Moves the timer's due moment to `due`.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if there is no such timer. Fails with `wrong-phase` if the
    /// timer's phase does not permit the change.
    pub async fn move_to(&self, due: Moment) -> Result<Changed, Error> {
        self.moved(&Delay { due: Some(due), delay_ms: None }).await
    }

    /// Moves the timer's due moment to the moment that is `delay` after now, by the service's clock.
    ///
    /// # Errors
    ///
    /// Fails as [`TimerAt::move_to`] does.
    pub async fn move_after(&self, delay: Duration) -> Result<Changed, Error> {
        let millis = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX).unsigned_abs();
        self.moved(&Delay { due: None, delay_ms: Some(millis) }).await
    }

    async fn moved(&self, to: &Delay) -> Result<Changed, Error> {
        self.transport.send(&Call::change(Method::PATCH, self.path.clone()).json(to)?).await
    }

    /// Makes the timer due now.
    ///
    /// # Errors
    ///
    /// Fails as [`TimerAt::move_to`] does.
    pub async fn fire(&self) -> Result<Changed, Error> {
        self.verb("fire").await
    }

    /// Pauses the timer. A paused timer is not delivered until it is resumed.
    ///
    /// # Errors
    ///
    /// Fails as [`TimerAt::move_to`] does.
    pub async fn pause(&self) -> Result<Changed, Error> {
        self.verb("pause").await
    }

    /// Ends a pause of the timer.
    ///
    /// # Errors
    ///
    /// Fails as [`TimerAt::move_to`] does.
    pub async fn resume(&self) -> Result<Changed, Error> {
        self.verb("resume").await
    }

    pub(crate) async fn verb(&self, verb: &str) -> Result<Changed, Error> {
        self.transport.send(&Call::change(Method::POST, format!("{}/{verb}", self.path))).await
    }
}

impl fmt::Debug for TimerAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerAt").field("path", &self.path).finish_non_exhaustive()
    }
}
