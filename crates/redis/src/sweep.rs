//! What the thread of a node mends: notes that lead nowhere, in a cluster, and leases whose ends are gone.
//!
//! The thread takes a *step* each so often. [`outside`](crate::outside) has what notes are, and why some lead nowhere.
//! A step reads a page of the notes of one of the node's shards, and asks the shards to which they lead for the timers.
//! A note without a timer is *doubted*. A creation that is under way looks the same, so the note is looked at again
//! after [`AFTER`], twice the time of a reservation. If it is still the same one and leads nowhere, it is removed as by
//! a creation that meets it: made void in the shard to which it leads, and then removed if it is the same.
//!
//! # Races
//! - *A creation is under way.* Its note is younger than its reservation, and stays. If it is older by then, as after a
//!   pause of its process, the reservation is over, and the commit fails whether the note is there or not: the creation
//!   reserves again. If the clocks of two primaries differ, the note may be removed before: then the mark is void, the
//!   commit fails, and the creation reserves again.
//! - *The creation's commit comes between the second look and the removal.* The script that makes the note void finds
//!   the timer, and the note stays.
//! - *An end removes the note at the same time*, or a sweep of another node, or a creation of the same id. The second
//!   one finds another note or none, and leaves it.
//! - *The process stops after the note was made void.* The note is doubted and removed by the next sweep.
//! - *A timer moves to another shard between the two looks at shards.* None does: it ends, and another one is created
//!   with a note of its own. A note has a mark, so one that is the same is of the same creation.
//!
//! # Leases
//! A lease is a token and an end. A reap looks at the ends only, so a timer whose token has no end would be leased for
//! ever. No script leaves that behind; a server that lost a key, or a hand, can. Each step reads a page of the tokens
//! of one shard, and gives those without an end the end that a claim would give them now. A holder that lives renews
//! its lease before, or ends it. Otherwise the timer comes back then.
//!
//! # Cost
//! A step is one script that reads [`TOKENS`] tokens or little more. In a cluster it is also one script in the shard of
//! the notes, which reads [`PAGE`] notes or little more, and one in each shard to which they lead. The doubted notes
//! are at most [`MOST`]; what is beyond waits for the next round.

use crate::commit::text;
use crate::layout::{HOMES, Part, Shard};
use crate::nodes::time_text;
use crate::outside::RESERVED;
use crate::reservation::Note;
use crate::shared::Core;
use crate::stored::{id_bytes, id_of};
use crate::values::{Values, bytes, number};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::StoreError;
use tourbillon_durable::timer::TimerId;

/// The time after which a note that leads nowhere is looked at again.
pub(crate) const AFTER: Duration = Duration::from_secs(2 * RESERVED.as_secs());
/// The number of notes after which a step reads no further hash.
const PAGE: u64 = 500;
/// The number of tokens after which a step reads no further ones.
const TOKENS: u64 = 500;
/// The most notes that are doubted at the same time.
const MOST: usize = 1_024;
/// The most notes that one step removes.
const AT_ONCE: usize = 16;

/// Where the sweep is, and the notes that it doubts.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    shard: Shard,
    /// The first hash of notes of the shard that is not read yet.
    bucket: u16,
    /// With the moments of the first looks.
    doubted: HashMap<TimerId, (Note, UtcMillis)>,
    /// The shard whose tokens are read, and the place among them at which to go on.
    tokens: (Shard, Vec<u8>),
}

/// The first of these shards from one on.
fn first_from(shard: Shard, owned: &[Shard]) -> Option<Shard> {
    owned.iter().find(|other| **other >= shard).or(owned.first()).copied()
}

impl Sweep {
    /// The notes whose second look is due, some of them. They are not doubted any more.
    fn take_old(&mut self, now: UtcMillis) -> Vec<(TimerId, Note)> {
        // Before the first look: the clock was set back.
        let is_old = |since: UtcMillis| now < since || now - since >= AFTER;
        let old = self.doubted.extract_if(|_, (_, since)| is_old(*since));
        old.take(AT_ONCE).map(|(id, (note, _))| (id, note)).collect()
    }

