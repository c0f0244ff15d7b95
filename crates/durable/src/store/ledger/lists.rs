//! Reads lists of stored timers that match a filter, a page at a time.

use super::counts::PhaseCounts;
use super::entries::{
    id_at_end, id_bytes, key_key, label_key, moment_bytes, moment_of, part, phase_entry, stopped_prefix,
};
use super::reader::Reader;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::filter::{Cursor, Filter, Page};
use crate::store::tables::{Table, Tables};
use crate::timer::TimerId;
use std::collections::BTreeSet;
use tourbillon_words::UtcMillis;

/// The number of index entries that a search may read for each timer that the caller wants on the page.
const LOOKS: usize = 10;
/// The greatest number of timers in a small namespace. For a page of a small namespace, [`List::page`] reads all timers
/// of the namespace. For a larger namespace, it first searches an index that mixes the timers of all namespaces. If the
/// caller wants a page of more than 200 timers, larger namespaces also count as small ([`LOOKS`]).
const FEW: usize = 2_000;
/// The number of entries after which [`List::page`] stops its search of an index that mixes the timers of all
/// namespaces, if it has found no timer for the page. The search also stops if it has read as many entries as the
/// namespace has timers. [`MOST_GATHERED`] says how the page is then filled.
const MORE_LOOKS: usize = 20_000;
/// The greatest number of timers that [`List::page`] reads from one namespace after a search that found no timer
/// ([`MORE_LOOKS`]). If the namespace has at most this number of timers, the method reads them all to fill the page.
/// Otherwise it returns an empty page, and the next page continues the search.
const MOST_GATHERED: usize = 1_000_000;

/// The key of an index entry, and the id of the entry's timer, which is `None` if the entry has no valid id.
type Listed = (Vec<u8>, Option<TimerId>);

/// Describes how a list reads a table. The list has the order of `table`, and contains only entries whose keys begin
/// with `prefix`. `due_after` and `due_before` bound a list in the order of due moments, and are `None` for other
/// lists.
struct Way {
    table: Table,
    prefix: Vec<u8>,
    due_after: Option<UtcMillis>,
    due_before: Option<UtcMillis>,
    descending: bool,
}

impl Way {
    fn of(filter: &Filter) -> Self {
        let (table, prefix) = way_of(filter);
        // In a list of another table, `Filter::admits` applies these conditions to each timer.
        let bound = |moment: Option<UtcMillis>| moment.filter(|_| table == Table::Due);
        let (due_after, due_before) = (bound(filter.due_after), bound(filter.due_before));
        Self { table, prefix, due_after, due_before, descending: filter.descending }
    }

    /// Returns the first key that an ascending list reads. `after` is the last key of the previous page, and `None` for
    /// the first page.
    fn from(&self, after: Option<&[u8]>) -> Vec<u8> {
        let from = after.map_or_else(Vec::new, |last| [last, &[0]].concat());
        let first = self.due_after.map_or_else(Vec::new, |moment| moment_bytes(moment).to_vec());
        from.max(first).max(self.prefix.clone())
    }

    /// Returns the key below which a descending list begins to read. `before` is the last key of the previous page, and
    /// `None` for the first page. Returns `None` if the list begins with the table's last key.
    fn below(&self, before: Option<&[u8]>) -> Option<Vec<u8>> {
        let last = self.due_before.map(|moment| moment_bytes(moment).to_vec());
        [before.map(<[u8]>::to_vec), last, behind(&self.prefix)].into_iter().flatten().min()
    }

    /// Returns whether a key comes after the end of the list. If so, all later keys in the list's order do, too.
    fn is_past(&self, key: &[u8]) -> bool {
        let is_out = |due: UtcMillis| match self.descending {
            true => self.due_after.is_some_and(|after| due <= after),
            false => self.due_before.is_some_and(|before| due >= before),
        };
        !key.starts_with(&self.prefix) || self.table == Table::Due && is_out(moment_of(key))
    }

    /// Returns whether the key `place` comes after the key `other` in the list's order.
    fn is_after(&self, place: &[u8], other: &[u8]) -> bool {
        if self.descending { place < other } else { place > other }
    }
}

