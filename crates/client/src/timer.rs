//! One stored timer.

use crate::error::Error;
use crate::path::push;
use crate::transport::{Call, Transport};
use core::fmt;
use core::time::Duration;
use http::Method;
use tourbillon_api::{Cancelled, Changed, Delay, Moment, Past, Timer};

/// A stored timer by its key or id.
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

    /// The timer as it is stored.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if no such timer is stored: there was none, or it has ended.
    pub async fn get(&self) -> Result<Timer, Error> {
        self.transport.send(&Call::read(self.path.clone())).await
    }

    /// The past of the timer, or, by key, of the last timer that had it: its attempts and its end. It may have ended
    /// not long ago.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if the service knows nothing of such a timer.
    pub async fn past(&self) -> Result<Past, Error> {
        self.transport.send(&Call::read(format!("{}/past", self.path))).await
    }

    /// Cancels the timer, or drops a dead one. That there is none is an answer, no error.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn cancel(&self) -> Result<Cancelled, Error> {
        self.transport.send(&Call::change(Method::DELETE, self.path.clone())).await
    }

    /// Moves the timer's due moment.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found`, or `wrong-phase` if the timer does not wait.
    pub async fn move_to(&self, due: Moment) -> Result<Changed, Error> {
        self.moved(&Delay { due: Some(due), delay_ms: None }).await
    }

    /// Moves the timer's due moment to `delay` from now, by the service's clock.
    ///
    /// # Errors
    ///
    /// As [`TimerAt::move_to`].
    pub async fn move_after(&self, delay: Duration) -> Result<Changed, Error> {
        let millis = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX).unsigned_abs();
        self.moved(&Delay { due: None, delay_ms: Some(millis) }).await
    }

    async fn moved(&self, to: &Delay) -> Result<Changed, Error> {
        self.transport.send(&Call::change(Method::PATCH, self.path.clone()).json(to)?).await
    }

    /// Delivers the timer now.
    ///
    /// # Errors
    ///
    /// As [`TimerAt::move_to`].
    pub async fn fire(&self) -> Result<Changed, Error> {
        self.verb("fire").await
    }

    /// Puts the timer aside until it is resumed.
    ///
    /// # Errors
    ///
    /// As [`TimerAt::move_to`].
    pub async fn pause(&self) -> Result<Changed, Error> {
        self.verb("pause").await
    }

    /// Ends a pause.
    ///
    /// # Errors
    ///
    /// As [`TimerAt::move_to`].
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
