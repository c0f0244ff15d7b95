//! Reads: lists and counts.

use super::entries::{
    id_at_end, id_bytes, key_key, label_key, moment_bytes, moment_of, part, phase_entry, stopped_prefix,
};
use super::timers::{Ledger, QUARANTINED};
use crate::record;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::filter::{Cursor, Filter, Page};
use crate::store::tables::{Table, Tables};
use crate::store::{Counts, Reasons};
use crate::timer::{Timer, TimerId};
use std::collections::BTreeSet;
use tourbillon_words::UtcMillis;

/// Entries that a list looks at for one page, for each timer that was asked for.
const LOOKS: usize = 10;
/// The timers of a namespace that a list reads for each page, without a look at those of other namespaces.
const FEW: usize = 2_000;
/// Entries of all namespaces that a list of one namespace looks at while its page has no timer.
const MORE_LOOKS: usize = 20_000;
/// The timers of a namespace that a list reads for one page, if it found none among the entries of all namespaces.
const MOST_GATHERED: usize = 1_000_000;

/// The key of an entry, and its timer.
type Listed = (Vec<u8>, Option<TimerId>);

/// The way of a list through a table: the table whose order it has, the beginning of its keys there, and the bounds of
/// the due moments where the keys begin with these.
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
        let bound = |moment: Option<UtcMillis>| moment.filter(|_| table == Table::Due);
        let (due_after, due_before) = (bound(filter.due_after), bound(filter.due_before));
        Self { table, prefix, due_after, due_before, descending: filter.descending }
    }

    /// The key from which an ascending list goes on.
    fn from(&self, after: Option<&[u8]>) -> Vec<u8> {
        let from = after.map_or_else(Vec::new, |last| [last, &[0]].concat());
        let first = self.due_after.map_or_else(Vec::new, |moment| moment_bytes(moment).to_vec());
        from.max(first).max(self.prefix.clone())
    }

    /// The key below which a descending list goes on, none if it begins with the table's last.
    fn below(&self, before: Option<&[u8]>) -> Option<Vec<u8>> {
        let last = self.due_before.map(|moment| moment_bytes(moment).to_vec());
        [before.map(<[u8]>::to_vec), last, behind(&self.prefix)].into_iter().flatten().min()
    }

    /// Whether a key, and all that follow in the list's order, are not of the list.
    fn is_past(&self, key: &[u8]) -> bool {
        let is_out = |due: UtcMillis| match self.descending {
            true => self.due_after.is_some_and(|after| due <= after),
            false => self.due_before.is_some_and(|before| due >= before),
        };
        !key.starts_with(&self.prefix) || self.table == Table::Due && is_out(moment_of(key))
    }

    /// Whether one place comes after another one in the list's order.
    fn is_after(&self, place: &[u8], other: &[u8]) -> bool {
        if self.descending { place < other } else { place > other }
    }
}

/// The first key behind those that begin so, none if there is no such key.
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

impl<T: Tables> Ledger<T> {
    pub(crate) fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Result<Vec<(UtcMillis, TimerId)>, StoreError> {
        let mut upcoming = Vec::new();
        self.tables.scan(Table::Due, &moment_bytes(from), &mut |key, _| {
            let due = moment_of(key);
            let is_wanted = due < until && upcoming.len() < limit as usize;
            if let Some(id) = id_at_end(key).filter(|_| is_wanted) {
                upcoming.push((due, id));
            }
            is_wanted
        })?;
        Ok(upcoming)
    }

    pub(crate) fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page, StoreError> {
        // No timer is stored in these.
        if let Some(Phase::Done | Phase::Withdrawn) = filter.phase {
            return Ok(Page::default());
        }
        let way = Way::of(filter);
        let limit = (limit as usize).max(1);
        let looks = limit.saturating_mul(LOOKS);
        let after = cursor.map(|Cursor(last)| &last[..]);
        // A table with the timers of all namespaces does not serve as an index of one namespace.
        let is_mixed = matches!(way.table, Table::Due | Table::Leases | Table::Timers);
        let Some(namespace) = filter.only_namespace().filter(|_| is_mixed) else {
            return self.list_entries(filter, &way, after, limit, looks).map(|(page, _)| page);
        };
        let stored = self.stored_for(namespace, filter.phase)?;
        if stored == 0 {
            return Ok(Page::default());
        }
        if stored <= looks.max(FEW) {
            return self.list_namespace(namespace, filter, &way, after, limit);
        }
        let has_others = !filter.is_by_phase();
        let (mut page, mut looked) = (Page::default(), 0);
        loop {
            let from = page.next.as_ref().map_or(after, |Cursor(last)| Some(&last[..]));
            let (next, seen) = self.list_entries(filter, &way, from, limit, looks)?;
            (page, looked) = (next, looked + seen);
            // A list by other conditions, too, may have none at all, however long the store looks.
            if has_others || !page.timers.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            if looked >= stored.min(MORE_LOOKS) {
                return match stored <= MOST_GATHERED {
                    true => self.list_namespace(namespace, filter, &way, after, limit),
                    false => Ok(page),
                };
            }
        }
    }

