//! Creates a timer.

use crate::error::Error;
use crate::path::push;
use crate::transport::{Call, Effect, Transport};
use core::fmt;
use core::future::{Future, IntoFuture};
use core::pin::Pin;
use http::{HeaderName, HeaderValue, Method};
use tourbillon_api::{NewTimer, Placed};
use uuid::Uuid;

/// A request that creates a timer. Awaiting this value sends the request.
#[derive(Clone)]
pub struct Place<'a> {
    transport: &'a Transport,
    namespace: &'a str,
    timer: &'a NewTimer,
    key: Option<&'a str>,
    idempotency_key: Option<&'a str>,
    trace: Option<&'a str>,
}

impl<'a> Place<'a> {
    pub(crate) fn new(transport: &'a Transport, namespace: &'a str, timer: &'a NewTimer) -> Self {
        Self { transport, namespace, timer, key: None, idempotency_key: None, trace: None }
    }

    /// Gives the timer a key. The key finds the timer in later calls that show, move, cancel or replace it.
    #[must_use]
    pub fn key(self, key: &'a str) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Sets the idempotency key. By default each creation has a fresh key. A chosen key allows the creation to be
    /// repeated by another process, or by the same process after a restart.
    #[must_use]
    pub fn idempotency_key(self, key: &'a str) -> Self {
        Self { idempotency_key: Some(key), ..self }
    }

    /// Sets the trace context, in the form of the W3C header `traceparent`. Each delivery of the timer has this header.
    #[must_use]
    pub fn trace(self, traceparent: &'a str) -> Self {
        Self { trace: Some(traceparent), ..self }
    }

    async fn send(self) -> Result<Placed, Error> {
        let mut path = format!("{}/timers", self.namespace);
        let method = match self.key {
            None => Method::POST,
            Some(key) => {
                push(&mut path, key);
                Method::PUT
            }
        };
        let mut call = Call::change(method, path).json(self.timer)?;
        call.effect = Effect::Creation;
        let fresh;
        let idempotency_key = match self.idempotency_key {
            Some(key) => key,
            None => {
                fresh = Uuid::new_v4().to_string();
                &fresh
            }
        };
        for (name, value) in [("idempotency-key", Some(idempotency_key)), ("traceparent", self.trace)] {
            if let Some(value) = value {
                let value = HeaderValue::from_str(value)
                    .map_err(|_| Error::Invalid(format!("the header {name} cannot be {value:?}").into()))?;
                call.headers.push((HeaderName::from_static(name), value));
            }
        }
        self.transport.send(&call).await
    }
}

impl<'a> IntoFuture for Place<'a> {
    type Output = Result<Placed, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("key", &self.key).finish_non_exhaustive()
    }
}
