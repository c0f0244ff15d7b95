//! Stores timers. The index entries of a timer, and the counts and notes that depend on it, change together with its
//! record.

use super::counts::PhaseCounts;
use super::entries::{Entry, entries, id_at_end, id_bytes, key_key, keyless_key, moment_of};
use super::hours::Hours;
use super::made_due::MadeDue;
use super::quarantine::Quarantine;
use super::reader::Reader;
use crate::record;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use crate::timer::{Address, Timer, TimerId};

/// Reads and changes the timers of a store within one transaction.
///
/// A change of a timer changes its record and its index entries, and the counts by phase and by hour. If the timer is
/// then pending, the change also adds it to [`MadeDue`], by which claims find timers that were stored since they read
/// the index. All these changes happen in [`insert`](Self::insert), [`change`](Self::change) and
/// [`delete`](Self::delete). So these three methods maintain the invariants of [`ledger`](super) about entries, keys,
/// counts and `MadeDue` (L1 to L4 and L7). The methods that load timers repair damage. A caller that changes a timer
/// passes the old timer exactly as it is stored.
pub(super) struct Timers<T> {
    tables: T,
    counts: PhaseCounts,
    hours: Hours,
    quarantine: Quarantine,
    made_due: MadeDue,
    /// Whether the transaction has repaired entries. If so, the timers of each hour are counted again at the end of the
    /// transaction, because the stored counts may be wrong.
    has_mended: bool,
}

/// The changes of the counts (of timers by phase and by hour, and of unreadable records) that the earlier requests of a
/// transaction have made. A transaction can run several requests, one after the other. While a request runs, these
/// changes are put aside, so that a failed request loses only its own changes.
pub(crate) struct Recorded {
    counts: PhaseCounts,
    hours: Hours,
    quarantine: Quarantine,
}

/// Returns the phase that all timers of a table have. `None` if they can have different phases.
fn phase_of(table: Table) -> Option<Phase> {
    match table {
        Table::Due => Some(Phase::Pending),
        Table::Leases => Some(Phase::Leased),
        Table::Parked => Some(Phase::Parked),
        Table::Dead => Some(Phase::Dead),
        _ => None,
    }
}

/// Methods for the start and the end of a transaction, and of each request in the transaction. A transaction can run
/// requests of several callers, one after the other.
impl<T: Tables> Timers<T> {
    pub(super) fn new(tables: T) -> Self {
        Self {
            tables,
            counts: PhaseCounts::default(),
            hours: Hours::default(),
            quarantine: Quarantine::default(),
            made_due: MadeDue::default(),
            has_mended: false,
        }
    }

    /// Ends the transaction: writes the changed counts by phase and by hour. Returns the tables, and the pending timers
    /// that the transaction has stored.
    pub(super) fn finish(mut self) -> Result<(T, MadeDue), StoreError> {
        self.counts.write(&mut self.tables)?;
        if self.has_mended {
            self.hours.recount(&mut self.tables)?;
        } else {
            self.hours.write(&mut self.tables)?;
        }
        Ok((self.tables, self.made_due))
    }

    pub(super) fn begin(&mut self) -> Recorded {
        Recorded {
            counts: core::mem::take(&mut self.counts),
            hours: core::mem::take(&mut self.hours),
            quarantine: core::mem::take(&mut self.quarantine),
        }
    }

    pub(super) fn keep(&mut self, before: Recorded) {
        let own = self.begin();
        self.undo(before);
        self.counts.absorb(own.counts);
        self.hours.absorb(own.hours);
        self.quarantine.absorb(own.quarantine);
    }

    pub(super) fn undo(&mut self, before: Recorded) {
        // `made_due` and `has_mended` keep the notes of a failed request. A superfluous note does no harm: a claim
        // checks whether a noted entry still exists, and the timers of each hour are only counted again.
        self.counts = before.counts;
        self.hours = before.hours;
        self.quarantine = before.quarantine;
    }

    /// Returns the tables, so that the caller can read and change entries that do not belong to a timer.
    pub(super) fn tables(&mut self) -> &mut T {
        &mut self.tables
    }

