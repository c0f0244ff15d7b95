//! Claims and leases.

use crate::commit::text;
use crate::layout::{Layout, Part, Shard};
use crate::shared::Core;
use crate::stored::{Found, damaged, id_bytes, id_of, mark_of, token_bytes};
use crate::transact::{Start, millis, read};
use crate::values::{Values, bytes, filled, maybe_number, number};
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::policy::Guarantee;
use tourbillon_durable::state::{Lease, Refusal, State, Token};
use tourbillon_durable::store::draft::Draft;
use tourbillon_durable::store::{
    Claimant, Claimed, Leased, LeftOut, Limit, Op, Outcome, Reaped, StoreError, StoreErrorKind,
};
use tourbillon_durable::timer::{Timer, TimerId};

/// Timers that one script leases at most, so that no script takes long.
const AT_ONCE: u32 = 1_000;
/// The bytes of a token. In a lease's field a mark follows.
const TOKEN: usize = 16;
/// Scripts without a timer after which a claim ends, although there is one that is due.
const IDLE_TURNS: u32 = 8;

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

impl Core {
    pub(crate) async fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Result<Claimed, StoreError> {
        let mut under_way = UnderWay { core: self, number: self.begin_claim(), answer: None };
        let result = self.take_due(by, claim, limit).await;
        under_way.answer = result.as_ref().ok().map(|claimed| claimed.next_due);
        result
    }

    async fn take_due(&self, by: Claimant, claim: u64, limit: Limit) -> Result<Claimed, StoreError> {
        let mut has_leased = false;
        let result = self.take_some(by, claim, limit, &mut has_leased).await;
        // An error of a later script says nothing of the first ones, whose timers are leased.
        result.map_err(|error| match has_leased {
            true => StoreError::caused_by(StoreErrorKind::Unknown, error),
            false => error,
        })
    }

    async fn take_some(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        has_leased: &mut bool,
    ) -> Result<Claimed, StoreError> {
        let token = Token { incarnation: by.incarnation, claim };
        let mut claimed = Claimed::default();
        let mut found = Vec::new();
        if self.is_split {
            claimed.now = self.time.now();
            for (shard, timers) in self.longest_due(claimed.now, limit).await? {
                let limit = Limit { timers, bytes: u64::MAX };
                self.take_of(&[shard], by, token, limit, has_leased, &mut claimed, &mut found).await?;
            }
            found.sort_by_key(|found| (found.timer.due, found.id()));
            claimed.next_due = self.next_due().await?;
        } else {
            let all: Vec<Shard> = self.layout.shards().collect();
            self.take_of(&all, by, token, limit, has_leased, &mut claimed, &mut found).await?;
        }
        // After the last script: the occurrences that follow are left to the next claim.
        let mut failed = None;
        for its in found {
            let is_forgotten_first = its.timer.policy.guarantee == Guarantee::AtMostOnce;
            if failed.is_some() && is_forgotten_first {
                // Its lease ends by itself.
                continue;
            }
            if let Err(error) = self.take(its, token, &mut claimed).await {
                failed = Some(error);
            }
        }
        // What was forgotten must be delivered: nobody else can.
        failed.filter(|_| claimed.leased.is_empty()).map_or(Ok(claimed), Err)
    }

