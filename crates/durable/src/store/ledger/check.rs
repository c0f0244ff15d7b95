//! The check of the structure.

use super::entries::{entries, id_at_end};
use super::timers::Ledger;
use crate::record;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::fault::Fault;
use crate::store::tables::{Table, Tables};
use crate::timer::{Timer, TimerId};
use std::collections::BTreeMap;

/// Faults after which a check stops.
const MOST_FAULTS: usize = 1_000;

impl<T: Tables> Ledger<T> {
    /// The faults of the structure (L1 to L4).
    pub(crate) fn check(&self) -> Result<Vec<Fault>, StoreError> {
        let mut faults = Vec::new();
        let fault =
            |table: Table, timer, fault: String| Fault { table: table.name(), timer, fault: fault.into() };
        let mut counted: BTreeMap<(Box<str>, Phase), u64> = BTreeMap::new();
        let mut found: BTreeMap<Table, u64> = BTreeMap::new();
        let mut timers = Vec::new();
        self.tables.scan(Table::Timers, &[], &mut |key, record| {
            match id_at_end(key).map(|id| (id, record::decode(id, record))) {
                Some((_, Ok(timer))) => timers.push(timer),
                Some((id, Err(error))) => faults.push(fault(Table::Timers, Some(id), error.to_string())),
                None => faults.push(fault(Table::Timers, None, "a key is no id".to_owned())),
            }
            faults.len() < MOST_FAULTS
        })?;
        for timer in &timers {
            *counted.entry((timer.namespace.clone(), timer.state.phase())).or_default() += 1;
            for (table, key, value) in entries(timer) {
                *found.entry(table).or_default() += 1;
                if table != Table::Timers && self.tables.get(table, &key)? != Some(value) {
                    faults.push(fault(table, Some(timer.id), "the entry is missing".to_owned()));
                }
            }
            if faults.len() >= MOST_FAULTS {
                return Ok(faults);
            }
        }
        for table in [Table::Keys, Table::Due, Table::Leases, Table::Parked, Table::Dead, Table::Labels] {
            let mut stored = 0;
            self.tables.scan(table, &[], &mut |_, _| {
                stored += 1;
                true
            })?;
            let wanted = found.get(&table).copied().unwrap_or(0);
            if stored != wanted {
                faults.push(fault(table, None, format!("{stored} entries for {wanted} timers")));
                self.scan_others(table, &mut |timer, what| {
                    faults.push(fault(table, timer, what.to_owned()));
                    faults.len() < MOST_FAULTS
                })?;
            }
        }
        let counts = self.counts()?.by_namespace;
        if counts != counted {
            faults.push(fault(Table::Counts, None, format!("{counts:?} counted as {counted:?}")));
        }
        if let Some((hour, stored, counted)) = self.wrong_hour()? {
            let fault_of = format!("{stored} timers in hour {hour}, counted as {counted}");
            faults.push(fault(Table::Hours, None, fault_of));
        }
        Ok(faults)
    }

    /// Calls `each` for the entries of an index that are no timer's, until it returns false. Records that were set
    /// aside leave such entries behind.
    fn scan_others(
        &self,
        table: Table,
        each: &mut dyn FnMut(Option<TimerId>, &str) -> bool,
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
                entries(timer).iter().any(|(of, at, with)| *of == table && at == key && with == value)
            };
            match timer {
                Some(timer) if is_its(&timer) => true,
                Some(_) => each(id, "the entry is not its timer's"),
                None => each(id, "the entry is of a timer that cannot be read, or is not stored"),
            }
        })?;
        failure.map_or(Ok(()), Err)
    }
}
