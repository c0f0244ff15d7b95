//! Applies an operation to many timers, in the order of an index. Each script changes several timers.

use super::transact::{Start, Transactions};
use crate::deployment::{Deployment, join_or_fail};
use crate::layout::{Found, Part, Shard, label_entry, part};
use crate::read::{Index, Stretch, Walk, records, timers_of};
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use tourbillon_durable::store::{Op, Outcome, StoreError};
use tourbillon_durable::timer::TimerId;

/// The number of index entries that are read at once.
const AT_ONCE: usize = 256;
/// The greatest number of timers that a script changes, so that the script stays short.
const SEVERAL: usize = 32;

/// Applies operations to many timers.
pub(crate) struct Bulk {
    deployment: Arc<Deployment>,
    transactions: Arc<Transactions>,
}

impl Bulk {
    pub(crate) fn new(transactions: &Arc<Transactions>) -> Self {
        let deployment = Arc::clone(&transactions.deployment);
        Self { deployment, transactions: Arc::clone(transactions) }
    }

    /// Changes the timers `found`, several in each script. `op` makes the operation of one script from the number of
    /// timers that the script changes. Returns the outcomes of all scripts.
    async fn change_several(
        &self,
        mut found: Vec<Found>,
        op: impl Fn(u32) -> Op,
    ) -> Result<Vec<Outcome>, StoreError> {
        // `chunk_by` compares only neighbours, so the timers of a shard must follow each other.
        found.sort_by_key(|found| found.shard);
        let groups =
            found.chunk_by(|one, other| self.deployment.topology.shares_script(one.shard, other.shard));
        let some = groups.flat_map(|group| group.chunks(SEVERAL));
        let calls = some.map(|some| {
            let op = op(u32::try_from(some.len()).unwrap_or(u32::MAX));
            self.transactions.transact(Start::Several(some.to_vec()), move |draft| draft.apply(op.clone()))
        });
        join_or_fail(calls.collect::<Vec<_>>()).await
    }

    /// Applies operations to different timers. Returns each outcome by the index of its operation in `ops`. Skips
    /// timers that are not stored in the shard to which their id belongs, so these timers have no outcome.
    pub(crate) async fn change_by_ids(
        &self,
        ops: &[(TimerId, &Op)],
    ) -> Result<BTreeMap<usize, Outcome>, StoreError> {
        let mut shards = BTreeMap::<Shard, Vec<usize>>::new();
        for (place, (id, _)) in ops.iter().enumerate() {
            shards.entry(self.deployment.layout.shard_of_id(*id)).or_default().push(place);
        }
        let id_at = |place: &usize| ops.get(*place).map(|(id, _)| *id);
        let reads = shards.into_iter().map(async |(shard, places)| {
            let ids: Vec<TimerId> = places.iter().filter_map(id_at).collect();
            let found = records(&self.deployment, shard, &ids).await?;
            Ok::<_, StoreError>(places.into_iter().zip(found).collect::<Vec<_>>())
        });
        let mut found = Vec::new();
        for (place, timer) in try_join_all(reads).await?.into_iter().flatten() {
            // A timer whose record cannot be read is left to an operation of its own, which returns the error.
            if let Ok(Some(timer)) = timer {
                found.push((place, timer));
            }
        }
        // In a cluster, each script has timers of one shard. The timers are in the order of their shards.
        let groups = found
            .chunk_by(|(_, one), (_, other)| self.deployment.topology.shares_script(one.shard, other.shard));
        let calls = groups.flat_map(|group| group.chunks(SEVERAL)).map(async |some| {
            let places = some.iter().map(|(place, _)| *place).collect::<Vec<_>>();
            let group: Vec<Op> = places.iter().filter_map(|place| Some(ops.get(*place)?.1.clone())).collect();
            let start = Start::Several(some.iter().map(|(_, found)| found.clone()).collect());
            let outcomes = self.transactions.transact(start, |draft| draft.apply_all(group.clone())).await?;
            Ok::<_, StoreError>(places.into_iter().zip(outcomes).collect::<Vec<_>>())
        });
        Ok(join_or_fail(calls.collect::<Vec<_>>()).await?.into_iter().flatten().collect())
    }

