//! The check of the structure.

use super::entries::{entries, id_at_end, key_of, moment_of};
use super::timers::Ledger;
use crate::record;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::fault::Fault;
use crate::store::tables::{Table, Tables};
use crate::timer::{Timer, TimerId};
use std::collections::BTreeMap;

/// The tables by which timers are found.
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

/// Faults after which a check stops.
const MOST_FAULTS: usize = 1_000;

fn fault(table: Table, timer: Option<TimerId>, fault: impl Into<Box<str>>) -> Fault {
    Fault { table: table.name(), timer, fault: fault.into() }
}

/// The name that a record seems to have, for a message.
fn seeming_name(record: &[u8]) -> String {
    match record::seeming_name(record) {
        Some((namespace, Some(key))) => format!("; it reads as key {key:?} of namespace {namespace:?}"),
        Some((namespace, None)) => format!("; it reads as a timer of namespace {namespace:?}"),
        None => String::new(),
    }
}

/// The counts of a walk through the records.
#[derive(Default)]
struct Found {
    by_namespace: BTreeMap<(Box<str>, Phase), u64>,
    entries: BTreeMap<Table, u64>,
}

impl<T: Tables> Ledger<T> {
    /// The faults of the structure (L1 to L4), and the records that were set aside. Keeps no timer in memory.
    pub(crate) fn check(&self) -> Result<Vec<Fault>, StoreError> {
        self.check_without(&[])
    }

    /// The same for a store of an earlier version, which lacks these tables.
    pub(crate) fn check_without(&self, lacking: &[Table]) -> Result<Vec<Fault>, StoreError> {
        let mut faults = Vec::new();
        self.check_order(&mut faults)?;
        let found = self.check_records(lacking, &mut faults)?;
        if faults.len() >= MOST_FAULTS {
            return Ok(faults);
        }
        for table in INDEXES.into_iter().filter(|table| !lacking.contains(table)) {
            let mut stored = 0;
            self.tables.scan(table, &[], &mut |_, _| {
                stored += 1;
                true
            })?;
            let wanted = found.entries.get(&table).copied().unwrap_or(0);
            if stored != wanted {
                faults.push(fault(table, None, format!("{stored} entries for {wanted} timers")));
                self.scan_others(table, &mut |timer, text| {
                    faults.push(fault(table, timer, text));
                    faults.len() < MOST_FAULTS
                })?;
            }
        }
        let counts = self.counts()?.by_namespace;
        if counts != found.by_namespace {
            let counted = found.by_namespace;
            faults.push(fault(Table::Counts, None, format!("{counts:?} counted as {counted:?}")));
        }
        if let Some((hour, stored, counted)) = self.wrong_hour()? {
            let fault_of = format!("{stored} timers in hour {hour}, counted as {counted}");
            faults.push(fault(Table::Hours, None, fault_of));
        }
        self.check_remembered(&mut faults)?;
        self.check_set_aside(&mut faults)?;
        Ok(faults)
    }

    /// The keys of each table are in order. Otherwise a search misses some of them.
    fn check_order(&self, faults: &mut Vec<Fault>) -> Result<(), StoreError> {
        for table in Table::ALL {
            let mut before: Option<Vec<u8>> = None;
            self.tables.scan(table, &[], &mut |key, _| {
                if before.as_deref().is_some_and(|before| before >= key) {
                    faults.push(fault(table, id_at_end(key), "the keys are not in order: one is damaged"));
                }
                let kept = before.get_or_insert_default();
                kept.clear();
                kept.extend_from_slice(key);
                faults.len() < MOST_FAULTS
            })?;
        }
        Ok(())
    }

    fn check_records(&self, lacking: &[Table], faults: &mut Vec<Fault>) -> Result<Found, StoreError> {
        let mut found = Found::default();
        let mut failure = None;
        self.tables.scan(Table::Timers, &[], &mut |key, record| {
            let Some(id) = id_at_end(key) else {
                faults.push(fault(Table::Timers, None, "a key is not an id"));
                return faults.len() < MOST_FAULTS;
            };
            match record::decode(id, record) {
                Ok(timer) => {
                    if let Err(error) = self.check_entries(&timer, lacking, &mut found, faults) {
                        failure = Some(error);
                        return false;
                    }
                }
                Err(error) => {
                    let text = format!("{error}{}", seeming_name(record));
                    faults.push(fault(Table::Timers, Some(id), text));
                }
            }
            faults.len() < MOST_FAULTS
        })?;
        failure.map_or(Ok(found), Err)
    }

