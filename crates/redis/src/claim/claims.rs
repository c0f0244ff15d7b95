//! Claims of due timers in the shards of this node.
//!
//! A *group* is the shards that one script can read: all shards on one server, and one shard in a cluster. A *lane* is
//! one of 64 groups of namespaces. A claim may have a *share* for each lane: the greatest number of timers that it
//! takes from the lane.

use super::doubts::{Doubt, Doubts};
use super::leases::Leases;
use super::look::{Looked, Looks, Wish};
use super::portions::{Portion, portions};
use super::shares::{PerLane, Turns};
use crate::deployment::{Deployment, Topology};
use crate::layout::{Found, Shard};
use crate::node::Node;
use crate::operation::Transactions;
use core::time::Duration;
use std::sync::Arc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Lease, Token};
use tourbillon_durable::store::{Claimant, Claimed, Leased, Limit, Shares, StoreError, StoreErrorKind};

/// The greatest number of timers that a script leases. A longer script would block the server for too long.
const AT_ONCE: u32 = 1_000;
/// Before a claim in a cluster leases timers, it asks each group of shards to list its first due timers: at least
/// this number, or as many as the claim wants if it wants fewer.
const LEAST_NAMES: u32 = 8;
/// A claim ends after this number of scripts in a row that leased no timer, even if a timer is still due.
const IDLE_TURNS: u32 = 8;

/// Leases due timers in the shards of this node.
pub(crate) struct Claims {
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) node: Arc<Node>,
    looks: Looks,
    pub(super) leases: Arc<Leases>,
    pub(super) doubts: Doubts,
}

impl Claims {
    pub(crate) fn new(leases: Arc<Leases>) -> Self {
        let Transactions { deployment, node, .. } = &*leases.transactions;
        let (deployment, node) = (Arc::clone(deployment), Arc::clone(node));
        let looks = Looks::new(Arc::clone(&deployment), Arc::clone(&node));
        Self { deployment, node, looks, leases, doubts: Doubts::default() }
    }

    /// Forgets the servers' last answers and the claims whose answers were lost, because both belong to a deployment
    /// that no longer exists.
    pub(crate) fn clear(&self) {
        self.looks.clear();
        self.doubts.clear();
    }

    /// Claims due timers. If `shares` is set, the claim takes from each lane at most the lane's share. A lane is one of
    /// 64 groups of namespaces.
    pub(crate) async fn claim(
        &self,
        claimant: Claimant,
        claim: u64,
        limit: Limit,
        shares: Option<Shares>,
    ) -> Result<Claimed, StoreError> {
        let claiming = self.deployment.alarm.begin_claim();
        let turns = shares.as_ref().map(|shares| Turns::new(shares, limit));
        let claimed = self.take_due(claimant, claim, limit, turns).await?;
        claiming.end(claimed.next_claim);
        // Without shares, `next_claim` equals `next_due`, which the answer contains anyway.
        Ok(Claimed { next_claim: claimed.next_claim.filter(|_| shares.is_some()), ..claimed })
    }

    async fn take_due(
        &self,
        claimant: Claimant,
        claim: u64,
        limit: Limit,
        turns: Option<Turns>,
    ) -> Result<Claimed, StoreError> {
        // The claim is noted before the node enters. Otherwise the background thread could still take the runtime for
        // stuck, and make the node leave.
        self.node.note_claim(claimant.lease);
        self.node.enter().await?;
        let token = Token { incarnation: claimant.incarnation, claim };
        let mut has_leased = false;
        let mut resolved = Vec::new();
        let result = self.take_some(claimant, token, limit, turns, &mut has_leased, &mut resolved).await;
        // Earlier scripts of this claim may have leased timers, whatever the error of the last script says. The doubts
        // stay after an error: if its kind is `Unknown`, the caller asks for the leases of this claim itself.
        let (found, mut claimed) = result.map_err(|error| match has_leased {
            true if error.kind() != StoreErrorKind::Closed => {
                StoreError::caused_by(StoreErrorKind::Unknown, error)
            }
            _ => error,
        })?;
        claimed.leased.extend(self.leases.hand_out(found, token));
        self.note_returned(token, &claimed);
        for Doubt { token, shard, .. } in resolved {
            self.doubts.resolve(token, &[shard]);
        }
        claimed.next_reap = self.node.state().shards.take_first_end();
        Ok(claimed)
    }

    /// Records that the claim `token` returns the timers in `claimed`. If an answer of this claim was lost, wakes
    /// the runtime. A later claim then asks for this claim's leases, and must not return these timers again.
    pub(super) fn note_returned(&self, token: Token, claimed: &Claimed) {
        self.doubts.note_returned(token, claimed.leased.iter().map(|leased| leased.timer.id));
        if self.doubts.has(token) {
            self.deployment.alarm.wake();
        }
    }

