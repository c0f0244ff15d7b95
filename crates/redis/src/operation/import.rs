//! Stores the timers of a backup.

use super::commit::{Commit, Doubt, Known, Refused, Reservations, Scope, Sent};
use super::redirects::{displace, release, reserve};
use super::transact::Transactions;
use crate::deployment::{Deployment, Topology};
use crate::layout::Shard;
use crate::node::Node;
use crate::read::look;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use tourbillon_durable::state::State;
use tourbillon_durable::store::dry_run::{Changes, DryRun};
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Timer, TimerId};

/// The number of ids that an import into a cluster reserves at the same time.
const AT_ONCE: usize = 256;
/// The greatest number of attempts to reserve the id of an imported timer. An attempt fails if the id has a
/// redirect, which another creation has written. If the redirect leads to no timer, the import removes it and tries
/// again.
const TURNS: usize = 8;

/// Stores the timers of a backup in a deployment.
pub(crate) struct Imports {
    deployment: Arc<Deployment>,
    node: Arc<Node>,
    transactions: Arc<Transactions>,
}

impl Imports {
    pub(crate) fn new(transactions: &Arc<Transactions>) -> Self {
        let Transactions { deployment, node, .. } = &**transactions;
        let (deployment, node) = (Arc::clone(deployment), Arc::clone(node));
        Self { deployment, node, transactions: Arc::clone(transactions) }
    }

    /// Stores timers of a backup. On one server, one script stores all timers. In a cluster, one script for each shard
    /// stores the timers of the shard.
    pub(crate) async fn import(&self, timers: Vec<Timer>) -> Result<(), StoreError> {
        let changes = DryRun::new(self.deployment.time.now()).import(timers)?;
        if changes.timers.is_empty() {
            return Ok(());
        }
        match self.deployment.topology {
            Topology::OneServer => {
                if let Sent::Refused(refused) = self.store(Scope::All, &changes).await? {
                    return Err(self.error_of(refused));
                }
            }
            Topology::Cluster => self.import_by_shard(&changes).await?,
        }
        // An import publishes no messages. This node notes the timers here, and other nodes find them by their polls.
        let pending = changes.timers.iter().filter_map(|change| change.after.as_ref());
        for timer in pending.filter(|timer| timer.state == State::Pending) {
            self.node.note(self.deployment.layout.home_of(timer), timer.due);
        }
        Ok(())
    }

    /// Imports into a cluster in three steps: reserves all ids, verifies that each shard can take its timers, and then
    /// stores the timers. If another process stores a timer with one of the keys between the last two steps, the import
    /// can fail in the middle.
    async fn import_by_shard(&self, changes: &Changes) -> Result<(), StoreError> {
        let mut shards: BTreeMap<Shard, Changes> = BTreeMap::new();
        for change in &changes.timers {
            let Some(timer) = &change.after else { continue };
            let of_shard = shards.entry(self.deployment.layout.home_of(timer)).or_default();
            of_shard.timers.push(change.clone());
            // The dry run guesses for all timers together. A script checks one shard, so each shard gets its own
            // guesses.
            of_shard.absent.push(timer.id);
            of_shard.free.extend(timer.key_of().filter(|_| timer.owns_key()));
        }
        let mut reserved = Reservations::new();
        let mut result = self.reserve_for_import(&shards, &mut reserved).await;
        if result.is_ok() {
            let looks: BTreeMap<_, _> = shards
                .iter()
                .map(|(shard, changes)| {
                    let (absent, free) = (changes.absent.clone(), changes.free.clone());
                    (*shard, Changes { absent, free, ..Changes::default() })
                })
                .collect();
            // These commits only run the checks, so an id or a key that is taken is found before any timer is stored.
            // Without timers, a commit does not compare the mark of its shard. So a lost shard is found only when its
            // timers are stored.
            result = self.store_imported(&looks, &reserved).await;
        }
        if let Err(error) = result {
            // No timer is stored yet, so all reserved redirects lead nowhere.
            release(&self.deployment, reserved).await;
            return Err(error);
        }
        // The redirects stay even if this fails, because some of them may lead to stored timers by then.
        let stored = self.store_imported(&shards, &reserved).await;
        stored.map_err(|error| {
            let message = format!("a part of the timers may be imported, and others are not: {error}");
            StoreError::new(StoreErrorKind::Unknown, message)
        })
    }