    /// Leases timers of some shards whose keys one script may name.
    #[expect(clippy::too_many_arguments, reason = "a part of one function")]
    async fn take_of(
        &self,
        shards: &[Shard],
        by: Claimant,
        token: Token,
        limit: Limit,
        has_leased: &mut bool,
        claimed: &mut Claimed,
        found: &mut Vec<Found>,
    ) -> Result<(), StoreError> {
        let (mut left, mut taken, mut idle) = (limit.timers, 0_u64, 0);
        loop {
            let mut slices = self.slices_of(shards);
            let keys = self.keys_of_claim(shards, &slices);
            let mut arguments =
                vec![token_bytes(token), text(millis(by.lease)), text(left.min(AT_ONCE).into())];
            arguments.extend([text(limit.bytes), text(taken)]);
            arguments.append(&mut slices);
            if !self.is_split {
                arguments.push(self.deployment.id.clone());
            }
            let mut answered = self.run(|scripts| &scripts.claim, keys, arguments).await?;
            claimed.now = answered.now;
            let is_more = number(&answered.rest.next()?)? == 1;
            let mut records = Values::of(answered.rest.next()?)?;
            let mut slices = Values::of(answered.rest.next()?)?;
            claimed.next_due = maybe_number(answered.rest.next()?)?.map(UtcMillis::from_millis);
            let mut known = Vec::new();
            while !slices.is_empty() {
                known.push(bytes(slices.next()?)?.unwrap_or_default());
            }
            self.keep_slices(shards, known);
            let lease = Lease { token, until: answered.now + by.lease, withdrawn: None };
            idle = if records.is_empty() { idle + 1 } else { 0 };
            *has_leased |= !records.is_empty();
            while !records.is_empty() {
                let place = usize::try_from(number(&records.next()?)?).unwrap_or_default();
                let shard = place.checked_sub(1).and_then(|place| shards.get(place)).copied();
                let member = bytes(records.next()?)?.unwrap_or_default();
                left -= 1;
                match self.leased(shard, member, lease).await? {
                    Some(its) => {
                        taken += its.timer.payload.0.len() as u64;
                        found.push(its);
                    }
                    None => claimed.quarantined += 1,
                }
            }
            let is_full = left == 0 || taken > 0 && taken >= limit.bytes;
            if is_full || !is_more || idle >= IDLE_TURNS {
                return Ok(());
            }
        }
    }

    /// The first two slices of each of these shards, as far as they are known.
    fn slices_of(&self, shards: &[Shard]) -> Vec<Vec<u8>> {
        let slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        let places = shards.iter().flat_map(|shard| [2 * usize::from(*shard), 2 * usize::from(*shard) + 1]);
        places.map(|place| slices.get(place).cloned().unwrap_or_default()).collect()
    }

    fn keep_slices(&self, shards: &[Shard], known: Vec<Vec<u8>>) {
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        let places = shards.iter().flat_map(|shard| [2 * usize::from(*shard), 2 * usize::from(*shard) + 1]);
        for (place, known) in places.zip(known) {
            if let Some(slice) = slices.get_mut(place) {
                *slice = known;
            }
        }
    }

    /// The keys of a claim in these shards, if these are their first slices, and the deployment's on one server.
    fn keys_of_claim(&self, shards: &[Shard], slices: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let hour_of = |place: usize| {
            let hour = slices.get(place).and_then(|hour| core::str::from_utf8(hour).ok());
            hour.and_then(|hour| hour.parse().ok()).unwrap_or_default()
        };
        let keys = shards.iter().enumerate().flat_map(|(nth, shard)| {
            let place = 2 * nth;
            let (first, second) = (Part::Slice(hour_of(place)), Part::Slice(hour_of(place + 1)));
            let parts =
                [Part::Slices, Part::Records, Part::Tokens, Part::Leases, Part::Counts, first, second];
            self.layout.keys(*shard, parts)
        });
        keys.chain((!self.is_split).then(|| self.deployment.key.clone())).collect()
    }

    /// A timer that a claim has leased. `None` if its record cannot be read: then it is set aside.
    async fn leased(
        &self,
        shard: Option<Shard>,
        member: Vec<u8>,
        lease: Lease,
    ) -> Result<Option<Found>, StoreError> {
        let shard = shard.ok_or_else(|| damaged("a claim answered a shard that there is not"))?;
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
        self.run(|scripts| &scripts.aside, keys, [member, token]).await.map(drop)
    }