    /// A page from a bounded look at the entries of a way. Returns the number of these entries, too.
    fn list_entries(
        &self,
        filter: &Filter,
        way: &Way,
        after: Option<&[u8]>,
        limit: usize,
        looks: usize,
    ) -> Result<(Page, usize), StoreError> {
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
            true => self.tables.scan_back(way.table, way.below(after).as_deref(), &mut look)?,
            false => self.tables.scan(way.table, &way.from(after), &mut look)?,
        }
        let (mut page, mut last, looked) = (Page::default(), None, found.len());
        for (key, id) in found {
            if page.timers.len() == limit {
                is_end = false;
                break;
            }
            if let Some(id) = id
                && let Some(timer) = self.peek(id)?
                && filter.admits(&timer)
            {
                page.timers.push(timer);
            }
            last = Some(key);
        }
        page.next = last.filter(|_| !is_end).map(|last| Cursor(last.into()));
        Ok((page, looked))
    }

    /// The number of timers of a namespace among which a list by this phase finds its own, by the counts. 0 if none is
    /// in this phase.
    fn stored_for(&self, namespace: &str, phase: Option<Phase>) -> Result<usize, StoreError> {
        let mut stored = 0_u64;
        for candidate in [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead] {
            let count = self.count_of(namespace, candidate)?;
            if phase == Some(candidate) && count == 0 {
                return Ok(0);
            }
            if phase.is_none() || candidate != Phase::Dead {
                stored = stored.saturating_add(count);
            }
        }
        Ok(usize::try_from(stored).unwrap_or(usize::MAX))
    }

    /// A page in the order of a way, from a look at all timers of a namespace, but for the dead ones if only others
    /// are asked for. Full, unless it is the last one.
    fn list_namespace(
        &self,
        namespace: &str,
        filter: &Filter,
        way: &Way,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let (mut first, mut failure) = (BTreeSet::new(), None);
        let mut look = |id: Option<TimerId>| {
            let timer = match id.map_or(Ok(None), |id| self.peek(id)) {
                Ok(timer) => timer,
                Err(error) => {
                    failure = Some(error);
                    return false;
                }
            };
            if let Some(timer) = timer.filter(|timer| filter.admits(timer)) {
                let place = match phase_entry(&timer) {
                    (phase, key) if phase == way.table => key,
                    _ => id_bytes(timer.id).to_vec(),
                };
                if after.is_none_or(|after| way.is_after(&place, after)) {
                    first.insert((place, timer.id));
                }
                if first.len() > limit + 1 {
                    if way.descending {
                        first.pop_first()
                    } else {
                        first.pop_last()
                    };
                }
            }
            true
        };
        let prefix = part(namespace);
        self.tables.scan(Table::Keys, &prefix, &mut |key, value| {
            key.starts_with(&prefix) && look(id_at_end(value))
        })?;
        let mut others = vec![(Table::Keyless, prefix.clone())];
        if filter.phase.is_none() {
            others.push((Table::Stopped, stopped_prefix(namespace, Phase::Dead)));
        }
        for (table, prefix) in others {
            self.tables
                .scan(table, &prefix, &mut |key, _| key.starts_with(&prefix) && look(id_at_end(key)))?;
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let (mut page, mut first) = (Page::default(), first.into_iter().collect::<Vec<_>>());
        if way.descending {
            first.reverse();
        }
        let has_more = first.len() > limit;
        first.truncate(limit);
        page.next = first.last().filter(|_| has_more).map(|(place, _)| Cursor(place[..].into()));
        for (_, id) in first {
            page.timers.extend(self.peek(id)?);
        }
        Ok(page)
    }

    /// The reasons of some entries after a place. No record is read.
    pub(crate) fn reasons(&self, after: Option<&Cursor>, limit: u32) -> Result<Reasons, StoreError> {
        let from = after.map_or_else(Vec::new, |Cursor(last)| [&last[..], &[0]].concat());
        let (mut counts, mut last, mut left) = (Vec::<(Box<str>, u64)>::new(), None, limit.max(1));
        let mut is_end = true;
        self.tables.scan(Table::Parked, &from, &mut |key, _| {
            is_end = left > 0;
            if !is_end {
                return false;
            }
            left -= 1;
            if let Some((length, rest)) = key.split_first()
                && let Some(reason) = rest.get(..usize::from(*length))
            {
                let reason = String::from_utf8_lossy(reason);
                match counts.last_mut().filter(|(last, _)| **last == *reason) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((reason.into(), 1)),
                }
            }
            last = Some(key.to_vec());
            true
        })?;
        Ok(Reasons { counts, next: last.filter(|_| !is_end).map(|last| Cursor(last.into())) })
    }

    pub(crate) fn counts(&self) -> Result<Counts, StoreError> {
        let mut counts = Counts::default();
        self.tables.scan(Table::Counts, &[], &mut |key, value| {
            let phase_of = |byte: &u8| {
                let phases = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead];
                phases.into_iter().find(|phase| *phase as u8 == *byte)
            };
            if let Some((phase, namespace)) = key.split_last()
                && let Some(phase) = phase_of(phase)
                && let Ok(count) = value.try_into().map(u64::from_be_bytes)
            {
                counts.by_namespace.insert((String::from_utf8_lossy(namespace).into(), phase), count);
            }
            true
        })?;
        counts.quarantined = self.number(QUARANTINED)?;
        Ok(counts)
    }

    /// Calls `each` for all timers that can be read, until it returns false.
    pub(crate) fn each(&self, mut each: impl FnMut(&Timer) -> bool) -> Result<(), StoreError> {
        self.tables.scan(Table::Timers, &[], &mut |key, record| match id_at_end(key) {
            Some(id) => record::decode(id, record).map_or(true, |timer| each(&timer)),
            None => true,
        })
    }
}