    async fn reserve_for_import(
        &self,
        shards: &BTreeMap<Shard, Changes>,
        reserved: &mut Reservations,
    ) -> Result<(), StoreError> {
        let outside = |shard: &Shard, id: &TimerId| self.deployment.layout.shard_of_id(*id) != *shard;
        let ids =
            shards.iter().flat_map(|(shard, changes)| changes.absent.iter().map(move |id| (*shard, *id)));
        let ids: Vec<(Shard, TimerId)> = ids.filter(|(shard, id)| outside(shard, id)).collect();
        for ids in ids.chunks(AT_ONCE) {
            let answers = ids.iter().map(async |(shard, id)| {
                for _ in 0..TURNS {
                    // A timer of the backup may have ended lately, so that its id is still remembered. An import stores
                    // the timer all the same.
                    match reserve(&self.deployment, *id, *shard, true).await? {
                        Ok(reservation) => return Ok((*id, reservation)),
                        // The guard removes a redirect that leads nowhere. If the redirect leads to a stored timer, the
                        // next arm returns the error.
                        Err(Refused { doubt: Doubt::Redirected(_, redirect), .. })
                            if !displace(&self.deployment, *id, &redirect).await? => {}
                        Err(Refused { doubt, .. }) => return Err(error_of_doubt(&doubt)),
                    }
                }
                Err(crowded(*id))
            });
            // Waits for all answers, so that all reserved ids are known.
            let (mut failed, answers) = (None, join_all(answers).await);
            for answer in answers {
                match answer {
                    Ok((id, reservation)) => drop(reserved.insert(id, reservation)),
                    Err(error) => failed = Some(error),
                }
            }
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Sends the [`Changes`] of each shard in a separate commit. If the `Changes` of a shard contain no timers, the
    /// commit only checks that the shard could store the timers: the ids and keys in the `Changes` are free, the shard
    /// is not lost, and its server has free memory.
    async fn store_imported(
        &self,
        shards: &BTreeMap<Shard, Changes>,
        reserved: &Reservations,
    ) -> Result<(), StoreError> {
        for (shard, changes) in shards {
            for turn in 0.. {
                let refused = match self.store(Scope::Shard(*shard, reserved), changes).await? {
                    Sent::Done => break,
                    Sent::Refused(refused) => refused,
                };
                // Only a doubt about an id may come from a redirect that leads nowhere, so the commit is repeated after
                // this doubt only.
                let Doubt::Timer(id) = refused.doubt else { return Err(self.error_of(refused)) };
                match look(&self.deployment, id).await? {
                    (Some(_), _) => return Err(error_of_doubt(&refused.doubt)),
                    (None, _) if turn == TURNS => return Err(crowded(id)),
                    // A redirect that leads nowhere does not occupy the id.
                    (None, Some(redirect)) => {
                        // If the timer is stored after all, the next attempt finds it.
                        let _is_stored = displace(&self.deployment, id, &redirect).await?;
                    }
                    // The timer has ended since.
                    (None, None) => {}
                }
            }
        }
        Ok(())
    }

    /// Makes the changes by one script if all ids and keys in the changes are free.
    async fn store(&self, scope: Scope<'_>, changes: &Changes) -> Result<Sent, StoreError> {
        let known = Known::default();
        let mut commit = Commit::new(&self.deployment.layout, &known, changes, scope);
        let id = self.deployment.id();
        match scope {
            Scope::All => commit.expect_marks(&known, changes, &id),
            Scope::Shard(shard, _) => {
                commit.expect_mark(shard, &id);
                commit.expect_memory(shard, &id);
            }
        }
        self.transactions.send(commit).await
    }

    /// Returns the error of an import that a check has refused.
    fn error_of(&self, refused: Refused) -> StoreError {
        let Refused { doubt, mut found, .. } = refused;
        match doubt {
            Doubt::Lost(shard) => self.deployment.lost_shard(shard, &mut found),
            doubt => error_of_doubt(&doubt),
        }
    }
}

/// Returns the error of an import that a check has refused. `doubt` is the reason. In most cases, an id or a key is
/// taken.
fn error_of_doubt(doubt: &Doubt) -> StoreError {
    if let Doubt::Reserved(id) = doubt {
        let message =
            format!("the time for which the id of timer {id} was reserved is over: repeat the import");
        return StoreError::new(StoreErrorKind::Io, message);
    }
    let message = format!("{doubt:?} of a timer to be imported is stored already");
    StoreError::new(StoreErrorKind::Limit, message)
}

fn crowded(id: TimerId) -> StoreError {
    StoreError::new(StoreErrorKind::Io, format!("others create timer {id} again and again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_or_a_key_that_is_taken_is_stored_already() {
        let id = TimerId::from_u128(7);
        let key = tourbillon_durable::timer::KeyOf { namespace: "".into(), key: "k".into() };
        for doubt in [Doubt::Timer(id), Doubt::Key(key)] {
            let error = error_of_doubt(&doubt);
            assert_eq!(error.kind(), StoreErrorKind::Limit, "{error}");
            assert!(error.to_string().contains("is stored already"), "{error}");
        }
        let error = error_of_doubt(&Doubt::Reserved(id));
        assert_eq!(error.kind(), StoreErrorKind::Io, "another attempt may succeed: {error}");
    }
}
