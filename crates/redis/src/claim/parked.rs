//! Claims of parked timers. A process claims parked timers when it has found a receiver, for example in a long poll of
//! a queue.
//!
//! Only the owner of a shard claims pending timers there. A parked timer waits for something that only some nodes have,
//! such as a receiver. So any node may lease a parked timer, in any shard. The token of the lease, and not the
//! ownership of the shard, decides which node delivers. The claim has two steps:
//!
//! | step | script | effect |
//! |---|---|---|
//! | look | `members` | reads the first entries of the reason in each shard; they are in the order of the due moments |
//! | lease | `take_parked` | leases the chosen entries that are still there, and removes them from the parked timers |
//!
//! The claim chooses the entries that have been due for longest in all shards. It takes the wanted number of timers, or
//! up to half of the due timers if that is more, within the limit. One large claim is cheaper than several small
//! claims, since a script runs several commands for each shard that it touches.
//!
//! # A parked timer
//!
//! | event | consequence |
//! |---|---|
//! | one claim leases it | it is leased under the token of that claim |
//! | two nodes claim it at the same time | the second script finds no entry, and skips the timer; if this script has leased nothing, its node looks again |
//! | it is cancelled, moved, unparked or replaced between look and lease | the script does not find the entry that the look has read, and skips the timer |
//! | after the lease, it is changed by a process that has read it parked | the commit of the change finds a token, and is computed anew: a cancel answers "in flight" |
//! | its due moment was moved to a later moment | claims leave it parked until that moment |
//! | its series was paused | it is parked again, as paused |
//! | the answer of the script is lost | the caller asks all shards for the leases under the token. If other shards have answered, the claim succeeds, and wakes the runtime for a claim that asks the shard of the lost answer |
//! | the node dies, or its lease is not renewed | the owner of the shard ends the lease. The owner asks every five seconds when the first lease in its shards ends, since no message reports leases of other nodes |
//! | the shard's owner changes | the lease stays. A new owner asks when the first lease ends |
//! | the delivery ends, fails, or is parked again | an end under the token, by any node. A park is published to all nodes |
//! | a program of an older version reads the leased timer | it cannot read the record, which says that the timer is parked |

use super::claims::Claims;
use crate::deployment::{Deployment, Topology, millis};
use crate::layout::{Found, Part, Shard, id_at_end, part, token_bytes};
use crate::node::Node;
use crate::read::{IndexEntry, Stretch, Walk};
use crate::script::{Words, damaged};
use std::collections::BTreeMap;
use std::sync::Arc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Lease, Token};
use tourbillon_durable::store::{Claimant, Claimed, Limit, StoreError, StoreErrorKind};

/// The greatest number of times that a claim chooses timers. A claim chooses again if other nodes have leased all
/// timers that it chose.
const TURNS: usize = 4;
/// The greatest number of parked timers that one claim leases.
const AT_ONCE: u32 = 512;

/// Leases parked timers, which are set aside for a reason, in all shards. Each claim leases timers of one reason.
pub(crate) struct ParkedClaims {
    deployment: Arc<Deployment>,
    node: Arc<Node>,
    claims: Arc<Claims>,
}

impl ParkedClaims {
    pub(crate) fn new(claims: Arc<Claims>) -> Self {
        let (deployment, node) = (Arc::clone(&claims.deployment), Arc::clone(&claims.node));
        Self { deployment, node, claims }
    }

    /// Leases due timers that are parked (set aside) for the reason `reason`, and begins with the timers that have been
    /// due for longest. Leases `wanted` timers, or up to half of the due timers if that half is larger than `wanted`.
    /// In both cases, stays within `limit`.
    pub(crate) async fn claim(
        &self,
        claimant: Claimant,
        claim: u64,
        reason: &str,
        wanted: u32,
        limit: Limit,
    ) -> Result<Claimed, StoreError> {
        self.node.note_claim(claimant.lease);
        self.node.enter().await?;
        let token = Token { incarnation: claimant.incarnation, claim };
        let mut has_leased = false;
        let result = self.lease(claimant, token, reason, wanted, limit, &mut has_leased).await;
        let claimed = result.map_err(|error| match has_leased && error.kind() != StoreErrorKind::Closed {
            true => StoreError::caused_by(StoreErrorKind::Unknown, error),
            false => error,
        })?;
        self.claims.note_returned(token, &claimed);
        Ok(claimed)
    }

