//! Reads and renews the leases of this process's claims, and ends leases whose time is over.

use crate::deployment::{Deployment, millis};
use crate::layout::{Found, Layout, Part, Shard, id_bytes, id_of, mark_of, token_bytes};
use crate::node::Node;
use crate::operation::{Held, Start, Transactions};
use crate::read::{find_id, read_found};
use crate::script::{damaged, decimal};
use core::time::Duration;
use futures_util::future::join_all;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Lease, State, Token};
use tourbillon_durable::store::dry_run::DryRun;
use tourbillon_durable::store::{Claimant, Leased, Op, PAUSED, Reaped, Renewal, StoreError};
use tourbillon_durable::timer::TimerId;

/// The length of a claim's token in bytes. In a shard's hash of tokens, the token is followed by a byte that shows
/// whether the timer was withdrawn.
const TOKEN: usize = 16;
/// The number of expired leases that one round of [`Leases::reap`] asks the servers to list. The number is divided
/// equally between the shards, and rounded up. A round asks for fewer leases if the caller wants fewer, and for more
/// leases after a round that could not end any of the listed leases.
const AT_ONCE: usize = 1_000;
/// The greatest number of expired leases that [`Leases::reap`] asks one shard to list.
const MOST_EXPIRED: usize = 100_000;
/// The greatest number of expired leases that are ended at the same time.
const REAPED_AT_ONCE: usize = 64;
/// The pause after which a server that did not answer is asked for expired leases again.
const REST_OF_FAILED: Duration = Duration::from_secs(1);

/// The expired leases that the servers have listed in one round of [`Leases::reap`].
#[derive(Default)]
struct Expired {
    /// The timers whose leases have expired. The number before each timer is the end of its lease, in milliseconds.
    found: Vec<(u64, Found)>,
    /// The shards that have more expired leases than are in `found`. The number after each shard is the end of the
    /// first of these leases, in milliseconds.
    cut: Vec<(Shard, u64)>,
    /// The moment at which to ask for expired leases again, in milliseconds. This is the end of the first running
    /// lease. If a server did not answer, the moment is at most [`REST_OF_FAILED`] from now. `None` if no lease is
    /// running and all servers have answered.
    next: Option<u64>,
}

/// Renews the leases of timers, and ends expired leases.
pub(crate) struct Leases {
    deployment: Arc<Deployment>,
    node: Arc<Node>,
    held: Arc<Held>,
    pub(super) transactions: Arc<Transactions>,
    /// The shards of leased timers of which this process keeps no copy, as renewals have found them. So the next
    /// renewal needs no search, even if a slow server lets this renewal fail after its search.
    searched: Mutex<HashMap<TimerId, Shard>>,
}

impl Leases {
    pub(crate) fn new(transactions: Arc<Transactions>) -> Self {
        let Transactions { deployment, node, held } = &*transactions;
        let (deployment, node, held) = (Arc::clone(deployment), Arc::clone(node), Arc::clone(held));
        Self { deployment, node, held, transactions, searched: Mutex::default() }
    }

    fn searched(&self) -> MutexGuard<'_, HashMap<TimerId, Shard>> {
        self.searched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decodes the record of a timer that a claim has leased. Moves an unreadable record to the quarantine and returns
    /// `None`.
    pub(super) async fn read_leased(
        &self,
        shard: Shard,
        member: Vec<u8>,
        lease: Lease,
    ) -> Result<Option<Found>, StoreError> {
        let until = lease.until.as_millis();
        let found = Found::read(shard, member.clone(), mark_of(&State::Leased(lease)), until);
        if found.is_none() {
            self.quarantine(shard, member, token_bytes(lease.token)).await?;
        }
        Ok(found)
    }

