//! Reads indexes. An index merges sorted sets of all shards into one order. The *place* of an entry is its position in
//! this order.

use crate::deployment::Deployment;
use crate::layout::{
    Entry as Stored, KEYLESS, LANES, PERIOD, Part, Shard, Slice, entries, id_at_end, id_bytes, id_of,
    is_keyless, moment_bytes, namespace_of, period_of, start_of,
};
use crate::script::decimal;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::StoreError;
use tourbillon_durable::timer::{Timer, TimerId};

/// The greatest number of sorted sets whose members one script lists.
const SETS_AT_ONCE: usize = 256;
/// The greatest number of scripts that one read of an index runs at the same time. The limit lets the servers run the
/// scripts of other calls in between.
const SCRIPTS_AT_ONCE: usize = 4;
/// The length in bytes of an encoded moment. In an index that is sorted by moments, each entry begins with an encoded
/// moment.
const MOMENT: usize = 6;

/// Returns the greatest number of [slices](Slice) that a shard can have in one period of two hours: one for each lane
/// (group of namespaces).
pub(super) fn lanes() -> usize {
    usize::try_from(LANES).unwrap_or(usize::MAX)
}

/// The direction of a walk through an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

impl Order {
    pub(super) fn new(is_descending: bool) -> Self {
        if is_descending { Self::Descending } else { Self::Ascending }
    }

    pub(super) fn is_back(self) -> bool {
        self == Self::Descending
    }

    /// Returns the argument that tells a script the direction of a read: `back` for descending, or no bytes for
    /// ascending.
    fn word(self) -> Vec<u8> {
        if self.is_back() { b"back".to_vec() } else { Vec::new() }
    }

    /// Returns whether an entry at the place `place` comes after an entry at the place `other` in this direction.
    pub(super) fn is_after(self, place: &[u8], other: &[u8]) -> bool {
        if self.is_back() { place < other } else { place > other }
    }
}

/// Returns the first byte string that sorts after all strings with this beginning, or `None` if all bytes of the
/// beginning are 255.
fn behind(beginning: &[u8]) -> Option<Vec<u8>> {
    let last = beginning.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = beginning.get(..=last)?.to_vec();
    behind.last_mut().into_iter().for_each(|byte| *byte += 1);
    Some(behind)
}

/// A selection of stored timers, and the order in which they are read.
#[derive(Clone, Debug)]
pub(crate) enum Index {
    /// All stored timers, in the order of their ids.
    Records,
    /// The timers that have a member with this beginning in a sorted set of this kind, in the order of the members'
    /// bytes. Each shard has a sorted set of each kind ([`Part`]).
    Members(Part, Vec<u8>),
    /// The timers that have a key and a member with this beginning in a sorted set [`Part::Keys`], in the order of the
    /// members' bytes.
    Keys(Vec<u8>),
    /// The timers in the sorted sets of this kind, in the order of their scores and ids. Each shard has a sorted set of
    /// each kind ([`Part`]). The scores in these sorted sets are moments.
    Moments(Part),
    /// The pending timers, in the order of their due moments and ids.
    Pending,
}

/// An entry of an index. The bytes in `place` sort the index, `shard` stores the entry, and `id` is the id of the
/// entry's timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexEntry {
    pub(crate) place: Vec<u8>,
    pub(crate) shard: Shard,
    pub(crate) id: TimerId,
}

/// Returns the bound at which a descending read of a namespace's keys begins. In a sorted set [`Part::Keys`], the
/// members of timers without a key follow all keys of their namespace, and the bound makes the read skip them.
/// `beginning` is the encoded namespace, and may also have the first bytes of a key. In that case the result is `None`:
/// no member of a timer without a key has this beginning, so the read has no members to skip.
fn before_keyless(beginning: &[u8]) -> Option<Vec<u8>> {
    let has_others = beginning.len() == namespace_of(beginning).len();
    has_others.then(|| [b"(", beginning, &[KEYLESS]].concat())
}

