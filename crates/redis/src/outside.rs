//! What a commit needs outside of its shard, in a cluster.
//!
//! A cluster runs no script on two shards. A timer is in its *home* H, which has all that an operation changes, but for
//! two things that are in the shard N of the timer's id: the *note* that the timer is in H, and the memory of an id
//! whose timer has ended. If N is H, a commit is one script, as on one server. Otherwise it has steps, and each of them
//! is one script:
//!
//! | operation | step | shard | script |
//! |---|---|---|---|
//! | creation | *reserve*: the id is neither stored in N, nor noted, nor remembered; note H | N | `reserve` |
//! | | *commit*: the timer is not stored in H, the note is not void, the reservation is not over; store | H | `commit` |
//! | end | *announce*: remember the id; answer the note | N | `announce` |
//! | | *commit*: the timer is as it was read; remove it | H | `commit` |
//! | | *tidy*: remove the note if it is the announced one | N | `tidy` |
//!
//! An operation that ends one timer and stores another one of the same key, as a replacement, reserves and announces at
//! the same time, commits once, and tidies then. The commit alone decides: a timer is stored or ended by it, and by
//! nothing before or after it.
//!
//! **The mark.** A note is the number of H and a *mark*, a number that is drawn at random for each reservation. So a
//! note belongs to one creation: no other creation stores a timer under it. `reserve` accepts no note but its own one,
//! not even one that leads to the same shard.
//!
//! **What always holds.** (1) A timer that is stored in H has a note in N that leads to H with the mark of its
//! creation, from before its commit until after its end. (2) So an id is stored in one shard at most: a second creation
//! has to replace the note, and nobody replaces the note of a stored timer.
//!
//! **A note that leads nowhere** is what a creation or an end has left that stopped between two steps, or a creation
//! that is still under way. Nobody can tell the two apart. A creation of the same id that meets such a note first makes
//! it *void* in H: one script makes sure that the timer is not stored in H, and puts the mark among H's memories for
//! [`VOID`]. A commit fails if its mark is void. Then the note is removed if it is still the same. A reservation ends
//! after [`RESERVED`] by the time of N, so that no commit comes after the void is forgotten, as long as the clocks of
//! two primaries differ by less than an hour.
//!
//! **Where a step may be the last one.** After `reserve`: the note leads nowhere. After the commit of a creation: all
//! is done. After `announce`: the id is remembered although its timer is stored. A creation of it answers `Repeated` in
//! both cases. The memory is no longer than that of an end at the time at which the operation began. After the commit
//! of an end: the note leads nowhere. A note that leads nowhere costs some 40 bytes until its id is created again or
//! the thread of a node meets it twice, see [`sweep`](crate::sweep).
//!
//! **Two clients and one id.** What one of them does between any two steps of the other one:
//!
//! - *Two creations of an id, with one key or with two.* The first `reserve` wins. The other one finds the note, and
//!   the timer behind it: `Repeated`. Before the timer is stored, it makes the note void. Either the void is first, and
//!   the first client's commit fails: it reserves again, and meets the second one's note. Or the commit is first, and
//!   the void finds the timer. A client that makes a note void and stops leaves a void note, which the next creation
//!   makes void again.
//! - *Two clients remove the same void note.* The second one finds none, or a note with another mark, and leaves it.
//! - *An end and a creation of the same id.* Before the end's commit the creation finds the timer. Between its commit
//!   and `tidy`, it finds the memory, or for an id that is not remembered the note: it makes the note void, replaces it
//!   and stores the timer. `tidy` then finds another mark.
//! - *Two ends.* Both announce. The commit of the second one finds that the timer has changed, computes anew and finds
//!   no timer. Its memory is of the same length as the first one's, but for the time between them.
//! - *An end and a return (`Op::Return`) of the same timer.* The return reserves, which meets the note before `tidy`,
//!   see above. The memory of the first end stays, unless N is H. It says nothing else than the timer itself, which is
//!   stored again, and the timer's next end makes it longer. To forget it after the commit could end the memory of that
//!   next end.
//! - *A reader.* A look at N and then at H. The timer has ended meanwhile if it is not in H, or was not stored when N
//!   was read: there was a moment without it.
//! - *A client that is stopped for long, or a request that arrives late.* A commit after [`RESERVED`] fails. A late
//!   `tidy` finds another mark. A late `announce` remembers until a moment that was computed before it stopped. A late
//!   void keeps the mark void for longer.
//! - *A failover that loses writes.* A note that N has lost is missing although its timer is stored in H: the timer is
//!   delivered, found by its key, and not by its id; the check names it, and the next creation of the id writes the
//!   note again if it leads to the same shard. A void that H has lost lets two creations of one id with two keys both
//!   succeed. [`SyncPolicy::Wait`](crate::SyncPolicy::Wait) prevents both.

