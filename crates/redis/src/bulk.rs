//! Operations on many timers, in the order of an index: some timers by one script.

use crate::commit::{Commit, Doubt, Known, Scope};
use crate::layout::{Part, Shard};
use crate::lists::{Index, Order};
use crate::reservation::Reservations;
use crate::send::Sent;
use crate::shared::Core;
use crate::stored::{Found, label_entry, part};
use crate::transact::Start;
use crate::values::Values;
use futures_util::future::{join_all, try_join_all};
use std::collections::BTreeMap;
use tourbillon_durable::state::State;
use tourbillon_durable::store::dry_run::{Changes, DryRun};
use tourbillon_durable::store::{Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Timer, TimerId};

/// Entries that are read at once.
const AT_ONCE: usize = 256;
/// Timers that one script changes at most, so that no script takes long.
const SEVERAL: usize = 32;
/// Attempts to store an imported timer whose note leads nowhere.
const TURNS: usize = 8;

impl Core {
    /// Changes several timers that were read, with those of a script at the same time. `op` is the operation on so
    /// many timers. Returns the outcomes.
    async fn change_several(
        &self,
        mut found: Vec<Found>,
        op: impl Fn(u32) -> Op,
    ) -> Result<Vec<Outcome>, StoreError> {
        found.sort_by_key(|found| found.shard);
        let groups = found.chunk_by(|one, other| !self.is_split || one.shard == other.shard);
        let some = groups.flat_map(|group| group.chunks(SEVERAL));
        let calls = some.map(|some| {
            let op = op(u32::try_from(some.len()).unwrap_or(u32::MAX));
            self.transact(Start::Several(some.to_vec()), move |draft| draft.apply(op.clone()))
        });
        // All of them, so that no call goes on behind the answer.
        join_all(calls.collect::<Vec<_>>()).await.into_iter().collect()
    }

    /// Makes changes of different timers that are named by their ids. Returns the outcomes of those that were made, by
    /// their places: what is not found where its id says is left to an operation of its own.
    pub(crate) async fn change_by_ids(
        &self,
        ops: &[(TimerId, &Op)],
    ) -> Result<BTreeMap<usize, Outcome>, StoreError> {
        let mut shards = BTreeMap::<Shard, Vec<usize>>::new();
        for (place, (id, _)) in ops.iter().enumerate() {
            shards.entry(self.layout.shard_of_id(*id)).or_default().push(place);
        }
        let id_at = |place: &usize| ops.get(*place).map(|(id, _)| *id);
        let reads = shards.into_iter().map(async |(shard, places)| {
            let ids: Vec<TimerId> = places.iter().filter_map(id_at).collect();
            let found = self.records(shard, &ids).await?;
            Ok::<_, StoreError>(places.into_iter().zip(found).collect::<Vec<_>>())
        });
        let mut found = Vec::new();
        for (place, its) in try_join_all(reads).await?.into_iter().flatten() {
            if let Ok(Some(its)) = its {
                found.push((place, its));
            }
        }
        // In a cluster a script has the timers of one shard; they are in the order of their shards.
        let groups = found.chunk_by(|(_, one), (_, other)| !self.is_split || one.shard == other.shard);
        let calls = groups.flat_map(|group| group.chunks(SEVERAL)).map(async |some| {
            let places = some.iter().map(|(place, _)| *place).collect::<Vec<_>>();
            let its: Vec<Op> = places.iter().filter_map(|place| Some(ops.get(*place)?.1.clone())).collect();
            let start = Start::Several(some.iter().map(|(_, found)| found.clone()).collect());
            let outcomes = self.transact(start, |draft| draft.apply_all(its.clone())).await?;
            Ok::<_, StoreError>(places.into_iter().zip(outcomes).collect::<Vec<_>>())
        });
        // All of them, so that no call goes on behind the answer.
        let made: Result<Vec<_>, StoreError> =
            join_all(calls.collect::<Vec<_>>()).await.into_iter().collect();
        Ok(made?.into_iter().flatten().collect())
    }

    /// Withdraws timers of a label, in the order of their ids.
    pub(crate) async fn cancel_labelled(
        &self,
        namespace: &str,
        label: &str,
        limit: u32,
    ) -> Result<Outcome, StoreError> {
        let index = Index::Members(Part::Labels, label_entry(namespace, label));
        let op = |limit| Op::CancelLabelled { namespace: namespace.into(), label: label.into(), limit };
        let limit = limit.max(1);
        let (mut cancelled, mut in_flight, mut last) = (0, 0, None::<Vec<u8>>);
        loop {
            let (mut entries, is_end) =
                self.entries_after((&index, Order::Ascending), last.as_deref(), AT_ONCE).await?;
            let left = (limit - cancelled) as usize;
            let more = entries.len() > left;
            entries.truncate(left);
            last = entries.last().map(|entry| entry.place.clone()).or(last);
            let found = self.timers_of(&entries).await?.into_iter().flatten().collect();
            for outcome in self.change_several(found, op).await? {
                if let Outcome::CancelledMany { cancelled: its, in_flight: flying, .. } = outcome {
                    cancelled += its;
                    in_flight += flying;
                }
            }
            if is_end && !more {
                return Ok(Outcome::CancelledMany { cancelled, in_flight, more: false });
            }
            if cancelled >= limit {
                return Ok(Outcome::CancelledMany { cancelled, in_flight, more: true });
            }
        }
    }