    /// Cancels the timers that have this label, in the order of their ids, until `limit` timers are cancelled.
    pub(crate) async fn cancel_labelled(
        &self,
        namespace: &str,
        label: &str,
        limit: u32,
    ) -> Result<Outcome, StoreError> {
        let index = Index::Members(Part::Labels, label_entry(namespace, label));
        let op = |limit| Op::CancelLabelled { namespace: namespace.into(), label: label.into(), limit };
        // As in the ledger, a limit of 0 counts as 1.
        let limit = limit.max(1);
        let (mut cancelled, mut in_flight, mut last) = (0, 0, None::<Vec<u8>>);
        loop {
            let Stretch { mut entries, is_end } =
                Walk::ascending(&self.deployment).entries_after(&index, last.as_deref(), AT_ONCE).await?;
            let left = (limit - cancelled) as usize;
            let more = entries.len() > left;
            entries.truncate(left);
            // A timer that is cancelled in flight keeps its label. So the next turn must begin after these entries, or
            // it would find such timers again and again.
            last = entries.last().map(|entry| entry.place.clone()).or(last);
            let found = timers_of(&self.deployment, &entries).await?.into_iter().flatten().collect();
            for outcome in self.change_several(found, op).await? {
                if let Outcome::CancelledMany {
                    cancelled: more_cancelled, in_flight: more_in_flight, ..
                } = outcome
                {
                    cancelled += more_cancelled;
                    in_flight += more_in_flight;
                }
            }
            // This comes before the check of the limit: a limit that is reached with the last timer leaves no more
            // timers.
            if is_end && !more {
                return Ok(Outcome::CancelledMany { cancelled, in_flight, more: false });
            }
            if cancelled >= limit {
                return Ok(Outcome::CancelledMany { cancelled, in_flight, more: true });
            }
        }
    }

    /// Unparks at most `limit` timers that are parked in `shards` for this reason. The timers that have been due for
    /// longest come first.
    pub(crate) async fn unpark(
        &self,
        reason: &str,
        limit: u32,
        shards: Vec<Shard>,
    ) -> Result<Outcome, StoreError> {
        let beginning = part(reason);
        let (mut unparked, mut last) = (0, None::<Vec<u8>>);
        let parts: Vec<_> = shards.into_iter().map(|shard| (shard, Part::Parked)).collect();
        while unparked < limit && !parts.is_empty() {
            let left = (limit - unparked) as usize;
            // Timers are rarely spread evenly over the shards. So each shard may list twice its even part, which makes
            // a second turn rare.
            let each = (2 * left.min(AT_ONCE) / parts.len() + 3).min(left);
            let from = last.as_ref().map(|member| [b"(", &member[..]].concat());
            let Stretch { mut entries, is_end } =
                Walk::ascending(&self.deployment).members(&parts, from, &beginning, each).await?;
            // Entries beyond `left` are dropped. If some of these timers stay parked, a later turn must read the
            // dropped entries.
            let is_end = is_end && entries.len() <= left;
            entries.truncate(left);
            // An occurrence of a paused series stays parked and does not count, so the next turn begins after these
            // entries.
            last = entries.last().map(|entry| entry.place.clone()).or(last);
            let found = timers_of(&self.deployment, &entries).await?.into_iter().flatten().collect();
            for outcome in self.change_several(found, |limit| Op::Unpark(reason.into(), limit)).await? {
                if let Outcome::Unparked(count) = outcome {
                    unparked += count;
                }
            }
            if is_end {
                break;
            }
        }
        Ok(Outcome::Unparked(unparked))
    }
}
