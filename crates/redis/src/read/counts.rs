//! Counts the timers of a deployment.

use crate::deployment::Deployment;
use crate::layout::{Part, Shard, counted_of};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tourbillon_durable::store::{Counts, StoreError, StoreErrorKind};

/// Counts the stored timers. If a server does not answer, uses the counts of its last answer.
pub(crate) struct Counter {
    pub(super) deployment: Arc<Deployment>,
    /// The last counts of each group of shards. A group consists of the shards that one script can read.
    last: Mutex<BTreeMap<Vec<Shard>, Counts>>,
}

impl Counter {
    pub(crate) fn new(deployment: Arc<Deployment>) -> Self {
        Self { deployment, last: Mutex::default() }
    }

    /// Forgets the kept counts, because they belong to another deployment.
    pub(crate) fn clear(&self) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the numbers of timers. If a server does not answer, uses its last answer, because a limit on the number
    /// of timers must not stop creations in the shards of other servers.
    ///
    /// # Errors
    ///
    /// Fails if no server answers, or if a server does not answer and has never answered this process before.
    pub(crate) async fn counts(&self) -> Result<Counts, StoreError> {
        let groups = self.deployment.all_groups();
        let calls = groups.into_iter().map(|shards| (shards.clone(), self.counts_of(shards)));
        let gathered = self.deployment.gather(calls.collect::<Vec<_>>()).await.any()?;
        let mut known = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        for (shards, counts) in gathered.answers {
            known.insert(shards, counts);
        }
        for (shards, error) in gathered.failed {
            // Without any counts of this group, the sum would be too low.
            if !known.contains_key(&shards) {
                let late = || StoreError::new(StoreErrorKind::Io, "a server does not answer for its timers");
                return Err(error.unwrap_or_else(late));
            }
        }
        let mut all = Counts::default();
        for counts in known.values() {
            all.quarantined += counts.quarantined;
            for (namespace, count) in &counts.by_namespace {
                *all.by_namespace.entry(namespace.clone()).or_default() += count;
            }
        }
        Ok(all)
    }

    /// Asks one server for the numbers of timers in `shards`.
    async fn counts_of(&self, shards: Vec<Shard>) -> Result<Counts, StoreError> {
        let keys = self.deployment.keys(&shards, [Part::Counts, Part::Quarantined]);
        let mut answered = self.deployment.run(|scripts| &scripts.counts, keys, []).await?;
        let (mut counts, mut values) = (Counts::default(), answered.rest.list()?);
        counts.quarantined = answered.rest.number()?;
        while !values.is_empty() {
            let field = values.bytes()?;
            let count = values.number()?;
            if let Some(counted) = counted_of(&field) {
                *counts.by_namespace.entry(counted).or_default() += count;
            }
        }
        Ok(counts)
    }
}
