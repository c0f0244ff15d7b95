//! Operations: read what one names, compute its effect here, and commit that if nothing has changed meanwhile.

use crate::commit::{Doubt, Known, is_leased};
use crate::layout::{Layout, Part, Shard};
use crate::reservation::{Note, Reservations};
use crate::returned::Returned;
use crate::send::Sent;
use crate::shared::Core;
use crate::stored::{Found, damaged, id_bytes, id_of, key_entry};
use crate::values::{Values, filled, maybe_number};
use std::sync::Arc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::dry_run::{Changes, DryRun};
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Address, KeyOf, TimerId};

/// Attempts of an operation while others change the same timers.
const TURNS: usize = 64;

/// From what an operation starts.
pub(crate) enum Start {
    /// From nothing: a new timer.
    New,
    /// From a stored timer, which is read first.
    At(Address),
    /// From a timer that this process has claimed, as it was then if it is still known.
    Held(TimerId),
    /// From a timer as it was read.
    Read(Box<Found>),
    /// From several timers as they were read; in a cluster, of one shard.
    Several(Vec<Found>),
    /// The same, if its lease's end has come by the server's time.
    Over(Box<Found>),
    /// From nothing: a timer that is stored again, once.
    Again(Arc<Returned>),
}

impl Core {
    /// Makes the changes that `run` computes. Calls it again, with what has changed, until a commit succeeds.
    pub(crate) async fn transact<R>(
        &self,
        start: Start,
        run: impl Fn(DryRun) -> Result<(R, Changes), StoreError>,
    ) -> Result<R, StoreError> {
        let mut reserved = Reservations::new();
        let result = self.attempt(start, run, &mut reserved).await;
        // A commit whose outcome is not known may have stored what these notes lead to.
        let is_known = result.as_ref().map_or_else(
            |error| !matches!(error.kind(), StoreErrorKind::Unknown | StoreErrorKind::Corrupt),
            |_| true,
        );
        if is_known && !reserved.is_empty() {
            self.release(reserved).await;
        }
        result
    }

    async fn attempt<R>(
        &self,
        start: Start,
        run: impl Fn(DryRun) -> Result<(R, Changes), StoreError>,
        reserved: &mut Reservations,
    ) -> Result<R, StoreError> {
        let mut known = Known::default();
        let (mut cached, mut over, mut is_new) = (None, None, false);
        match start {
            Start::New => is_new = true,
            Start::At(at) => known.add(self.find(&at).await?),
            Start::Held(id) => match self.held(id) {
                Some(found) => {
                    cached = Some(id);
                    known.add(Some(found));
                }
                None => known.add(self.find_id(id).await?),
            },
            Start::Read(found) => known.add(Some(*found)),
            Start::Several(found) => found.into_iter().for_each(|found| known.add(Some(found))),
            Start::Again(returned) => {
                is_new = true;
                known.returned = Some(returned);
            }
            Start::Over(found) => {
                over = Some(found.id());
                known.add(Some(*found));
            }
        }
        let mut now = self.time.now();
        for turn in 0..TURNS {
            let mut draft = DryRun::new(now);
            for found in known.timers.values() {
                draft.know(&found.timer);
            }
            for (id, until) in &known.remembered {
                draft.know_remembered(*id, *until);
            }
            let (result, changes) = run(draft)?;
            if changes.timers.is_empty() {
                if let Some(id) = cached.take() {
                    // What was kept here since the claim decides nothing but a commit that it fits.
                    self.let_go(id);
                    known = Known::default();
                    known.add(self.find_id(id).await?);
                    continue;
                }
                let has_guesses =
                    !(changes.absent.is_empty() && changes.free.is_empty() && changes.forgotten.is_empty());
                // What was read first is of one moment. A guess beside what was read later may be of another one.
                if !has_guesses || !(is_new || turn > 0) {
                    return Ok(result);
                }
            }
            let (doubt, mut found) = match self.commit(&known, &changes, over, reserved).await? {
                Sent::Done => {
                    self.after(&known, &changes);
                    return Ok(result);
                }
                Sent::Refused { now: then, doubt, found } => {
                    now = then;
                    (doubt, found)
                }
            };
            cached = None;
            self.resolve(&mut known, doubt, &mut found, reserved).await?;
            if turn > 8 {
                // Others are quicker with the same timers: the processor is theirs for a moment.
                std::thread::yield_now();
            }
        }
        let message = format!("others changed the same timers during {TURNS} attempts");
        Err(StoreError::new(StoreErrorKind::Io, message))
    }

    /// What follows here from a commit that succeeded.
    fn after(&self, known: &Known, changes: &Changes) {
        let before = changes.timers.iter().filter_map(|change| change.before.as_ref());
        before.filter(|timer| is_leased(timer)).for_each(|timer| self.let_go(timer.id));
        self.pending(known, changes).for_each(|(shard, due)| self.note(shard, due));
    }