    async fn take_some(
        &self,
        claimant: Claimant,
        token: Token,
        limit: Limit,
        mut turns: Option<Turns>,
        has_leased: &mut bool,
        resolved: &mut Vec<Doubt>,
    ) -> Result<(Vec<Found>, Claimed), StoreError> {
        let mut claimed = Claimed { now: self.deployment.time.now(), ..Claimed::default() };
        let (mut left, mut taken, mut idle) = (limit.timers, 0_u64, 0);
        let mut found = Vec::new();
        // A script leases at most AT_ONCE timers, and only from the slices that the last answer named. So a claim goes
        // on until it is full or nothing is due.
        loop {
            let wish = Wish {
                token,
                lease: claimant.lease,
                timers: left.min(AT_ONCE),
                bytes: limit.bytes,
                taken,
                names: 0,
                per_lane: turns.as_ref().map_or(PerLane::Any, PerLane::InTurn),
            };
            let groups = self.deployment.topology.groups(self.shards_for_claim(claimed.now));
            let looked = match self.deployment.topology {
                Topology::Cluster => self.look_at_groups(groups, wish, resolved, &mut claimed.leased).await?,
                // One server has a single group, or none if no shard must be looked at.
                Topology::OneServer => match groups.into_iter().next() {
                    Some(group) => vec![self.looks.look(group, wish).await?],
                    None => Vec::new(),
                },
            };
            let mut is_idle = true;
            if let Some(now) = looked.iter().map(|looked| looked.now).min() {
                claimed.now = now;
            }
            for Looked { now, records, .. } in looked {
                let lease = Lease { token, until: now + claimant.lease, withdrawn: None };
                // This comes before the records are read, because a read that fails must not hide the leases.
                *has_leased |= !records.is_empty();
                is_idle &= records.is_empty();
                for (shard, member) in records {
                    left = left.saturating_sub(1);
                    match self.leases.read_leased(shard, member, lease).await? {
                        Some(leased) => {
                            let timer = &leased.timer;
                            taken += timer.payload.0.len() as u64;
                            if let Some(turns) = &mut turns {
                                turns.count(&timer.namespace, now - timer.due);
                            }
                            found.push(leased);
                        }
                        None => claimed.quarantined += 1,
                    }
                }
            }
            {
                let state = self.node.state();
                claimed.next_due = state.shards.next_due();
                claimed.next_claim = state.shards.next_claim();
            }
            let is_more = claimed.next_claim.is_some_and(|due| due <= claimed.now);
            // A script may lease nothing because its keys lack a slice. Its answer then names the slices for the next
            // script. After IDLE_TURNS scripts without a timer, the next claim takes the rest.
            idle = if is_idle { idle + 1 } else { 0 };
            let is_full = left == 0 || taken > 0 && taken >= limit.bytes;
            if is_full || !is_more || idle >= IDLE_TURNS {
                break;
            }
        }
        if turns.is_some_and(|turns| turns.leaves()) {
            // The first due timer may be in a lane that has used up its share of this claim. The next claim may take
            // that timer.
            let due = claimed.next_due.filter(|due| *due <= claimed.now);
            claimed.next_claim = claimed.next_claim.into_iter().chain(due).min();
        }
        found.sort_by_key(|leased: &Found| (leased.timer.due, leased.timer.id));
        Ok((found, claimed))
    }

    /// Returns the shards that a claim reads. If the answer of an earlier claim was lost, that claim may have
    /// leased timers in some shards. The result includes those of these shards that belong to this node and whose
    /// servers answer.
    fn shards_for_claim(&self, now: UtcMillis) -> Vec<Shard> {
        let (pause, doubted) = (self.node.pause(), self.doubts.shards());
        let state = self.node.state();
        let mut shards = state.shards.for_claim(now, pause);
        shards.extend(doubted.into_iter().filter(|shard| state.shards.is_healthy(*shard)));
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Leases due timers in a cluster. First asks each group of shards which timers are due. Then leases the timers
    /// that have been due for longest. If the answers of earlier claims were lost, adds the timers of those claims to
    /// `recovered`, and the doubts about those claims to `resolved`.
    async fn look_at_groups(
        &self,
        groups: Vec<Vec<Shard>>,
        wish: Wish<'_>,
        resolved: &mut Vec<Doubt>,
        recovered: &mut Vec<Leased>,
    ) -> Result<Vec<Looked>, StoreError> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        // Due timers are rarely spread evenly over the shards. So each group may list twice its even part, which makes
        // a second round rare.
        let each = 2 * wish.timers / u32::try_from(groups.len()).unwrap_or(u32::MAX).max(1);
        let look = Wish { timers: 0, names: each.max(LEAST_NAMES).min(wish.timers), ..wish };
        let calls = groups.into_iter().map(|group| (group.clone(), self.looks.look(group, look)));
        let looked = self.deployment.gather(calls.collect::<Vec<_>>()).await;
        // The call of a group that was late is dropped, so the call cannot mark the group itself.
        for (group, _) in &looked.failed {
            self.node.state().shards.fail_look(group);
        }
        let looked = looked.any()?.answers;
        self.resolve_doubts(&looked, wish.token, resolved, recovered).await;
        // The answers show which groups have the timers that have been due for longest. A script that leased at once
        // might take timers that are due later than those of another group.
        let portions = portions(looked, wish);
        if portions.is_empty() {
            return Ok(Vec::new());
        }
        let calls = portions.iter().map(|(group, Portion { timers, by_lane })| {
            let per_lane = match wish.per_lane {
                PerLane::Any => PerLane::Any,
                _ => PerLane::Exactly(by_lane),
            };
            (group.clone(), self.looks.look(group.clone(), Wish { timers: *timers, per_lane, ..wish }))
        });
        let leased = self.deployment.gather(calls.collect::<Vec<_>>()).await;
        for (group, error) in &leased.failed {
            self.node.state().shards.fail_look(group);
            // A late script may have run, and `Unknown` is the error of a call that may have run.
            if error.as_ref().is_none_or(|error| error.kind() == StoreErrorKind::Unknown) {
                self.doubts.add(wish.token, group.iter().copied());
            }
        }
        if leased.answers.is_empty() {
            let message = "no server of several has answered a claim";
            return Err(leased.any().err().map_or_else(
                || StoreError::new(StoreErrorKind::Unknown, message),
                // This error may be certain for its own group, but another group may have leased timers.
                |error| match error.kind() {
                    StoreErrorKind::Closed => error,
                    _ => StoreError::caused_by(StoreErrorKind::Unknown, error),
                },
            ));
        }
        Ok(leased.any()?.answers.into_iter().map(|(_, looked)| looked).collect())
    }

