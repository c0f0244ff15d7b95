//! Ends deliveries whose timers are removed entirely. One script ends many of these deliveries.
//!
//! The most common end is that of a one-shot timer whose delivery has succeeded. The timer is removed with all of its
//! entries, and nothing takes its place. The script removes many such timers by one command for each part of a shard.
//! It checks each timer as the script `commit` does. It leaves a timer that has changed since its claim, and names the
//! timer in its answer. An operation of its own then ends that delivery. All other ends are commits.

use super::held::Held;
use super::transact::Transactions;
use crate::deployment::{Deployment, join_or_fail};
use crate::layout::{Entry, Found, Layout, Part, Shard, count_field, entries, id_bytes, without_id};
use crate::script::{Words, damaged};
use std::collections::BTreeMap;
use std::sync::Arc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::dry_run::{Change, Changes, DryRun};
use tourbillon_durable::store::{Op, Outcome, StoreError};
use tourbillon_durable::timer::TimerId;

/// The greatest number of deliveries that one script ends. More deliveries are divided between several scripts, so that
/// the client prepares a script while the server runs another.
const AT_ONCE: usize = 128;

/// A delivery that ends with the removal of its timer, and with no other change.
struct End {
    /// The index of the operation in its batch.
    place: usize,
    found: Found,
    outcome: Outcome,
}

/// Ends deliveries by removing their timers, many timers by one script. If a delivery ends with any other change, the
/// caller must make that change by a separate commit.
pub(crate) struct Ends {
    deployment: Arc<Deployment>,
    held: Arc<Held>,
}

impl Ends {
    pub(super) fn new(transactions: &Transactions) -> Self {
        let Transactions { deployment, held, .. } = transactions;
        Self { deployment: Arc::clone(deployment), held: Arc::clone(held) }
    }

    /// Ends deliveries of different timers. Skips operations that need a commit of their own, for example because they
    /// do more than remove the timer. Returns the outcome of each other operation by the operation's index in `ops`.
    pub(crate) async fn end_many(
        &self,
        ops: &[(TimerId, &Op)],
    ) -> Result<BTreeMap<usize, Outcome>, StoreError> {
        let shards = ops.iter().map(|(id, _)| self.held.shard_of(*id));
        // A timer without a kept copy must be read first, so a commit of its own ends it.
        let mut places: Vec<(Shard, usize)> =
            shards.enumerate().filter_map(|(place, shard)| Some((shard?, place))).collect();
        places.sort_unstable();
        // In a cluster, each script has the ends of one shard.
        let shards =
            places.chunk_by(|(one, _), (other, _)| self.deployment.topology.shares_script(*one, *other));
        let scripts =
            shards.flat_map(|places| places.chunks(AT_ONCE)).map(|places| self.end_some(ops, places));
        Ok(join_or_fail(scripts).await?.into_iter().flatten().collect())
    }

    /// Applies the operations at the indices `places` of `ops` by one script. The indices must be sorted by shard.
    async fn end_some(
        &self,
        ops: &[(TimerId, &Op)],
        places: &[(Shard, usize)],
    ) -> Result<Vec<(usize, Outcome)>, StoreError> {
        let now = self.deployment.time.now();
        let mut ends = Vec::with_capacity(places.len());
        for (_, place) in places {
            if let Some((id, op)) = ops.get(*place) {
                ends.extend(self.plain_end(*place, *id, op, now)?);
            }
        }
        match ends.is_empty() {
            true => Ok(Vec::new()),
            false => self.send_ends(ends).await,
        }
    }

    /// Computes how the operation `op` at the index `place` ends the delivery of the timer `id`. Returns `None` if the
    /// operation does more than remove the timer. Also returns `None` if this process has no copy of the timer from the
    /// claim, or if the server cannot remove the timer's redirect in the same script.
    fn plain_end(
        &self,
        place: usize,
        id: TimerId,
        op: &Op,
        now: UtcMillis,
    ) -> Result<Option<End>, StoreError> {
        // Another task may have let the copy go since `end_many` looked for it.
        let Some(found) = self.held.get(id) else { return Ok(None) };
        // In a cluster, the redirect may be in another shard, which the script cannot change.
        if !self.deployment.topology.shares_script(self.deployment.layout.shard_of_id(id), found.shard) {
            return Ok(None);
        }
        let mut draft = DryRun::new(now);
        draft.know(&found.timer);
        let (outcome, changes) = draft.apply(op.clone())?;
        Ok(is_plain(&changes).then_some(End { place, found, outcome }))
    }

    async fn send_ends(&self, ends: Vec<End>) -> Result<Vec<(usize, Outcome)>, StoreError> {
        let (keys, arguments) = keys_and_arguments(&self.deployment.layout, &ends);
        let mut answered = self.deployment.run(|scripts| &scripts.end_many, keys, arguments).await?;
        let (mut staying, mut stays) = (answered.rest.list()?, vec![false; ends.len()]);
        while !staying.is_empty() {
            let place = staying.index()?.and_then(|place| stays.get_mut(place));
            *place.ok_or_else(|| damaged("a script answered a timer that it was not given"))? = true;
        }
        // The kept copy of the timer is of no further use, whether the timer stays or not.
        ends.iter().for_each(|end| self.held.let_go(end.found.id()));
        let made = ends.into_iter().zip(stays).filter(|(_, stays)| !stays);
        Ok(made.map(|(end, _)| (end.place, end.outcome)).collect())
    }
}