    /// The place at which to read, in one of these shards.
    fn place(&mut self, owned: &[Shard]) -> Option<(Shard, u16)> {
        if !owned.contains(&self.shard) {
            (self.shard, self.bucket) = (first_from(self.shard, owned)?, 0);
        }
        Some((self.shard, self.bucket))
    }

    /// The place at which to read tokens, in one of these shards.
    fn place_of_tokens(&mut self, owned: &[Shard]) -> Option<(Shard, Vec<u8>)> {
        if !owned.contains(&self.tokens.0) || self.tokens.1.is_empty() {
            self.tokens = (first_from(self.tokens.0, owned)?, b"0".to_vec());
        }
        Some(self.tokens.clone())
    }

    /// Goes on with the tokens at a place, or in the next shard.
    fn go_on_with_tokens(&mut self, shard: Shard, place: Vec<u8>) {
        let is_last = place == b"0" || place.is_empty();
        self.tokens = if is_last { (shard.wrapping_add(1), Vec::new()) } else { (shard, place) };
    }

    /// Goes on behind what was read.
    fn go_on(&mut self, from: (Shard, u16), read: u16) {
        let next = from.1 + read.max(1);
        (self.shard, self.bucket) = if next < HOMES { (from.0, next) } else { (from.0.wrapping_add(1), 0) };
    }

    fn doubt(&mut self, id: TimerId, note: Note, now: UtcMillis) {
        if self.doubted.get(&id).is_some_and(|(known, _)| *known == note) {
            return;
        }
        if self.doubted.len() < MOST {
            self.doubted.insert(id, (note, now));
        }
    }
}