    async fn lease(
        &self,
        claimant: Claimant,
        token: Token,
        reason: &str,
        wanted: u32,
        limit: Limit,
        has_leased: &mut bool,
    ) -> Result<Claimed, StoreError> {
        let most = limit.timers.min(AT_ONCE) as usize;
        let wanted = (wanted as usize).min(most);
        let beginning = part(reason);
        let mut claimed = Claimed { now: self.deployment.time.now(), ..Claimed::default() };
        let mut found = Vec::new();
        for _ in 0..TURNS {
            if wanted == 0 {
                break;
            }
            let mut entries = self.parked(&beginning, most).await?;
            // Takes more than `wanted` timers only if at least as many timers are left for other nodes.
            let chosen = entries.len().min(wanted.max(most.min(entries.len() / 2)));
            entries.truncate(chosen);
            if entries.is_empty() {
                break;
            }
            let leased = self.lease_entries(&entries, claimant, token, beginning.len(), limit.bytes).await?;
            for (shard, member, now) in leased {
                *has_leased = true;
                claimed.now = claimed.now.max(now);
                let lease = Lease { token, until: now + claimant.lease, withdrawn: None };
                match self.claims.leases.read_leased(shard, member, lease).await? {
                    Some(leased) => found.push(leased),
                    None => claimed.quarantined += 1,
                }
            }
            // Other nodes may have leased some of the chosen timers. The caller gets the rest at once.
            if *has_leased {
                break;
            }
        }
        found.sort_by_key(|leased: &Found| (leased.timer.due, leased.timer.id));
        let (mut due, mut parked_again) = (Vec::new(), Ok(()));
        for leased in found {
            match leased.timer.series.as_ref().is_some_and(|series| series.paused) {
                // If this fails, the lease of the timer ends by itself.
                true => {
                    parked_again = parked_again.and(self.claims.leases.park_as_paused(leased, token).await);
                }
                false => due.push(leased),
            }
        }
        claimed.leased.extend(self.claims.leases.hand_out(due, token));
        claimed.next_due = self.node.state().shards.next_due();
        match parked_again {
            // An error would hide the leased timers, and they would come only when their leases end.
            Err(error) if claimed.leased.is_empty() => Err(error),
            _ => Ok(claimed),
        }
    }

    /// Returns the index entries of due timers that are parked (set aside) for one reason, in the order of the timers'
    /// due moments. An index entry is a member of the sorted set [`Part::Parked`]. `beginning` is the encoded reason,
    /// with which the entries of this reason begin. Leaves out shards that do not answer.
    async fn parked(&self, beginning: &[u8], most: usize) -> Result<Vec<IndexEntry>, StoreError> {
        // Parked timers are rarely spread evenly over the shards. So each shard may list twice its even part.
        let each = (2 * most / self.deployment.layout.shards().len().max(1) + 3).min(most);
        let calls = self.deployment.all_groups().into_iter().map(|group| {
            let parts: Vec<_> = group.iter().map(|shard| (*shard, Part::Parked)).collect();
            let walk = Walk::ascending(&self.deployment);
            (group, async move { walk.members(&parts, None, beginning, each).await })
        });
        let gathered = self.deployment.gather(calls.collect::<Vec<_>>()).await.any()?;
        let mut all: Vec<IndexEntry> = Vec::new();
        let mut cut: Option<IndexEntry> = None;
        for (_, Stretch { entries, is_end }) in gathered.answers {
            // If a list was cut, other entries may follow its last entry.
            let last = entries.last().filter(|_| !is_end).cloned();
            cut = cut.into_iter().chain(last).min();
            all.extend(entries);
        }
        all.sort_unstable();
        if let Some(cut) = cut {
            // After this place, a list that was cut may lack entries that come earlier than those of other shards.
            all.retain(|entry| *entry <= cut);
        }
        // The estimate of the time may be ahead of the servers. So the script that leases compares the due moments
        // again.
        let now = self.deployment.time.now().as_millis();
        let due = |entry: &IndexEntry| {
            let bytes = entry.place.get(beginning.len()..).unwrap_or_default();
            bytes.iter().take(6).fold(0, |due, byte| due << 8 | u64::from(*byte))
        };
        all.retain(|entry| due(entry) <= now && id_at_end(&entry.place) == Some(entry.id));
        Ok(all)
    }