    /// Adds a timer to a claim's answer. A timer that is delivered at most once is forgotten before.
    async fn take(&self, found: Found, token: Token, claimed: &mut Claimed) -> Result<(), StoreError> {
        let timer = found.timer.clone();
        if timer.policy.guarantee == Guarantee::AtLeastOnce {
            self.hold(&found);
            claimed.leased.push(Leased { timer, token });
            return Ok(());
        }
        let id = timer.id;
        let end = |draft: Draft| {
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
                claimed.left_out.extend(LeftOut::of(&timer, &outcome));
                claimed.leased.push(Leased { timer: Timer { state: State::Pending, ..timer }, token });
            }
        }
        Ok(())
    }

    pub(crate) async fn recover(&self, by: Claimant, claim: u64) -> Result<Vec<Leased>, StoreError> {
        let token = Token { incarnation: by.incarnation, claim };
        let answers = self.each_group(async |shards| {
            let keys = self.parts(&shards, [Part::Records, Part::Tokens, Part::Leases]);
            let answered = self.run(|scripts| &scripts.recover, keys, [token_bytes(token)]).await?;
            Ok((shards, answered))
        });
        let mut leased = Vec::new();
        for (shards, mut answered) in answers.await? {
            let mut values = Values::of(answered.rest.next()?)?;
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
        }
        leased.sort_by_key(|leased| (leased.timer.due, leased.timer.id));
        Ok(leased)
    }

    pub(crate) async fn renew(
        &self,
        by: Claimant,
        leases: Vec<(TimerId, Token)>,
    ) -> Result<Vec<TimerId>, StoreError> {
        let mut shards: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        let mut lost = vec![false; leases.len()];
        for (place, (id, _)) in leases.iter().enumerate() {
            let shard = match self.shard_of_held(*id) {
                Some(shard) => Some(shard),
                None => self.find_id(*id).await?.map(|found| found.shard),
            };
            match shard {
                Some(shard) => shards.entry(shard).or_default().push(place),
                None => lost[place] = true,
            }
        }
        let renewals = shards.into_iter().map(|(shard, places)| {
            let leases = &leases;
            async move {
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
                Ok::<_, StoreError>(lost)
            }
        });
        for place in try_join_all(renewals).await?.into_iter().flatten() {
            lost[place] = true;
        }
        let lost = leases.iter().zip(lost).filter(|(_, is_lost)| *is_lost);
        Ok(lost.map(|((id, _), _)| *id).inspect(|id| self.let_go(*id)).collect())
    }

    pub(crate) async fn reap(&self, limit: u32) -> Result<Reaped, StoreError> {
        let answers = self.each_group(async |shards| {
            let keys = self.parts(&shards, [Part::Records, Part::Tokens, Part::Leases]);
            let limit = text(limit.min(AT_ONCE * 100).into());
            let mut answered = self.run(|scripts| &scripts.over, keys, [limit]).await?;
            let mut lists = Values::of(answered.rest.next()?)?;
            let lists = shards.into_iter().map(|shard| Ok((shard, answered.now, lists.next()?)));
            lists.collect::<Result<Vec<_>, StoreError>>()
        });
        let (mut over, mut next): (Vec<(u64, Found)>, Option<u64>) = (Vec::new(), None);
        let mut unreadable = Vec::new();
        for (shard, now, values) in answers.await?.into_iter().flatten() {
            let mut values = Values::of(values)?;
            while !values.is_empty() {
                let _id = values.next()?;
                let until = number(&values.next()?)?;
                if UtcMillis::from_millis(until) > now {
                    next = Some(next.map_or(until, |next| next.min(until)));
                    break;
                }
                let (member, mark) = (filled(values.next()?)?, filled(values.next()?)?);
                // A lease without a timer is a fault that the check names. It holds nothing up.
                let (Some(member), Some(mark)) = (member, mark) else { continue };
                match Found::read(shard, member.clone(), Some(mark.clone()), until) {
                    Some(found) => over.push((until, found)),
                    None => unreadable.push((shard, member, mark)),
                }
            }
        }
        for (shard, member, mut token) in unreadable {
            token.truncate(TOKEN);
            self.set_aside(shard, member, token).await?;
        }
        over.sort_by_key(|(until, found)| (*until, found.id()));
        let rest = over.split_off(over.len().min(limit as usize));
        next = rest.first().map(|(until, _)| *until).into_iter().chain(next).min();
        let mut reaped = Reaped { next: next.map(UtcMillis::from_millis), ..Reaped::default() };
        for (_, found) in over {
            let id = found.id();
            let its = self.transact(Start::Over(Box::new(found)), |draft| draft.reap()).await?;
            self.let_go(id);
            reaped.returned.extend(its.returned);
            reaped.dead.extend(its.dead);
            reaped.withdrawn += its.withdrawn;
            reaped.left_out.extend(its.left_out);
        }
        Ok(reaped)
    }
}
