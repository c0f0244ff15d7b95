//! Lists timers by a filter, page by page. A list reads an index of the stored timers. The *place* of an entry is its
//! position in the order of the index.

use super::find::timers_of;
use super::index::{Index, Order, Stretch, Walk, moment_of, place_of};
use crate::deployment::Deployment;
use crate::layout::{
    Part, Shard, key_beginning, label_entry, moment_bytes, part, phase_byte, set_of, stopped_beginning,
};
use crate::script::decimal;
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Cursor, Filter, Page, StoreError};
use tourbillon_durable::timer::Timer;

/// A page reads at most this number of index entries for each timer that fits on the page.
const LOOKS: usize = 10;
/// If a namespace has at most this number of timers, a page of the namespace reads all of them instead of searching the
/// index. For a large page, this limit is [`LOOKS`] times the size of the page.
const FEW: usize = 2_000;
/// The greatest number of index entries that a page reads in search of its first timer of a namespace.
const MORE_LOOKS: usize = 20_000;
/// The greatest number of timers for which a page of a namespace reads the whole namespace, after a search of the index
/// has found no timer of the namespace.
const MOST_GATHERED: usize = 50_000;
/// The greatest number of timers that one read returns.
const READ_AT_ONCE: usize = 1_000;

/// Returns the index from which a list with this filter is read. The list has the order of this index.
fn index_of(filter: &Filter) -> Index {
    let only = filter.only_namespace();
    let namespace = only.unwrap_or("");
    match filter {
        Filter { label: Some(label), .. } => Index::Members(Part::Labels, label_entry(namespace, label)),
        // A dead timer owns no key, so it has no entry by its key.
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

/// The bounds of the due moments in a list of pending timers, which is sorted by due moments. Lists with another order
/// have no bounds.
struct Bounds {
    after: Option<u64>,
    before: Option<u64>,
}

impl Bounds {
    fn new(filter: &Filter, index: &Index) -> Self {
        let bound = |moment: Option<UtcMillis>| {
            moment.filter(|_| matches!(index, Index::Pending)).map(UtcMillis::as_millis)
        };
        Self { after: bound(filter.due_after), before: bound(filter.due_before) }
    }

    /// Returns the place in the index after which the list begins, or `None` if the list begins with the first entry.
    fn first(&self, order: Order) -> Option<Vec<u8>> {
        // The list begins with the timers that are due at the bound itself. The filter excludes them.
        let bound = if order.is_back() { self.before } else { self.after };
        bound.map(|moment| moment_bytes(moment).to_vec())
    }

    /// Returns whether a place in the index is beyond the end of the list. All later places are then beyond the end,
    /// too.
    fn is_past(&self, place: &[u8], order: Order) -> bool {
        match order {
            Order::Ascending => self.before.is_some_and(|before| moment_of(place) >= before),
            Order::Descending => self.after.is_some_and(|after| moment_of(place) <= after),
        }
    }
}

/// The parameters of a list: a filter, the index that gives the order, and the size of a page.
struct Listing<'a> {
    walk: Walk<'a>,
    index: Index,
    filter: &'a Filter,
    /// The greatest number of timers on a page.
    limit: usize,
}

/// Returns one page of at most `limit` timers that a filter admits. The page begins after the cursor. If `cursor` is
/// `None`, it begins with the first timer.
pub(crate) async fn list(
    deployment: &Deployment,
    filter: &Filter,
    cursor: Option<Cursor>,
    limit: u32,
) -> Result<Page, StoreError> {
    // No timer is stored in these phases.
    if let Some(Phase::Done | Phase::Withdrawn) = filter.phase {
        return Ok(Page::default());
    }
    let walk = Walk { deployment, order: Order::new(filter.descending) };
    // With a limit of 0, the first page would be empty and have no cursor, like the end of a list.
    let listing = Listing { walk, index: index_of(filter), filter, limit: (limit as usize).max(1) };
    listing.page(cursor.as_ref().map(Cursor::as_bytes)).await
}

impl Listing<'_> {
    /// Returns the page that follows the place `after` in the index. Reads the index, or all timers of the filter's
    /// namespace if these are few.
    async fn page(&self, after: Option<&[u8]>) -> Result<Page, StoreError> {
        let looks = self.limit.saturating_mul(LOOKS);
        // An index of all namespaces may have hardly any timers of the wanted namespace.
        let is_mixed = matches!(self.index, Index::Pending | Index::Moments(_) | Index::Records);
        let Some(namespace) = self.filter.only_namespace().filter(|_| is_mixed) else {
            return self.page_of_index(after, looks).await;
        };
        let stored = self.stored_for(namespace).await?;
        if stored == 0 {
            return Ok(Page::default());
        }
        if stored <= looks.max(FEW) {
            return self.page_of_namespace(namespace, after).await;
        }
        let by_phase = Filter {
            namespace: self.filter.namespace.clone(),
            phase: self.filter.phase,
            descending: self.filter.descending,
            ..Filter::default()
        };
        let has_other_conditions = *self.filter != by_phase;
        let (mut page, mut looked) = (Page::default(), 0);
        loop {
            let from = page.next.as_ref().map_or(after, |next: &Cursor| Some(next.as_bytes()));
            page = self.page_of_index(from, looks).await?;
            looked += looks;
            // The filter's other conditions may admit no timer at all, so reading more entries would not help.
            if has_other_conditions || !page.timers.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            if looked >= stored.min(MORE_LOOKS) {
                return match stored <= MOST_GATHERED {
                    true => self.page_of_namespace(namespace, after).await,
                    false => Ok(page),
                };
            }
        }
    }

    /// Returns the page that follows the place `after` in the index. Reads at most `looks` entries of the index, so the
    /// page may be incomplete.
    async fn page_of_index(&self, after: Option<&[u8]>, looks: usize) -> Result<Page, StoreError> {
        let (mut page, mut looked) = (Page::default(), 0);
        let (bounds, order) = (Bounds::new(self.filter, &self.index), self.walk.order);
        let mut last = after.map(<[u8]>::to_vec).or_else(|| bounds.first(order));
        loop {
            // The entry after the last timer of the page shows whether another page follows.
            let wanted = (self.limit - page.timers.len() + 1).min(READ_AT_ONCE);
            let Stretch { entries, is_end } =
                self.walk.entries_after(&self.index, last.as_deref(), wanted).await?;
            for (entry, found) in entries.iter().zip(timers_of(self.walk.deployment, &entries).await?) {
                if page.timers.len() == self.limit || looked == looks {
                    page.next = last.as_deref().map(Cursor::from_bytes);
                    return Ok(page);
                }
                if bounds.is_past(&entry.place, order) {
                    return Ok(page);
                }
                looked += 1;
                page.timers.extend(found.map(|found| found.timer).filter(|timer| self.filter.admits(timer)));
                last = Some(entry.place.clone());
            }
            if is_end {
                return Ok(page);
            }
        }
    }

    /// Returns how many timers [`page_of_namespace`](Self::page_of_namespace) would read, by the stored counts. Returns
    /// 0 if the namespace has no timer in the filter's phase.
    async fn stored_for(&self, namespace: &str) -> Result<usize, StoreError> {
        let deployment = self.walk.deployment;
        let phases = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead];
        let fields = phases.map(|phase| [namespace.as_bytes(), &[phase_byte(phase)]].concat());
        let answers = deployment.all_groups().into_iter().map(async |group| {
            let keys = deployment.keys(&group, [Part::Counts]);
            let mut answered = deployment.run(|scripts| &scripts.sums, keys, fields.clone()).await?;
            let (mut values, mut sums) = (answered.rest.list()?, [0_u64; 4]);
            for sum in &mut sums {
                *sum = values.number()?;
            }
            Ok::<_, StoreError>(sums)
        });
        let mut counts = [0_u64; 4];
        for sums in try_join_all(answers).await? {
            counts.iter_mut().zip(sums).for_each(|(count, sum)| *count = count.saturating_add(sum));
        }
        let is_absent =
            |phase| phases.into_iter().zip(counts).all(|(counted, count)| counted != phase || count == 0);
        if self.filter.phase.is_some_and(is_absent) {
            return Ok(0);
        }
        // Dead timers are in an index of their own. A read of the namespace includes them only if the filter names no
        // phase.
        let counted = phases
            .into_iter()
            .zip(counts)
            .filter(|(phase, _)| self.filter.phase.is_none() || *phase != Phase::Dead);
        let stored = counted.fold(0_u64, |sum, (_, count)| sum.saturating_add(count));
        Ok(usize::try_from(stored).unwrap_or(usize::MAX))
    }

    /// Returns the Redis sorted sets [`Part::Keys`] that may contain entries of timers of this namespace. A shard has
    /// several of these sorted sets, which list timers by their keys. The result has the shard and the [`Part`] of each
    /// sorted set.
    async fn sets_of(&self, namespace: &str) -> Result<Vec<(Shard, Part)>, StoreError> {
        let deployment = self.walk.deployment;
        let beginning = part(namespace);
        let answers = deployment.all_groups().into_iter().map(async |group| {
            let keys = deployment.keys(&group, [Part::Places]);
            // A namespace has at most one place for each set of a shard, so this limit cuts nothing off.
            let most = u64::from(deployment.layout.key_sets().end);
            let arguments = [[b"[", &beginning[..]].concat(), beginning.clone(), decimal(most)];
            let mut answered = deployment.run(|scripts| &scripts.members, keys, arguments).await?;
            let (mut lists, mut found) = (answered.rest.list()?, Vec::new());
            for shard in group {
                let mut members = lists.list()?;
                while !members.is_empty() {
                    let member = members.bytes()?;
                    found.extend(set_of(&member).map(|set| (shard, set)));
                }
            }
            Ok::<_, StoreError>(found)
        });
        Ok(try_join_all(answers).await?.into_iter().flatten().collect())
    }

    /// Reads all timers of a namespace, and returns the page after the place `after` in the order of the index. Reads
    /// dead timers only if the filter names no phase, because [`page`](Self::page) reads a list of only dead timers
    /// from an index of its own. The page is full unless it is the last page.
    async fn page_of_namespace(&self, namespace: &str, after: Option<&[u8]>) -> Result<Page, StoreError> {
        let (deployment, order) = (self.walk.deployment, self.walk.order);
        let mut stretches = vec![(self.sets_of(namespace).await?, part(namespace))];
        if self.filter.phase.is_none() {
            let dead = deployment.layout.shards().map(|shard| (shard, Part::Stopped)).collect();
            stretches.push((dead, stopped_beginning(namespace, Phase::Dead)));
        }
        // Keeps one timer more than a page has. That timer shows whether another page follows.
        let mut first = BTreeMap::new();
        for (sets, beginning) in stretches {
            let each = (2 * READ_AT_ONCE / sets.len().max(1) + 3).min(READ_AT_ONCE);
            let mut last: Option<Vec<u8>> = None;
            loop {
                let from = last.as_ref().map(|member| [b"(", &member[..]].concat());
                let Stretch { entries, is_end } =
                    Walk::ascending(deployment).members(&sets, from, &beginning, each).await?;
                last = entries.last().map(|entry| entry.place.clone()).or(last);
                let found = timers_of(deployment, &entries).await?.into_iter().flatten();
                for timer in found.map(|found| found.timer).filter(|timer| self.filter.admits(timer)) {
                    let place = place_of(&self.index, &timer);
                    if after.is_none_or(|after| order.is_after(&place, after)) {
                        // A timer that dies between the reads is met twice. Its place is its id, so the map has it
                        // once.
                        first.insert(place, timer);
                    }
                    if first.len() > self.limit + 1 {
                        match order {
                            Order::Ascending => first.pop_last(),
                            Order::Descending => first.pop_first(),
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
        if first.len() > self.limit {
            first.truncate(self.limit);
            page.next = first.last().map(|(place, _)| Cursor::from_bytes(place));
        }
        page.timers = first.into_iter().map(|(_, timer)| timer).collect();
        Ok(page)
    }
}
