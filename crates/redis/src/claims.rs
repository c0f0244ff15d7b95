//! Claims and leases.

use crate::commit::text;
use crate::connect::is_renewed;
use crate::layout::{Layout, Part, Shard, Slice};
use crate::nodes::{Look, Seen, time_text};
use crate::promise::Witnesses;
use crate::shared::Core;
use crate::stored::{Found, damaged, id_bytes, id_of, mark_of, token_bytes};
use crate::time::millis;
use crate::time::moment;
use crate::transact::{Start, read};
use crate::turns::{PerLane, Turns};
use crate::values::{Values, bytes, filled, maybe_number, number};
use core::time::Duration;
use futures_util::future::{join_all, try_join_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::policy::Guarantee;
use tourbillon_durable::state::{Lease, Refusal, State, Token};
use tourbillon_durable::store::dry_run::DryRun;
use tourbillon_durable::store::{
    Claimant, Claimed, Leased, LeftOut, Limit, Op, Outcome, Reaped, Shares, StoreError, StoreErrorKind,
};
use tourbillon_durable::timer::{Timer, TimerId};

/// Timers that one script leases at most, so that no script takes long.
const AT_ONCE: u32 = 1_000;
/// Timers that a look at one group of several names at least, if so many are due.
const LEAST_NAMES: u32 = 8;
/// How often a claim is sent again because its connection was replaced.
const RENEWALS: u32 = 3;
/// Claims and shards whose answers were lost and are asked for later, at most.
const MOST_DOUBTS: usize = 4_096;
/// The bytes of a token. In a lease's field a mark follows.
const TOKEN: usize = 16;
/// The greatest number of leases of a shard in one answer.
const MOST_OVER: usize = 100_000;
/// Leases that are ended at the same time.
const REAPED_AT_ONCE: usize = 64;
/// The time after which leases are looked at again whose server did not answer.
const REST_OF_FAILED: Duration = Duration::from_secs(1);
/// Scripts without a timer after which a claim ends, although there is one that is due.
const IDLE_TURNS: u32 = 8;

/// Leases that have ended, of some shards.
#[derive(Default)]
struct Over {
    /// With the moments of their ends.
    found: Vec<(u64, Found)>,
    /// Shards that have more, perhaps, with the end of the last one that was answered.
    cut: Vec<(Shard, u64)>,
    /// The end of the first lease that has not ended, or a moment before long if a group did not answer.
    next: Option<u64>,
}

/// A claim that is at the server. It ends when it is dropped, as the caller's future may be.
struct UnderWay<'a> {
    core: &'a Core,
    number: u64,
    answer: Option<Option<UtcMillis>>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.core.end_claim(self.number, self.answer);
    }
}

/// What a look at some shards is to lease or to name.
#[derive(Clone, Copy)]
struct Wish<'w> {
    token: Token,
    lease: Duration,
    /// The greatest number of timers to lease.
    timers: u32,
    /// The number of payload bytes from which on no further timer is leased, and the number that are leased already.
    bytes: u64,
    taken: u64,
    /// The greatest number of timers to name, if none is to be leased.
    names: u32,
    per_lane: PerLane<'w>,
}

/// What a look at some shards has answered.
#[derive(Default)]
struct Asked {
    now: UtcMillis,
    records: Vec<(Shard, Vec<u8>)>,
    /// Timers that are due, in order.
    named: Vec<Named>,
    /// More are due than are named.
    is_cut: bool,
    first_due: Option<UtcMillis>,
    next_claim: Option<UtcMillis>,
}

/// A timer that a look has named and not leased.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    due: u64,
    id: Vec<u8>,
    /// The number of payload bytes.
    length: u64,
    lane: u64,
}

/// What to lease from a group.
#[derive(Debug, Default)]
struct Share {
    timers: u32,
    by_lane: BTreeMap<u64, u64>,
}