/// Returns the place of a timer (the bytes by which the index is sorted) in an index by moments or in the index of
/// records. The index must include the timer.
pub(super) fn place_of(index: &Index, timer: &Timer) -> Vec<u8> {
    let id = id_bytes(timer.id);
    let by_moment = |moment: u64| [&moment_bytes(moment)[..], &id].concat();
    let place = entries(timer).into_iter().find_map(|entry| match (index, entry) {
        (Index::Pending, Stored::Pending(_, due)) => Some(by_moment(due)),
        (Index::Moments(Part::Leases), Stored::Lease(until)) => Some(by_moment(until)),
        _ => None,
    });
    place.unwrap_or_else(|| id.to_vec())
}

/// Returns the moment at the beginning of a place (the bytes by which an index is sorted), in milliseconds.
pub(super) fn moment_of(place: &[u8]) -> u64 {
    place.iter().take(MOMENT).fold(0, |moment, byte| moment << 8 | u64::from(*byte))
}

/// A range of scores, which limits the members that are read from a sorted set.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    pub(super) from: u64,
    pub(super) until: Option<u64>,
}

impl Scores {
    pub(super) const ALL: Self = Self { from: 0, until: None };
}

/// Consecutive entries of an index that a read has returned.
pub(crate) struct Stretch {
    /// The entries in order, without gaps.
    pub(crate) entries: Vec<IndexEntry>,
    /// True if no entries of the index follow.
    pub(crate) is_end: bool,
}

impl Stretch {
    const END: Self = Self { entries: Vec::new(), is_end: true };
}

/// Reads the indexes of a deployment in one direction.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) order: Order,
}

impl<'a> Walk<'a> {
    /// Returns a walk that reads an index from its first entry on.
    pub(crate) fn ascending(deployment: &'a Deployment) -> Self {
        Self { deployment, order: Order::Ascending }
    }

    /// Returns about `wanted` consecutive entries of an index, and at least one entry if any entry is left. The
    /// entries follow the place `after` (the bytes by which the index is sorted), or begin the index for `None`.
    pub(crate) async fn entries_after(
        &self,
        index: &Index,
        after: Option<&[u8]>,
        wanted: usize,
    ) -> Result<Stretch, StoreError> {
        // Members are rarely spread evenly over the sets. So each set may return twice its even part, which makes a
        // second round rare.
        let each_of = |sets: usize| (2 * wanted / sets.max(1) + 3).min(wanted.max(1));
        let each = each_of(self.deployment.layout.shards().len());
        let in_each_shard =
            |part| self.deployment.layout.shards().map(|shard| (shard, part)).collect::<Vec<_>>();
        match index {
            Index::Records => {
                // A member is an id and a payload length, and no length begins with 255. So this bound sorts after the
                // record with this id.
                let end: &[u8] = if self.order.is_back() { &[] } else { &[u8::MAX] };
                let from = after.map(|id| [b"(", id, end].concat());
                self.members(&in_each_shard(Part::Records), from, &[], each).await
            }
            Index::Members(part, beginning) => {
                let from = after.map(|member| [b"(", member].concat());
                self.members(&in_each_shard(*part), from, beginning, each).await
            }
            Index::Keys(beginning) => {
                let from = after.map(|member| [b"(", member].concat());
                let sets = self.deployment.layout.shards().flat_map(|shard| {
                    self.deployment.layout.key_sets().map(move |set| (shard, Part::Keys(set)))
                });
                let sets: Vec<_> = sets.collect();
                let from = match self.order {
                    Order::Ascending => from,
                    Order::Descending => from.or_else(|| before_keyless(beginning)),
                };
                let found = self.members(&sets, from, beginning, each_of(sets.len())).await;
                let Stretch { mut entries, is_end } = found?;
                // The entries of timers without a key sort after all keys of the namespace, so the first of them ends
                // the list.
                let keys = entries.iter().position(|entry| is_keyless(&entry.place)).unwrap_or(entries.len());
                let has_others = keys < entries.len();
                entries.truncate(keys);
                Ok(Stretch { entries, is_end: is_end || has_others })
            }
            Index::Moments(part) => {
                let scores = match self.order {
                    Order::Ascending => Scores { from: after.map_or(0, moment_of), until: None },
                    Order::Descending => Scores { from: 0, until: after.map(moment_of) },
                };
                let after = after.map(|place| place.get(MOMENT..).unwrap_or_default().to_vec());
                self.scores_after(in_each_shard(*part), scores, after, each).await
            }
            Index::Pending => {
                // The place may be the bound of a list, which has a moment and no id. The read then includes all timers
                // of this moment.
                let from = after.map(moment_of);
                let after = after.map(|place| place.get(MOMENT..).unwrap_or_default().to_vec());
                match self.order {
                    Order::Ascending => self.pending_after(from.unwrap_or(0), after, each).await,
                    Order::Descending => self.pending_before(from, after, each).await,
                }
            }
        }
    }

