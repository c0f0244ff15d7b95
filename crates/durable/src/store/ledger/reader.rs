//! Reads stored timers by id, key, due moment and lease. A read changes nothing: it sets no damaged record aside.

use super::counts::PhaseCounts;
use super::entries::{id_at_end, id_bytes, key_key, moment_bytes, moment_of};
use super::quarantine::Quarantine;
use crate::record;
use crate::state::{State, Token};
use crate::store::error::StoreError;
use crate::store::filter::Cursor;
use crate::store::tables::{Table, Tables};
use crate::store::{Counts, Leased, ReasonCount, Reasons};
use crate::timer::{Address, Timer, TimerId};
use tourbillon_words::UtcMillis;

/// Reads timers from the tables of a transaction.
pub(super) struct Reader<'t, T> {
    pub(super) tables: &'t T,
}

impl<T> Clone for Reader<'_, T> {
    fn clone(&self) -> Self {
        // A derived `Clone` would require `T: Clone`.
        *self
    }
}

impl<T> Copy for Reader<'_, T> {}

impl<'t, T: Tables> Reader<'t, T> {
    pub(super) fn new(tables: &'t T) -> Self {
        Self { tables }
    }

    /// Returns the stored timer with the id `id`. `None` if no readable record has the id.
    pub(super) fn peek(self, id: TimerId) -> Result<Option<Timer>, StoreError> {
        let record = self.tables.get(Table::Timers, &id_bytes(id))?;
        Ok(record.and_then(|record| record::decode(id, &record).ok()))
    }

    /// Returns the id that the index of keys has for a key. Does not check that the timer with this id owns the key.
    pub(super) fn owner(self, namespace: &str, key: &str) -> Result<Option<TimerId>, StoreError> {
        let owner = self.tables.get(Table::Keys, &key_key(namespace, key))?;
        Ok(owner.and_then(|id| id_at_end(&id)))
    }

    pub(super) fn get(self, at: &Address) -> Result<Option<Timer>, StoreError> {
        let id = match at {
            Address::Id(id) => Some(*id),
            Address::Key(key) => self.owner(&key.namespace, &key.key)?,
        };
        let Some(id) = id else { return Ok(None) };
        let found = self.peek(id)?;
        // A damaged entry of a key may name another timer.
        Ok(match at {
            Address::Id(_) => found,
            Address::Key(name) => found
                .filter(|timer| timer.namespace == name.namespace && timer.key.as_ref() == Some(&name.key)),
        })
    }

    /// Returns at most `limit` keys of a table that begin with `prefix`, starting at the key `from`.
    pub(super) fn keys(
        self,
        table: Table,
        from: &[u8],
        prefix: &[u8],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut keys = Vec::new();
        self.tables.scan(table, from, &mut |key, _| {
            let goes_on = key.starts_with(prefix) && keys.len() < limit;
            if goes_on {
                keys.push(key.to_vec());
            }
            goes_on
        })?;
        Ok(keys)
    }

    pub(super) fn next_due(self) -> Result<Option<UtcMillis>, StoreError> {
        let mut next = None;
        self.tables.scan(Table::Due, &[], &mut |key, _| {
            next = Some(moment_of(key));
            false
        })?;
        Ok(next)
    }

    /// Returns at most `limit` index entries of timers that are due at `now`, in the order of the due moments.
    pub(super) fn due_at(self, now: UtcMillis, limit: u32) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut due = Vec::new();
        self.tables.scan(Table::Due, &[], &mut |key, _| {
            let is_due = moment_of(key) <= now && due.len() < limit as usize;
            if is_due {
                due.push(key.to_vec());
            }
            is_due
        })?;
        Ok(due)
    }

    pub(super) fn upcoming(
        self,
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

    /// Calls `each` with the entry of each lease, in the order in which the leases end. Stops once `each` returns
    /// false.
    pub(super) fn leases(self, mut each: impl FnMut(&[u8]) -> bool) -> Result<(), StoreError> {
        self.tables.scan(Table::Leases, &[], &mut |key, _| each(key))
    }

    /// Returns the timers that the claim with the token `token` has leased.
    pub(super) fn leased_by(self, token: Token) -> Result<Vec<Leased>, StoreError> {
        // No index has the tokens, so all leases are read. The method is only for a claim whose answer was lost.
        let mut ids = Vec::new();
        self.leases(|entry| {
            ids.extend(id_at_end(entry));
            true
        })?;
        let mut leased = Vec::new();
        for id in ids {
            if let Some(timer) = self.peek(id)?
                && matches!(timer.state, State::Leased(lease) if lease.token == token)
            {
                leased.push(Leased { timer, token });
            }
        }
        Ok(leased)
    }

    /// Returns a page of the reasons for which timers are parked. The page covers the next `limit` parked timers after
    /// the cursor `after`. Reads only index entries, not records.
    pub(super) fn reasons(self, after: Option<&Cursor>, limit: u32) -> Result<Reasons, StoreError> {
        let from = after.map_or_else(Vec::new, |Cursor(last)| [&last[..], &[0]].concat());
        // A page of 0 timers would have no cursor, and would look like the last page.
        let (mut counts, mut last, mut left) = (Vec::<ReasonCount>::new(), None, limit.max(1));
        let mut is_end = true;
        self.tables.scan(Table::Parked, &from, &mut |key, _| {
            is_end = left > 0;
            if !is_end {
                return false;
            }
            left -= 1;
            if let Some((length, rest)) = key.split_first()
                && let Some((reason, rest)) = rest.split_at_checked(usize::from(*length))
                && let Some(due) = rest.first_chunk::<6>()
            {
                let (reason, due) = (String::from_utf8_lossy(reason), moment_of(due));
                match counts.last_mut().filter(|last| *last.reason == *reason) {
                    Some(count) => count.add(due),
                    None => counts.push(ReasonCount::single(reason.into(), due)),
                }
            }
            last = Some(key.to_vec());
            true
        })?;
        Ok(Reasons { counts, next: last.filter(|_| !is_end).map(|last| Cursor(last.into())) })
    }

    pub(super) fn counts(self) -> Result<Counts, StoreError> {
        let by_namespace = PhaseCounts::all(self.tables)?;
        let quarantined = Quarantine::number(self.tables)?;
        Ok(Counts { by_namespace, quarantined })
    }

    /// Calls `each` with each timer whose record can be read. Stops once `each` returns false.
    pub(super) fn each(self, mut each: impl FnMut(&Timer) -> bool) -> Result<(), StoreError> {
        // An unreadable record must not end a backup.
        self.tables.scan(Table::Timers, &[], &mut |key, record| match id_at_end(key) {
            Some(id) => record::decode(id, record).map_or(true, |timer| each(&timer)),
            None => true,
        })
    }
}