/// How many timers to lease from each group, so that all of them are the longest due that lanes may take. A group whose
/// timers are not all named may have the next one behind its last named one: no later ones are leased then.
fn parts_of(looked: Vec<(Vec<Shard>, Asked)>, wish: Wish<'_>) -> Vec<(Vec<Shard>, Share)> {
    let ends = looked.iter().filter(|(_, asked)| asked.is_cut).map(|(_, asked)| match asked.named.last() {
        Some(last) => (last.due, last.id.clone()),
        None => (asked.next_claim.unwrap_or_default().as_millis(), Vec::new()),
    });
    let end = ends.min();
    let (mut parts, mut named) = (Vec::new(), Vec::new());
    for (place, (group, asked)) in looked.into_iter().enumerate() {
        parts.push((group, Share::default()));
        named.extend(asked.named.into_iter().map(|named| (named, asked.now, place)));
    }
    named.sort_unstable();
    let (mut timers, mut taken) = (0, wish.taken);
    let mut closed = BTreeSet::new();
    let mut turns = match wish.per_lane {
        PerLane::InTurn(turns) => Some(turns.clone()),
        _ => None,
    };
    for (Named { due, id, length, lane }, now, place) in named {
        let is_full = timers >= wish.timers || taken > 0 && taken >= wish.bytes;
        if is_full || end.as_ref().is_some_and(|end| (due, id) > *end) {
            break;
        }
        // Each group has counted its own. The timers of a lane of a group are leased in order.
        let lateness = now - UtcMillis::from_millis(due);
        if !closed.contains(&(place, lane)) && turns.as_mut().is_none_or(|turns| turns.take(lane, lateness)) {
            (timers, taken) = (timers + 1, taken + length);
            let (_, share) = &mut parts[place];
            share.timers += 1;
            *share.by_lane.entry(lane).or_default() += 1;
        } else {
            closed.insert((place, lane));
        }
    }
    parts.retain(|(_, share)| share.timers > 0);
    parts
}

impl Core {
    /// Claims what is due, in turn if there are shares.
    pub(crate) async fn claim(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        shares: Option<Shares>,
    ) -> Result<Claimed, StoreError> {
        let mut under_way = UnderWay { core: self, number: self.begin_claim(), answer: None };
        let turns = shares.as_ref().map(|shares| Turns::new(shares, limit));
        let result = self.take_due(by, claim, limit, turns).await;
        under_way.answer = result.as_ref().ok().map(|claimed| claimed.next_claim);
        // Without turns it is the first due moment, which the answer has.
        let next_claim = |claimed: &Claimed| claimed.next_claim.filter(|_| shares.is_some());
        result.map(|claimed| Claimed { next_claim: next_claim(&claimed), ..claimed })
    }