    /// Reads up to `each` members of each sorted set in `parts`, and merges the members in the order of their
    /// bytes. Reads only members that begin with `beginning`. `from` is the Redis bound at which the read begins.
    pub(crate) async fn members(
        &self,
        parts: &[(Shard, Part)],
        from: Option<Vec<u8>>,
        beginning: &[u8],
        each: usize,
    ) -> Result<Stretch, StoreError> {
        let first = match (self.order, behind(beginning)) {
            (Order::Ascending, _) if beginning.is_empty() => b"-".to_vec(),
            (Order::Ascending, _) => [b"[", beginning].concat(),
            (Order::Descending, Some(behind)) => [b"(", &behind[..]].concat(),
            // No string sorts after all strings with an empty beginning, or with a beginning whose bytes are all 255.
            (Order::Descending, None) => b"+".to_vec(),
        };
        let arguments = [from.unwrap_or(first), beginning.to_vec(), decimal(each as u64), self.order.word()];
        let groups = self.deployment.topology.places_by_script(parts.iter().map(|(shard, _)| *shard));
        let scripts = groups.iter().flat_map(|places| places.chunks(SETS_AT_ONCE)).map(async |places| {
            let parts: Vec<_> = places.iter().filter_map(|place| parts.get(*place).copied()).collect();
            let keys = parts.iter().map(|(shard, part)| self.deployment.layout.key(*shard, *part)).collect();
            let mut answered =
                self.deployment.run(|scripts| &scripts.members, keys, arguments.clone()).await?;
            let (mut lists, mut found) = (answered.rest.list()?, Vec::new());
            for (shard, part) in parts {
                let (mut members, mut entries) = (lists.list()?, Vec::new());
                while !members.is_empty() {
                    let member = members.bytes()?;
                    let (place, id) = match part {
                        Part::Records => (member.get(..16).unwrap_or_default().to_vec(), id_of(&member)),
                        _ => (member.clone(), id_at_end(&member)),
                    };
                    entries.extend(id.map(|id| IndexEntry { place, shard, id }));
                }
                found.push(entries);
            }
            Ok::<_, StoreError>(found)
        });
        let scripts = stream::iter(scripts.collect::<Vec<_>>()).buffer_unordered(SCRIPTS_AT_ONCE);
        let found: Vec<_> = scripts.try_collect().await?;
        Ok(merged(found.into_iter().flatten().collect(), each, self.order))
    }

    /// Reads members as [`scores`](Self::scores) does, and merges them in the order of their scores. Members with
    /// equal scores are in the order of their bytes.
    async fn scores_after(
        &self,
        parts: Vec<(Shard, Part)>,
        scores: Scores,
        after: Option<Vec<u8>>,
        each: usize,
    ) -> Result<Stretch, StoreError> {
        let found = self.scores(&parts, scores, after, each).await?;
        let entries = found.into_iter().zip(&parts).map(|(members, (shard, _))| {
            let entry = |(member, score): (Vec<u8>, u64)| {
                let place = [&moment_bytes(score)[..], &member].concat();
                id_of(&member).map(|id| IndexEntry { place, shard: *shard, id })
            };
            members.into_iter().filter_map(entry).collect()
        });
        Ok(merged(entries.collect(), each, self.order))
    }