    pub(super) fn made_due(&mut self) -> &mut MadeDue {
        &mut self.made_due
    }

    pub(super) fn reader(&self) -> Reader<'_, T> {
        Reader::new(&self.tables)
    }

    /// Returns the number of unreadable records that the current request has set aside.
    pub(super) fn quarantined(&self) -> u32 {
        self.quarantine.admitted()
    }

    pub(super) fn has_met_damage(&self) -> bool {
        self.quarantined() > 0 || self.has_mended
    }
}

/// Methods that store, change and remove timers.
impl<T: Tables> Timers<T> {
    /// Stores a new timer. The caller ensures that no stored timer has the same id or key.
    pub(super) fn insert(&mut self, timer: &Timer) -> Result<(), StoreError> {
        for entry in entries(timer) {
            self.put(&entry)?;
        }
        self.count(timer, 1);
        self.made_due.note(timer);
        Ok(())
    }

    /// Stores the timer `new` in place of its old state `old`.
    pub(super) fn change(&mut self, old: &Timer, new: &Timer) -> Result<(), StoreError> {
        let (was, is) = (entries(old), entries(new));
        for (table, key, value) in &was {
            let is_same = |(other, at, with): &&Entry| other == table && at == key && with == value;
            let is_other = !is.iter().any(|entry| is_same(&entry));
            // The old record needs no removal, because the new record has the same key and replaces it.
            if is_other && *table != Table::Timers {
                self.remove(*table, key, value)?;
            }
        }
        for entry in &is {
            if !was.contains(entry) {
                self.put(entry)?;
            }
        }
        self.count(old, -1);
        self.count(new, 1);
        self.made_due.note(new);
        Ok(())
    }

    pub(super) fn delete(&mut self, timer: &Timer) -> Result<(), StoreError> {
        for (table, key, value) in entries(timer) {
            self.remove(table, &key, &value)?;
        }
        self.count(timer, -1);
        Ok(())
    }

    fn count(&mut self, timer: &Timer, change: i64) {
        self.counts.add(&timer.namespace, timer.state.phase(), change);
    }

    /// Stores a table entry of a timer. If the entry already exists, a former timer with the same id has left it, whose
    /// unreadable record was set aside. The counts still include the former timer, so the method subtracts it.
    fn put(&mut self, (table, key, value): &Entry) -> Result<(), StoreError> {
        let existed = self.tables.put(*table, key, value)?;
        if existed {
            return self.uncount(*table, key);
        }
        if *table == Table::Due {
            self.hours.add(moment_of(key), 1);
        }
        Ok(())
    }

    /// Removes a table entry, and returns its value. If the entry is in the index by due moment, subtracts one from the
    /// count of the hour in which the timer is due.
    fn take(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let taken = self.tables.remove(table, key)?;
        if table == Table::Due && taken.is_some() {
            self.hours.add(moment_of(key), -1);
        }
        Ok(taken)
    }

    /// Removes a table entry of a timer. Keeps an entry in the table of keys if another timer now owns the key.
    fn remove(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let removed = self.take(table, key)?;
        if let Some(others) = removed.filter(|removed| table == Table::Keys && removed != value) {
            self.tables.put(table, key, &others)?;
        }
        Ok(())
    }
}

/// Methods that read timers for a change, and repair the damage that they find.
impl<T: Tables> Timers<T> {
    /// Returns whether the store has a record with the id `id`, even a damaged record.
    pub(super) fn has(&self, id: TimerId) -> Result<bool, StoreError> {
        Ok(self.tables.get(Table::Timers, &id_bytes(id))?.is_some())
    }

    /// Returns the stored timer with the id `id`. If the record is unreadable, sets it aside. `None` if no readable
    /// record has the id.
    pub(super) fn load(&mut self, id: TimerId) -> Result<Option<Timer>, StoreError> {
        let Some(record) = self.tables.get(Table::Timers, &id_bytes(id))? else { return Ok(None) };
        match record::decode(id, &record) {
            Ok(timer) => Ok(Some(timer)),
            Err(_) => {
                self.set_aside(id, &record)?;
                Ok(None)
            }
        }
    }