use crate::commit::{Commit, Doubt, Known, Scope, text};
use crate::layout::{Layout, Part, Shard};
use crate::reservation::{Note, Reservations, Reserved};
use crate::send::Sent;
use crate::shared::Core;
use crate::stored::{damaged, id_bytes};
use crate::time::millis;
use crate::values::{Values, bytes, number};
use core::time::Duration;
use futures_util::future::{join_all, try_join, try_join_all};
use std::collections::BTreeMap;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::StoreError;
use tourbillon_durable::store::dry_run::Changes;
use tourbillon_durable::timer::TimerId;

/// The time after which a reservation is over.
pub(crate) const RESERVED: Duration = Duration::from_secs(60);
/// The time for which a mark is void. It is longer than the time of a reservation by what the clocks of two primaries
/// may differ.
const VOID: Duration = Duration::from_secs(3_660);

/// What an operation needs in the shards of ids that are not its home.
#[derive(Debug, Default)]
struct Outside {
    /// The timers that must not be stored, and whether they may be remembered. Most of them are to be created.
    created: Vec<(TimerId, bool)>,
    /// The timers to be ended, and until when they are remembered.
    ended: Vec<(TimerId, Option<UtcMillis>)>,
}

impl Outside {
    fn of(layout: &Layout, home: Shard, known: &Known, changes: &Changes) -> Self {
        let is_outside = |id: &TimerId| layout.shard_of_id(*id) != home;
        let mut remember: BTreeMap<TimerId, UtcMillis> = changes.remember.iter().copied().collect();
        let mut outside = Self::default();
        for change in &changes.timers {
            match (&change.before, &change.after) {
                (Some(before), None) if is_outside(&before.id) => {
                    outside.ended.push((before.id, remember.remove(&before.id)));
                }
                _ => {}
            }
        }
        // An id that is remembered is not reserved for an answer that says so.
        let is_created = |id: &TimerId| {
            changes.timers.iter().any(|change| change.after.as_ref().is_some_and(|after| after.id == *id))
        };
        let absent = changes.absent.iter().copied().filter(is_outside);
        let absent = absent.filter(|id| is_created(id) || !known.remembered.contains_key(id));
        outside.created.extend(absent.map(|id| (id, !changes.forgotten.contains(&id))));
        let others = remember.into_iter().filter(|(id, _)| is_outside(id));
        outside.ended.extend(others.map(|(id, until)| (id, Some(until))));
        outside
    }
}

impl Core {
    /// Makes the changes of an operation, if nothing from which they follow has changed.
    pub(crate) async fn commit(
        &self,
        known: &Known,
        changes: &Changes,
        over: Option<TimerId>,
        reserved: &mut Reservations,
    ) -> Result<Sent, StoreError> {
        if !self.is_split {
            let mut commit = Commit::new(&self.layout, known, changes, over, Scope::All);
            commit.expect_marks(known, changes, &self.deployment.id());
            self.hint(&mut commit, known, changes);
            return self.send(commit).await;
        }
        // Without a home there is nothing to be compared and nothing to be changed.
        let Some(home) = Commit::home(&self.layout, known, changes) else { return Ok(Sent::Done) };
        let outside = Outside::of(&self.layout, home, known, changes);
        let (refused, notes) =
            try_join(self.reserve_all(home, &outside.created, reserved), self.announce_all(&outside.ended))
                .await?;
        if let Some(refused) = refused {
            return Ok(refused);
        }
        let scope = Scope::Shard(home, reserved);
        let mut commit = Commit::new(&self.layout, known, changes, over, scope);
        commit.expect_marks(known, changes, &self.deployment.id());
        self.hint(&mut commit, known, changes);
        let sent = self.send(commit).await?;
        if let Sent::Done = sent {
            outside.created.iter().for_each(|(id, _)| drop(reserved.remove(id)));
            let notes = notes.into_iter().filter(|(_, note)| note.home() == Some(home));
            // The operation has had its effect: a note that is left leads nowhere.
            let _left = join_all(notes.map(|(id, note)| self.tidy(id, note))).await;
        }
        Ok(sent)
    }