/// Returns the least key that is greater than all keys with the prefix `prefix`. `None` if no such key exists.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = prefix.get(..=last)?.to_vec();
    behind.last_mut().into_iter().for_each(|byte| *byte += 1);
    Some(behind)
}

fn way_of(filter: &Filter) -> (Table, Vec<u8>) {
    let only = filter.only_namespace();
    let namespace = only.unwrap_or("");
    match filter {
        Filter { label: Some(label), .. } => (Table::Labels, label_key(namespace, label)),
        Filter { key_prefix: Some(prefix), phase, .. } if *phase != Some(Phase::Dead) => {
            (Table::Keys, key_key(namespace, prefix))
        }
        Filter { reason: Some(reason), .. } => (Table::Parked, part(reason)),
        Filter { phase: Some(phase @ (Phase::Parked | Phase::Dead)), .. } if only.is_some() => {
            (Table::Stopped, stopped_prefix(namespace, *phase))
        }
        Filter { phase: Some(Phase::Pending), .. } => (Table::Due, Vec::new()),
        Filter { phase: Some(Phase::Leased), .. } => (Table::Leases, Vec::new()),
        Filter { phase: Some(Phase::Parked), .. } => (Table::Parked, Vec::new()),
        Filter { phase: Some(Phase::Dead), .. } => (Table::Dead, Vec::new()),
        _ => (Table::Timers, Vec::new()),
    }
}

/// Reads a page of a list: the timers after the index entry `after`, or the first timers if `after` is `None`.
pub(super) struct List<'l, T> {
    reader: Reader<'l, T>,
    filter: &'l Filter,
    way: Way,
    after: Option<&'l [u8]>,
    /// The greatest number of timers in the page.
    limit: usize,
}

impl<'l, T: Tables> List<'l, T> {
    pub(super) fn new(
        reader: Reader<'l, T>,
        filter: &'l Filter,
        cursor: Option<&'l Cursor>,
        limit: u32,
    ) -> Self {
        let after = cursor.map(|Cursor(last)| &last[..]);
        // A page of 0 timers would have no cursor, and would look like the end of the list.
        Self { reader, filter, way: Way::of(filter), after, limit: (limit as usize).max(1) }
    }

    pub(super) fn page(&self) -> Result<Page, StoreError> {
        // A stored timer is never done or withdrawn.
        if let Some(Phase::Done | Phase::Withdrawn) = self.filter.phase {
            return Ok(Page::default());
        }
        let looks = self.limit.saturating_mul(LOOKS);
        // These tables mix the timers of all namespaces.
        let is_mixed = matches!(self.way.table, Table::Due | Table::Leases | Table::Timers);
        let Some(namespace) = self.filter.only_namespace().filter(|_| is_mixed) else {
            return self.look_at_entries(self.after, looks).map(|(page, _)| page);
        };
        let stored = self.stored_in(namespace)?;
        if stored == 0 {
            return Ok(Page::default());
        }
        if stored <= looks.max(FEW) {
            return self.look_at_namespace(namespace);
        }
        let has_others = !self.filter.is_by_phase();
        let (mut page, mut looked) = (Page::default(), 0);
        loop {
            let from = page.next.as_ref().map_or(self.after, |Cursor(last)| Some(&last[..]));
            let (next, seen) = self.look_at_entries(from, looks)?;
            (page, looked) = (next, looked + seen);
            // If the filter has other conditions, it may match no timer at all, so reading further may find nothing.
            if has_others || !page.timers.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            if looked >= stored.min(MORE_LOOKS) {
                // The entries read so far have no timer for the page, so the page may begin at `self.after` again.
                return match stored <= MOST_GATHERED {
                    true => self.look_at_namespace(namespace),
                    false => Ok(page),
                };
            }
        }
    }

