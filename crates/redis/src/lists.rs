//! What a reader finds: lists, upcoming timers, numbers, copies.

use crate::commit::{counted_of, text};
use crate::layout::{LANES, PERIOD, Part, Shard, Slice, period_of, start_of};
use crate::shared::Core;
use crate::stored::{
    Entry as Stored, Found, KEYLESS, entries, id_at_end, id_bytes, id_of, is_keyless, key_beginning,
    label_entry, moment_bytes, namespace_of, part, phase_byte, set_of, stopped_beginning,
};
use crate::values::{Values, bytes, number};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Counts, Cursor, Filter, Horizon, Page, Reasons, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Timer, TimerId};

/// Entries that a list looks at for one page, for each timer that was asked for.
const LOOKS: usize = 10;
/// The timers of a namespace that a list reads for each page, without a look at those of other namespaces.
const FEW: usize = 2_000;
/// Entries of all namespaces that a list of one namespace looks at while its page has no timer.
const MORE_LOOKS: usize = 20_000;
/// The timers of a namespace that a list reads for one page, if it found none among the entries of all namespaces.
const MOST_GATHERED: usize = 50_000;
/// Timers of a namespace that are read at once.
const READ_AT_ONCE: usize = 1_000;
/// Slices that one script names, or whose timers one script counts.
const SLICES_AT_ONCE: usize = 5_000;
/// Slices that a horizon looks at, in all shards.
const MOST_SLICES: usize = 50_000;
/// Sorted sets of which one script lists members.
const SETS_AT_ONCE: usize = 256;
/// Scripts of one list that are at the server at the same time: other calls come between them.
const SCRIPTS_AT_ONCE: usize = 4;

/// The slices that a shard has in a period, at most.
fn lanes() -> usize {
    usize::try_from(LANES).unwrap_or(usize::MAX)
}

/// The direction of a way through an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

impl Order {
    fn of(filter: &Filter) -> Self {
        if filter.descending { Self::Descending } else { Self::Ascending }
    }

    fn is_back(self) -> bool {
        self == Self::Descending
    }

    /// The word that scripts know it by.
    fn word(self) -> Vec<u8> {
        if self.is_back() { b"back".to_vec() } else { Vec::new() }
    }

    /// Whether one place comes after another one.
    fn is_after(self, place: &[u8], other: &[u8]) -> bool {
        if self.is_back() { place < other } else { place > other }
    }
}

/// The first member behind those that begin so, none if there is no such member.
fn behind(beginning: &[u8]) -> Option<Vec<u8>> {
    let last = beginning.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = beginning.get(..=last)?.to_vec();
    behind.last_mut().into_iter().for_each(|byte| *byte += 1);
    Some(behind)
}

/// A way through all timers of a kind.
#[derive(Clone, Debug)]
pub(crate) enum Index {
    /// By id.
    Records,
    /// By member, of those that begin so.
    Members(Part, Vec<u8>),
    /// By key, of those whose entries begin so.
    Keys(Vec<u8>),
    /// By moment and id.
    Moments(Part),
    /// Pending timers by due moment and id.
    Pending,
}

/// An entry of an index: its place in the order, its shard and its timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) place: Vec<u8>,
    pub(crate) shard: Shard,
    pub(crate) id: TimerId,
}

/// The bound below which all keys are that begin so, if those of timers without a key may begin so, too.
fn before_keyless(beginning: &[u8]) -> Option<Vec<u8>> {
    let has_others = beginning.len() == namespace_of(beginning).len();
    has_others.then(|| [b"(", beginning, &[KEYLESS]].concat())
}

/// The place of a timer in the order of an index that has it.
fn place_of(index: &Index, timer: &Timer) -> Vec<u8> {
    let id = id_bytes(timer.id);
    let by_moment = |moment: u64| [&moment_bytes(moment)[..], &id].concat();
    let place = entries(timer).into_iter().find_map(|entry| match (index, entry) {
        (Index::Pending, Stored::Pending(_, due)) => Some(by_moment(due)),
        (Index::Moments(Part::Leases), Stored::Lease(until)) => Some(by_moment(until)),
        _ => None,
    });
    place.unwrap_or_else(|| id.to_vec())
}

