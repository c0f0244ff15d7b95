//! The sweep of a node's thread, which removes redirects that lead nowhere and repairs leases without an end.
//!
//! The thread takes a *step* once in 20 pauses of the poll. The file `operation/redirects.rs` says why redirects exist,
//! and why some lead nowhere. It also defines the *reservation*, the time in which a creation may commit after it has
//! written a redirect. A step reads a page of the redirects of one of the node's shards, and asks the shards to which
//! the redirects lead whether the timers are there. A redirect without a timer is *doubted*. A creation that is under
//! way looks the same, so another step reads the redirect again after [`AFTER`], twice the time of a reservation. If
//! the redirect is still the same and leads nowhere, that step removes it as a creation would: it makes the redirect
//! void in the shard to which it leads, and then removes it if it is the same.
//!
//! # Races
//! - *A creation is under way.* While its reservation lasts, its redirect stays, because the redirect is younger than
//!   [`AFTER`]. After a pause of the process, the redirect may be removed, but the reservation is over as well. So the
//!   commit fails whether the redirect is there or not, and the creation reserves again. If the clocks of two primaries
//!   differ, the redirect may be removed earlier. In that case the mark is void, the commit fails, and the creation
//!   reserves again.
//! - *The creation's commit comes between the second look and the removal.* The script that makes the redirect void
//!   finds the timer, and the redirect stays.
//! - *An end removes the redirect at the same time*, or a sweep of another node, or a creation of the same id. The
//!   later step finds another redirect or none, and leaves it.
//! - *A server is away.* The step goes on with the redirects that need other servers, and the next step reads the next
//!   shard. The redirects that need the server are doubted and removed in later rounds.
//! - *The process stops after the redirect was made void.* The redirect is doubted and removed by the next sweep.
//! - *A timer moves to another shard between the two looks at shards.* This does not happen: the timer ends, and
//!   another timer is created with a redirect of its own. A redirect has a mark, so an equal redirect belongs to the
//!   same creation.
//!
//! # Leases
//! A lease is a token and an end. A reap of expired leases reads only the ends, so a timer whose token has no end would
//! be leased for ever. No script leaves such a token behind, but the loss of a key or a change by hand does. Each step
//! reads a page of the tokens of one shard. It gives a token without an end the end that a claim would give it now. If
//! the holder lives, it renews or ends the lease before that moment. Otherwise the timer becomes due again at that
//! moment.
//!
//! # Cost
//! A step is one script that reads [`TOKENS`] tokens or little more. In a cluster, a step also has one script in the
//! shard of the redirects, which reads [`PAGE`] redirects or little more, and one script in each shard to which they
//! lead. At most [`MOST`] redirects are doubted at the same time. Others wait for the next round.

use crate::deployment::{Deployment, join_or_fail, time_text};
use crate::layout::{Part, REDIRECT_HASHES, Redirect, Shard, id_bytes, id_of};
use crate::node::Node;
use crate::operation::{RESERVED, displace};
use crate::read::look;
use crate::script::{bytes, decimal};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::StoreError;
use tourbillon_durable::timer::TimerId;

/// The time after which the sweep reads a [redirect](Redirect) again if the shard to which it leads did not have the
/// timer. If the redirect is still the same and the timer is still missing, the sweep removes the redirect.
pub(crate) const AFTER: Duration = Duration::from_secs(2 * RESERVED.as_secs());
/// The number of [redirects](Redirect) at which a step of the sweep stops. A step reads whole Redis hashes of
/// redirects, one after the other. Once it has read this number of redirects, it reads no further hash.
const PAGE: u64 = 500;
/// The approximate number of lease tokens that a step of the sweep reads.
const TOKENS: u64 = 500;
/// The greatest number of [redirects](Redirect) without timers that the sweep keeps in memory. It reads each of them
/// again after [`AFTER`].
const MOST: usize = 1_024;
/// The greatest number of [redirects](Redirect) without timers that one step reads again and removes.
const AT_ONCE: usize = 16;

