//! Reads single stored timers for requests.

use super::names::{Named, not_found};
use crate::convert::unavailable;
use crate::state::Namespaces;
use std::sync::Arc;
use tourbillon_api::Problem;
use tourbillon_durable::Timers;
use tourbillon_durable::state::{Lease, State};
use tourbillon_durable::timer::{Address, Timer};

/// Returns whether a timer in this state is in delivery, and was cancelled or replaced since the delivery began.
pub(super) fn is_withdrawn(state: &State) -> bool {
    matches!(state, State::Leased(Lease { withdrawn: Some(_), .. }))
}

/// Reads stored timers for requests. A request sees only the timers of its own namespace. Clones share the state.
#[derive(Clone)]
pub(crate) struct StoredTimers {
    timers: Timers,
    namespaces: Arc<Namespaces>,
}

impl StoredTimers {
    pub(super) fn new(timers: Timers, namespaces: Arc<Namespaces>) -> Self {
        Self { timers, namespaces }
    }

    /// Returns the timer of the namespace with the id or key `at`. Fails if the namespace has no such timer.
    pub(crate) async fn get(&self, namespace: &str, at: Address) -> Result<Timer, Problem> {
        self.namespaces.require(namespace)?;
        let timer = self.read(namespace, at).await?;
        timer.ok_or_else(not_found)
    }

    /// Returns the timer of the namespace with this id or key, or `None` if the namespace has no such timer.
    pub(super) async fn find(&self, namespace: &str, named: Named<'_>) -> Result<Option<Timer>, Problem> {
        self.read(namespace, named.address(namespace)).await
    }

    async fn read(&self, namespace: &str, at: Address) -> Result<Option<Timer>, Problem> {
        let timer = self.timers.get(at).await.map_err(|error| unavailable(&error))?;
        // An id finds timers of all namespaces.
        Ok(timer.filter(|timer| *timer.namespace == *namespace))
    }
}