    /// Moves an unreadable record to the quarantine if its timer is still leased under this token.
    async fn quarantine(&self, shard: Shard, member: Vec<u8>, token: Vec<u8>) -> Result<(), StoreError> {
        let parts = [Part::Records, Part::Tokens, Part::Leases, Part::Counts, Part::Quarantined];
        let mut keys = self.deployment.layout.keys(shard, parts);
        let Some(id) = id_of(&member) else { return Ok(()) };
        // In a cluster, the redirect to the timer may be in another shard. That redirect stays, and then leads nowhere.
        let own = self.deployment.layout.shard_of_id(id);
        let redirected = if self.deployment.topology.shares_script(own, shard) { own } else { shard };
        keys.push(self.deployment.layout.key(redirected, Layout::redirects_of(id)));
        let set = self.deployment.layout.keyless_set(id);
        keys.extend(self.deployment.layout.keys(shard, [Part::Keys(set), Part::Places]));
        let arguments = [member, token, set.to_be_bytes().to_vec()];
        self.deployment.run(|scripts| &scripts.quarantine, keys, arguments).await.map(drop)
    }

    /// Keeps copies of the timers that a claim has leased under the token `token`. Returns the timers for the claim's
    /// answer.
    pub(super) fn hand_out(&self, found: Vec<Found>, token: Token) -> impl Iterator<Item = Leased> {
        found.into_iter().map(move |found| {
            self.held.keep(&found);
            Leased { timer: found.timer, token }
        })
    }

    /// Parks a leased timer of a paused series (sets the timer aside).
    pub(super) async fn park_as_paused(&self, found: Found, token: Token) -> Result<(), StoreError> {
        let id = found.id();
        let park = move |draft: DryRun| draft.apply(Op::Park(id, token, PAUSED.into()));
        self.transactions.transact(Start::Read(Box::new(found)), park).await.map(drop)
    }

    /// Returns the timers in `shards` that are leased under the token `token`. One script must be able to read all
    /// of `shards`. If a timer was parked (set aside) before it was leased, and its series is paused, parks the
    /// timer again instead of returning it.
    pub(super) async fn recover_in(
        &self,
        token: Token,
        shards: Vec<Shard>,
    ) -> Result<Vec<Leased>, StoreError> {
        let keys = self.deployment.keys(&shards, [Part::Records, Part::Tokens, Part::Leases]);
        let mut answered =
            self.deployment.run(|scripts| &scripts.recover, keys, [token_bytes(token)]).await?;
        let mut values = answered.rest.list()?;
        let (mut leased, mut may_park) = (Vec::new(), true);
        while !values.is_empty() {
            let shard = values.index()?.and_then(|place| shards.get(place)).copied();
            let shard = shard.ok_or_else(|| damaged("a script answered a shard that there is not"))?;
            // An unreadable record is moved to the quarantine when its lease is over.
            let Ok(Some(found)) = read_found(shard, &mut values) else { continue };
            if found.was_parked() && found.timer.series.as_ref().is_some_and(|series| series.paused) {
                // The series was paused while the timer was parked for another reason. If the timer cannot be parked
                // again, it is left out, and its lease ends by itself. The server may have gone, and each further
                // attempt would wait as long as the first.
                may_park = may_park && self.park_as_paused(found, token).await.is_ok();
                continue;
            }
            leased.push(found);
        }
        Ok(self.hand_out(leased, token).collect())
    }