    /// Reserves what is not reserved yet. Returns why a timer cannot be created.
    async fn reserve_all(
        &self,
        home: Shard,
        created: &[(TimerId, bool)],
        reserved: &mut Reservations,
    ) -> Result<Option<Sent>, StoreError> {
        let is_new = |(id, _): &&(TimerId, bool)| {
            reserved.get(id).is_none_or(|reserved| reserved.note.home() != Some(home))
        };
        let answers = created.iter().filter(is_new).map(async |(id, is_return)| {
            Ok::<_, StoreError>((*id, self.reserve(*id, home, *is_return).await?))
        });
        let mut refused = None;
        for (id, answer) in try_join_all(answers).await? {
            match answer {
                Ok(its) => drop(reserved.insert(id, its)),
                Err(sent) => refused = Some(sent),
            }
        }
        Ok(refused)
    }

    /// Writes a note that a timer will be in another shard than its id says.
    pub(crate) async fn reserve(
        &self,
        id: TimerId,
        home: Shard,
        is_return: bool,
    ) -> Result<Result<Reserved, Sent>, StoreError> {
        let note = Note::fresh(home);
        let parts = [Part::Records, Layout::homes_of(id), Part::Recent];
        let keys = self.layout.keys(self.layout.shard_of_id(id), parts);
        let arguments = [id_bytes(id).to_vec(), note.clone().into_bytes(), text(u64::from(is_return))];
        let mut answered = self.run(|scripts| &scripts.reserve, keys, arguments).await?;
        let now = answered.now;
        if number(&answered.rest.next()?)? == 1 {
            return Ok(Ok(Reserved { note, until: now + RESERVED }));
        }
        let what = bytes(answered.rest.next()?)?.unwrap_or_default();
        let found = answered.rest;
        let doubt = match &what[..] {
            b"stored" => Doubt::Timer(id),
            b"remembered" => Doubt::Remembered(id),
            b"noted" => {
                let note = Values::peek(&found).and_then(|value| bytes(value.clone()).transpose());
                Doubt::Noted(id, Note::of(note.transpose()?.unwrap_or_default()))
            }
            _ => return Err(damaged("a reservation failed for a reason that there is not")),
        };
        Ok(Err(Sent::Refused { now, doubt, found }))
    }

    /// The notes of timers that are about to end. Remembers their ids.
    async fn announce_all(
        &self,
        ended: &[(TimerId, Option<UtcMillis>)],
    ) -> Result<Vec<(TimerId, Note)>, StoreError> {
        let answers = ended.iter().map(async |(id, until)| {
            let keys = self.layout.keys(self.layout.shard_of_id(*id), [Layout::homes_of(*id), Part::Recent]);
            let until = until.map(|until| text(until.as_millis()));
            let is_needed = until.is_some();
            let arguments = [id_bytes(*id).to_vec(), until.unwrap_or_default()];
            match self.run(|scripts| &scripts.announce, keys, arguments).await {
                Ok(mut answered) => Ok(bytes(answered.rest.next()?)?.map(|note| (*id, Note::of(note)))),
                // Without the note, it stays behind. A timer ends although the shard of its id is away.
                Err(error) if !is_needed && error.is_transient() => Ok(None),
                Err(error) => Err(error),
            }
        });
        Ok(try_join_all(answers).await?.into_iter().flatten().collect())
    }

    /// Removes a note, if it is still this one.
    async fn tidy(&self, id: TimerId, note: Note) -> Result<(), StoreError> {
        let keys = self.layout.keys(self.layout.shard_of_id(id), [Layout::homes_of(id)]);
        self.run(|scripts| &scripts.tidy, keys, [id_bytes(id).to_vec(), note.into_bytes()]).await.map(drop)
    }

    /// Removes the notes of timers that were not created.
    pub(crate) async fn release(&self, reserved: Reservations) {
        let notes = reserved.into_iter().map(|(id, its)| self.tidy(id, its.note));
        // What is left leads nowhere, and does no harm.
        let _left = join_all(notes).await;
    }

    /// Makes a note void that seems to lead nowhere, and removes it. Returns whether the timer is stored after all.
    pub(crate) async fn displace(&self, id: TimerId, note: &Note) -> Result<bool, StoreError> {
        let home = note.home().filter(|home| self.layout.shards().contains(home));
        let home = home.ok_or_else(|| damaged(&format!("the note of timer {id} leads to no shard")))?;
        let keys = self.layout.keys(home, [Part::Records, Part::Recent]);
        let void = note.void(id);
        let mark = void.get(16..).unwrap_or_default().to_vec();
        let arguments = [id_bytes(id).to_vec(), mark, text(millis(VOID))];
        let mut answered = self.run(|scripts| &scripts.void, keys, arguments).await?;
        if number(&answered.rest.next()?)? == 0 {
            return Ok(true);
        }
        self.tidy(id, note.clone()).await?;
        Ok(false)
    }
}