/// Returns whether the changes only remove one timer, and need no check of other data.
fn is_plain(changes: &Changes) -> bool {
    // The pattern names every field, so a new field of `Changes` does not compile until this check covers it.
    let Changes { timers, absent, free, forgotten, remember, forget } = changes;
    let guesses = absent.len() + free.len() + forgotten.len() + remember.len() + forget.len();
    matches!(timers[..], [Change { before: Some(_), after: None }]) && guesses == 0
}

/// The kind of data that the script `end_many` removes from a Redis key for each ended timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Removal {
    /// Removes a member of a sorted set.
    Member,
    /// Removes a member from the sorted set [`Part::Keys`] with this number. If the sorted set has no other member of
    /// the same namespace, also removes a member from [`Part::Places`]. That member says that this sorted set has
    /// members of the namespace.
    Key(u16),
    /// Removes a field of a hash.
    Field,
    /// Subtracts 1 from the number in this field of the hash [`Part::Counts`].
    Count(Vec<u8>),
}

/// The position of an ended timer in the script's arguments, counted from 1, and the member or the field to remove.
type Removed = (usize, Vec<u8>);

/// Builds the keys and the arguments of the script for `ends`, which must be sorted by shard.
fn keys_and_arguments(layout: &Layout, ends: &[End]) -> (Vec<Vec<u8>>, Words) {
    let mut removals: BTreeMap<(Shard, Part, Removal), Vec<Removed>> = BTreeMap::new();
    for (place, end) in ends.iter().enumerate() {
        let (found, id) = (&end.found, end.found.id());
        let mut remove = |shard, part, removal, member| {
            removals.entry((shard, part, removal)).or_default().push((place + 1, member));
        };
        for entry in entries(&found.timer) {
            match entry {
                Entry::Key(member) => {
                    let set = layout.key_set(without_id(&member));
                    remove(found.shard, Part::Keys(set), Removal::Key(set), member);
                }
                Entry::Keyless(member) => {
                    let set = layout.keyless_set(id);
                    remove(found.shard, Part::Keys(set), Removal::Key(set), member);
                }
                Entry::Label(member) => remove(found.shard, Part::Labels, Removal::Member, member),
                // The script removes the other entries of a leased timer by itself.
                _ => {}
            }
        }
        let own = layout.shard_of_id(id);
        // In a cluster, `plain_end` leaves such a timer out, because a script may name one shard only.
        if own != found.shard {
            remove(own, Layout::redirects_of(id), Removal::Field, id_bytes(id).to_vec());
        }
        remove(found.shard, Part::Counts, Removal::Count(count_field(&found.timer)), Vec::new());
    }
    let shards: Vec<&[End]> = ends.chunk_by(|one, other| one.found.shard == other.found.shard).collect();
    let (mut keys, mut arguments) = (Vec::new(), Words::default());
    arguments.push_number(shards.len() as u64);
    for ends in shards {
        let shard = ends.first().map(|end| end.found.shard).unwrap_or_default();
        keys.extend(layout.keys(shard, [Part::Records, Part::Tokens, Part::Leases]));
        arguments.push_number(ends.len() as u64);
        ends.iter().for_each(|end| arguments.push(&id_bytes(end.found.id())));
        ends.iter().for_each(|end| arguments.push(&end.found.member));
        // A copy from a claim has a token. An empty text would match no stored token, so the timer would stay.
        ends.iter().for_each(|end| arguments.push(end.found.token.as_deref().unwrap_or_default()));
    }
    let (mut last, mut places) = (None, BTreeMap::new());
    for ((shard, part, removal), removed) in removals {
        let mut place_of = |shard, part| {
            // Scripts count keys from 1, so the length after the push is the position of the new key.
            keys.push(layout.key(shard, part));
            keys.len() as u64
        };
        // The removals of one key follow each other.
        let key = match last {
            Some((last, key)) if last == (shard, part) => key,
            _ => place_of(shard, part),
        };
        last = Some(((shard, part), key));
        let is_count = matches!(removal, Removal::Count(_));
        arguments.push(match removal {
            Removal::Member => b"r",
            Removal::Key(_) => b"k",
            Removal::Field => b"d",
            Removal::Count(_) => b"c",
        });
        arguments.push_number(key);
        if let Removal::Count(field) = &removal {
            arguments.push(field);
        }
        arguments.push_number(removed.len() as u64);
        removed.iter().for_each(|(timer, _)| arguments.push_number(*timer as u64));
        if !is_count {
            removed.iter().for_each(|(_, member)| arguments.push(member));
        }
        if let Removal::Key(set) = removal {
            arguments.push_number(*places.entry(shard).or_insert_with(|| place_of(shard, Part::Places)));
            arguments.push(&set.to_be_bytes());
        }
    }
    (keys, arguments)
}