    /// Renews leases. In a cluster, fails only if no server answers, or if the store is closed. The leases of a
    /// server that does not answer expire unless a later call renews them.
    pub(crate) async fn renew(
        &self,
        claimant: Claimant,
        leases: Vec<(TimerId, Token)>,
    ) -> Result<Renewal, StoreError> {
        let mut shards: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        // For each lease, whether it is lost, or `None` until its server has answered.
        let mut answers: Vec<Option<bool>> = vec![None; leases.len()];
        let mut others = Vec::new();
        for (place, (id, _)) in leases.iter().enumerate() {
            match self.held.shard_of(*id).or_else(|| self.searched().get(id).copied()) {
                Some(shard) => shards.entry(shard).or_default().push(place),
                None => others.push((None, vec![place])),
            }
        }
        // A timer without a kept copy is searched, and its server may be gone. No other lease waits for this search.
        let groups = shards.into_iter().map(|(shard, places)| (Some(shard), places)).chain(others);
        let calls = groups.map(|(shard, places)| ((), self.renew_at(shard, claimant, &leases, places)));
        let renewed = self.deployment.gather_or_fail(calls.collect::<Vec<_>>()).await?.any()?;
        for (place, is_lost) in renewed.answers.into_iter().flat_map(|(_, answered)| answered) {
            answers[place] = Some(is_lost);
        }
        let those = |answer| {
            let meant = leases.iter().zip(&answers).filter(move |(_, of_lease)| **of_lease == answer);
            meant.map(|(lease, _)| *lease).collect::<Vec<_>>()
        };
        let renewal = Renewal { lost: those(Some(true)), silent: those(None) };
        renewal.lost.iter().for_each(|(id, token)| self.held.let_go_of(*id, *token));
        let mut searched = self.searched();
        if !searched.is_empty() {
            // A shard is remembered until the lease has ended.
            let lost: HashSet<_> = renewal.lost.iter().collect();
            let kept: HashSet<_> =
                leases.iter().filter(|lease| !lost.contains(lease)).map(|(id, _)| id).collect();
            searched.retain(|id, _| kept.contains(id));
        }
        Ok(renewal)
    }

    /// Does the same as [`renew_in`](Self::renew_in). If `shard` is `None`, first finds the shard of the first
    /// lease's timer. If the timer is not stored, returns all leases as lost.
    async fn renew_at(
        &self,
        shard: Option<Shard>,
        claimant: Claimant,
        leases: &[(TimerId, Token)],
        places: Vec<usize>,
    ) -> Result<Vec<(usize, bool)>, StoreError> {
        let first = places.first().and_then(|place| leases.get(*place));
        let shard = match (shard, first) {
            (None, Some((id, _))) => {
                let shard = find_id(&self.deployment, *id).await?.map(|found| found.shard);
                // This comes before the renewal, which may not end in time.
                shard.and_then(|shard| self.searched().insert(*id, shard));
                shard
            }
            (shard, _) => shard,
        };
        match shard {
            Some(shard) => self.renew_in(shard, claimant, leases, places).await,
            None => Ok(places.into_iter().map(|place| (place, true)).collect()),
        }
    }

    /// Renews leases of timers in the shard `shard`. `places` has the indices of these leases in `leases`. Returns each
    /// of the indices with a flag that is true if the lease is lost.
    async fn renew_in(
        &self,
        shard: Shard,
        claimant: Claimant,
        leases: &[(TimerId, Token)],
        places: Vec<usize>,
    ) -> Result<Vec<(usize, bool)>, StoreError> {
        let renewed = places.iter().filter_map(|place| leases.get(*place));
        let renewed = renewed.flat_map(|(id, token)| [id_bytes(*id).to_vec(), token_bytes(*token)]);
        let arguments: Vec<Vec<u8>> =
            core::iter::once(decimal(millis(claimant.lease))).chain(renewed).collect();
        let keys = self.deployment.layout.keys(shard, [Part::Tokens, Part::Leases]);
        let mut answered = self.deployment.run(|scripts| &scripts.renew, keys, arguments).await?;
        let mut values = answered.rest.list()?;
        let mut places: Vec<_> = places.into_iter().map(|place| (place, false)).collect();
        while !values.is_empty() {
            let place = usize::try_from(values.number()?).unwrap_or(usize::MAX);
            if let Some((_, is_lost)) = places.get_mut(place) {
                *is_lost = true;
            }
        }
        Ok(places)
    }

