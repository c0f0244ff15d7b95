//! What a reader finds: lists and counts.

use super::entries::{id_at_end, key_key, label_key, moment_bytes, moment_of};
use super::timers::{Ledger, QUARANTINED};
use crate::record;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::filter::{Cursor, Filter, Page};
use crate::store::tables::{Table, Tables};
use crate::store::{Counts, Reasons};
use crate::timer::{Timer, TimerId};
use crate::utc::UtcMillis;

/// Entries that a list looks at for one page, for each timer that was asked for.
const LOOKS: usize = 10;

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
        let namespace = filter.namespace.as_deref().unwrap_or("");
        let (table, prefix) = match filter {
            Filter { label: Some(label), .. } => (Table::Labels, label_key(namespace, label)),
            Filter { key_prefix: Some(prefix), phase, .. } if *phase != Some(Phase::Dead) => {
                (Table::Keys, key_key(namespace, prefix))
            }
            Filter { phase: Some(Phase::Pending), .. } => (Table::Due, Vec::new()),
            Filter { phase: Some(Phase::Leased), .. } => (Table::Leases, Vec::new()),
            Filter { phase: Some(Phase::Parked), .. } => (Table::Parked, Vec::new()),
            Filter { phase: Some(Phase::Dead), .. } => (Table::Dead, Vec::new()),
            _ => (Table::Timers, Vec::new()),
        };
        let from = cursor.map_or_else(|| prefix.clone(), |Cursor(last)| [&last[..], &[0]].concat());
        let limit = (limit as usize).max(1);
        let (mut looked_at, mut is_end) = (Vec::new(), true);
        self.tables.scan(table, &from, &mut |key, value| {
            if !key.starts_with(&prefix) {
                return false;
            }
            is_end = looked_at.len() < limit.saturating_mul(LOOKS);
            if is_end {
                let id = if table == Table::Keys { id_at_end(value) } else { id_at_end(key) };
                looked_at.push((key.to_vec(), id));
            }
            is_end
        })?;
        let mut page = Page::default();
        let mut last = None;
        for (key, id) in looked_at {
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
                match counts.last_mut().filter(|(of, _)| **of == *reason) {
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