    /// Leases the timers of the index entries `entries`. Skips an entry that is no longer stored. Returns the shard
    /// and the record of each leased timer, and the server's time of the lease. `beginning` is the length of the
    /// encoded reason in each entry. Once the leased payloads have `most_bytes` bytes, leases no further timer.
    async fn lease_entries(
        &self,
        entries: &[IndexEntry],
        claimant: Claimant,
        token: Token,
        beginning: usize,
        most_bytes: u64,
    ) -> Result<Vec<(Shard, Vec<u8>, UtcMillis)>, StoreError> {
        let mut by_shard = BTreeMap::<Shard, Vec<&IndexEntry>>::new();
        entries.iter().for_each(|entry| by_shard.entry(entry.shard).or_default().push(entry));
        let calls = self
            .deployment
            .topology
            .groups(by_shard.keys().copied().collect::<Vec<_>>())
            .into_iter()
            .map(|group| {
                let parts =
                    [Part::Parked, Part::Records, Part::Tokens, Part::Leases, Part::Counts, Part::Stopped];
                // The script compares the deployment's id at this key. In a cluster the key of the deployment may be on
                // another server.
                let first = match (self.deployment.topology, group.first()) {
                    (Topology::Cluster, Some(shard)) => self.deployment.layout.key(*shard, Part::Meta),
                    _ => self.deployment.key.clone(),
                };
                let keys = [vec![first], self.deployment.keys(&group, parts)].concat();
                let mut words = Words::default();
                words.push(&token_bytes(token));
                words.push_number(millis(claimant.lease));
                words.push_number(most_bytes);
                words.push(&self.deployment.id());
                words.push_number(beginning as u64);
                for shard in &group {
                    let entries = by_shard.get(shard).map_or(&[][..], |entries| entries);
                    words.push_number(entries.len() as u64);
                    entries.iter().for_each(|entry| words.push(&entry.place));
                }
                (group, self.deployment.run(|scripts| &scripts.take_parked, keys, words))
            });
        let gathered = self.deployment.gather(calls.collect::<Vec<_>>()).await;
        for (group, error) in &gathered.failed {
            // The script may have leased timers in this group. If this node owns the group's shard, a later claim asks
            // for these leases once the server answers. Otherwise the leases end by themselves.
            let may_have_run = error.as_ref().is_none_or(|error| error.kind() == StoreErrorKind::Unknown);
            // On one server, the whole claim fails with this error, and the caller asks for the leases.
            if self.deployment.topology.fails_in_parts() && may_have_run {
                self.claims.doubts.add(token, group.iter().copied());
            }
        }
        let mut leased = Vec::new();
        for (group, mut answered) in gathered.any()?.answers {
            let mut records = answered.rest.list()?;
            while !records.is_empty() {
                let shard = records.index()?.and_then(|place| group.get(place)).copied();
                let shard = shard.ok_or_else(|| damaged("a fetch answered a shard that there is not"))?;
                leased.push((shard, records.bytes()?, answered.now));
            }
        }
        Ok(leased)
    }
}