    async fn take_due(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        turns: Option<Turns>,
    ) -> Result<Claimed, StoreError> {
        *self.claimed.lock().unwrap_or_else(PoisonError::into_inner) = Some((moment(), by.lease));
        self.enter().await?;
        let token = Token { incarnation: by.incarnation, claim };
        let mut has_leased = false;
        let witnesses = Witnesses::default();
        let taking = self.take_some(by, token, (limit, turns), &mut has_leased, &witnesses);
        let result = witnesses.collect(taking).await;
        result.map_err(|error| {
            // The caller asks all shards for what this claim has leased.
            self.doubts.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _)| *of != token);
            // An error of a later script says nothing of the first ones, whose timers are leased.
            match has_leased {
                true if error.kind() != StoreErrorKind::Closed => {
                    StoreError::caused_by(StoreErrorKind::Unknown, error)
                }
                _ => error,
            }
        })
    }

    async fn take_some(
        &self,
        by: Claimant,
        token: Token,
        (limit, mut turns): (Limit, Option<Turns>),
        has_leased: &mut bool,
        witnesses: &Witnesses,
    ) -> Result<Claimed, StoreError> {
        let is_split = self.is_split;
        let mut claimed = Claimed { now: self.time.now(), ..Claimed::default() };
        let (mut left, mut taken, mut idle) = (limit.timers, 0_u64, 0);
        let mut found = Vec::new();
        loop {
            let wish = Wish {
                token,
                lease: by.lease,
                timers: left.min(AT_ONCE),
                bytes: limit.bytes,
                taken,
                names: 0,
                per_lane: turns.as_ref().map_or(PerLane::Any, PerLane::InTurn),
            };
            let groups = self.groups_of(self.shards_for_claim(claimed.now));
            let asked = match is_split {
                true => self.ask_groups(groups, wish, &mut claimed.leased).await?,
                false => match groups.into_iter().next() {
                    Some(group) => vec![self.ask(group, wish).await?],
                    None => Vec::new(),
                },
            };
            let mut is_idle = true;
            if let Some(now) = asked.iter().map(|asked| asked.now).min() {
                claimed.now = now;
            }
            for Asked { now, records, .. } in asked {
                let lease = Lease { token, until: now + by.lease, withdrawn: None };
                *has_leased |= !records.is_empty();
                is_idle &= records.is_empty();
                for (shard, member) in records {
                    left = left.saturating_sub(1);
                    match self.leased(shard, member, lease).await? {
                        Some(its) => {
                            taken += its.timer.payload.0.len() as u64;
                            if let Some(turns) = &mut turns {
                                turns.count(&its.timer.namespace, now - its.timer.due);
                            }
                            found.push(its);
                        }
                        None => claimed.quarantined += 1,
                    }
                }
            }
            {
                let state = self.nodes.state();
                claimed.next_due = state.shards.next_due(is_split);
                claimed.next_claim = state.shards.next_claim(is_split);
            }
            let is_more = claimed.next_claim.is_some_and(|due| due <= claimed.now);
            idle = if is_idle { idle + 1 } else { 0 };
            let is_full = left == 0 || taken > 0 && taken >= limit.bytes;
            if is_full || !is_more || idle >= IDLE_TURNS {
                break;
            }
        }
        if turns.is_some_and(|turns| turns.leaves()) {
            // Perhaps of a lane whose further timers the script has passed over.
            let due = claimed.next_due.filter(|due| *due <= claimed.now);
            claimed.next_claim = claimed.next_claim.into_iter().chain(due).min();
        }
        found.sort_by_key(|its| (its.timer.due, its.timer.id));
        let is_once = |timer: &Timer| timer.policy.guarantee == Guarantee::AtMostOnce;
        // A replica that does not have the lease will not learn in time that the timer is forgotten.
        let is_heard = !found.iter().any(|its| is_once(&its.timer))
            || !witnesses.have_just_failed() && witnesses.confirm().await.is_ok();
        if !is_heard {
            // Their leases end by themselves.
            found.retain(|its| !is_once(&its.timer));
        }
        // After the last script: the occurrences that follow are left to the next claim.
        let mut failed = None;
        for its in found {
            let is_forgotten_first = is_once(&its.timer);
            if failed.is_some() && is_forgotten_first {
                // Its lease ends by itself.
                continue;
            }
            if let Err(error) = self.take(its, token, &mut claimed).await {
                failed = Some(error);
            }
        }
        if claimed.leased.iter().any(|leased| is_once(&leased.timer))
            && let Err(error) = witnesses.confirm().await
        {
            // They are forgotten here, and another server may deliver them: here they are not.
            claimed.leased.retain(|leased| !is_once(&leased.timer));
            failed = Some(error);
        }
        claimed.next_reap = self.nodes.state().shards.take_first_end();
        // What was forgotten must be delivered: nobody else can.
        failed.filter(|_| claimed.leased.is_empty()).map_or(Ok(claimed), Err)
    }

    /// The shards that a claim looks at. Those in doubt are among them: what was leased there is asked for.
    fn shards_for_claim(&self, now: UtcMillis) -> Vec<Shard> {
        let (pause, has_thread) = (self.nodes.pause(), self.nodes.has_thread());
        let doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.nodes.state();
        let mut shards = state.shards.for_claim(now, pause, self.is_split, has_thread);
        let doubted = doubts.iter().map(|(_, shard)| *shard);
        shards.extend(doubted.filter(|shard| state.shards.is_healthy(*shard)));
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Whether a claim whose answer was lost may have leased in one of these shards.
    fn is_doubted(&self, shards: &[Shard]) -> bool {
        let doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        doubts.iter().any(|(_, shard)| shards.contains(shard))
    }

    /// Asks the groups of a cluster: first what is due, and then each for its part of the longest due.
    async fn ask_groups(
        &self,
        groups: Vec<Vec<Shard>>,
        wish: Wish<'_>,
        recovered: &mut Vec<Leased>,
    ) -> Result<Vec<Asked>, StoreError> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let each = 2 * wish.timers / u32::try_from(groups.len()).unwrap_or(u32::MAX).max(1);
        let look = Wish { timers: 0, names: each.max(LEAST_NAMES).min(wish.timers), ..wish };
        let calls = groups.into_iter().map(|group| (group.clone(), self.ask(group, look)));
        let looked = self.gather(calls.collect::<Vec<_>>()).await;
        for (group, _) in &looked.failed {
            self.nodes.state().shards.fail_look(group);
        }
        let looked = looked.any()?.answers;
        self.resolve_doubts(&looked, recovered).await;
        let parts = parts_of(looked, wish);
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let calls = parts.iter().map(|(group, Share { timers, by_lane })| {
            let per_lane = match wish.per_lane {
                PerLane::Any => PerLane::Any,
                _ => PerLane::Exactly(by_lane),
            };
            (group.clone(), self.ask(group.clone(), Wish { timers: *timers, per_lane, ..wish }))
        });
        let leased = self.gather(calls.collect::<Vec<_>>()).await;
        for (group, error) in &leased.failed {
            self.nodes.state().shards.fail_look(group);
            if error.as_ref().is_none_or(|error| error.kind() == StoreErrorKind::Unknown) {
                let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
                doubts.extend(group.iter().map(|shard| (wish.token, *shard)));
            }
        }
        if leased.answers.is_empty() {
            let message = "no server of several has answered a claim";
            return Err(leased.any().err().map_or_else(
                || StoreError::new(StoreErrorKind::Unknown, message),
                |error| match error.kind() {
                    StoreErrorKind::Closed => error,
                    _ => StoreError::caused_by(StoreErrorKind::Unknown, error),
                },
            ));
        }
        Ok(leased.any()?.answers.into_iter().map(|(_, asked)| asked).collect())
    }

    /// Asks shards that answer again for what was leased there by claims whose answers were lost.
    async fn resolve_doubts(&self, answered: &[(Vec<Shard>, Asked)], recovered: &mut Vec<Leased>) {
        let can_answer = |shard: Shard| answered.iter().any(|(group, _)| group.contains(&shard));
        let doubts: Vec<(Token, Shard)> = {
            let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
            doubts.extract_if(.., |(_, shard)| can_answer(*shard)).collect()
        };
        let calls = doubts.into_iter().map(|doubt| (doubt, self.recover_in(doubt.0, vec![doubt.1])));
        let gathered = self.gather(calls.collect::<Vec<_>>()).await;
        for (_, leased) in gathered.answers {
            recovered.extend(leased);
        }
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        doubts.extend(gathered.failed.into_iter().map(|(doubt, _)| doubt));
        // The leases of the oldest ones have ended.
        let too_many = doubts.len().saturating_sub(MOST_DOUBTS);
        doubts.drain(..too_many);
    }

    /// Looks at some shards of one group, and leases what is wished.
    async fn ask(&self, shards: Vec<Shard>, wish: Wish<'_>) -> Result<Asked, StoreError> {
        let look = self.nodes.state().shards.begin_look(&shards);
        let mut answer = self.ask_server(&shards, wish, look).await;
        for _ in 0..RENEWALS {
            // The data behind the new connection may be older ones: a sign of life says so first.
            match answer {
                Err(error) if is_renewed(&error) => {
                    answer = match self.enter().await {
                        Ok(()) => self.ask_server(&shards, wish, look).await,
                        Err(error) => Err(error),
                    };
                }
                _ => break,
            }
        }
        match answer {
            Ok((asked, is_member)) => {
                if !is_member {
                    // The node left while this was on its way.
                    self.release_shards(shards).await;
                }
                Ok(asked)
            }
            Err(error) => {
                self.nodes.state().shards.fail_look(&shards);
                Err(error)
            }
        }
    }

    async fn ask_server(
        &self,
        shards: &[Shard],
        wish: Wish<'_>,
        look: Look,
    ) -> Result<(Asked, bool), StoreError> {
        let (keys, slices) = self.keys_of_claim(shards);
        let Wish { token, lease, timers, bytes: most, taken, names, per_lane } = wish;
        let mut arguments =
            vec![token_bytes(token), text(millis(lease)), text(timers.into()), text(most), text(taken)];
        arguments.extend([self.deployment.id(), self.nodes.node.clone(), time_text(self.nodes.ttl)]);
        arguments.push(text(names.into()));
        arguments.push(text(u64::from(look.wants_end)));
        arguments.extend(per_lane.arguments());
        arguments.extend(slices);
        // The server of another connection may have older data, which a sign of life finds out first.
        let attempt = Some(self.nodes.state().sign_by()).filter(|_| timers > 0);
        let mut answered = self.run_on(attempt, |scripts| &scripts.claim, keys, arguments).await?;
        let mut list = || Values::of(answered.rest.next()?);
        let (mut leased, mut slices) = (list()?, list()?);
        let (mut dues, mut nexts, mut owned) = (list()?, list()?, list()?);
        let first_end = maybe_number(answered.rest.next()?)?.map(UtcMillis::from_millis);
        let mut named = Values::of(answered.rest.next()?)?;
        let mut asked =
            Asked { now: answered.now, is_cut: number(&answered.rest.next()?)? == 1, ..Asked::default() };
        while !leased.is_empty() {
            let place = usize::try_from(number(&leased.next()?)?).unwrap_or_default();
            let shard = place.checked_sub(1).and_then(|place| shards.get(place)).copied();
            let shard = shard.ok_or_else(|| damaged("a claim answered a shard that there is not"))?;
            asked.records.push((shard, bytes(leased.next()?)?.unwrap_or_default()));
        }
        while !named.is_empty() {
            let (due, id) = (number(&named.next()?)?, bytes(named.next()?)?.unwrap_or_default());
            let (length, lane) = (number(&named.next()?)?, number(&named.next()?)?);
            asked.named.push(Named { due, id, length, lane });
        }
        let mut seen = Vec::new();
        for shard in shards {
            let first_due = maybe_number(dues.next()?)?.map(UtcMillis::from_millis);
            let next_claim = maybe_number(nexts.next()?)?.map(UtcMillis::from_millis);
            let owned = number(&owned.next()?)?;
            let (is_owned, is_lost) = (owned == 1, owned == 2);
            asked.first_due = asked.first_due.into_iter().chain(first_due).min();
            asked.next_claim = asked.next_claim.into_iter().chain(next_claim).min();
            seen.push(Seen { shard: *shard, is_owned, is_lost, first_due, next_claim });
            let (mut names, mut its) = (Values::of(slices.next()?)?, Vec::new());
            while !names.is_empty() {
                its.extend(bytes(names.next()?)?.as_deref().and_then(Slice::named));
            }
            let mut all = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = all.get_mut(usize::from(*shard)) {
                *known = its;
            }
        }
        let (is_member, are_lost) = {
            let mut state = self.nodes.state();
            state.shards.end_look(look, answered.now, &seen);
            state.shards.keep_first_end(first_end);
            (state.is_member, state.shards.are_lost())
        };
        if are_lost && let Some(gone) = self.gone().await {
            return Err(gone);
        }
        Ok((asked, is_member))
    }

    /// Looks at some shards of one group without a claim, for the thread. Wakes the subscribers if a claim is wanted.
    pub(crate) async fn look_at(&self, shards: Vec<Shard>) {
        let token = Token { incarnation: self.nodes.incarnation, claim: 0 };
        let wish = Wish {
            token,
            lease: Duration::ZERO,
            timers: 0,
            bytes: 0,
            taken: 0,
            names: 0,
            per_lane: PerLane::Any,
        };
        let asked = self.ask(shards.clone(), wish).await;
        let wants_claim = self.is_doubted(&shards) || self.nodes.state().shards.has_first_end();
        match asked {
            // The runtime sees the error by itself, or another server's answers.
            Err(_) => self.wake(),
            Ok(_) if wants_claim => self.wake(),
            Ok(Asked { first_due: Some(due), .. }) => self.wake_for(due),
            Ok(_) => {}
        }
    }

    /// Whether the runtime has left what is due for too long: its handlers are busy, or it is stuck.
    pub(crate) fn is_behind(&self, now: UtcMillis) -> bool {
        let ttl = self.nodes.ttl;
        let claimed = *self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.nodes.state();
        state.is_member
            && claimed.is_some_and(|(claimed, _)| moment() - claimed >= ttl)
            && state.shards.next_due(self.is_split).is_some_and(|due| due + ttl <= now)
    }

    /// The keys of a claim in some shards, and the arguments that name the slices among them: the first ones, as the
    /// last answer had them.
    fn keys_of_claim(&self, shards: &[Shard]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let parts = [Part::Meta, Part::Slices, Part::Records, Part::Tokens, Part::Leases, Part::Counts];
        let (mut keys, mut names) = (Vec::new(), Vec::new());
        let all = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        for shard in shards {
            let slices = all.get(usize::from(*shard)).map_or(&[][..], |slices| slices);
            keys.extend(self.layout.keys(*shard, parts));
            keys.extend(slices.iter().map(|slice| self.layout.key(*shard, Part::Slice(*slice))));
            names.push(text(slices.len() as u64));
            names.extend(slices.iter().map(|slice| text(slice.number())));
        }
        (keys, names)
    }

    /// A timer that a claim has leased. `None` if its record cannot be read: then it is set aside.
    pub(crate) async fn leased(
        &self,
        shard: Shard,
        member: Vec<u8>,
        lease: Lease,
    ) -> Result<Option<Found>, StoreError> {
        let until = lease.until.as_millis();
        let found = Found::read(shard, member.clone(), mark_of(&State::Leased(lease)), until);
        if found.is_none() {
            self.set_aside(shard, member, token_bytes(lease.token)).await?;
        }
        Ok(found)
    }

    /// Sets a record aside that cannot be read, if its timer is leased under this token.
    async fn set_aside(&self, shard: Shard, member: Vec<u8>, token: Vec<u8>) -> Result<(), StoreError> {
        let parts = [Part::Records, Part::Tokens, Part::Leases, Part::Counts, Part::Aside];
        let mut keys = self.layout.keys(shard, parts);
        let Some(id) = id_of(&member) else { return Ok(()) };
        // In a cluster the note stays, and leads nowhere.
        let noted = if self.is_split { shard } else { self.layout.shard_of_id(id) };
        keys.push(self.layout.key(noted, Layout::homes_of(id)));
        let set = self.layout.keyless_set(id);
        keys.extend(self.layout.keys(shard, [Part::Keys(set), Part::Places]));
        let arguments = [member, token, set.to_be_bytes().to_vec()];
        self.run(|scripts| &scripts.aside, keys, arguments).await.map(drop)
    }

    /// Adds a timer to a claim's answer. A timer that is delivered at most once is forgotten before.
    pub(crate) async fn take(
        &self,
        found: Found,
        token: Token,
        claimed: &mut Claimed,
    ) -> Result<(), StoreError> {
        let timer = found.timer.clone();
        if timer.policy.guarantee == Guarantee::AtLeastOnce {
            self.hold(&found);
            claimed.leased.push(Leased { timer, token });
            return Ok(());
        }
        let id = timer.id;
        let end = |draft: DryRun| {
            let (outcome, changes) = draft.apply(Op::Ack(id, token))?;
            let after = changes.timers.iter().filter_map(|change| change.after.as_ref());
            let due = after.filter(|timer| timer.state == State::Pending).map(|timer| timer.due).min();
            Ok(((outcome, due), changes))
        };
        // An error leaves the lease. The answer to the claim is lost then, and no delivery begins.
        let (outcome, due) = self.transact(Start::Read(Box::new(found)), end).await.map_err(|error| {
            let message = format!("a timer that is delivered at most once was not forgotten: {error}");
            StoreError::new(StoreErrorKind::Unknown, message)
        })?;
        match outcome {
            // Somebody else has withdrawn the timer, or its lease is over already.
            Outcome::Refused(Refusal::Stale) => {}
            outcome => {
                claimed.next_due = claimed.next_due.into_iter().chain(due).min();
                claimed.next_claim = claimed.next_claim.into_iter().chain(due).min();
                claimed.left_out.extend(LeftOut::of(&timer, &outcome));
                claimed.leased.push(Leased { timer: Timer { state: State::Pending, ..timer }, token });
            }
        }
        Ok(())
    }

    pub(crate) async fn recover(&self, by: Claimant, claim: u64) -> Result<Vec<Leased>, StoreError> {
        let token = Token { incarnation: by.incarnation, claim };
        let groups = self.groups_of(self.layout.shards());
        let calls = groups.into_iter().map(|group| (group.clone(), self.recover_in(token, group)));
        let gathered = self.gather(calls.collect::<Vec<_>>()).await.any()?;
        let late = gathered.failed.into_iter().flat_map(|(group, _)| group).map(|shard| (token, shard));
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner).extend(late);
        let mut leased: Vec<_> = gathered.answers.into_iter().flat_map(|(_, leased)| leased).collect();
        leased.sort_by_key(|leased| (leased.timer.due, leased.timer.id));
        Ok(leased)
    }

    /// What a claim has leased in some shards of one group.
    async fn recover_in(&self, token: Token, shards: Vec<Shard>) -> Result<Vec<Leased>, StoreError> {
        let keys = self.parts(&shards, [Part::Records, Part::Tokens, Part::Leases]);
        let mut answered = self.run(|scripts| &scripts.recover, keys, [token_bytes(token)]).await?;
        let mut values = Values::of(answered.rest.next()?)?;
        let mut leased = Vec::new();
        while !values.is_empty() {
            let place = usize::try_from(number(&values.next()?)?).unwrap_or_default();
            let shard = place.checked_sub(1).and_then(|place| shards.get(place)).copied();
            let shard = shard.ok_or_else(|| damaged("a script answered a shard that there is not"))?;
            // A record that cannot be read is set aside when its lease is over.
            let Ok(Some(found)) = read(shard, &mut values) else { continue };
            // A timer that is delivered at most once comes back when its lease is over, not by a second answer.
            if found.timer.policy.guarantee == Guarantee::AtLeastOnce {
                self.hold(&found);
                leased.push(Leased { timer: found.timer, token });
            }
        }
        Ok(leased)
    }

    pub(crate) async fn renew(
        &self,
        by: Claimant,
        leases: Vec<(TimerId, Token)>,
    ) -> Result<Vec<TimerId>, StoreError> {
        let mut shards: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        let mut lost = vec![false; leases.len()];
        let mut others = Vec::new();
        for (place, (id, _)) in leases.iter().enumerate() {
            match self.shard_of_held(*id) {
                Some(shard) => shards.entry(shard).or_default().push(place),
                None => others.push((place, self.find_id(*id))),
            }
        }
        let found = match self.is_split {
            true => self.gather(others).await.answers,
            false => {
                let calls =
                    others.into_iter().map(async |(place, call)| Ok::<_, StoreError>((place, call.await?)));
                try_join_all(calls).await?
            }
        };
        for (place, found) in found {
            match found {
                Some(found) => shards.entry(found.shard).or_default().push(place),
                None => lost[place] = true,
            }
        }
        let calls =
            shards.into_iter().map(|(shard, places)| (shard, self.renew_in(shard, by, &leases, places)));
        let calls = calls.collect::<Vec<_>>();
        let renewed = match self.is_split {
            // A lease in a shard whose server does not answer is renewed by the next call, or ends by itself.
            true => self.gather(calls).await.any()?.answers.into_iter().map(|(_, lost)| lost).collect(),
            false => try_join_all(calls.into_iter().map(|(_, call)| call)).await?,
        };
        for place in renewed.into_iter().flatten() {
            lost[place] = true;
        }
        let lost = leases.iter().zip(lost).filter(|(_, is_lost)| *is_lost);
        Ok(lost.map(|((id, _), _)| *id).inspect(|id| self.let_go(*id)).collect())
    }

    /// Renews the leases at some places, in one shard. Returns the places of those that are lost.
    async fn renew_in(
        &self,
        shard: Shard,
        by: Claimant,
        leases: &[(TimerId, Token)],
        places: Vec<usize>,
    ) -> Result<Vec<usize>, StoreError> {
        let its = places.iter().filter_map(|place| leases.get(*place));
        let its = its.flat_map(|(id, token)| [id_bytes(*id).to_vec(), token_bytes(*token)]);
        let arguments: Vec<Vec<u8>> = core::iter::once(text(millis(by.lease))).chain(its).collect();
        let keys = self.layout.keys(shard, [Part::Tokens, Part::Leases]);
        let mut answered = self.run(|scripts| &scripts.renew, keys, arguments).await?;
        let mut values = Values::of(answered.rest.next()?)?;
        let mut lost = Vec::new();
        while !values.is_empty() {
            let place = usize::try_from(number(&values.next()?)?).unwrap_or(usize::MAX);
            lost.extend(places.get(place).copied());
        }
        Ok(lost)
    }

    /// Ends leases whose end has come, the first ones first in each shard. However many shards there are, a script
    /// answers no more leases than are to be ended and one for each shard. A shard that has more is asked again.
    pub(crate) async fn reap(&self, limit: u32) -> Result<Reaped, StoreError> {
        let mut shards: Vec<Shard> = {
            let state = self.nodes.state();
            match state.is_member {
                true => state.shards.for_reap(self.is_split && self.nodes.has_thread()),
                false => self.layout.shards().collect(),
            }
        };
        let (mut reaped, mut left, mut next) = (Reaped::default(), limit as usize, None);
        let mut least = 1;
        loop {
            let each = left.min(AT_ONCE as usize).div_ceil(shards.len().max(1)).max(least);
            let Over { mut found, cut, next: its_next } = self.over(shards, each).await?;
            next = next.into_iter().chain(its_next).min();
            found.sort_by_key(|(until, found)| (*until, found.id()));
            let rest = found.split_off(found.len().min(left));
            left -= found.len();
            // Behind leases without timers there may be others.
            least = if found.is_empty() { 4 * each } else { 1 };
            let is_over = cut.is_empty() || left == 0 || least > MOST_OVER;
            while !found.is_empty() {
                let some = found.drain(..found.len().min(REAPED_AT_ONCE));
                let calls = some.map(async |(_, found)| {
                    let id = found.id();
                    let its = self.transact(Start::Over(Box::new(found)), |draft| draft.reap()).await;
                    self.let_go(id);
                    its
                });
                for its in join_all(calls).await {
                    let its = its?;
                    reaped.returned.extend(its.returned);
                    reaped.dead.extend(its.dead);
                    reaped.withdrawn += its.withdrawn;
                    reaped.left_out.extend(its.left_out);
                }
            }
            if is_over {
                let left =
                    rest.into_iter().map(|(until, _)| until).chain(cut.into_iter().map(|(_, last)| last));
                reaped.next = left.chain(next).min().map(UtcMillis::from_millis);
                return Ok(reaped);
            }
            shards = cut.into_iter().map(|(shard, _)| shard).collect();
        }
    }

    /// At most so many leases of each shard whose end has come. Records that cannot be read are set aside.
    async fn over(&self, shards: Vec<Shard>, each: usize) -> Result<Over, StoreError> {
        let calls = self.groups_of(shards).into_iter().map(|group| {
            let keys = self.parts(&group, [Part::Records, Part::Tokens, Part::Leases]);
            (group, self.run(|scripts| &scripts.over, keys, [text(each as u64)]))
        });
        let gathered = self.gather(calls.collect::<Vec<_>>()).await.any()?;
        let (mut over, mut unreadable) = (Over::default(), Vec::new());
        if !gathered.failed.is_empty() {
            over.next = Some((self.time.now() + REST_OF_FAILED).as_millis());
        }
        for (group, mut answered) in gathered.answers {
            let mut lists = Values::of(answered.rest.next()?)?;
            for shard in group {
                let mut values = Values::of(lists.next()?)?;
                let (mut count, mut last) = (0, 0);
                while !values.is_empty() {
                    let _id = values.next()?;
                    let until = number(&values.next()?)?;
                    if UtcMillis::from_millis(until) > answered.now {
                        over.next = over.next.into_iter().chain([until]).min();
                        break;
                    }
                    (count, last) = (count + 1, until);
                    let (member, mark) = (filled(values.next()?)?, filled(values.next()?)?);
                    // A lease without a timer is a fault that the check names. It holds nothing up.
                    let (Some(member), Some(mark)) = (member, mark) else { continue };
                    match Found::read(shard, member.clone(), Some(mark.clone()), until) {
                        Some(found) => over.found.push((until, found)),
                        None => unreadable.push((shard, member, mark)),
                    }
                }
                if count > each {
                    over.cut.push((shard, last));
                }
            }
        }
        for (shard, member, mut token) in unreadable {
            token.truncate(TOKEN);
            self.set_aside(shard, member, token).await?;
        }
        Ok(over)
    }
}
