//! Fetches due timers from a queue.

use crate::error::Error;
use crate::transport::{Call, Transport};
use core::time::Duration;
use http::Method;
use std::sync::Arc;
use tourbillon_api::{Claim, ClaimRequest, Claims};

/// Gives access to a queue, from which the program fetches due timers.
#[derive(Clone, Debug)]
pub struct Queue {
    transport: Arc<Transport>,
    path: String,
}

impl Queue {
    pub(crate) fn new(transport: Arc<Transport>, path: String) -> Self {
        Self { transport, path }
    }

    /// Fetches up to `max` due timers. `max` is from 1 to 100. If no timer is due, the service waits for a timer for up
    /// to `wait`, which is at most 20 s. If no timer becomes due in that time, the result is empty.
    ///
    /// The caller must acknowledge each timer ([`Namespace::ack`](crate::Namespace::ack)) before the timer's claim
    /// expires. Otherwise the timer is delivered again.
    ///
    /// # Errors
    ///
    /// See [`Error`]. After an unknown outcome, the service may have handed out timers that this call has not returned.
    /// These timers are delivered again.
    pub async fn claim(&self, max: u32, wait: Duration) -> Result<Vec<Claim>, Error> {
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).unsigned_abs();
        let request = ClaimRequest { max: Some(max), wait_ms: Some(wait_ms) };
        let mut call = Call::change(Method::POST, self.path.clone()).json(&request)?;
        call.wait = wait;
        let Claims { claims } = self.transport.send(&call).await?;
        Ok(claims)
    }
}
