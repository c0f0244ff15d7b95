//! Operations on many timers: each timer on its own, in the order of an index.

use crate::commit::{Commit, Doubt, Known, Scope};
use crate::layout::{Part, Shard};
use crate::lists::Index;
use crate::reservation::Reservations;
use crate::send::Sent;
use crate::shared::Core;
use crate::stored::{label_entry, part};
use crate::transact::Start;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use tourbillon_durable::state::State;
use tourbillon_durable::store::draft::{Changes, Draft};
use tourbillon_durable::store::{Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Timer, TimerId};

/// Entries that are read at once.
const AT_ONCE: usize = 256;
/// Attempts to store an imported timer whose note leads nowhere.
const TURNS: usize = 8;

impl Core {
    /// Withdraws timers of a label, one after the other.
    pub(crate) async fn cancel_labelled(
        &self,
        namespace: &str,
        label: &str,
        limit: u32,
    ) -> Result<Outcome, StoreError> {
        let index = Index::Members(Part::Labels, label_entry(namespace, label));
        let op = Op::CancelLabelled { namespace: namespace.into(), label: label.into(), limit: 1 };
        let limit = limit.max(1);
        let (mut cancelled, mut in_flight, mut last) = (0, 0, None);
        loop {
            let (entries, is_end) = self.entries_after(&index, last.as_deref(), AT_ONCE).await?;
            for (entry, found) in entries.iter().zip(self.timers_of(&entries).await?) {
                if cancelled == limit {
                    return Ok(Outcome::CancelledMany { cancelled, in_flight, more: true });
                }
                if let Some(found) = found {
                    let cancel = |draft: Draft| draft.apply(op.clone());
                    let outcome = self.transact(Start::Read(Box::new(found)), cancel).await?;
                    if let Outcome::CancelledMany { cancelled: its, in_flight: flying, .. } = outcome {
                        cancelled += its;
                        in_flight += flying;
                    }
                }
                last = Some(entry.place.clone());
            }
            if is_end {
                return Ok(Outcome::CancelledMany { cancelled, in_flight, more: false });
            }
        }
    }

    /// Puts timers back that were put aside for a reason, one after the other.
    pub(crate) async fn unpark(&self, reason: &str, limit: u32) -> Result<Outcome, StoreError> {
        let index = Index::Members(Part::Parked, part(reason));
        let (mut unparked, mut last) = (0, None);
        while unparked < limit {
            let (entries, is_end) = self.entries_after(&index, last.as_deref(), AT_ONCE).await?;
            for (entry, found) in entries.iter().zip(self.timers_of(&entries).await?) {
                if unparked == limit {
                    break;
                }
                if let Some(found) = found {
                    let put_back = |draft: Draft| draft.apply(Op::Unpark(reason.into(), 1));
                    let outcome = self.transact(Start::Read(Box::new(found)), put_back).await?;
                    if let Outcome::Unparked(its) = outcome {
                        unparked += its;
                    }
                }
                last = Some(entry.place.clone());
            }
            if is_end {
                break;
            }
        }
        Ok(Outcome::Unparked(unparked))
    }

    /// Stores timers of a backup: by one script on one server, by one for each shard in a cluster.
    pub(crate) async fn import(&self, timers: Vec<Timer>) -> Result<(), StoreError> {
        let changes = Draft::new(self.time.now()).import(timers)?;
        if changes.timers.is_empty() {
            return Ok(());
        }
        match self.is_split {
            true => self.import_by_shard(&changes).await?,
            false => {
                let known = Known::default();
                let commit = Commit::new(&self.layout, &known, &changes, None, Scope::All);
                if let Sent::Refused { doubt, .. } = self.send(commit).await? {
                    return Err(taken(&doubt));
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
                let doubt = match self.send(Commit::new(&self.layout, &known, changes, None, scope)).await? {
                    Sent::Done => break,
                    Sent::Refused { doubt, .. } => doubt,
                };
                // A note that leads nowhere takes no id.
                let Doubt::Timer(id) = doubt else { return Err(taken(&doubt)) };
                match self.look(id).await? {
                    (None, Some(note)) if turn < TURNS => drop(self.displace(id, &note).await?),
                    _ => return Err(taken(&doubt)),
                }
            }
        }
        Ok(())
    }
}

fn taken(doubt: &Doubt) -> StoreError {
    let message = format!("{doubt:?} of a timer to be imported is stored already");
    StoreError::new(StoreErrorKind::Limit, message)
}