fn lock(sweep: &Mutex<Sweep>) -> MutexGuard<'_, Sweep> {
    sweep.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Gives the leases of a page of tokens an end, if they have none.
    pub(crate) async fn mend_leases(&self, sweep: &Mutex<Sweep>) -> Result<(), StoreError> {
        let owned = self.nodes.state().shards.owned();
        let claimed = *self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some((shard, place)), Some((_, lease))) = (lock(sweep).place_of_tokens(&owned), claimed) else {
            return Ok(());
        };
        let keys = self.layout.keys(shard, [Part::Records, Part::Tokens, Part::Leases]);
        let arguments = [time_text(lease), place, text(TOKENS)];
        let result = self.run(|scripts| &scripts.mend, keys, arguments).await;
        // A shard whose server fails holds the others up no longer than a step.
        let mut answered = result.inspect_err(|_| lock(sweep).go_on_with_tokens(shard, Vec::new()))?;
        let next = bytes(answered.rest.next()?)?.unwrap_or_default();
        lock(sweep).go_on_with_tokens(shard, next);
        if number(&answered.rest.next()?)? > 0 {
            // The runtime reaps by the end of the lease that is next, as far as it knows.
            self.nodes.state().shards.keep_first_end(Some(answered.now + lease));
            self.wake();
        }
        Ok(())
    }

    /// One step: removes notes that have led nowhere for long, and reads a page of others.
    pub(crate) async fn sweep(&self, sweep: &Mutex<Sweep>) -> Result<(), StoreError> {
        let old = lock(sweep).take_old(self.time.now());
        for (id, note) in old {
            if let (None, Some(found)) = self.look(id).await?
                && found == note
            {
                self.displace(id, &note).await?;
            }
        }
        let owned = self.nodes.state().shards.owned();
        let Some(place) = lock(sweep).place(&owned) else { return Ok(()) };
        let buckets = (place.1..HOMES).filter_map(|bucket| u8::try_from(bucket).ok());
        let keys = buckets.map(|bucket| self.layout.key(place.0, Part::Homes(bucket))).collect();
        let mut answered = self.run(|scripts| &scripts.homes, keys, [text(PAGE)]).await?;
        let read = number(&answered.rest.next()?)?;
        let mut values = Values::of(answered.rest.next()?)?;
        let mut homes: BTreeMap<Shard, Vec<(TimerId, Note)>> = BTreeMap::new();
        while !values.is_empty() {
            let (id, note) = (bytes(values.next()?)?.unwrap_or_default(), bytes(values.next()?)?);
            let note = Note::of(note.unwrap_or_default());
            // The check names a note that is none.
            let home = note.home().filter(|home| self.layout.shards().contains(home));
            if let (Some(id), Some(home)) = (id_of(&id), home) {
                homes.entry(home).or_default().push((id, note));
            }
        }
        for (home, notes) in homes {
            let ids = notes.iter().map(|(id, _)| id_bytes(*id).to_vec()).collect::<Vec<_>>();
            let keys = self.layout.keys(home, [Part::Records]);
            let mut answered = self.run(|scripts| &scripts.present, keys, ids).await?;
            let mut present = Values::of(answered.rest.next()?)?;
            for (id, note) in notes {
                if number(&present.next()?)? == 0 {
                    lock(sweep).doubt(id, note, answered.now);
                }
            }
        }
        lock(sweep).go_on(place, u16::try_from(read).unwrap_or(HOMES));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_reads_every_hash_of_every_shard_of_the_node() {
        let (mut sweep, mut seen) = (Sweep::default(), BTreeMap::<Shard, u16>::new());
        for _ in 0..200 {
            let place = sweep.place(&[2, 3, 9]).unwrap();
            assert_eq!(
                seen.get(&place.0).copied().unwrap_or_default() % HOMES,
                place.1,
                "nothing is left out"
            );
            let read = 7.min(HOMES - place.1);
            *seen.entry(place.0).or_default() += read;
            sweep.go_on(place, read);
        }
        assert!(seen.keys().copied().eq([2, 3, 9]) && seen.values().all(|read| *read >= HOMES), "{seen:?}");
        assert_eq!(Sweep::default().place(&[]), None);
    }

    #[test]
    fn a_round_reads_the_tokens_of_every_shard_of_the_node() {
        let (mut sweep, mut seen) = (Sweep::default(), Vec::new());
        for place in ["17", "0", "0", "0", "8", "0"] {
            let (shard, from) = sweep.place_of_tokens(&[2, 3, 9]).unwrap();
            seen.push((shard, String::from_utf8(from).unwrap()));
            sweep.go_on_with_tokens(shard, place.into());
        }
        let of = |(shard, from): (Shard, &str)| (shard, from.to_owned());
        assert_eq!(seen, [(2, "0"), (2, "17"), (3, "0"), (9, "0"), (2, "0"), (2, "8")].map(of));
        assert_eq!(sweep.place_of_tokens(&[]), None);
        // Another node has the shard by now.
        sweep.go_on_with_tokens(3, b"5".to_vec());
        assert_eq!(sweep.place_of_tokens(&[2, 9]), Some((9, b"0".to_vec())));
    }

    #[test]
    fn notes_are_doubted_from_the_first_look_on_and_not_more_than_so_many() {
        let (mut sweep, at) = (Sweep::default(), UtcMillis::from_millis);
        let id = TimerId::from_u128;
        let note = Note::fresh(1);
        sweep.doubt(id(1), note.clone(), at(0));
        sweep.doubt(id(1), note.clone(), at(1_000));
        sweep.doubt(id(2), Note::fresh(1), at(1_000));
        assert_eq!(sweep.take_old(at(0) + (AFTER - Duration::from_millis(1))), []);
        assert_eq!(sweep.take_old(at(0) + AFTER), [(id(1), note)]);
        // Another creation's note is a new one.
        sweep.doubt(id(2), Note::fresh(1), at(2_000));
        assert_eq!(sweep.take_old(at(1_000) + AFTER), []);
        for other in 0..2_000 {
            sweep.doubt(id(10 + other), Note::fresh(1), at(0));
        }
        assert_eq!(sweep.doubted.len(), MOST);
        assert_eq!(sweep.take_old(at(0) + AFTER).len(), AT_ONCE);
        assert_eq!(sweep.doubted.len(), MOST - AT_ONCE);
    }
}
