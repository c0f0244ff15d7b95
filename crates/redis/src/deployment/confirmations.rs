//! Asks servers whether they confirm changes at present.

use super::handle::Deployment;
use super::promise::Witnesses;
use crate::layout::{Part, Shard};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

impl Deployment {
    /// Returns the shards among `shards` whose servers do not answer, or could not at present make a change as
    /// durable in time as the connection's [`SyncPolicy`](crate::SyncPolicy) requires. Changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if none of the servers answers.
    pub(crate) async fn unconfirmed(&self, shards: BTreeSet<Shard>) -> Result<BTreeSet<Shard>, StoreError> {
        if shards.is_empty() || !self.link.has_witnesses() {
            return Ok(BTreeSet::new());
        }
        let asked = self.topology.groups(shards).into_iter().map(async |group| {
            let witnesses = Witnesses::default();
            // Only the answer of a script comes with a witness.
            let script = self.run(|scripts| &scripts.marks, self.keys(&group, [Part::Meta]), []);
            let answer = match witnesses.collect(script).await {
                Ok(_) => Ok(!witnesses.have_just_failed() && witnesses.confirm().await.is_ok()),
                // The script changes nothing, so an unknown outcome has no effect, either.
                Err(error) if error.kind() == StoreErrorKind::Unknown => {
                    Err(StoreError::caused_by(StoreErrorKind::Io, error))
                }
                Err(error) => Err(error),
            };
            (group, answer)
        });
        let answers = join_all(asked).await;
        if let Some((_, Err(error))) = answers.first()
            && answers.iter().all(|(_, answer)| answer.is_err())
        {
            return Err(error.clone());
        }
        let unconfirmed = answers.into_iter().filter(|(_, answer)| !matches!(answer, Ok(true)));
        Ok(unconfirmed.flat_map(|(group, _)| group).collect())
    }
}