    /// Reads a page from at most `looks` entries of the list's table. Returns the page, and the number of entries that
    /// were read.
    fn look_at_entries(&self, after: Option<&[u8]>, looks: usize) -> Result<(Page, usize), StoreError> {
        let (way, tables) = (&self.way, self.reader.tables);
        let (mut found, mut is_end) = (Vec::<Listed>::new(), true);
        let mut look = |key: &[u8], value: &[u8]| {
            if way.is_past(key) {
                return false;
            }
            is_end = found.len() < looks;
            if is_end {
                let id = if way.table == Table::Keys { id_at_end(value) } else { id_at_end(key) };
                found.push((key.to_vec(), id));
            }
            is_end
        };
        match way.descending {
            true => tables.scan_back(way.table, way.below(after).as_deref(), &mut look)?,
            false => tables.scan(way.table, &way.from(after), &mut look)?,
        }
        let (mut page, mut last, looked) = (Page::default(), None, found.len());
        for (key, id) in found {
            if page.timers.len() == self.limit {
                // `last` is the entry before this entry, so the next page begins with this entry.
                is_end = false;
                break;
            }
            if let Some(id) = id
                && let Some(timer) = self.reader.peek(id)?
                && self.filter.admits(&timer)
            {
                page.timers.push(timer);
            }
            last = Some(key);
        }
        page.next = last.filter(|_| !is_end).map(|last| Cursor(last.into()));
        Ok((page, looked))
    }

    /// Returns the number of timers that [`look_at_namespace`](Self::look_at_namespace) would read, by the stored
    /// counts. Returns 0 if the namespace has no timer in the filter's phase.
    fn stored_in(&self, namespace: &str) -> Result<usize, StoreError> {
        let (mut stored, phase) = (0_u64, self.filter.phase);
        for candidate in [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead] {
            let count = PhaseCounts::stored(self.reader.tables, namespace, candidate)?;
            if phase == Some(candidate) && count == 0 {
                return Ok(0);
            }
            if phase.is_none() || candidate != Phase::Dead {
                stored = stored.saturating_add(count);
            }
        }
        Ok(usize::try_from(stored).unwrap_or(usize::MAX))
    }

    /// Reads all timers of a namespace, and returns a page of them in the list's order. Each page except the last is
    /// full. The method reads the dead timers only if the filter has no phase. It is not called for a filter whose
    /// phase is dead, because [`Table::Stopped`] has the dead timers of each namespace.
    fn look_at_namespace(&self, namespace: &str) -> Result<Page, StoreError> {
        let (mut first, mut failure) = (BTreeSet::new(), None);
        let mut look = |id: Option<TimerId>| {
            if let Some(error) = id.and_then(|id| self.gather(id, &mut first).err()) {
                failure = Some(error);
            }
            failure.is_none()
        };
        let tables = self.reader.tables;
        let prefix = part(namespace);
        tables.scan(Table::Keys, &prefix, &mut |key, value| {
            key.starts_with(&prefix) && look(id_at_end(value))
        })?;
        let mut others = vec![(Table::Keyless, prefix.clone())];
        if self.filter.phase.is_none() {
            others.push((Table::Stopped, stopped_prefix(namespace, Phase::Dead)));
        }
        for (table, prefix) in others {
            tables.scan(table, &prefix, &mut |key, _| key.starts_with(&prefix) && look(id_at_end(key)))?;
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let (mut page, mut first) = (Page::default(), first.into_iter().collect::<Vec<_>>());
        if self.way.descending {
            first.reverse();
        }
        let has_more = first.len() > self.limit;
        first.truncate(self.limit);
        page.next = first.last().filter(|_| has_more).map(|(place, _)| Cursor(place[..].into()));
        for (_, id) in first {
            page.timers.extend(self.reader.peek(id)?);
        }
        Ok(page)
    }

    /// Adds the timer `id` to `first` if the timer matches the filter and comes after the cursor. Keeps only the first
    /// `limit + 1` timers of the list in `first`. The additional timer shows that a further page follows.
    fn gather(&self, id: TimerId, first: &mut BTreeSet<(Vec<u8>, TimerId)>) -> Result<(), StoreError> {
        let Some(timer) = self.reader.peek(id)?.filter(|timer| self.filter.admits(timer)) else {
            return Ok(());
        };
        // The place is the timer's key in `way.table`. So a cursor has the same meaning if the next page is read from
        // that table.
        let place = match phase_entry(&timer) {
            (phase, key) if phase == self.way.table => key,
            _ => id_bytes(timer.id).to_vec(),
        };
        if self.after.is_none_or(|after| self.way.is_after(&place, after)) {
            first.insert((place, timer.id));
        }
        if first.len() > self.limit + 1 {
            if self.way.descending {
                first.pop_first()
            } else {
                first.pop_last()
            };
        }
        Ok(())
    }
}