    /// Reads up to `each` members of each sorted set in `parts`, with their scores. Returns a list for each set.
    /// Among the members with the first score of the range, reads only the members after the member `after`.
    pub(super) async fn scores(
        &self,
        parts: &[(Shard, Part)],
        scores: Scores,
        after: Option<Vec<u8>>,
        each: usize,
    ) -> Result<Vec<Vec<(Vec<u8>, u64)>>, StoreError> {
        let until = scores.until.map_or_else(|| b"+inf".to_vec(), decimal);
        let after = after.unwrap_or_default();
        let arguments = [decimal(scores.from), until, after, decimal(each as u64), self.order.word()];
        let groups = self.deployment.topology.places_by_script(parts.iter().map(|(shard, _)| *shard));
        let scripts = groups.iter().flat_map(|places| places.chunks(SETS_AT_ONCE)).map(async |places| {
            let keys = places.iter().filter_map(|place| parts.get(*place));
            let keys = keys.map(|(shard, part)| self.deployment.layout.key(*shard, *part)).collect();
            let mut answered =
                self.deployment.run(|scripts| &scripts.scores, keys, arguments.clone()).await?;
            let (mut lists, mut found) = (answered.rest.list()?, Vec::new());
            for place in places {
                found.push((*place, lists.scored()?));
            }
            Ok::<_, StoreError>(found)
        });
        let scripts = stream::iter(scripts.collect::<Vec<_>>()).buffer_unordered(SCRIPTS_AT_ONCE);
        let found: Vec<Vec<_>> = scripts.try_collect().await?;
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        // The scripts answer in any order, and the caller expects the lists in the order of `parts`.
        found.sort_unstable_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, members)| members).collect())
    }

    /// Returns how many members to read from each slice (set of pending timers) of a period. `each` is the number of
    /// members to read from each shard, and `slices` is the number of slices.
    fn each_of_lanes(&self, each: usize, slices: usize) -> usize {
        let all = each.saturating_mul(self.deployment.layout.shards().len());
        all.div_ceil(slices.max(1)).min(each)
    }

    /// Finds the next period of two hours that has a [slice](Slice) whose first due moment is in the range `scores`.
    /// Returns the number of the period and its slices in the range, or `None` without such a period.
    async fn slices_of_next_period(
        &self,
        scores: Scores,
    ) -> Result<Option<(u64, Vec<(Shard, Part)>)>, StoreError> {
        let directories: Vec<(Shard, Part)> =
            self.deployment.layout.shards().map(|shard| (shard, Part::Slices)).collect();
        let next = self.scores(&directories, scores, None, 1).await?;
        let periods = next.into_iter().flatten().map(|(_, due)| period_of(due));
        let Some(period) = (if self.order.is_back() { periods.max() } else { periods.min() }) else {
            return Ok(None);
        };
        // The first read has one slice of each shard. The second read adds the other lanes of the period. It has room
        // for all of them, so its direction makes no difference.
        let last = start_of(period).saturating_add(PERIOD - 1);
        let within = Scores {
            from: scores.from.max(start_of(period)),
            until: Some(scores.until.map_or(last, |until| until.min(last))),
        };
        let found = Walk::ascending(self.deployment).scores(&directories, within, None, lanes()).await?;
        let named = found.into_iter().zip(&directories).flat_map(|(slices, (shard, _))| {
            slices.into_iter().filter_map(|(name, _)| Some((*shard, Part::Slice(Slice::named(&name)?))))
        });
        Ok(Some((period, named.collect())))
    }

    /// Reads pending timers that are due at or after the moment `from`, in the order of their due moments. Of the
    /// timers due at `from` itself, reads only those after the id `after`. The timers are stored by periods of two
    /// hours. The read stops at the end of the first period that has such timers.
    async fn pending_after(
        &self,
        mut from: u64,
        mut after: Option<Vec<u8>>,
        each: usize,
    ) -> Result<Stretch, StoreError> {
        loop {
            // A slice's score is its first due moment, which may be before `from`.
            let scores = Scores { from: start_of(period_of(from)), until: None };
            let Some((period, parts)) = self.slices_of_next_period(scores).await? else {
                return Ok(Stretch::END);
            };
            let start = from.max(start_of(period));
            let each = self.each_of_lanes(each, parts.len());
            let scores = Scores { from: start, until: None };
            // The id belongs to the moment `from`. The period of that moment may be empty by now, and then no timer of
            // the later moment `start` has been read.
            let after = after.take().filter(|_| start == from);
            let found = self.scores_after(parts, scores, after, each).await?;
            // Later periods may have timers, so only a search without a further period is the end.
            if !(found.entries.is_empty() && found.is_end) {
                return Ok(Stretch { is_end: false, ..found });
            }
            from = start_of(period + 1);
        }
    }

    /// Reads pending timers that are due at or before the moment `until`, the latest first. Of the timers due at
    /// `until` itself, reads only those before the id `after`. The timers are stored by periods of two hours. The
    /// read stops at the start of the latest period that has such timers.
    async fn pending_before(
        &self,
        mut until: Option<u64>,
        mut after: Option<Vec<u8>>,
        each: usize,
    ) -> Result<Stretch, StoreError> {
        loop {
            // A slice's score is its first due moment. So a slice in this range has a timer that is due by `until`.
            let scores = Scores { from: 0, until };
            let next = self.slices_of_next_period(scores).await?;
            let Some((period, parts)) = next else { return Ok(Stretch::END) };
            let each = self.each_of_lanes(each, parts.len());
            let found = self.scores_after(parts, scores, after.take(), each).await?;
            if !(found.entries.is_empty() && found.is_end) {
                return Ok(Stretch { is_end: false, ..found });
            }
            let Some(before) = start_of(period).checked_sub(1) else { return Ok(Stretch::END) };
            until = Some(before);
        }
    }

    /// Returns the due moments and ids of at most `limit` pending timers, in the order of the due moments. The timers
    /// are due at or after `from`, and before `until`.
    pub(crate) async fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Result<Vec<(UtcMillis, TimerId)>, StoreError> {
        let (mut upcoming, limit) = (Vec::new(), limit as usize);
        let (mut start, mut after) = (from.as_millis(), None);
        loop {
            let wanted = limit.saturating_sub(upcoming.len()).min(10_000);
            if wanted == 0 || start >= until.as_millis() {
                return Ok(upcoming);
            }
            let each = (2 * wanted / self.deployment.layout.shards().len() + 3).min(wanted);
            let Stretch { entries, is_end } = self.pending_after(start, after.take(), each).await?;
            for entry in &entries {
                let due = UtcMillis::from_millis(moment_of(&entry.place));
                // A read may return more entries than were wanted.
                if due >= until || upcoming.len() == limit {
                    return Ok(upcoming);
                }
                upcoming.push((due, entry.id));
            }
            match entries.last() {
                Some(last) if !is_end => {
                    (start, after) = (moment_of(&last.place), Some(id_bytes(last.id).to_vec()));
                }
                _ => return Ok(upcoming),
            }
        }
    }
}