    /// Asks for the leases of earlier claims whose answers were lost. Asks only the shards in `answered`, which have
    /// just answered. Adds the leased timers to `recovered`, and each doubt whose shard has answered to `resolved`. The
    /// caller removes these doubts once the runtime gets the timers. `token` is the token of the present claim, which
    /// does not ask for its own leases: a later claim does.
    async fn resolve_doubts(
        &self,
        answered: &[(Vec<Shard>, Looked)],
        token: Token,
        resolved: &mut Vec<Doubt>,
        recovered: &mut Vec<Leased>,
    ) {
        let answers = |shard: Shard| answered.iter().any(|(group, _)| group.contains(&shard));
        let is_meant =
            |doubt: &Doubt| answers(doubt.shard) && doubt.token != token && !resolved.contains(doubt);
        let calls = self.doubts.those(is_meant).into_iter().map(|doubt| {
            let (token, shard) = (doubt.token, doubt.shard);
            (doubt, self.leases.recover_in(token, vec![shard]))
        });
        let gathered = self.deployment.gather(calls.collect::<Vec<_>>()).await;
        for (doubt, leased) in gathered.answers {
            recovered.extend(leased.into_iter().filter(|leased| !doubt.returned.contains(&leased.timer.id)));
            resolved.push(doubt);
        }
    }

    /// Asks a server for the state of `shards`, without leasing timers. One script must be able to read all of
    /// `shards`. Wakes the store's subscribers if the runtime must claim. The node's background thread calls this
    /// method.
    pub(crate) async fn look_at(&self, shards: Vec<Shard>) {
        // The claims of the runtime have numbers from 1 on. This look leases nothing, so its token is never stored.
        let token = Token { incarnation: self.node.incarnation, claim: 0 };
        let wish = Wish {
            token,
            lease: Duration::ZERO,
            timers: 0,
            bytes: 0,
            taken: 0,
            names: 0,
            per_lane: PerLane::Any,
        };
        let looked = self.looks.look(shards.clone(), wish).await;
        let wants_claim = self.doubts.shards().iter().any(|shard| shards.contains(shard))
            || self.node.state().shards.has_first_end();
        match looked {
            // The next claim of the runtime returns this error, or the timers of other servers.
            Err(_) => self.deployment.alarm.wake(),
            Ok(_) if wants_claim => self.deployment.alarm.wake(),
            Ok(Looked { first_due: Some(due), .. }) => self.deployment.alarm.wake_for(due),
            Ok(_) => {}
        }
    }

    /// Returns the timers that the claim with this number has leased, for a caller that did not get the claim's answer.
    /// If a group of shards does not answer, a later claim asks this group again.
    pub(crate) async fn recover(&self, claimant: Claimant, claim: u64) -> Result<Vec<Leased>, StoreError> {
        let token = Token { incarnation: claimant.incarnation, claim };
        let groups = self.deployment.all_groups();
        let calls = groups.into_iter().map(|group| (group.clone(), self.leases.recover_in(token, group)));
        let gathered = self.deployment.gather(calls.collect::<Vec<_>>()).await;
        gathered.answers.iter().for_each(|(group, _)| self.doubts.resolve(token, group));
        if self.deployment.topology.fails_in_parts() {
            // A later claim asks the groups that failed.
            self.doubts.add(token, gathered.failed.iter().flat_map(|(group, _)| group).copied());
        }
        let gathered = gathered.any()?;
        let mut leased: Vec<_> = gathered.answers.into_iter().flat_map(|(_, leased)| leased).collect();
        leased.sort_by_key(|leased| (leased.timer.due, leased.timer.id));
        Ok(leased)
    }
}
