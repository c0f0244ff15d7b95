//! Stored timers: their entries and counts go together.

use super::entries::{
    Entry, count_key, due_entry, entries, id_at_end, id_bytes, key_key, keyless_key, moment_of,
};
use crate::record;
use crate::state::{Lease, Phase, State};
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::horizon::hour_of;
use crate::store::tables::{Table, Tables};
use crate::timer::{Address, Timer, TimerId};
use core::fmt;
use std::collections::BTreeMap;
use tourbillon_words::UtcMillis;

/// The timers whose entries are stored at once where those of all timers are.
const AT_ONCE: usize = 10_000;

/// The name of the number of records that were set aside.
pub(super) const QUARANTINED: &[u8] = b"quarantined";

/// The timers of a store within one transaction.
pub(crate) struct Ledger<T> {
    pub(super) tables: T,
    pub(super) now: UtcMillis,
    /// The changes of the counts.
    pub(super) counted: BTreeMap<(Box<str>, Phase), i64>,
    /// The changes of the numbers of entries by due moment, by their hours (L4).
    pub(super) hours: BTreeMap<u32, i64>,
    pub(super) quarantined: u32,
    /// Whether entries were mended: the numbers by hour are counted anew then, since nobody knows which of the damaged
    /// entries they have.
    pub(super) has_mended: bool,
    /// The earliest moment for which the transaction has made a timer due.
    first_due: Option<UtcMillis>,
    /// The moment up to which claims have come, and the entries of timers that the transaction has made due until then.
    pub(super) frontier: Option<UtcMillis>,
    made_due: Vec<(Box<str>, Vec<u8>)>,
}

/// The timers that a transaction has made due.
#[derive(Debug, Default)]
pub(crate) struct MadeDue {
    /// The earliest moment for which a timer was made due.
    pub(crate) first: Option<UtcMillis>,
    /// Those that are due before the moment up to which claims have come: their namespaces and entries.
    pub(crate) entries: Vec<(Box<str>, Vec<u8>)>,
}

/// The notes of a ledger before a request, apart from the tables.
pub(crate) struct Noted {
    counted: BTreeMap<(Box<str>, Phase), i64>,
    hours: BTreeMap<u32, i64>,
    quarantined: u32,
}

impl<T: Tables> Ledger<T> {
    pub(crate) fn new(tables: T, now: UtcMillis) -> Self {
        Self {
            tables,
            now,
            counted: BTreeMap::new(),
            hours: BTreeMap::new(),
            quarantined: 0,
            has_mended: false,
            first_due: None,
            frontier: None,
            made_due: Vec::new(),
        }
    }

    /// Writes the counts. Returns the tables, and the timers that the transaction has made due.
    pub(crate) fn finish(mut self) -> Result<(T, MadeDue), StoreError> {
        for ((namespace, phase), change) in core::mem::take(&mut self.counted) {
            if change != 0 {
                let key = count_key(&namespace, phase);
                let count = self.count_at(&key)?.saturating_add_signed(change);
                if count == 0 {
                    self.tables.remove(Table::Counts, &key)?;
                } else {
                    self.tables.put(Table::Counts, &key, &count.to_be_bytes())?;
                }
            }
        }
        self.finish_hours()?;
        Ok((self.tables, MadeDue { first: self.first_due, entries: self.made_due }))
    }

    /// Has the transaction note the timers that it makes due until this moment, up to which claims have come.
    pub(crate) fn follow(&mut self, frontier: Option<UtcMillis>) {
        self.frontier = frontier;
    }

    /// The tables, for a store that notes its own entries or takes back those of a request.
    pub(crate) fn tables(&mut self) -> &mut T {
        &mut self.tables
    }

    /// Begins a request of several in one transaction. [`keep`](Self::keep) or [`undo`](Self::undo) ends it.
    pub(crate) fn begin(&mut self) -> Noted {
        Noted {
            counted: core::mem::take(&mut self.counted),
            hours: core::mem::take(&mut self.hours),
            quarantined: core::mem::take(&mut self.quarantined),
        }
    }

    /// Ends a request that succeeded.
    pub(crate) fn keep(&mut self, before: Noted) {
        let counted = core::mem::replace(&mut self.counted, before.counted);
        for (group, change) in counted {
            *self.counted.entry(group).or_default() += change;
        }
        let hours = core::mem::replace(&mut self.hours, before.hours);
        for (hour, change) in hours {
            *self.hours.entry(hour).or_default() += change;
        }
        self.quarantined += before.quarantined;
    }

    /// Ends a request that failed. The store takes the request's entries back.
    pub(crate) fn undo(&mut self, before: Noted) {
        self.counted = before.counted;
        self.hours = before.hours;
        self.quarantined = before.quarantined;
    }

    /// The number of timers of a namespace in a phase, in a transaction that only reads.
    pub(super) fn count_of(&self, namespace: &str, phase: Phase) -> Result<u64, StoreError> {
        self.count_at(&count_key(namespace, phase))
    }