    /// Returns the stored timer that an index entry names. If the id has no record, not even in [`Table::Quarantine`]
    /// (the table of unreadable records), the timer is lost. The method then stores an empty record in this table.
    pub(super) fn load_named(&mut self, id: TimerId) -> Result<Option<Timer>, StoreError> {
        let timer = self.load(id)?;
        // If the record was unreadable, `load` has just set its bytes aside. An empty record must not replace them.
        if timer.is_none() && Quarantine::record(&self.tables, id)?.is_none() {
            self.set_aside(id, &[])?;
        }
        Ok(timer)
    }

    pub(super) fn load_at(&mut self, at: &Address) -> Result<Option<Timer>, StoreError> {
        match at {
            Address::Id(id) => self.load(*id),
            Address::Key(key) => self.load_owner(&key.namespace, &key.key),
        }
    }

    /// Returns the timer that owns a key. If the index entry of the key names a timer that does not own the key,
    /// removes the entry. An unreadable record that was set aside leaves such an entry behind.
    pub(super) fn load_owner(&mut self, namespace: &str, key: &str) -> Result<Option<Timer>, StoreError> {
        let Some(id) = self.reader().owner(namespace, key)? else { return Ok(None) };
        let owner = self.load_named(id)?;
        let owns_it = |timer: &Timer| {
            *timer.namespace == *namespace && timer.key.as_deref() == Some(key) && timer.owns_key()
        };
        if !owner.as_ref().is_some_and(owns_it) {
            self.remove_stray(Table::Keys, &key_key(namespace, key), owner.as_ref())?;
            return Ok(None);
        }
        Ok(owner)
    }

    fn set_aside(&mut self, id: TimerId, record: &[u8]) -> Result<(), StoreError> {
        self.quarantine.admit(&mut self.tables, id, record)?;
        self.tables.remove(Table::Timers, &id_bytes(id))?;
        // No later operation would find this entry and remove it.
        if let Some(namespace) = record::namespace(record) {
            self.tables.remove(Table::Keyless, &keyless_key(namespace, id))?;
        }
        Ok(())
    }

    /// Removes an index entry that does not belong to the timer that it names. `timer` is the named timer, or `None` if
    /// the timer has no readable record. If `timer` is given, stores its missing entries.
    ///
    /// If the record of the named timer was set aside as unreadable, also subtracts the timer from the counts.
    pub(super) fn remove_stray(
        &mut self,
        table: Table,
        key: &[u8],
        timer: Option<&Timer>,
    ) -> Result<(), StoreError> {
        self.take(table, key)?;
        self.uncount(table, key)?;
        timer.map_or(Ok(()), |timer| self.mend(timer))
    }

    /// Corrects the counts by phase after an index entry was removed or reused. If the unreadable record of the entry's
    /// timer was set aside, the counts still include this timer. So the method subtracts it from the count of its
    /// phase. `table` determines the phase: for example, all timers of [`Table::Parked`] are parked. If the timers of
    /// `table` can have different phases, the counts stay unchanged.
    fn uncount(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        if let Some(phase) = phase_of(table)
            && let Some(id) = id_at_end(key)
            && let Some(record) = Quarantine::record(&self.tables, id)?
            && let Some(namespace) = record::namespace(&record)
        {
            self.counts.add(namespace, phase, -1);
        }
        Ok(())
    }

    /// Stores the missing table entries of a timer.
    pub(super) fn mend(&mut self, timer: &Timer) -> Result<(), StoreError> {
        self.has_mended = true;
        for entry in entries(timer) {
            let (table, key, value) = &entry;
            if self.tables.get(*table, key)?.as_ref() != Some(value) {
                self.put(&entry)?;
            }
        }
        // If the entry by due moment was missing, claims may already have passed its place without the timer.
        self.made_due.note(timer);
        Ok(())
    }
}
