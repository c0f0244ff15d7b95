//! Claims of parked timers, for a process that has what they wait for: a receiver of their queue, for example.
//!
//! A claim of what is due is the business of the shard's owner. A parked timer waits for something that one process has
//! and another has not, so any node may lease it, in any shard: the token of the lease decides, as everywhere, and not
//! the owner. The fetch has two steps:
//!
//! | step | script | what it does |
//! |---|---|---|
//! | look | `members` | reads the first entries of the reason in each shard; they are in the order of the due moments |
//! | lease | `fetch` | leases the chosen entries that are still there, and removes them from the parked ones |
//!
//! The entries that are chosen are the longest due of all shards. There are as many as are wanted, and others up to the
//! limit if as many are left, so that a large request of one node leaves something for the others and costs a part of
//! many small ones: a script has some commands for each shard that it touches.
//!
//! # A parked timer
//!
//! | event | ends as |
//! |---|---|
//! | one fetch leases it | leased under the token of that fetch |
//! | two nodes fetch it at the same time | the second script finds no entry, passes it over, and looks again if it has leased nothing |
//! | it is cancelled, moved, unparked or replaced between look and lease | the same: its entry has gone, or is another one |
//! | it is changed by somebody who has read it parked, after the lease | the commit of the change finds a token, and is computed anew: a cancel answers "in flight" |
//! | its due moment was moved ahead | it stays parked until that moment |
//! | its series was paused | it is parked again, as paused |
//! | the answer of the script is lost | the caller asks for what was leased under the token, in all shards |
//! | the node dies, or its lease is not renewed | the owner of the shard ends the lease. It asks every five seconds when the first lease of its shards ends: nothing else tells it that another node has leased there |
//! | the shard's owner changes | nothing: the lease stays. A new owner asks when the first lease ends |
//! | the delivery ends, fails, or is parked again | an end under the token, by whatever node. A park is published to all nodes |
//! | a program of before the fetch reads the leased timer | it cannot read the record, which says that the timer is parked |

use crate::layout::{Part, Shard};
use crate::lists::Entry;
use crate::shared::Core;
use crate::stored::{Found, damaged, id_at_end, part, token_bytes};
use crate::time::{millis, moment};
use crate::transact::Start;
use crate::values::{Values, bytes, number};
use crate::words::Words;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Lease, Token};
use tourbillon_durable::store::dry_run::DryRun;
use tourbillon_durable::store::{Claimant, Claimed, Limit, Op, PAUSED, StoreError, StoreErrorKind};

/// Looks of a fetch at which others were quicker with all that was chosen.
const TURNS: usize = 4;
/// Timers that one fetch leases at most.
const AT_ONCE: u32 = 512;

impl Core {
    pub(crate) async fn fetch(
        &self,
        by: Claimant,
        claim: u64,
        reason: &str,
        wanted: u32,
        limit: Limit,
    ) -> Result<Claimed, StoreError> {
        *self.claimed.lock().unwrap_or_else(PoisonError::into_inner) = Some((moment(), by.lease));
        self.enter().await?;
        let token = Token { incarnation: by.incarnation, claim };
        let mut has_leased = false;
        let result = self.fetch_some(by, token, reason, (wanted, limit), &mut has_leased).await;
        result.map_err(|error| match has_leased && error.kind() != StoreErrorKind::Closed {
            true => StoreError::caused_by(StoreErrorKind::Unknown, error),
            false => error,
        })
    }

    async fn fetch_some(
        &self,
        by: Claimant,
        token: Token,
        reason: &str,
        (wanted, limit): (u32, Limit),
        has_leased: &mut bool,
    ) -> Result<Claimed, StoreError> {
        let most = limit.timers.min(AT_ONCE) as usize;
        let wanted = (wanted as usize).min(most);
        let beginning = part(reason);
        let mut claimed = Claimed { now: self.time.now(), ..Claimed::default() };
        let mut found = Vec::new();
        for _ in 0..TURNS {
            if wanted == 0 {
                break;
            }
            let mut entries = self.parked(&beginning, most).await?;
            let chosen = entries.len().min(wanted.max(most.min(entries.len() / 2)));
            entries.truncate(chosen);
            if entries.is_empty() {
                break;
            }
            for (shard, member, now) in self.lease_parked(&entries, by, token, (&beginning, limit)).await? {
                *has_leased = true;
                claimed.now = claimed.now.max(now);
                let lease = Lease { token, until: now + by.lease, withdrawn: None };
                match self.leased(shard, member, lease).await? {
                    Some(its) => found.push(its),
                    None => claimed.quarantined += 1,
                }
            }
            if *has_leased {
                break;
            }
        }
        found.sort_by_key(|its: &Found| (its.timer.due, its.timer.id));
        for its in found {
            if its.timer.series.as_ref().is_some_and(|series| series.paused) {
                let id = its.id();
                let park = move |draft: DryRun| draft.apply(Op::Park(id, token, PAUSED.into()));
                self.transact(Start::Read(Box::new(its)), park).await?;
            } else {
                self.take(its, token, &mut claimed).await?;
            }
        }
        claimed.next_due = self.nodes.state().shards.next_due(self.is_split);
        Ok(claimed)
    }