/// Merges the lists of several sets into one order. Each list has at most `each` entries of its set. If a list is full,
/// its set may have further entries after the last entry of the list. So the result goes no further than the last entry
/// of any full list.
fn merged(found: Vec<Vec<IndexEntry>>, each: usize, order: Order) -> Stretch {
    let cuts = found.iter().filter(|list| list.len() >= each).filter_map(|list| list.last());
    let cut = if order.is_back() { cuts.max() } else { cuts.min() }.cloned();
    let mut all: Vec<IndexEntry> = found.into_iter().flatten().collect();
    all.sort_unstable();
    if order.is_back() {
        all.reverse();
    }
    let is_end = cut.is_none();
    if let Some(cut) = cut {
        all.retain(|entry| if order.is_back() { *entry >= cut } else { *entry <= cut });
    }
    Stretch { entries: all, is_end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(place: u8, shard: Shard) -> IndexEntry {
        IndexEntry { place: vec![place], shard, id: TimerId::from_u128(u128::from(place)) }
    }

    #[test]
    fn shards_are_merged_up_to_where_one_of_them_was_cut() {
        let (one, other) = (vec![entry(1, 0), entry(5, 0)], vec![entry(2, 1), entry(9, 1)]);
        let Stretch { entries: all, is_end } = merged(vec![one.clone(), other.clone()], 3, Order::Ascending);
        assert_eq!((all.len(), is_end), (4, true));
        let Stretch { entries: all, is_end } = merged(vec![one, other], 2, Order::Ascending);
        assert_eq!((all, is_end), (vec![entry(1, 0), entry(2, 1), entry(5, 0)], false));
        let none = merged(vec![Vec::new()], 1, Order::Ascending);
        assert_eq!((none.entries, none.is_end), (Vec::new(), true));
        let (one, other) = (vec![entry(5, 0), entry(1, 0)], vec![entry(9, 1), entry(7, 1)]);
        let Stretch { entries: all, is_end } = merged(vec![one, other], 2, Order::Descending);
        assert_eq!((all, is_end), (vec![entry(9, 1), entry(7, 1)], false));
    }
}
