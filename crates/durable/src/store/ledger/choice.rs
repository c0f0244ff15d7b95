//! Chooses the timers of a claim, within the claim's limits and the share of each namespace (its part of the deliveries
//! under way).

use super::entries::{id_at_end, id_bytes, moment_of};
use super::waiting::{Key, Waiting};
use crate::record;
use crate::store::Limit;
use crate::store::error::StoreError;
use crate::store::shares::{Late, Shares};
use crate::store::tables::{Table, Tables};
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_words::UtcMillis;

/// The greatest number of index entries that one claim reads.
pub(super) const LOOKS: usize = 8_192;
/// The number of index entries that a claim reads in one scan.
pub(super) const PAGE: usize = 256;

/// The timers that a claim is about to lease.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The entries of the chosen timers in the index by due moment. Within a namespace, the earliest due moments come
    /// first.
    pub(crate) entries: Vec<Key>,
    /// The earliest moment at which the next claim can take a timer, if the shares of the namespaces ([`Shares`]) stay
    /// the same. `None` if no such moment is known, or if the claim has no shares.
    pub(crate) next: Option<UtcMillis>,
}

/// Collects the timers of a claim, within the claim's limits and the share of each namespace ([`Shares`]).
pub(super) struct Choice<'c, T> {
    tables: &'c T,
    pub(super) now: UtcMillis,
    limit: Limit,
    shares: &'c Shares,
    /// The number of index entries that the claim may still read.
    pub(super) looks: usize,
    chosen: Chosen,
    bytes: u64,
    taken: BTreeMap<Box<str>, Taken>,
}

/// The number of timers that a claim has taken from one namespace, and the number of late timers among them. A timer is
/// late if the time since its due moment is longer than [`Late::after`].
#[derive(Default)]
struct Taken {
    all: usize,
    late: usize,
}

/// A page of index entries of due timers, and the due moment of the next timer after the page. The moment is `None` if
/// the next timer is already due, or if no timer follows.
pub(super) type DuePage = (Vec<Key>, Option<UtcMillis>);

impl<'c, T: Tables> Choice<'c, T> {
    pub(super) fn new(tables: &'c T, now: UtcMillis, limit: Limit, shares: &'c Shares) -> Self {
        let (chosen, taken) = (Chosen::default(), BTreeMap::new());
        Self { tables, now, limit, shares, looks: LOOKS, chosen, bytes: 0, taken }
    }

    pub(super) fn finish(self) -> Chosen {
        self.chosen
    }

    /// Returns the number of timers that the claim has taken so far.
    pub(super) fn len(&self) -> usize {
        self.chosen.entries.len()
    }

    /// Returns whether the claim must take no more timers: it has `most` timers, has reached its limit of bytes, or may
    /// not read any more entries.
    pub(super) fn is_over(&self, most: usize) -> bool {
        // Without `self.bytes > 0`, a claim with a limit of 0 bytes would never take a timer.
        self.len() >= most || self.bytes > 0 && self.bytes >= self.limit.bytes || self.looks == 0
    }

    /// Returns whether this claim may take the timer of the index entry `entry`. Two limits apply: the share of the
    /// timer's namespace ([`Shares`]), and the namespace's limit for timers whose due moment is long past ([`Late`]).
    pub(super) fn permits(&self, namespace: &str, entry: &[u8]) -> bool {
        let taken = self.taken.get(namespace).map_or(0, |taken| taken.all);
        self.shares.left(self.limit.timers, namespace, taken, self.len()) > 0
            && self.is_in_time_or_has_permit(namespace, entry)
    }

    /// Returns whether the next claim may take the timer of the index entry `entry`, which this claim does not take.
    /// The limits are those of [`permits`](Self::permits), without the namespace's share of this claim's timers.
    pub(super) fn leaves(&self, namespace: &str, entry: &[u8]) -> bool {
        let taken = self.taken.get(namespace).map_or(0, |taken| taken.all);
        self.shares.room(namespace, taken, self.len()) > 0 && self.is_in_time_or_has_permit(namespace, entry)
    }