/// The progress of the sweep through the node's shards. Also keeps the [redirects](Redirect) that wait for a second
/// read. A redirect leads from the shard of a timer's id to the shard that stores the timer. The redirect waits if the
/// timer was not found there: a creation that is under way may still store the timer.
#[derive(Debug, Default)]
struct Progress {
    shard: Shard,
    /// The hash that the sweep reads next. A shard divides its [redirects](Redirect) between [`REDIRECT_HASHES`] Redis
    /// hashes, which have the numbers from 0 on.
    bucket: u16,
    /// The redirects whose timers were not found, each with the moment of its first read. The redirects wait for a
    /// second read.
    doubted: HashMap<TimerId, (Redirect, UtcMillis)>,
    /// The shard whose lease tokens the sweep reads next, and the cursor in the shard's hash of lease tokens. An empty
    /// cursor is the start of the shard.
    tokens: (Shard, Vec<u8>),
}

/// Returns the first owned shard whose number is `shard` or higher, or else the first owned shard.
fn first_from(shard: Shard, owned: &[Shard]) -> Option<Shard> {
    owned.iter().find(|other| **other >= shard).or(owned.first()).copied()
}

impl Progress {
    /// Removes redirects from `doubted` and returns them, at most [`AT_ONCE`]. Takes only redirects that were first
    /// read at least [`AFTER`] ago, or after `now` because the clock was set back. The caller must read these
    /// redirects again.
    fn take_old(&mut self, now: UtcMillis) -> Vec<(TimerId, Redirect)> {
        // If `now` is before the first read, the clock was set back.
        // An early second read does no harm, because the removal first makes the redirect void.
        let is_old = |since: UtcMillis| now < since || now - since >= AFTER;
        // `extract_if` removes entries only as far as they are taken, so the entries beyond `AT_ONCE` stay.
        let old = self.doubted.extract_if(|_, (_, since)| is_old(*since));
        old.take(AT_ONCE).map(|(id, (redirect, _))| (id, redirect)).collect()
    }

    /// Returns where to read redirects next: an owned shard, and the number of one of its hashes of redirects. Returns
    /// `None` if the node owns no shard.
    fn place(&mut self, owned: &[Shard]) -> Option<(Shard, u16)> {
        if !owned.contains(&self.shard) {
            (self.shard, self.bucket) = (first_from(self.shard, owned)?, 0);
        }
        Some((self.shard, self.bucket))
    }

    /// Returns where to read lease tokens next: an owned shard, and a cursor in the shard's hash of lease tokens.
    /// Returns `None` if the node owns no shard.
    fn place_of_tokens(&mut self, owned: &[Shard]) -> Option<(Shard, Vec<u8>)> {
        if !owned.contains(&self.tokens.0) || self.tokens.1.is_empty() {
            self.tokens = (first_from(self.tokens.0, owned)?, b"0".to_vec());
        }
        Some(self.tokens.clone())
    }

    /// Notes where the next step reads lease tokens: in `shard`, from the cursor `place` on. If the cursor is at the
    /// end of the shard, the next step reads the next shard instead.
    fn go_on_with_tokens(&mut self, shard: Shard, place: Vec<u8>) {
        let is_last = place == b"0" || place.is_empty();
        // The next shard may belong to another node. `first_from` then finds the next owned shard.
        self.tokens = if is_last { (shard.wrapping_add(1), Vec::new()) } else { (shard, place) };
    }

    /// Notes that the present step has read the redirects in `read` Redis hashes of `shard`. The first of these hashes
    /// has the number `bucket`.
    fn go_on(&mut self, shard: Shard, bucket: u16, read: u16) {
        // Without `max`, an answer of zero hashes would keep the sweep at the same hash for ever.
        let next = bucket + read.max(1);
        (self.shard, self.bucket) =
            if next < REDIRECT_HASHES { (shard, next) } else { (shard.wrapping_add(1), 0) };
    }

    fn doubt(&mut self, id: TimerId, redirect: Redirect, now: UtcMillis) {
        // The moment of the first read stays. If each round replaced it, frequent rounds would keep the redirect young
        // for ever.
        if self.doubted.get(&id).is_some_and(|(known, _)| *known == redirect) {
            return;
        }
        if self.doubted.len() < MOST {
            self.doubted.insert(id, (redirect, now));
        }
    }
}