    /// Ends at most `limit` expired leases. In each shard, the leases that expired first come first. If a shard has
    /// more expired leases than one script lists, the method asks the shard again.
    pub(crate) async fn reap(&self, limit: u32) -> Result<Reaped, StoreError> {
        let mut shards: Vec<Shard> = {
            let state = self.node.state();
            // A process that is not a node has no shards. Its reap may use all shards, because ownership decides
            // nothing.
            if state.is_member { state.shards.for_reap() } else { self.deployment.layout.shards().collect() }
        };
        let (mut reaped, mut left, mut next) = (Reaped::default(), limit as usize, None);
        let mut least = 1;
        loop {
            // Each shard lists an equal part, so that the script stays short for any number of shards, and one more,
            // since few leases are seldom spread equally.
            let each = left.min(AT_ONCE).div_ceil(shards.len().max(1)).max(least) + 1;
            let Expired { mut found, cut, next: first_left } = self.expired(shards, each).await?;
            next = next.into_iter().chain(first_left).min();
            found.sort_by_key(|(until, found)| (*until, found.id()));
            let rest = found.split_off(found.len().min(left));
            left -= found.len();
            // This function cannot end a lease without a timer, so such leases stay the first in each list. A longer
            // list shows the leases after them.
            least = if found.is_empty() { 4 * each } else { 1 };
            let is_last = cut.is_empty() || left == 0 || least > MOST_EXPIRED;
            while !found.is_empty() {
                let some = found.drain(..found.len().min(REAPED_AT_ONCE));
                let calls = some.map(async |(_, found)| {
                    let id = found.id();
                    // A commit ends the lease, since the timer's policy decides whether a retry or the next occurrence
                    // follows. The Lua scripts do not read policies.
                    let reaped = self
                        .transactions
                        .transact(Start::Expired(Box::new(found)), |draft| draft.reap())
                        .await;
                    // The copy is dropped after an error, too, because the lease may have ended.
                    self.held.let_go(id);
                    reaped
                });
                for one in join_all(calls).await {
                    let one = one?;
                    reaped.add(one);
                }
            }
            if is_last {
                // The ends of the leases that are left have passed, so the caller soon reaps again.
                let left =
                    rest.into_iter().map(|(until, _)| until).chain(cut.into_iter().map(|(_, until)| until));
                reaped.next = left.chain(next).min().map(UtcMillis::from_millis);
                return Ok(reaped);
            }
            shards = cut.into_iter().map(|(shard, _)| shard).collect();
        }
    }

    /// Lists expired leases, at most `each` of them in each shard. Moves unreadable records to the quarantine.
    async fn expired(&self, shards: Vec<Shard>, each: usize) -> Result<Expired, StoreError> {
        let calls = self.deployment.topology.groups(shards).into_iter().map(|group| {
            let keys = self.deployment.keys(&group, [Part::Records, Part::Tokens, Part::Leases]);
            (group, self.deployment.run(|scripts| &scripts.expired, keys, [decimal(each as u64)]))
        });
        let gathered = self.deployment.gather(calls.collect::<Vec<_>>()).await.any()?;
        let (mut expired, mut unreadable) = (Expired::default(), Vec::new());
        if !gathered.failed.is_empty() {
            expired.next = Some((self.deployment.time.now() + REST_OF_FAILED).as_millis());
        }
        for (group, mut answered) in gathered.answers {
            let mut lists = answered.rest.list()?;
            for shard in group {
                let mut values = lists.list()?;
                let mut count = 0;
                while !values.is_empty() {
                    let _id = values.next()?;
                    let until = values.number()?;
                    // The script lists one lease more, without its record, to show when the next lease ends.
                    if UtcMillis::from_millis(until) > answered.now {
                        expired.next = expired.next.into_iter().chain([until]).min();
                        break;
                    }
                    if count == each {
                        expired.cut.push((shard, until));
                        break;
                    }
                    count += 1;
                    let (member, mark) = (values.filled()?, values.filled()?);
                    // A lease without a timer is a fault that the check reports. It must not stop the other leases.
                    let (Some(member), Some(mark)) = (member, mark) else { continue };
                    match Found::read(shard, member.clone(), Some(mark.clone()), until) {
                        Some(found) => expired.found.push((until, found)),
                        None => unreadable.push((shard, member, mark)),
                    }
                }
            }
        }
        for (shard, member, mut token) in unreadable {
            token.truncate(TOKEN);
            self.quarantine(shard, member, token).await?;
        }
        Ok(expired)
    }
}
