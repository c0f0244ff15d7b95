//! Reads of single stored timers.

use super::names::{Named, not_found};
use crate::convert::unavailable;
use crate::state::Namespaces;
use std::sync::Arc;
use tourbillon_api::Problem;
use tourbillon_durable::Timers;
use tourbillon_durable::timer::{Address, Timer};

/// The stored timers, each for requests of its own namespace. It can be cloned; the clones are the same.
#[derive(Clone)]
pub(crate) struct StoredTimers {
    timers: Timers,
    namespaces: Arc<Namespaces>,
}

impl StoredTimers {
    pub(super) fn new(timers: Timers, namespaces: Arc<Namespaces>) -> Self {
        Self { timers, namespaces }
    }

    /// A stored timer of the namespace, or the problem that there is none.
    pub(crate) async fn get(&self, namespace: &str, at: Address) -> Result<Timer, Problem> {
        self.namespaces.require(namespace)?;
        let timer = self.read(namespace, at).await?;
        timer.ok_or_else(not_found)
    }

    /// A stored timer of the namespace, if there is one.
    pub(super) async fn find(&self, namespace: &str, named: Named<'_>) -> Result<Option<Timer>, Problem> {
        self.read(namespace, named.address(namespace)).await
    }

    async fn read(&self, namespace: &str, at: Address) -> Result<Option<Timer>, Problem> {
        let timer = self.timers.get(at).await.map_err(|error| unavailable(&error))?;
        // An id finds timers of all namespaces.
        Ok(timer.filter(|timer| *timer.namespace == *namespace))
    }
}