/// Repairs the stored data of this node's shards, step by step. The sweep removes each [redirect](Redirect) to a shard
/// that does not store the timer. It also finds leases for which no moment of expiry is stored, and stores such a
/// moment, so that they expire.
pub(crate) struct Sweep {
    deployment: Arc<Deployment>,
    node: Arc<Node>,
    progress: Mutex<Progress>,
}

impl Sweep {
    pub(crate) fn new(deployment: Arc<Deployment>, node: Arc<Node>) -> Self {
        Self { deployment, node, progress: Mutex::default() }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a page of the lease tokens of one shard. A shard stores a lease as a token and the moment at which the
    /// lease expires. If this moment is missing for a token, stores the moment that a claim would store now. Without
    /// it, the lease would never expire.
    pub(crate) async fn repair_leases(&self) -> Result<(), StoreError> {
        let owned = self.node.state().shards.owned();
        // Before the first claim of this process, no length is known for the new leases.
        let (Some((shard, place)), Some(lease)) =
            (self.progress().place_of_tokens(&owned), self.node.last_lease())
        else {
            return Ok(());
        };
        let keys = self.deployment.layout.keys(shard, [Part::Records, Part::Tokens, Part::Leases]);
        let arguments = [time_text(lease), place, decimal(TOKENS)];
        let result = self.deployment.run(|scripts| &scripts.repair_leases, keys, arguments).await;
        // A shard whose server fails delays the other shards by only a step.
        let mut answered = result.inspect_err(|_| self.progress().go_on_with_tokens(shard, Vec::new()))?;
        let next = answered.rest.bytes()?;
        self.progress().go_on_with_tokens(shard, next);
        if answered.rest.number()? > 0 {
            // The runtime ends leases when the first known lease ends, so it must learn of this new end.
            self.node.state().shards.keep_first_end(Some(answered.now + lease));
            self.deployment.alarm.wake();
        }
        Ok(())
    }

    /// Takes one step through the redirects. A [redirect](Redirect) leads from the shard of a timer's id to the shard
    /// that stores the timer. First reads redirects whose timers an earlier step has not found, and removes a redirect
    /// if its timer is still not found. Then reads a page of other redirects.
    pub(crate) async fn sweep_redirects(&self) -> Result<(), StoreError> {
        let old = self.progress().take_old(self.deployment.time.now());
        let removals = old.into_iter().map(async |(id, redirect)| {
            if let (None, Some(found)) = look(&self.deployment, id).await?
                && found == redirect
            {
                displace(&self.deployment, id, &redirect).await?;
            }
            Ok::<_, StoreError>(())
        });
        // A server that fails holds up nothing but its own redirects. A later round reads and doubts these again.
        let removed = join_or_fail(removals).await;
        let owned = self.node.state().shards.owned();
        let Some((shard, bucket)) = self.progress().place(&owned) else { return removed.map(drop) };
        let buckets = (bucket..REDIRECT_HASHES).filter_map(|bucket| u8::try_from(bucket).ok());
        let keys = buckets.map(|bucket| self.deployment.layout.key(shard, Part::Redirects(bucket))).collect();
        let result = self.deployment.run(|scripts| &scripts.redirects, keys, [decimal(PAGE)]).await;
        // The next step reads the next shard.
        let mut answered = result.inspect_err(|_| self.progress().go_on(shard, bucket, REDIRECT_HASHES))?;
        let read = answered.rest.number()?;
        let mut values = answered.rest.list()?;
        let mut homes: BTreeMap<Shard, Vec<(TimerId, Redirect)>> = BTreeMap::new();
        while !values.is_empty() {
            let (id, redirect) = (values.bytes()?, bytes(values.next()?)?);
            let redirect = Redirect::of(redirect.unwrap_or_default());
            // A redirect that cannot be read stays. The check reports the redirect if its timer is stored elsewhere.
            let home = redirect.home().filter(|home| self.deployment.layout.shards().contains(home));
            if let (Some(id), Some(home)) = (id_of(&id), home) {
                homes.entry(home).or_default().push((id, redirect));
            }
        }
        let questions = homes.into_iter().map(async |(home, redirects)| {
            let ids = redirects.iter().map(|(id, _)| id_bytes(*id).to_vec()).collect::<Vec<_>>();
            let keys = self.deployment.layout.keys(home, [Part::Records]);
            let mut answered = self.deployment.run(|scripts| &scripts.are_stored, keys, ids).await?;
            let mut present = answered.rest.list()?;
            for (id, redirect) in redirects {
                if present.number()? == 0 {
                    self.progress().doubt(id, redirect, answered.now);
                }
            }
            Ok::<_, StoreError>(())
        });
        let doubted = join_or_fail(questions).await;
        self.progress().go_on(shard, bucket, u16::try_from(read).unwrap_or(REDIRECT_HASHES));
        removed.and(doubted).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_reads_every_hash_of_every_shard_of_the_node() {
        let (mut sweep, mut seen) = (Progress::default(), BTreeMap::<Shard, u16>::new());
        for _ in 0..200 {
            let (shard, bucket) = sweep.place(&[2, 3, 9]).unwrap();
            let before = seen.get(&shard).copied().unwrap_or_default();
            assert_eq!(before % REDIRECT_HASHES, bucket, "nothing is left out");
            let read = 7.min(REDIRECT_HASHES - bucket);
            *seen.entry(shard).or_default() += read;
            sweep.go_on(shard, bucket, read);
        }
        assert!(
            seen.keys().copied().eq([2, 3, 9]) && seen.values().all(|read| *read >= REDIRECT_HASHES),
            "{seen:?}"
        );
        assert_eq!(Progress::default().place(&[]), None);
    }

    #[test]
    fn a_round_reads_the_tokens_of_every_shard_of_the_node() {
        let (mut sweep, mut seen) = (Progress::default(), Vec::new());
        for place in ["17", "0", "0", "0", "8", "0"] {
            let (shard, from) = sweep.place_of_tokens(&[2, 3, 9]).unwrap();
            seen.push((shard, String::from_utf8(from).unwrap()));
            sweep.go_on_with_tokens(shard, place.into());
        }
        let place = |(shard, from): (Shard, &str)| (shard, from.to_owned());
        assert_eq!(seen, [(2, "0"), (2, "17"), (3, "0"), (9, "0"), (2, "0"), (2, "8")].map(place));
        assert_eq!(sweep.place_of_tokens(&[]), None);
        // Another node has the shard by now.
        sweep.go_on_with_tokens(3, b"5".to_vec());
        assert_eq!(sweep.place_of_tokens(&[2, 9]), Some((9, b"0".to_vec())));
    }

    #[test]
    fn redirects_are_doubted_from_the_first_look_on_and_up_to_a_limit() {
        let (mut sweep, at) = (Progress::default(), UtcMillis::from_millis);
        let id = TimerId::from_u128;
        let redirect = Redirect::fresh(1);
        sweep.doubt(id(1), redirect.clone(), at(0));
        sweep.doubt(id(1), redirect.clone(), at(1_000));
        sweep.doubt(id(2), Redirect::fresh(1), at(1_000));
        assert_eq!(sweep.take_old(at(0) + (AFTER - Duration::from_millis(1))), []);
        assert_eq!(sweep.take_old(at(0) + AFTER), [(id(1), redirect)]);
        // The redirect of another creation is doubted from its own first read on.
        sweep.doubt(id(2), Redirect::fresh(1), at(2_000));
        assert_eq!(sweep.take_old(at(1_000) + AFTER), []);
        for other in 0..2_000 {
            sweep.doubt(id(10 + other), Redirect::fresh(1), at(0));
        }
        assert_eq!(sweep.doubted.len(), MOST);
        assert_eq!(sweep.take_old(at(0) + AFTER).len(), AT_ONCE);
        assert_eq!(sweep.doubted.len(), MOST - AT_ONCE);
    }
}