/// The index whose order a list has.
fn index_of(filter: &Filter) -> Index {
    let only = filter.only_namespace();
    let namespace = only.unwrap_or("");
    match filter {
        Filter { label: Some(label), .. } => Index::Members(Part::Labels, label_entry(namespace, label)),
        Filter { key_prefix: Some(prefix), phase, .. } if *phase != Some(Phase::Dead) => {
            Index::Keys(key_beginning(namespace, prefix))
        }
        Filter { reason: Some(reason), .. } => Index::Members(Part::Parked, part(reason)),
        Filter { phase: Some(phase @ (Phase::Parked | Phase::Dead)), .. } if only.is_some() => {
            Index::Members(Part::Stopped, stopped_beginning(namespace, *phase))
        }
        Filter { phase: Some(Phase::Pending), .. } => Index::Pending,
        Filter { phase: Some(Phase::Leased), .. } => Index::Moments(Part::Leases),
        Filter { phase: Some(Phase::Parked), .. } => Index::Members(Part::Parked, Vec::new()),
        Filter { phase: Some(Phase::Dead), .. } => Index::Moments(Part::Dead),
        _ => Index::Records,
    }
}

/// The bounds of the due moments of a list whose order is that of these.
struct Bounds {
    after: Option<u64>,
    before: Option<u64>,
}

impl Bounds {
    fn of(filter: &Filter, index: &Index) -> Self {
        let bound = |moment: Option<UtcMillis>| {
            moment.filter(|_| matches!(index, Index::Pending)).map(UtcMillis::as_millis)
        };
        Self { after: bound(filter.due_after), before: bound(filter.due_before) }
    }

    /// The place after which the list begins.
    fn first(&self, order: Order) -> Option<Vec<u8>> {
        let bound = if order.is_back() { self.before } else { self.after };
        bound.map(|moment| moment_bytes(moment).to_vec())
    }

    /// Whether a place, and all that follow in this order, are not of the list.
    fn is_past(&self, place: &[u8], order: Order) -> bool {
        match order {
            Order::Ascending => self.before.is_some_and(|before| moment_of(place) >= before),
            Order::Descending => self.after.is_some_and(|after| moment_of(place) <= after),
        }
    }
}

fn moment_of(place: &[u8]) -> u64 {
    place.iter().take(6).fold(0, |moment, byte| moment << 8 | u64::from(*byte))
}

impl Core {
    /// Some entries after a place, in order, at least one if there is one; and whether there are no others.
    pub(crate) async fn entries_after(
        &self,
        (index, order): (&Index, Order),
        after: Option<&[u8]>,
        wanted: usize,
    ) -> Result<(Vec<Entry>, bool), StoreError> {
        let each_of = |sets: usize| (2 * wanted / sets.max(1) + 3).min(wanted.max(1));
        let each = each_of(self.layout.shards().len());
        let in_each_shard = |part| self.layout.shards().map(|shard| (shard, part)).collect::<Vec<_>>();
        match index {
            Index::Records => {
                // No record begins with 255 after its id: that is the length of its payload.
                let end: &[u8] = if order.is_back() { &[] } else { &[u8::MAX] };
                let from = after.map(|id| [b"(", id, end].concat());
                self.members(&in_each_shard(Part::Records), from, (&[], order), each).await
            }
            Index::Members(part, beginning) => {
                let from = after.map(|member| [b"(", member].concat());
                self.members(&in_each_shard(*part), from, (beginning, order), each).await
            }
            Index::Keys(beginning) => {
                let from = after.map(|member| [b"(", member].concat());
                let sets = self
                    .layout
                    .shards()
                    .flat_map(|shard| self.layout.key_sets().map(move |set| (shard, Part::Keys(set))));
                let sets: Vec<_> = sets.collect();
                let from = match order {
                    Order::Ascending => from,
                    Order::Descending => from.or_else(|| before_keyless(beginning)),
                };
                let found = self.members(&sets, from, (beginning, order), each_of(sets.len())).await;
                let (mut entries, is_end) = found?;
                // Those of timers without a key follow all keys of the namespace.
                let keys = entries.iter().position(|entry| is_keyless(&entry.place)).unwrap_or(entries.len());
                let has_others = keys < entries.len();
                entries.truncate(keys);
                Ok((entries, is_end || has_others))
            }
            Index::Moments(part) => {
                let bounds = match order {
                    Order::Ascending => (after.map_or(0, moment_of), None),
                    Order::Descending => (0, after.map(moment_of)),
                };
                let after = after.map(|place| place.get(6..).unwrap_or_default().to_vec());
                self.scores_after(in_each_shard(*part), bounds, (after, order), each).await
            }
            Index::Pending => {
                let from = after.map(moment_of);
                let after = after.map(|place| place.get(6..).unwrap_or_default().to_vec());
                match order {
                    Order::Ascending => self.pending_after(from.unwrap_or(0), after, each).await,
                    Order::Descending => self.pending_before(from, after, each).await,
                }
            }
        }
    }

    pub(crate) async fn members_after(
        &self,
        parts: &[(Shard, Part)],
        from: Option<Vec<u8>>,
        beginning: &[u8],
        each: usize,
    ) -> Result<(Vec<Entry>, bool), StoreError> {
        self.members(parts, from, (beginning, Order::Ascending), each).await
    }