    fn is_in_time_or_has_permit(&self, namespace: &str, entry: &[u8]) -> bool {
        let late = self.taken.get(namespace).map_or(0, |taken| taken.late);
        let has_permit = |limit: &Late| !self.is_late(limit, entry) || limit.left(namespace) > late;
        self.shares.late.as_ref().is_none_or(has_permit)
    }

    fn is_late(&self, limit: &Late, entry: &[u8]) -> bool {
        self.now - moment_of(entry) > limit.after
    }

    /// Adds the timer of an index entry to the chosen timers. The timer's record has `bytes` bytes.
    pub(super) fn take(&mut self, namespace: &str, entry: &[u8], bytes: usize) {
        self.chosen.entries.push(entry.to_vec());
        self.bytes += bytes as u64;
        let is_late = self.shares.late.as_ref().is_some_and(|limit| self.is_late(limit, entry));
        let taken = self.taken.entry(namespace.into()).or_default();
        taken.all += 1;
        taken.late += usize::from(is_late);
    }

    /// Notes a moment at which another claim may take more timers. Only the earliest noted moment is kept.
    pub(super) fn note_next(&mut self, moment: UtcMillis) {
        self.chosen.next = Some(self.chosen.next.map_or(moment, |next| next.min(moment)));
    }

    /// Takes the timers of the index entries `entries`, which belong to one namespace, in their order. Stops when the
    /// claim has `end` timers or reaches another limit, or when [`permits`](Self::permits) refuses the next timer.
    /// Returns the remaining entries. `None` if no entries remain.
    pub(super) fn take_of(
        &mut self,
        namespace: &str,
        mut entries: BTreeSet<Key>,
        end: usize,
    ) -> Result<Option<Waiting>, StoreError> {
        while !self.is_over(end)
            && entries.first().is_some_and(|entry| self.permits(namespace, entry))
            && let Some(entry) = entries.pop_first()
        {
            self.looks -= 1;
            // Since the entry was skipped, the timer may have been cancelled, moved, or claimed without regard to
            // shares.
            if self.tables.get(Table::Due, &entry)?.is_some() {
                // An entry without a record is taken as well, because the claim then removes the entry.
                let bytes = self.record_of(&entry)?.map_or(0, |record| record.len());
                self.take(namespace, &entry, bytes);
            }
        }
        Ok((!entries.is_empty()).then_some(Waiting::Exactly(entries)))
    }

    /// Takes timers of a namespace from the index by due moment, between the keys `from` and `frontier`. Earlier claims
    /// have read the index up to `frontier`, and have skipped these timers. If the claim must stop before `frontier`,
    /// returns the entry at which a later claim continues. Otherwise returns `None`.
    pub(super) fn take_from(
        &mut self,
        namespace: &str,
        mut from: Key,
        frontier: &[u8],
        end: usize,
    ) -> Result<Option<Waiting>, StoreError> {
        loop {
            let (page, _) = self.due_page(&from)?;
            for entry in &page {
                if **entry >= *frontier {
                    return Ok(None);
                }
                if self.is_over(end) || !self.permits(namespace, entry) {
                    // The entry may belong to another namespace. It only marks the place at which a later claim
                    // continues.
                    return Ok(Some(Waiting::From(entry.clone())));
                }
                self.looks -= 1;
                if let Some(record) = self.record_of(entry)?
                    && record::namespace(&record) == Some(namespace)
                {
                    self.take(namespace, entry, record.len());
                }
                from = after(entry);
            }
            if page.len() < PAGE {
                return Ok(None);
            }
        }
    }

    /// Reads a page of index entries of due timers, starting at the key `from`.
    pub(super) fn due_page(&self, from: &[u8]) -> Result<DuePage, StoreError> {
        let (mut page, mut later) = (Vec::new(), None);
        self.tables.scan(Table::Due, from, &mut |entry, _| {
            if moment_of(entry) > self.now {
                later = Some(moment_of(entry));
                return false;
            }
            page.push(entry.to_vec());
            page.len() < PAGE
        })?;
        Ok((page, later))
    }

    pub(super) fn record_of(&self, entry: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        id_at_end(entry).map_or(Ok(None), |id| self.tables.get(Table::Timers, &id_bytes(id)))
    }
}

/// Returns the least key that comes after the key `entry`.
pub(super) fn after(entry: &[u8]) -> Key {
    [entry, &[0]].concat()
}