    fn check_entries(
        &self,
        timer: &Timer,
        lacking: &[Table],
        found: &mut Found,
        faults: &mut Vec<Fault>,
    ) -> Result<(), StoreError> {
        *found.by_namespace.entry((timer.namespace.clone(), timer.state.phase())).or_default() += 1;
        for (table, key, value) in entries(timer) {
            if lacking.contains(&table) {
                continue;
            }
            *found.entries.entry(table).or_default() += 1;
            match self.tables.get(table, &key)? {
                Some(stored) if table == Table::Timers || stored == value => {}
                None if table == Table::Timers => {
                    faults.push(fault(table, Some(timer.id), "a search does not find the record"));
                }
                _ => {
                    let key = timer.key.as_deref().map(|key| format!("; its key is {key:?}"));
                    let text = format!("the entry is missing{}", key.unwrap_or_default());
                    faults.push(fault(table, Some(timer.id), text));
                }
            }
        }
        Ok(())
    }

    /// Each remembered id has an entry by the moment at which it is forgotten, and each such entry an id.
    fn check_remembered(&self, faults: &mut Vec<Fault>) -> Result<(), StoreError> {
        let mut ids = Vec::new();
        self.tables.scan(Table::Recent, &[], &mut |key, until| {
            ids.push([until, key].concat());
            true
        })?;
        let mut moments = Vec::new();
        self.tables.scan(Table::Forget, &[], &mut |key, _| {
            moments.push(key.to_vec());
            true
        })?;
        ids.sort_unstable();
        moments.sort_unstable();
        let only = |table, these: &[Vec<u8>], those: &[Vec<u8>], faults: &mut Vec<Fault>| {
            for entry in these.iter().filter(|entry| those.binary_search(entry).is_err()) {
                let until = moment_of(entry).as_millis();
                faults.push(fault(
                    table,
                    id_at_end(entry),
                    format!("an id is remembered until {until} only here"),
                ));
            }
        };
        only(Table::Recent, &ids, &moments, faults);
        only(Table::Forget, &moments, &ids, faults);
        Ok(())
    }

    fn check_set_aside(&self, faults: &mut Vec<Fault>) -> Result<(), StoreError> {
        self.tables.scan(Table::Quarantine, &[], &mut |key, record| {
            let id = id_at_end(key);
            let text = match id.map(|id| record::decode(id, record)) {
                _ if record.is_empty() => "a record is missing, which an index had named".to_owned(),
                Some(Err(error)) => format!("a record was set aside: {error}{}", seeming_name(record)),
                _ => format!("a record was set aside{}", seeming_name(record)),
            };
            faults.push(fault(Table::Quarantine, id, text));
            faults.len() < MOST_FAULTS
        })
    }

    /// Calls `each` for the entries of an index that are no timer's, until it returns false. Records that were set
    /// aside leave such entries behind.
    fn scan_others(
        &self,
        table: Table,
        each: &mut dyn FnMut(Option<TimerId>, String) -> bool,
    ) -> Result<(), StoreError> {
        let mut failure = None;
        self.tables.scan(table, &[], &mut |key, value| {
            let id = id_at_end(if table == Table::Keys { value } else { key });
            let timer = match id.map_or(Ok(None), |id| self.peek(id)) {
                Ok(timer) => timer,
                Err(error) => {
                    failure = Some(error);
                    return false;
                }
            };
            let is_its = |timer: &Timer| {
                entries(timer).iter().any(|entry| entry.0 == table && entry.1 == key && entry.2 == value)
            };
            let name = || match key_of(key).filter(|_| table == Table::Keys) {
                Some(name) => format!("; it is that of key {:?} of namespace {:?}", name.key, name.namespace),
                None => String::new(),
            };
            match timer {
                Some(timer) if is_its(&timer) => true,
                Some(_) => each(id, format!("the entry is not its timer's{}", name())),
                None => each(
                    id,
                    format!("the entry is of a timer that cannot be read, or is not stored{}", name()),
                ),
            }
        })?;
        failure.map_or(Ok(()), Err)
    }
}