    /// Entries of sorted sets by member, from a bound on.
    async fn members(
        &self,
        parts: &[(Shard, Part)],
        from: Option<Vec<u8>>,
        (beginning, order): (&[u8], Order),
        each: usize,
    ) -> Result<(Vec<Entry>, bool), StoreError> {
        let first = match (order, behind(beginning)) {
            (Order::Ascending, _) if beginning.is_empty() => b"-".to_vec(),
            (Order::Ascending, _) => [b"[", beginning].concat(),
            (Order::Descending, Some(behind)) => [b"(", &behind[..]].concat(),
            (Order::Descending, None) => b"+".to_vec(),
        };
        let arguments = [from.unwrap_or(first), beginning.to_vec(), text(each as u64), order.word()];
        let groups = self.grouped(parts.iter().map(|(shard, _)| *shard));
        let scripts = groups.iter().flat_map(|places| places.chunks(SETS_AT_ONCE)).map(async |places| {
            let parts: Vec<_> = places.iter().filter_map(|place| parts.get(*place).copied()).collect();
            let keys = parts.iter().map(|(shard, part)| self.layout.key(*shard, *part)).collect();
            let mut answered = self.run(|scripts| &scripts.members, keys, arguments.clone()).await?;
            let (mut lists, mut found) = (Values::of(answered.rest.next()?)?, Vec::new());
            for (shard, part) in parts {
                let (mut members, mut its) = (Values::of(lists.next()?)?, Vec::new());
                while !members.is_empty() {
                    let member = bytes(members.next()?)?.unwrap_or_default();
                    let (place, id) = match part {
                        Part::Records => (member.get(..16).unwrap_or_default().to_vec(), id_of(&member)),
                        _ => (member.clone(), id_at_end(&member)),
                    };
                    its.extend(id.map(|id| Entry { place, shard, id }));
                }
                found.push(its);
            }
            Ok::<_, StoreError>(found)
        });
        let scripts = stream::iter(scripts.collect::<Vec<_>>()).buffer_unordered(SCRIPTS_AT_ONCE);
        let found: Vec<_> = scripts.try_collect().await?;
        Ok(merged(found.into_iter().flatten().collect(), each, order))
    }

    /// Entries of sorted sets by score and member, between two scores.
    async fn scores_after(
        &self,
        parts: Vec<(Shard, Part)>,
        bounds: (u64, Option<u64>),
        (after, order): (Option<Vec<u8>>, Order),
        each: usize,
    ) -> Result<(Vec<Entry>, bool), StoreError> {
        let found = self.scores(&parts, bounds, (after, order), each).await?;
        let entries = found.into_iter().zip(&parts).map(|(its, (shard, _))| {
            let entry = |(member, score): (Vec<u8>, u64)| {
                let place = [&moment_bytes(score)[..], &member].concat();
                id_of(&member).map(|id| Entry { place, shard: *shard, id })
            };
            its.into_iter().filter_map(entry).collect()
        });
        Ok(merged(entries.collect(), each, order))
    }

