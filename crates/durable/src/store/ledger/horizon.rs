//! The pending timers by the time until they are due, from the numbers of each hour (L4).

use super::entries::{hour_key, moment_bytes, moment_of};
use super::timers::Ledger;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::horizon::{AN_HOUR, Horizon, hour_of, start_of};
use crate::store::tables::{Table, Tables};
use std::collections::BTreeMap;

/// Entries by due moment that a horizon looks at: those of this hour and the next one.
pub(crate) const LOOKS: usize = 50_000;
/// Hours that a horizon looks at: ten years have 87,600.
const HOURS: usize = 100_000;

impl<T: Tables> Ledger<T> {
    /// The greatest number of entries that are looked at by due moment.
    pub(crate) fn horizon(&self, looks: usize) -> Result<Horizon, StoreError> {
        let mut horizon = Horizon::empty(self.now);
        let (first, near) = (hour_of(self.now), horizon.spans[AN_HOUR].until);
        // The spans of less than an hour end within hours: their timers are counted one by one.
        let mut looked = 0;
        let mut cut = None;
        self.tables.scan(Table::Due, &moment_bytes(start_of(first)), &mut |key, _| {
            let due = moment_of(key);
            if due > near || looked == looks {
                cut = (due <= near).then_some(due);
                return false;
            }
            looked += 1;
            horizon.add(due, 1);
            true
        })?;
        let (mut hours, mut in_near, mut cut_hour) = (0, 0, None);
        self.tables.scan(Table::Hours, &[], &mut |key, count| {
            let (hour, count) = (number_of(key), number_of(count));
            let hour = u32::try_from(hour).unwrap_or(u32::MAX);
            if hours == HOURS {
                cut_hour = Some(hour);
                return false;
            }
            hours += 1;
            if (first..=hour_of(near)).contains(&hour) {
                in_near += count;
            } else {
                horizon.add(start_of(hour), count);
            }
            true
        })?;
        if let Some(cut) = cut {
            let from = horizon.span_of(cut);
            horizon.spans[from..=AN_HOUR + 1].iter_mut().for_each(|span| span.is_exact = false);
        } else {
            // The rest of the hour in which the near spans end.
            horizon.spans[AN_HOUR + 1].count += in_near.saturating_sub(looked as u64);
        }
        if let Some(hour) = cut_hour {
            let from = horizon.span_of(start_of(hour));
            horizon.spans[from..].iter_mut().for_each(|span| span.is_exact = false);
        }
        if cut.is_some() || cut_hour.is_some() {
            horizon.unplaced = self.counts()?.of(Phase::Pending).saturating_sub(horizon.placed());
        }
        Ok(horizon)
    }

    /// Writes the changes of the numbers by hour.
    pub(super) fn finish_hours(&mut self) -> Result<(), StoreError> {
        if self.has_mended {
            self.hours.clear();
            return self.recount_hours();
        }
        for (hour, change) in core::mem::take(&mut self.hours) {
            if change != 0 {
                let key = hour_key(hour);
                let count = self.tables.get(Table::Hours, &key)?.map_or(0, |count| number_of(&count));
                match count.saturating_add_signed(change) {
                    0 => drop(self.tables.remove(Table::Hours, &key)?),
                    count => self.tables.put(Table::Hours, &key, &count.to_be_bytes())?,
                }
            }
        }
        Ok(())
    }

    /// Counts the entries by due moment anew.
    fn recount_hours(&mut self) -> Result<(), StoreError> {
        let counted = self.counted_hours()?;
        for key in self.keys(Table::Hours, &[], &[], usize::MAX)? {
            let hour = u32::try_from(number_of(&key)).unwrap_or(u32::MAX);
            if !counted.contains_key(&hour) {
                self.tables.remove(Table::Hours, &key)?;
            }
        }
        for (hour, count) in counted {
            self.tables.put(Table::Hours, &hour_key(hour), &count.to_be_bytes())?;
        }
        Ok(())
    }

    /// The numbers of entries by due moment, from the entries themselves.
    fn counted_hours(&self) -> Result<BTreeMap<u32, u64>, StoreError> {
        let mut hours = BTreeMap::new();
        self.tables.scan(Table::Due, &[], &mut |key, _| {
            *hours.entry(hour_of(moment_of(key))).or_default() += 1;
            true
        })?;
        Ok(hours)
    }

    /// The first hour whose number is not that of its entries, with both numbers.
    pub(super) fn wrong_hour(&self) -> Result<Option<(u32, u64, u64)>, StoreError> {
        let counted = self.counted_hours()?;
        let mut stored = BTreeMap::new();
        self.tables.scan(Table::Hours, &[], &mut |key, count| {
            stored.insert(u32::try_from(number_of(key)).unwrap_or(u32::MAX), number_of(count));
            true
        })?;
        let numbers = |hour: &u32| {
            let number = |hours: &BTreeMap<u32, u64>| hours.get(hour).copied().unwrap_or(0);
            (*hour, number(&stored), number(&counted))
        };
        let wrong =
            stored.keys().chain(counted.keys()).map(numbers).find(|(_, stored, counted)| stored != counted);
        Ok(wrong)
    }
}

/// The number in at most eight bytes.
fn number_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