    /// Puts timers back that were put aside for a reason in some shards, the longest due first.
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
            let each = (2 * left.min(AT_ONCE) / parts.len() + 3).min(left);
            let from = last.as_ref().map(|member| [b"(", &member[..]].concat());
            let (mut entries, is_end) = self.members_after(&parts, from, &beginning, each).await?;
            let is_end = is_end && entries.len() <= left;
            entries.truncate(left);
            last = entries.last().map(|entry| entry.place.clone()).or(last);
            let found = self.timers_of(&entries).await?.into_iter().flatten().collect();
            for outcome in self.change_several(found, |limit| Op::Unpark(reason.into(), limit)).await? {
                if let Outcome::Unparked(its) = outcome {
                    unparked += its;
                }
            }
            if is_end {
                break;
            }
        }
        Ok(Outcome::Unparked(unparked))
    }

    /// Stores timers of a backup: by one script on one server, by one for each shard in a cluster.
    pub(crate) async fn import(&self, timers: Vec<Timer>) -> Result<(), StoreError> {
        let changes = DryRun::new(self.time.now()).import(timers)?;
        if changes.timers.is_empty() {
            return Ok(());
        }
        match self.is_split {
            true => self.import_by_shard(&changes).await?,
            false => {
                let known = Known::default();
                let mut commit = Commit::new(&self.layout, &known, &changes, None, Scope::All);
                commit.expect_marks(&known, &changes, &self.deployment.id());
                if let Sent::Refused { doubt, mut found, .. } = self.send(commit).await? {
                    return Err(self.taken(&doubt, &mut found));
                }
            }
        }
        let pending = changes.timers.iter().filter_map(|change| change.after.as_ref());
        for timer in pending.filter(|timer| timer.state == State::Pending) {
            self.note(self.layout.home_of(timer), timer.due);
        }
        Ok(())
    }

    /// Reserves all ids, verifies that each shard can take its timers, and stores them only then. What somebody else
    /// stores between the last two can make the import fail in the middle.
    async fn import_by_shard(&self, changes: &Changes) -> Result<(), StoreError> {
        let mut shards: BTreeMap<Shard, Changes> = BTreeMap::new();
        for change in &changes.timers {
            let Some(timer) = &change.after else { continue };
            let its = shards.entry(self.layout.home_of(timer)).or_default();
            its.timers.push(change.clone());
            its.absent.push(timer.id);
            its.free.extend(timer.key_of().filter(|_| timer.owns_key()));
        }
        let mut reserved = Reservations::new();
        let mut result = self.reserve_for_import(&shards, &mut reserved).await;
        if result.is_ok() {
            let looks: BTreeMap<_, _> = shards
                .iter()
                .map(|(shard, its)| {
                    let looks =
                        Changes { absent: its.absent.clone(), free: its.free.clone(), ..Changes::default() };
                    (*shard, looks)
                })
                .collect();
            result = self.store_imported(&looks, &reserved).await;
        }
        if let Err(error) = result {
            self.release(reserved).await;
            return Err(error);
        }
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
        let outside = |shard: &Shard, id: &TimerId| self.layout.shard_of_id(*id) != *shard;
        let ids = shards.iter().flat_map(|(shard, its)| its.absent.iter().map(move |id| (*shard, *id)));
        let ids: Vec<(Shard, TimerId)> = ids.filter(|(shard, id)| outside(shard, id)).collect();
        for ids in ids.chunks(AT_ONCE) {
            let answers = ids.iter().map(async |(shard, id)| {
                for _ in 0..TURNS {
                    match self.reserve(*id, *shard, true).await? {
                        Ok(its) => return Ok((*id, its)),
                        Err(Sent::Refused { doubt: Doubt::Noted(_, note), .. })
                            if !self.displace(*id, &note).await? => {}
                        Err(Sent::Refused { doubt, .. }) => return Err(taken(&doubt)),
                        Err(Sent::Done) => break,
                    }
                }
                Err(StoreError::new(StoreErrorKind::Io, format!("others create timer {id} again and again")))
            });
            // All of them, so that those that were reserved are known.
            let (mut failed, answers) = (None, join_all(answers).await);
            for answer in answers {
                match answer {
                    Ok((id, its)) => drop(reserved.insert(id, its)),
                    Err(error) => failed = Some(error),
                }
            }
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Makes, or only verifies, the changes of each shard.
    async fn store_imported(
        &self,
        shards: &BTreeMap<Shard, Changes>,
        reserved: &Reservations,
    ) -> Result<(), StoreError> {
        let known = Known::default();
        for (shard, changes) in shards {
            for turn in 0.. {
                let scope = Scope::Shard(*shard, reserved);
                let mut commit = Commit::new(&self.layout, &known, changes, None, scope);
                commit.expect_marks(&known, changes, &self.deployment.id());
                let (doubt, mut found) = match self.send(commit).await? {
                    Sent::Done => break,
                    Sent::Refused { doubt, found, .. } => (doubt, found),
                };
                // A note that leads nowhere takes no id.
                let Doubt::Timer(id) = doubt else { return Err(self.taken(&doubt, &mut found)) };
                match self.look(id).await? {
                    (None, Some(note)) if turn < TURNS => drop(self.displace(id, &note).await?),
                    _ => return Err(taken(&doubt)),
                }
            }
        }
        Ok(())
    }

    /// Why a timer cannot be imported.
    fn taken(&self, doubt: &Doubt, found: &mut Values) -> StoreError {
        match doubt {
            Doubt::Lost(shard) => self.lost_shard(*shard, found),
            doubt => taken(doubt),
        }
    }
}

fn taken(doubt: &Doubt) -> StoreError {
    let message = format!("{doubt:?} of a timer to be imported is stored already");
    StoreError::new(StoreErrorKind::Limit, message)
}