    /// Members with their scores, of each set.
    async fn scores(
        &self,
        parts: &[(Shard, Part)],
        (from, until): (u64, Option<u64>),
        (after, order): (Option<Vec<u8>>, Order),
        each: usize,
    ) -> Result<Vec<Vec<(Vec<u8>, u64)>>, StoreError> {
        let until = until.map_or_else(|| b"+inf".to_vec(), text);
        let after = after.unwrap_or_default();
        let arguments = [text(from), until, after, text(each as u64), order.word()];
        let groups = self.grouped(parts.iter().map(|(shard, _)| *shard));
        let scripts = groups.iter().flat_map(|places| places.chunks(SETS_AT_ONCE)).map(async |places| {
            let keys = places.iter().filter_map(|place| parts.get(*place));
            let keys = keys.map(|(shard, part)| self.layout.key(*shard, *part)).collect();
            let mut answered = self.run(|scripts| &scripts.scores, keys, arguments.clone()).await?;
            let (mut lists, mut found) = (Values::of(answered.rest.next()?)?, Vec::new());
            for place in places {
                let (mut values, mut its) = (Values::of(lists.next()?)?, Vec::new());
                while !values.is_empty() {
                    let member = bytes(values.next()?)?.unwrap_or_default();
                    its.push((member, number(&values.next()?)?));
                }
                found.push((*place, its));
            }
            Ok::<_, StoreError>(found)
        });
        let scripts = stream::iter(scripts.collect::<Vec<_>>()).buffer_unordered(SCRIPTS_AT_ONCE);
        let found: Vec<Vec<_>> = scripts.try_collect().await?;
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        found.sort_unstable_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, its)| its).collect())
    }

    /// The number of members to read of each of a period's slices. `each` is the number for a shard with one slice.
    fn each_of_lanes(&self, each: usize, slices: usize) -> usize {
        let all = each.saturating_mul(self.layout.shards().len());
        all.div_ceil(slices.max(1)).min(each)
    }

    /// The first period, or the last one, in which a slice begins between these moments, and its slices that do.
    async fn slices_of_next_period(
        &self,
        (from, until): (u64, Option<u64>),
        order: Order,
    ) -> Result<Option<(u64, Vec<(Shard, Part)>)>, StoreError> {
        let directories: Vec<(Shard, Part)> =
            self.layout.shards().map(|shard| (shard, Part::Slices)).collect();
        let next = self.scores(&directories, (from, until), (None, order), 1).await?;
        let periods = next.into_iter().flatten().map(|(_, due)| period_of(due));
        let Some(period) = (if order.is_back() { periods.max() } else { periods.min() }) else {
            return Ok(None);
        };
        let last = start_of(period).saturating_add(PERIOD - 1);
        let bounds = (from.max(start_of(period)), Some(until.map_or(last, |until| until.min(last))));
        let found = self.scores(&directories, bounds, (None, Order::Ascending), lanes()).await?;
        let named = found.into_iter().zip(&directories).flat_map(|(slices, (shard, _))| {
            slices.into_iter().filter_map(|(name, _)| Some((*shard, Part::Slice(Slice::named(&name)?))))
        });
        Ok(Some((period, named.collect())))
    }

    /// Pending timers from a moment on, in order, up to the end of a slice's period.
    async fn pending_after(
        &self,
        from: u64,
        mut after: Option<Vec<u8>>,
        each: usize,
    ) -> Result<(Vec<Entry>, bool), StoreError> {
        let mut from = from;
        loop {
            // A slice's score is its first due moment, which may be before `from`.
            let bounds = (start_of(period_of(from)), None);
            let Some((period, parts)) = self.slices_of_next_period(bounds, Order::Ascending).await? else {
                return Ok((Vec::new(), true));
            };
            let start = from.max(start_of(period));
            let each = self.each_of_lanes(each, parts.len());
            let after = (after.take(), Order::Ascending);
            let (entries, is_end) = self.scores_after(parts, (start, None), after, each).await?;
            if !(entries.is_empty() && is_end) {
                return Ok((entries, false));
            }
            from = start_of(period + 1);
        }
    }

    /// Pending timers up to a moment, from the last one back, down to the start of a slice's period.
    async fn pending_before(
        &self,
        mut until: Option<u64>,
        mut after: Option<Vec<u8>>,
        each: usize,
    ) -> Result<(Vec<Entry>, bool), StoreError> {
        loop {
            let next = self.slices_of_next_period((0, until), Order::Descending).await?;
            let Some((period, parts)) = next else { return Ok((Vec::new(), true)) };
            let after = (after.take(), Order::Descending);
            let each = self.each_of_lanes(each, parts.len());
            let (entries, is_end) = self.scores_after(parts, (0, until), after, each).await?;
            if !(entries.is_empty() && is_end) {
                return Ok((entries, false));
            }
            let Some(before) = start_of(period).checked_sub(1) else { return Ok((Vec::new(), true)) };
            until = Some(before);
        }
    }

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
            let each = (2 * wanted / self.layout.shards().len() + 3).min(wanted);
            let (entries, is_end) = self.pending_after(start, after.take(), each).await?;
            for entry in &entries {
                let due = UtcMillis::from_millis(moment_of(&entry.place));
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

    /// The timers of entries, in their order. Timers that have gone meanwhile, or cannot be read, are left out.
    pub(crate) async fn timers_of(&self, entries: &[Entry]) -> Result<Vec<Option<Found>>, StoreError> {
        let mut shards: BTreeMap<Shard, Vec<TimerId>> = BTreeMap::new();
        for entry in entries {
            shards.entry(entry.shard).or_default().push(entry.id);
        }
        let reads = shards.iter().map(|(shard, ids)| self.records(*shard, ids));
        let found = try_join_all(reads).await?.into_iter().flatten().filter_map(|found| found.ok().flatten());
        let mut by_id: HashMap<TimerId, Found> = found.map(|found| (found.id(), found)).collect();
        Ok(entries.iter().map(|entry| by_id.remove(&entry.id)).collect())
    }

    pub(crate) async fn list(
        &self,
        filter: &Filter,
        cursor: Option<Cursor>,
        limit: u32,
    ) -> Result<Page, StoreError> {
        // No timer is stored in these.
        if let Some(Phase::Done | Phase::Withdrawn) = filter.phase {
            return Ok(Page::default());
        }
        let index = index_of(filter);
        let way = (&index, Order::of(filter));
        let limit = (limit as usize).max(1);
        let looks = limit.saturating_mul(LOOKS);
        let after = cursor.as_ref().map(Cursor::as_bytes);
        // An index of the timers of all namespaces is none of one namespace.
        let is_mixed = matches!(index, Index::Pending | Index::Moments(_) | Index::Records);
        let Some(namespace) = filter.only_namespace().filter(|_| is_mixed) else {
            return self.list_entries(filter, way, after, limit, looks).await;
        };
        let stored = self.stored_for(namespace, filter.phase).await?;
        if stored == 0 {
            return Ok(Page::default());
        }
        if stored <= looks.max(FEW) {
            return self.list_namespace(namespace, filter, way, after, limit).await;
        }
        let by_phase = Filter {
            namespace: filter.namespace.clone(),
            phase: filter.phase,
            descending: filter.descending,
            ..Filter::default()
        };
        let has_others = *filter != by_phase;
        let (mut page, mut looked) = (Page::default(), 0);
        loop {
            let from = page.next.as_ref().map_or(after, |next: &Cursor| Some(next.as_bytes()));
            page = self.list_entries(filter, way, from, limit, looks).await?;
            looked += looks;
            // A list by other conditions, too, may have none at all, however long the store looks.
            if has_others || !page.timers.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            if looked >= stored.min(MORE_LOOKS) {
                return match stored <= MOST_GATHERED {
                    true => self.list_namespace(namespace, filter, way, after, limit).await,
                    false => Ok(page),
                };
            }
        }
    }

    /// A page in the order of an index, from a look at so many entries at most.
    async fn list_entries(
        &self,
        filter: &Filter,
        way: (&Index, Order),
        after: Option<&[u8]>,
        limit: usize,
        looks: usize,
    ) -> Result<Page, StoreError> {
        let (mut page, mut looked) = (Page::default(), 0);
        let bounds = Bounds::of(filter, way.0);
        let mut last = after.map(<[u8]>::to_vec).or_else(|| bounds.first(way.1));
        loop {
            let wanted = (limit - page.timers.len() + 1).min(READ_AT_ONCE);
            let (entries, is_end) = self.entries_after(way, last.as_deref(), wanted).await?;
            for (entry, found) in entries.iter().zip(self.timers_of(&entries).await?) {
                if page.timers.len() == limit || looked == looks {
                    page.next = last.as_deref().map(Cursor::from_bytes);
                    return Ok(page);
                }
                if bounds.is_past(&entry.place, way.1) {
                    return Ok(page);
                }
                looked += 1;
                page.timers.extend(found.map(|found| found.timer).filter(|timer| filter.admits(timer)));
                last = Some(entry.place.clone());
            }
            if is_end {
                return Ok(page);
            }
        }
    }

    /// The number of timers of a namespace among which a list by this phase finds its own, by the counts. 0 if none is
    /// in this phase.
    async fn stored_for(&self, namespace: &str, phase: Option<Phase>) -> Result<usize, StoreError> {
        let phases = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead];
        let fields = phases.map(|phase| [namespace.as_bytes(), &[phase_byte(phase)]].concat());
        let groups = self.groups_of(self.layout.shards());
        let answers = groups.into_iter().map(async |group| {
            let keys = self.parts(&group, [Part::Counts]);
            let mut answered = self.run(|scripts| &scripts.sums, keys, fields.clone()).await?;
            let (mut values, mut sums) = (Values::of(answered.rest.next()?)?, [0_u64; 4]);
            for sum in &mut sums {
                *sum = number(&values.next()?)?;
            }
            Ok::<_, StoreError>(sums)
        });
        let mut counts = [0_u64; 4];
        for sums in try_join_all(answers).await? {
            counts.iter_mut().zip(sums).for_each(|(count, sum)| *count = count.saturating_add(sum));
        }
        let of = |wanted: Phase| phases.into_iter().zip(counts).filter(move |(of, _)| *of == wanted);
        if phase.is_some_and(|phase| of(phase).all(|(_, count)| count == 0)) {
            return Ok(0);
        }
        let its = phases.into_iter().zip(counts).filter(|(of, _)| phase.is_none() || *of != Phase::Dead);
        let stored = its.fold(0_u64, |sum, (_, count)| sum.saturating_add(count));
        Ok(usize::try_from(stored).unwrap_or(usize::MAX))
    }

    /// The sets in which there may be timers of a namespace.
    async fn places_of(&self, namespace: &str) -> Result<Vec<(Shard, Part)>, StoreError> {
        let beginning = part(namespace);
        let groups = self.groups_of(self.layout.shards());
        let answers = groups.into_iter().map(async |group| {
            let keys = self.parts(&group, [Part::Places]);
            let most = u64::from(self.layout.key_sets().end);
            let arguments = [[b"[", &beginning[..]].concat(), beginning.clone(), text(most)];
            let mut answered = self.run(|scripts| &scripts.members, keys, arguments).await?;
            let (mut lists, mut found) = (Values::of(answered.rest.next()?)?, Vec::new());
            for shard in group {
                let mut members = Values::of(lists.next()?)?;
                while !members.is_empty() {
                    let member = bytes(members.next()?)?.unwrap_or_default();
                    found.extend(set_of(&member).map(|set| (shard, set)));
                }
            }
            Ok::<_, StoreError>(found)
        });
        Ok(try_join_all(answers).await?.into_iter().flatten().collect())
    }

    /// A page in the order of an index, from a look at all timers of a namespace, but for the dead ones if only others
    /// are asked for. Full, unless it is the last one.
    async fn list_namespace(
        &self,
        namespace: &str,
        filter: &Filter,
        (index, order): (&Index, Order),
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let sets = self.places_of(namespace).await?;
        let dead = || self.layout.shards().map(|shard| (shard, Part::Stopped)).collect::<Vec<_>>();
        let mut ways = vec![(sets, part(namespace))];
        if filter.phase.is_none() {
            ways.push((dead(), stopped_beginning(namespace, Phase::Dead)));
        }
        let mut first = BTreeMap::new();
        for (sets, beginning) in ways {
            let each = (2 * READ_AT_ONCE / sets.len().max(1) + 3).min(READ_AT_ONCE);
            let mut last: Option<Vec<u8>> = None;
            loop {
                let from = last.as_ref().map(|member| [b"(", &member[..]].concat());
                let (entries, is_end) = self.members_after(&sets, from, &beginning, each).await?;
                last = entries.last().map(|entry| entry.place.clone()).or(last);
                let found = self.timers_of(&entries).await?.into_iter().flatten().map(|found| found.timer);
                for timer in found.filter(|timer| filter.admits(timer)) {
                    let place = place_of(index, &timer);
                    if after.is_none_or(|after| order.is_after(&place, after)) {
                        first.insert(place, timer);
                    }
                    if first.len() > limit + 1 {
                        if order.is_back() {
                            first.pop_first()
                        } else {
                            first.pop_last()
                        };
                    }
                }
                if is_end {
                    break;
                }
            }
        }
        let mut page = Page::default();
        let mut first: Vec<(Vec<u8>, Timer)> = first.into_iter().collect();
        if order.is_back() {
            first.reverse();
        }
        if first.len() > limit {
            first.truncate(limit);
            page.next = first.last().map(|(place, _)| Cursor::from_bytes(place));
        }
        page.timers = first.into_iter().map(|(_, timer)| timer).collect();
        Ok(page)
    }

    /// The shards whose timers this process would claim: its own ones if it is a node, and otherwise all.
    pub(crate) fn shards_here(&self) -> Vec<Shard> {
        let state = self.nodes.state();
        if state.is_member { state.shards.owned() } else { self.layout.shards().collect() }
    }

    /// The reasons for which timers are parked in the shards of this process.
    pub(crate) async fn reasons(&self, after: Option<Cursor>, limit: u32) -> Result<Reasons, StoreError> {
        let after = after.as_ref().and_then(|cursor| cursor.as_bytes().split_first_chunk::<2>());
        let after = after.map(|(shard, from)| (Shard::from_be_bytes(*shard), from.to_vec()));
        let first = after.as_ref().map_or(0, |(shard, _)| *shard);
        let shards = self.shards_here().into_iter().filter(|shard| *shard >= first);
        let groups = self.groups_of(shards);
        let (mut reasons, mut left) = (Reasons::default(), limit.max(1));
        for group in groups {
            if left == 0 {
                let first = group.first().copied().unwrap_or_default();
                reasons.next = Some(Cursor::from_bytes(&[&first.to_be_bytes()[..], b"-"].concat()));
                break;
            }
            // The shard of the cursor may have another owner by now.
            let begins = after.as_ref().filter(|(shard, _)| group.first() == Some(shard));
            let from = begins.map_or_else(|| b"-".to_vec(), |(_, from)| from.clone());
            let keys = self.parts(&group, [Part::Parked]);
            let mut answered = self.run(|scripts| &scripts.reasons, keys, [from, text(left.into())]).await?;
            let mut found = Values::of(answered.rest.next()?)?;
            while !found.is_empty() {
                let reason = bytes(found.next()?)?.unwrap_or_default();
                let reason = String::from_utf8_lossy(&reason);
                reasons.counts.push((reason.into(), number(&found.next()?)?));
                left = left.saturating_sub(1);
            }
            let place = usize::try_from(number(&answered.rest.next()?)?).unwrap_or_default();
            let from = bytes(answered.rest.next()?)?.unwrap_or_default();
            if let Some(shard) = place.checked_sub(1).and_then(|place| group.get(place)) {
                reasons.next = Some(Cursor::from_bytes(&[&shard.to_be_bytes()[..], &from].concat()));
                break;
            }
        }
        Ok(reasons)
    }

    /// The numbers of timers. Of a server that does not answer, those that it has answered last: a primary that is away
    /// stops no creation in other shards that asks whether there is room.
    ///
    /// # Errors
    ///
    /// Fails if no server answers, or if one does not that has never answered this process.
    pub(crate) async fn counts(&self) -> Result<Counts, StoreError> {
        let groups = self.groups(self.layout.shards());
        let calls = groups.into_iter().map(|shards| (shards.clone(), self.counts_of(shards)));
        let gathered = self.gather(calls.collect::<Vec<_>>()).await.any()?;
        let mut known = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        for (shards, counts) in gathered.answers {
            known.insert(shards, counts);
        }
        for (shards, error) in gathered.failed {
            if !known.contains_key(&shards) {
                let late = || StoreError::new(StoreErrorKind::Io, "a server does not answer for its timers");
                return Err(error.unwrap_or_else(late));
            }
        }
        let mut all = Counts::default();
        for counts in known.values() {
            all.quarantined += counts.quarantined;
            for (of, count) in &counts.by_namespace {
                *all.by_namespace.entry(of.clone()).or_default() += count;
            }
        }
        Ok(all)
    }

    /// The numbers of timers in some shards of one server.
    async fn counts_of(&self, shards: Vec<Shard>) -> Result<Counts, StoreError> {
        let keys = self.parts(&shards, [Part::Counts, Part::Aside]);
        let mut answered = self.run(|scripts| &scripts.counts, keys, []).await?;
        let (mut counts, mut values) = (Counts::default(), Values::of(answered.rest.next()?)?);
        counts.quarantined = number(&answered.rest.next()?)?;
        while !values.is_empty() {
            let field = bytes(values.next()?)?.unwrap_or_default();
            let count = number(&values.next()?)?;
            if let Some(of) = counted_of(&field) {
                *counts.by_namespace.entry(of).or_default() += count;
            }
        }
        Ok(counts)
    }

    pub(crate) async fn horizon(&self) -> Result<Horizon, StoreError> {
        let mut horizon = Horizon::empty(self.time.now());
        let parts: Vec<(Shard, Part)> = self.layout.shards().map(|shard| (shard, Part::Slices)).collect();
        let mut slices: Vec<(Slice, Shard)> = Vec::new();
        let mut cut = None;
        // All lanes of a period are looked at, at least.
        let each = (MOST_SLICES / parts.len().max(1)).max(lanes());
        for parts in parts.chunks((SLICES_AT_ONCE / each.max(1)).max(1)) {
            for (found, (shard, _)) in
                self.scores(parts, (0, None), (None, Order::Ascending), each).await?.iter().zip(parts)
            {
                slices.extend(found.iter().filter_map(|(name, _)| Some((Slice::named(name)?, *shard))));
                // A shard whose answer is full has more slices, perhaps: from this period on not all are counted.
                let last = found.last().filter(|_| found.len() >= each).map(|(_, due)| period_of(*due));
                cut = cut.into_iter().chain(last).min();
            }
        }
        slices.retain(|(slice, _)| cut.is_none_or(|cut| slice.period() < cut));
        slices.sort_unstable();
        // The slices in which a span ends are divided between the spans, and the others are in one span as a whole.
        let ends: Vec<UtcMillis> = horizon.spans.iter().map(|span| span.until).collect();
        let has_end = |period: u64| ends.iter().any(|end| period_of(end.as_millis()) == period);
        let (divided, whole): (Vec<_>, Vec<_>) =
            slices.into_iter().partition(|(slice, _)| has_end(slice.period()));
        for (_, counts) in self.tally(&divided, &ends).await? {
            for (end, count) in ends.iter().zip(counts) {
                horizon.add(*end, count);
            }
        }
        for (slice, counts) in self.tally(&whole, &[]).await? {
            horizon.add(UtcMillis::from_millis(start_of(slice.period())), counts.iter().sum());
        }
        if let Some(cut) = cut {
            let cut = UtcMillis::from_millis(start_of(cut));
            horizon.spans.iter_mut().filter(|span| span.until >= cut).for_each(|span| span.is_exact = false);
            let pending = self.counts().await?.of(Phase::Pending);
            horizon.unplaced = pending.saturating_sub(horizon.placed());
        }
        Ok(horizon)
    }

    /// The numbers of timers of slices, up to each of these ends and after the last.
    async fn tally(
        &self,
        slices: &[(Slice, Shard)],
        ends: &[UtcMillis],
    ) -> Result<Vec<(Slice, Vec<u64>)>, StoreError> {
        let groups = self.grouped(slices.iter().map(|(_, shard)| *shard));
        let answers = groups.into_iter().map(async |places| {
            let mut counts = Vec::new();
            for places in places.chunks(SLICES_AT_ONCE) {
                let slices = || places.iter().filter_map(|place| slices.get(*place));
                let keys =
                    slices().map(|(slice, shard)| self.layout.key(*shard, Part::Slice(*slice))).collect();
                let arguments = ends.iter().map(|end| text(end.as_millis()));
                let mut answered = self.run(|scripts| &scripts.tally, keys, arguments).await?;
                let mut lists = Values::of(answered.rest.next()?)?;
                for (slice, _) in slices() {
                    let (mut values, mut its) = (Values::of(lists.next()?)?, Vec::new());
                    while !values.is_empty() {
                        its.push(number(&values.next()?)?);
                    }
                    counts.push((*slice, its));
                }
            }
            Ok::<_, StoreError>(counts)
        });
        Ok(try_join_all(answers).await?.into_iter().flatten().collect())
    }

    /// All timers of a shard at one moment, but for records that cannot be read.
    pub(crate) async fn dump(&self, shard: Shard) -> Result<Vec<Timer>, StoreError> {
        let keys = self.layout.keys(shard, [Part::Records, Part::Tokens, Part::Leases]);
        let mut answered = self.run(|scripts| &scripts.dump, keys, []).await?;
        let mut records = Values::of(answered.rest.next()?)?;
        let mut marks = pairs(&mut answered.rest)?;
        let ends = pairs(&mut answered.rest)?;
        let mut timers = Vec::new();
        while !records.is_empty() {
            let member = bytes(records.next()?)?.unwrap_or_default();
            let id = member.get(..16).unwrap_or_default();
            let mark = marks.remove(id);
            let until = ends.get(id).and_then(|end| core::str::from_utf8(end).ok()?.parse().ok());
            timers
                .extend(Found::read(shard, member, mark, until.unwrap_or_default()).map(|found| found.timer));
        }
        Ok(timers)
    }
}

