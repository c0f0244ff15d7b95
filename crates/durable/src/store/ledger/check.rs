//! Checks the structure of the tables: each part, and the links between the parts.
//!
//! | checked | part or link |
//! |---|---|
//! | the order of keys, the records | each table |
//! | the entries of each record (L1, L2) | from the records to the indexes |
//! | the entries without a timer (L1) | from the indexes to the records |
//! | the counts (L3) | from the records to the counts |
//! | the hours (L4) | from the index by due moment to the hours |
//! | the quarantine (L5) | each record is a fault of its own |
//! | the remembered ids (L6) | from the ids to the moments, and back |
//!
//! The check does not cover the state in memory. If the state of [`Turns`](super::Turns) is lost, claims begin again at
//! the start of the index (T3).

use super::entries::{entries, id_at_end, key_of, moment_of};
use super::hours::Hours;
use super::reader::Reader;
use crate::record;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::fault::Fault;
use crate::store::tables::{Table, Tables};
use crate::timer::{Timer, TimerId};
use std::collections::BTreeMap;

/// The tables that are indexes. Each entry of an index names a timer.
pub(super) const INDEXES: [Table; 8] = [
    Table::Keys,
    Table::Keyless,
    Table::Due,
    Table::Leases,
    Table::Parked,
    Table::Dead,
    Table::Stopped,
    Table::Labels,
];

/// The number of faults after which a check stops.
const MOST_FAULTS: usize = 1_000;

/// Returns the id of the timer that an index entry names. In the table of keys, the id is the value. In other tables,
/// the id is the end of the key.
pub(super) fn id_of(table: Table, key: &[u8], value: &[u8]) -> Option<TimerId> {
    id_at_end(if table == Table::Keys { value } else { key })
}

/// Returns whether an entry is one of those that the timer must have ([`entries`]).
pub(super) fn has_entry(timer: &Timer, table: Table, key: &[u8], value: &[u8]) -> bool {
    entries(timer).iter().any(|entry| entry.0 == table && entry.1 == key && entry.2 == value)
}

/// Describes the namespace and the key that a damaged record seems to have, as the end of a message.
fn seeming_name(record: &[u8]) -> String {
    match record::seeming_name(record) {
        Some((namespace, Some(key))) => format!("; it reads as key {key:?} of namespace {namespace:?}"),
        Some((namespace, None)) => format!("; it reads as a timer of namespace {namespace:?}"),
        None => String::new(),
    }
}

#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault. Returns false if the check must stop, because it has found [`MOST_FAULTS`] faults.
    fn add(&mut self, table: Table, timer: Option<TimerId>, fault: impl Into<Box<str>>) -> bool {
        self.0.push(Fault { table: table.name(), timer, fault: fault.into() });
        !self.are_enough()
    }

    fn are_enough(&self) -> bool {
        self.0.len() >= MOST_FAULTS
    }
}

/// The numbers that a check counts in the records: the timers of each namespace and phase, and the index entries that
/// each table must have.
#[derive(Default)]
struct Found {
    by_namespace: BTreeMap<(Box<str>, Phase), u64>,
    entries: BTreeMap<Table, u64>,
}

/// Checks the structure of all tables, without keeping timers in memory.
pub(super) struct Check<'t, T> {
    reader: Reader<'t, T>,
    faults: Faults,
    found: Found,
}

impl<'t, T: Tables> Check<'t, T> {
    pub(super) fn new(reader: Reader<'t, T>) -> Self {
        Self { reader, faults: Faults::default(), found: Found::default() }
    }

    /// Checks the tables, and returns the faults. A fault is, for example, an unreadable record, a missing index entry,
    /// or a wrong count. The invariants L1 to L6 of [`ledger`](super) say which entries the tables must have.
    pub(super) fn run(mut self) -> Result<Vec<Fault>, StoreError> {
        self.check_order()?;
        self.check_records()?;
        if self.faults.are_enough() {
            // The walk through the records has stopped early. The checks below would compare their tables with numbers
            // that are too small.
            return Ok(self.faults.0);
        }
        for table in INDEXES {
            self.check_index(table)?;
        }
        self.check_counts()?;
        self.check_hours()?;
        self.check_remembered()?;
        self.check_quarantine()?;
        Ok(self.faults.0)
    }

    /// Checks that the keys of each table are in order. A look-up can miss keys that are not in order.
    fn check_order(&mut self) -> Result<(), StoreError> {
        for table in Table::ALL {
            let mut before: Option<Vec<u8>> = None;
            self.reader.tables.scan(table, &[], &mut |key, _| {
                if before.as_deref().is_some_and(|before| before >= key) {
                    self.faults.add(table, id_at_end(key), "the keys are not in order: a key is damaged");
                }
                let kept = before.get_or_insert_default();
                kept.clear();
                kept.extend_from_slice(key);
                !self.faults.are_enough()
            })?;
        }
        Ok(())
    }