    /// Stores the entries by namespace of some timers, for a store whose earlier version had none. Returns the id after
    /// which it goes on; `None` behind the last timer.
    pub(crate) fn enter_namespaces(&mut self, after: Option<&[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        let from = after.map_or_else(Vec::new, |last| [last, &[0]].concat());
        let (mut entered, mut read, mut last) = (Vec::new(), 0, Vec::new());
        self.tables.scan(Table::Timers, &from, &mut |key, record| {
            if let Some(timer) = id_at_end(key).and_then(|id| record::decode(id, record).ok()) {
                let of_namespace = |(table, ..): &Entry| matches!(table, Table::Keyless | Table::Stopped);
                entered.extend(entries(&timer).into_iter().filter(of_namespace));
            }
            read += 1;
            last.clear();
            last.extend_from_slice(key);
            read < AT_ONCE
        })?;
        for entry in &entered {
            self.put(entry)?;
        }
        Ok((read == AT_ONCE).then_some(last))
    }

    fn count_at(&self, key: &[u8]) -> Result<u64, StoreError> {
        let count = self.tables.get(Table::Counts, key)?;
        Ok(count.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
    }

    fn count(&mut self, timer: &Timer, change: i64) {
        *self.counted.entry((timer.namespace.clone(), timer.state.phase())).or_default() += change;
    }

    /// Stores a new timer.
    pub(super) fn insert(&mut self, timer: &Timer) -> Result<(), StoreError> {
        for entry in entries(timer) {
            self.put(&entry)?;
        }
        self.count(timer, 1);
        self.note_due(timer);
        Ok(())
    }

    /// Stores a changed timer.
    pub(super) fn change(&mut self, old: &Timer, new: &Timer) -> Result<(), StoreError> {
        let (was, is) = (entries(old), entries(new));
        for (table, key, value) in &was {
            let is_same = |(other, at, with): &&Entry| other == table && at == key && with == value;
            let is_other = !is.iter().any(|entry| is_same(&entry));
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
        self.note_due(new);
        Ok(())
    }

    pub(super) fn delete(&mut self, timer: &Timer) -> Result<(), StoreError> {
        for (table, key, value) in entries(timer) {
            self.remove(table, &key, &value)?;
        }
        self.count(timer, -1);
        Ok(())
    }

    fn put(&mut self, (table, key, value): &Entry) -> Result<(), StoreError> {
        if *table == Table::Due {
            *self.hours.entry(hour_of(moment_of(key))).or_default() += 1;
        }
        self.tables.put(*table, key, value)
    }

    /// Removes an entry. Returns its value, if there was one.
    fn take(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let taken = self.tables.remove(table, key)?;
        if table == Table::Due && taken.is_some() {
            *self.hours.entry(hour_of(moment_of(key))).or_default() -= 1;
        }
        Ok(taken)
    }

    /// Removes an entry of a timer. The key's entry may be another timer's by now, and stays then.
    pub(super) fn remove(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let removed = self.take(table, key)?;
        if let Some(others) = removed.filter(|removed| table == Table::Keys && removed != value) {
            self.tables.put(table, key, &others)?;
        }
        Ok(())
    }

    fn note_due(&mut self, timer: &Timer) {
        if timer.state == State::Pending {
            self.first_due = Some(self.first_due.map_or(timer.due, |first| first.min(timer.due)));
            if self.frontier.is_some_and(|frontier| timer.due <= frontier) {
                self.made_due.push((timer.namespace.clone(), due_entry(timer.due, timer.id)));
            }
        }
    }

    /// A stored timer. A record that cannot be read is set aside in a transaction that writes.
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

    /// A stored timer that an entry names. If there is no record, nor one that was set aside, the timer is lost: its id
    /// is noted among the records that were set aside, without bytes.
    pub(super) fn load_named(&mut self, id: TimerId) -> Result<Option<Timer>, StoreError> {
        let timer = self.load(id)?;
        if timer.is_none() && self.tables.get(Table::Quarantine, &id_bytes(id))?.is_none() {
            self.set_aside(id, &[])?;
        }
        Ok(timer)
    }

    /// Stores the entries of a timer that are missing.
    pub(super) fn mend(&mut self, timer: &Timer) -> Result<(), StoreError> {
        self.has_mended = true;
        for entry in entries(timer) {
            let (table, key, value) = &entry;
            if self.tables.get(*table, key)?.as_ref() != Some(value) {
                self.put(&entry)?;
            }
        }
        self.note_due(timer);
        Ok(())
    }

    /// Removes an entry that is not its timer's, and stores the timer's own ones if they are missing.
    pub(super) fn remove_stray(
        &mut self,
        table: Table,
        key: &[u8],
        timer: Option<&Timer>,
        phase: Phase,
    ) -> Result<(), StoreError> {
        self.remove_orphan(table, key, phase)?;
        timer.map_or(Ok(()), |timer| self.mend(timer))
    }

    fn set_aside(&mut self, id: TimerId, record: &[u8]) -> Result<(), StoreError> {
        self.tables.put(Table::Quarantine, &id_bytes(id), record)?;
        self.tables.remove(Table::Timers, &id_bytes(id))?;
        // No operation comes by this entry, so none would remove it later.
        if let Some(namespace) = record::namespace(record) {
            self.tables.remove(Table::Keyless, &keyless_key(namespace, id))?;
        }
        self.quarantined += 1;
        let count = self.number(QUARANTINED)? + 1;
        self.tables.put(Table::Meta, QUARANTINED, &count.to_be_bytes())
    }

    /// Removes the records that were set aside. Returns their number.
    pub(crate) fn forget_set_aside(&mut self) -> Result<u64, StoreError> {
        let mut keys = Vec::new();
        self.tables.scan(Table::Quarantine, &[], &mut |key, _| {
            keys.push(key.to_vec());
            true
        })?;
        for key in &keys {
            self.tables.remove(Table::Quarantine, key)?;
        }
        self.tables.put(Table::Meta, QUARANTINED, &0_u64.to_be_bytes())?;
        Ok(keys.len() as u64)
    }

    /// Removes the entry by a phase of a timer whose record was set aside.
    pub(super) fn remove_orphan(&mut self, table: Table, key: &[u8], phase: Phase) -> Result<(), StoreError> {
        self.take(table, key)?;
        let Some(id) = id_at_end(key) else { return Ok(()) };
        let record = self.tables.get(Table::Quarantine, &id_bytes(id))?;
        if let Some(namespace) = record.as_deref().and_then(record::namespace) {
            *self.counted.entry((namespace.into(), phase)).or_default() -= 1;
        }
        Ok(())
    }

    /// A number of the table of names and values.
    pub(super) fn number(&self, name: &[u8]) -> Result<u64, StoreError> {
        let number = self.tables.get(Table::Meta, name)?;
        Ok(number.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
    }

    /// A stored timer, in a transaction that only reads.
    pub(crate) fn peek(&self, id: TimerId) -> Result<Option<Timer>, StoreError> {
        let record = self.tables.get(Table::Timers, &id_bytes(id))?;
        Ok(record.and_then(|record| record::decode(id, &record).ok()))
    }

    pub(crate) fn find(&self, at: &Address) -> Result<Option<TimerId>, StoreError> {
        match at {
            Address::Id(id) => Ok(Some(*id)),
            Address::Key(key) => self.owner_of(&key.namespace, &key.key),
        }
    }

    pub(super) fn load_at(&mut self, at: &Address) -> Result<Option<Timer>, StoreError> {
        match at {
            Address::Id(id) => self.load(*id),
            Address::Key(key) => self.load_owner(&key.namespace, &key.key),
        }
    }

    /// The timer that owns a key. An entry that is no timer's is removed: a record that was set aside has left it
    /// behind.
    pub(super) fn load_owner(&mut self, namespace: &str, key: &str) -> Result<Option<Timer>, StoreError> {
        let Some(id) = self.owner_of(namespace, key)? else { return Ok(None) };
        let owner = self.load_named(id)?;
        let is_its = |timer: &Timer| {
            *timer.namespace == *namespace && timer.key.as_deref() == Some(key) && timer.owns_key()
        };
        if !owner.as_ref().is_some_and(is_its) {
            self.tables.remove(Table::Keys, &key_key(namespace, key))?;
            if let Some(other) = &owner {
                self.mend(other)?;
            }
            return Ok(None);
        }
        Ok(owner)
    }

    fn owner_of(&self, namespace: &str, key: &str) -> Result<Option<TimerId>, StoreError> {
        let owner = self.tables.get(Table::Keys, &key_key(namespace, key))?;
        Ok(owner.and_then(|id| id_at_end(&id)))
    }

    pub(crate) fn get(&self, at: &Address) -> Result<Option<Timer>, StoreError> {
        let Some(id) = self.find(at)? else { return Ok(None) };
        let found = self.peek(id)?;
        // An entry of a key that is damaged may name another timer.
        Ok(match at {
            Address::Id(_) => found,
            Address::Key(name) => found
                .filter(|timer| timer.namespace == name.namespace && timer.key.as_ref() == Some(&name.key)),
        })
    }

    /// At most `limit` keys that begin with `prefix`, from `from` on.
    pub(super) fn keys(
        &self,
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
}

pub(super) fn is_withdrawn(timer: &Timer) -> bool {
    matches!(timer.state, State::Leased(Lease { withdrawn: Some(_), .. }))
}

/// An error that only a fault of this crate can cause.
pub(super) fn bug(refusal: impl fmt::Debug) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("a transition was refused: {refusal:?}"))
}