    /// Reads what was not as it was taken for.
    async fn resolve(
        &self,
        known: &mut Known,
        doubt: Doubt,
        rest: &mut Values,
        reserved: &mut Reservations,
    ) -> Result<(), StoreError> {
        match doubt {
            Doubt::Timer(id) => {
                let was_read = known.timers.remove(&id).is_some();
                // A note that leads to a timer stays.
                reserved.remove(&id);
                let (found, note) = self.look(id).await?;
                if let (None, Some(note), false) = (&found, note, was_read) {
                    self.displace(id, &note).await?;
                }
                known.add(found);
            }
            Doubt::Noted(id, note) => {
                if self.displace(id, &note).await? {
                    known.add(self.find_id(id).await?);
                }
            }
            // The note is replaced as any other that leads nowhere.
            Doubt::Reserved(id) => drop(reserved.remove(&id)),
            Doubt::Key(of) => known.add(self.find_key(&of).await?),
            Doubt::Returned(doubted) => {
                if let Some(returned) = &known.returned {
                    returned.refuse(doubted);
                }
            }
            Doubt::Lost(shard) => return Err(self.lost_shard(shard, rest)),
            Doubt::Remembered(id) => {
                let until = maybe_number(rest.next()?)?.unwrap_or_default();
                known.remembered.insert(id, UtcMillis::from_millis(until));
            }
        }
        Ok(())
    }

    pub(crate) async fn find(&self, at: &Address) -> Result<Option<Found>, StoreError> {
        match at {
            Address::Id(id) => self.find_id(*id).await,
            Address::Key(of) => self.find_key(of).await,
        }
    }

    pub(crate) async fn find_id(&self, id: TimerId) -> Result<Option<Found>, StoreError> {
        Ok(self.look(id).await?.0)
    }

    /// A timer, and the note that it is in another shard than its id says. A note may lead nowhere.
    pub(crate) async fn look(&self, id: TimerId) -> Result<(Option<Found>, Option<Note>), StoreError> {
        let shard = self.layout.shard_of_id(id);
        let parts = [Part::Records, Part::Tokens, Part::Leases, Layout::homes_of(id)];
        let keys = self.layout.keys(shard, parts);
        let mut answered = self.run(|scripts| &scripts.find_id, keys, [id_bytes(id).to_vec()]).await?;
        let found = read(shard, &mut answered.rest)?;
        match filled(answered.rest.next()?)?.map(Note::of) {
            Some(note) => {
                let home = note.home().filter(|home| self.layout.shards().contains(home));
                let home =
                    home.ok_or_else(|| damaged(&format!("the note of timer {id} leads to no shard")))?;
                let found = self.records(home, &[id]).await?.pop().unwrap_or(Ok(None))?;
                Ok((found, Some(note)))
            }
            None => Ok((found, None)),
        }
    }

    pub(crate) async fn find_key(&self, of: &KeyOf) -> Result<Option<Found>, StoreError> {
        let shard = self.layout.shard_of_key(&of.namespace, &of.key);
        let entry = key_entry(&of.namespace, &of.key);
        let parts = [Part::Records, Part::Tokens, Part::Leases, self.layout.keys_of(&entry)];
        let keys = self.layout.keys(shard, parts);
        let mut answered = self.run(|scripts| &scripts.find_key, keys, [entry]).await?;
        read(shard, &mut answered.rest)
    }

    /// The timers with these ids in a shard. A record that cannot be read is an error of its own.
    pub(crate) async fn records(
        &self,
        shard: Shard,
        ids: &[TimerId],
    ) -> Result<Vec<Result<Option<Found>, StoreError>>, StoreError> {
        let keys = self.layout.keys(shard, [Part::Records, Part::Tokens, Part::Leases]);
        let arguments = ids.iter().map(|id| id_bytes(*id).to_vec());
        let mut answered = self.run(|scripts| &scripts.records, keys, arguments).await?;
        let mut values = Values::of(answered.rest.next()?)?;
        Ok(ids.iter().map(|_| read(shard, &mut values)).collect())
    }
}

/// A timer of three values of an answer: record, token, end of the lease.
pub(crate) fn read(shard: Shard, values: &mut Values) -> Result<Option<Found>, StoreError> {
    let (member, mark) = (filled(values.next()?)?, filled(values.next()?)?);
    let until = maybe_number(values.next()?)?.unwrap_or_default();
    let Some(member) = member else { return Ok(None) };
    let id = id_of(&member);
    let unreadable = || {
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        damaged(&format!("the record of timer {id} cannot be read"))
    };
    Found::read(shard, member, mark, until).map(Some).ok_or_else(unreadable)
}

impl Known {
    fn add(&mut self, found: Option<Found>) {
        if let Some(found) = found {
            self.timers.insert(found.id(), found);
        }
    }
}