    fn check_records(&mut self) -> Result<(), StoreError> {
        let mut failure = None;
        self.reader.tables.scan(Table::Timers, &[], &mut |key, record| {
            let Some(id) = id_at_end(key) else {
                return self.faults.add(Table::Timers, None, "a key is not an id");
            };
            match record::decode(id, record) {
                Ok(timer) => {
                    if let Err(error) = self.check_entries(&timer) {
                        failure = Some(error);
                        return false;
                    }
                }
                Err(error) => {
                    let text = format!("{error}{}", seeming_name(record));
                    self.faults.add(Table::Timers, Some(id), text);
                }
            }
            !self.faults.are_enough()
        })?;
        failure.map_or(Ok(()), Err)
    }

    /// Checks that all index entries of a timer are stored.
    fn check_entries(&mut self, timer: &Timer) -> Result<(), StoreError> {
        *self.found.by_namespace.entry((timer.namespace.clone(), timer.state.phase())).or_default() += 1;
        for (table, key, value) in entries(timer) {
            *self.found.entries.entry(table).or_default() += 1;
            match self.reader.tables.get(table, &key)? {
                Some(stored) if table == Table::Timers || stored == value => {}
                None if table == Table::Timers => {
                    self.faults.add(table, Some(timer.id), "a search does not find the record");
                }
                _ => {
                    let key = timer.key.as_deref().map(|key| format!("; its key is {key:?}"));
                    let text = format!("the entry is missing{}", key.unwrap_or_default());
                    self.faults.add(table, Some(timer.id), text);
                }
            }
        }
        Ok(())
    }

    /// Checks that an index has only the entries that the timers must have. [`check_entries`](Self::check_entries) has
    /// already looked for these entries. So it is enough to compare the number of entries that the index has with the
    /// number that it must have.
    fn check_index(&mut self, table: Table) -> Result<(), StoreError> {
        let mut stored = 0;
        self.reader.tables.scan(table, &[], &mut |_, _| {
            stored += 1;
            true
        })?;
        let wanted = self.found.entries.get(&table).copied().unwrap_or(0);
        if stored != wanted {
            self.faults.add(table, None, format!("{stored} entries for {wanted} timers"));
            self.name_strays(table)?;
        }
        Ok(())
    }

    /// Adds a fault for each stray entry of an index. A stray entry does not belong to the timer that it names. An
    /// unreadable record that was set aside leaves stray entries behind.
    fn name_strays(&mut self, table: Table) -> Result<(), StoreError> {
        let mut failure = None;
        self.reader.tables.scan(table, &[], &mut |key, value| {
            let id = id_of(table, key, value);
            let timer = match id.map_or(Ok(None), |id| self.reader.peek(id)) {
                Ok(timer) => timer,
                Err(error) => {
                    failure = Some(error);
                    return false;
                }
            };
            let name = || match key_of(key).filter(|_| table == Table::Keys) {
                Some(name) => format!("; it is that of key {:?} of namespace {:?}", name.key, name.namespace),
                None => String::new(),
            };
            let text = match timer {
                Some(timer) if has_entry(&timer, table, key, value) => return true,
                Some(_) => format!("the entry is not its timer's{}", name()),
                None => format!("the entry is of a timer that cannot be read, or is not stored{}", name()),
            };
            self.faults.add(table, id, text)
        })?;
        failure.map_or(Ok(()), Err)
    }

    fn check_counts(&mut self) -> Result<(), StoreError> {
        let (counts, counted) = (self.reader.counts()?.by_namespace, &self.found.by_namespace);
        if counts != *counted {
            self.faults.add(Table::Counts, None, format!("{counts:?} counted as {counted:?}"));
        }
        Ok(())
    }

    fn check_hours(&mut self) -> Result<(), StoreError> {
        if let Some((hour, stored, counted)) = Hours::first_wrong(self.reader.tables)? {
            let text = format!("{stored} timers in hour {hour}, counted as {counted}");
            self.faults.add(Table::Hours, None, text);
        }
        Ok(())
    }

    fn check_remembered(&mut self) -> Result<(), StoreError> {
        let mut ids = Vec::new();
        self.reader.tables.scan(Table::Recent, &[], &mut |key, until| {
            ids.push([until, key].concat());
            true
        })?;
        let mut moments = Vec::new();
        self.reader.tables.scan(Table::Forget, &[], &mut |key, _| {
            moments.push(key.to_vec());
            true
        })?;
        ids.sort_unstable();
        moments.sort_unstable();
        let mut only = |table, these: &[Vec<u8>], those: &[Vec<u8>]| {
            for entry in these.iter().filter(|entry| those.binary_search(entry).is_err()) {
                let until = moment_of(entry).as_millis();
                let text = format!("an id is remembered until {until} only here");
                self.faults.add(table, id_at_end(entry), text);
            }
        };
        only(Table::Recent, &ids, &moments);
        only(Table::Forget, &moments, &ids);
        Ok(())
    }

    fn check_quarantine(&mut self) -> Result<(), StoreError> {
        self.reader.tables.scan(Table::Quarantine, &[], &mut |key, record| {
            let id = id_at_end(key);
            let text = match id.map(|id| record::decode(id, record)) {
                _ if record.is_empty() => "a record is missing, which an index had named".to_owned(),
                Some(Err(error)) => format!("a record was set aside: {error}{}", seeming_name(record)),
                _ => format!("a record was set aside{}", seeming_name(record)),
            };
            self.faults.add(Table::Quarantine, id, text)
        })
    }
}