    /// The first entries of a reason whose due moments have come, of all shards that answer, in order.
    async fn parked(&self, beginning: &[u8], most: usize) -> Result<Vec<Entry>, StoreError> {
        let each = (2 * most / self.layout.shards().len().max(1) + 3).min(most);
        let calls = self.groups_of(self.layout.shards()).into_iter().map(|group| {
            let parts: Vec<_> = group.iter().map(|shard| (*shard, Part::Parked)).collect();
            (group, async move { self.members_after(&parts, None, beginning, each).await })
        });
        let gathered = self.gather(calls.collect::<Vec<_>>()).await.any()?;
        let mut all: Vec<Entry> = Vec::new();
        let mut cut: Option<Entry> = None;
        for (_, (entries, is_end)) in gathered.answers {
            // Behind the last one of a list that was cut there may be others.
            let last = entries.last().filter(|_| !is_end).cloned();
            cut = cut.into_iter().chain(last).min();
            all.extend(entries);
        }
        all.sort_unstable();
        if let Some(cut) = cut {
            all.retain(|entry| *entry <= cut);
        }
        let now = self.time.now().as_millis();
        let due = |entry: &Entry| {
            let bytes = entry.place.get(beginning.len()..).unwrap_or_default();
            bytes.iter().take(6).fold(0, |due, byte| due << 8 | u64::from(*byte))
        };
        all.retain(|entry| due(entry) <= now && id_at_end(&entry.place) == Some(entry.id));
        Ok(all)
    }

    /// Leases those of the entries that are still there. Returns their shards, their records, and the time by which
    /// they were leased.
    async fn lease_parked(
        &self,
        entries: &[Entry],
        by: Claimant,
        token: Token,
        (beginning, limit): (&[u8], Limit),
    ) -> Result<Vec<(Shard, Vec<u8>, UtcMillis)>, StoreError> {
        let mut by_shard = BTreeMap::<Shard, Vec<&Entry>>::new();
        entries.iter().for_each(|entry| by_shard.entry(entry.shard).or_default().push(entry));
        let calls = self.groups_of(by_shard.keys().copied().collect::<Vec<_>>()).into_iter().map(|group| {
            let parts =
                [Part::Parked, Part::Records, Part::Tokens, Part::Leases, Part::Counts, Part::Stopped];
            let first = match group.first().filter(|_| self.is_split) {
                Some(shard) => self.layout.key(*shard, Part::Meta),
                None => self.deployment.key.clone(),
            };
            let keys = [vec![first], self.parts(&group, parts)].concat();
            let mut words = Words::default();
            words.push(&token_bytes(token));
            words.push_number(millis(by.lease));
            words.push_number(limit.bytes);
            words.push(&self.deployment.id());
            words.push_number(beginning.len() as u64);
            for shard in &group {
                let its = by_shard.get(shard).map_or(&[][..], |its| its);
                words.push_number(its.len() as u64);
                its.iter().for_each(|entry| words.push(&entry.place));
            }
            (group, self.run(|scripts| &scripts.fetch, keys, words))
        });
        let gathered = self.gather(calls.collect::<Vec<_>>()).await;
        for (group, error) in &gathered.failed {
            // What was leased there is asked for once the server answers.
            if self.is_split && error.as_ref().is_none_or(|error| error.kind() == StoreErrorKind::Unknown) {
                let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
                doubts.extend(group.iter().map(|shard| (token, *shard)));
            }
        }
        let mut leased = Vec::new();
        for (group, mut answered) in gathered.any()?.answers {
            let mut records = Values::of(answered.rest.next()?)?;
            while !records.is_empty() {
                let place = usize::try_from(number(&records.next()?)?).unwrap_or_default();
                let shard = place.checked_sub(1).and_then(|place| group.get(place)).copied();
                let shard = shard.ok_or_else(|| damaged("a fetch answered a shard that there is not"))?;
                leased.push((shard, bytes(records.next()?)?.unwrap_or_default(), answered.now));
            }
        }
        Ok(leased)
    }
}