/// A list of first, second, first, second.
pub(crate) fn pairs(values: &mut Values) -> Result<HashMap<Vec<u8>, Vec<u8>>, StoreError> {
    let mut list = Values::of(values.next()?)?;
    let mut pairs = HashMap::new();
    while !list.is_empty() {
        let first = bytes(list.next()?)?.unwrap_or_default();
        pairs.insert(first, bytes(list.next()?)?.unwrap_or_default());
    }
    Ok(pairs)
}

/// The entries of all shards in one order, up to where a list of `each` entries ends: that shard may have others after
/// it.
fn merged(found: Vec<Vec<Entry>>, each: usize, order: Order) -> (Vec<Entry>, bool) {
    let cuts = found.iter().filter(|its| its.len() >= each).filter_map(|its| its.last());
    let cut = if order.is_back() { cuts.max() } else { cuts.min() }.cloned();
    let mut all: Vec<Entry> = found.into_iter().flatten().collect();
    all.sort_unstable();
    if order.is_back() {
        all.reverse();
    }
    let is_end = cut.is_none();
    if let Some(cut) = cut {
        all.retain(|entry| if order.is_back() { *entry >= cut } else { *entry <= cut });
    }
    (all, is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(place: u8, shard: Shard) -> Entry {
        Entry { place: vec![place], shard, id: TimerId::from_u128(u128::from(place)) }
    }

    #[test]
    fn shards_are_merged_up_to_where_one_of_them_was_cut() {
        let (one, other) = (vec![entry(1, 0), entry(5, 0)], vec![entry(2, 1), entry(9, 1)]);
        let (all, is_end) = merged(vec![one.clone(), other.clone()], 3, Order::Ascending);
        assert_eq!((all.len(), is_end), (4, true));
        let (all, is_end) = merged(vec![one, other], 2, Order::Ascending);
        assert_eq!((all, is_end), (vec![entry(1, 0), entry(2, 1), entry(5, 0)], false));
        assert_eq!(merged(vec![Vec::new()], 1, Order::Ascending), (Vec::new(), true));
        let (one, other) = (vec![entry(5, 0), entry(1, 0)], vec![entry(9, 1), entry(7, 1)]);
        let (all, is_end) = merged(vec![one, other], 2, Order::Descending);
        assert_eq!((all, is_end), (vec![entry(9, 1), entry(7, 1)], false));
    }
}
