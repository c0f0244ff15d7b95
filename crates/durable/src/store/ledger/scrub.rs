//! The *scrub* checks all records and index entries in small steps, and finds damage that no operation has found.
//!
//! A step only reads, and lists the entries that seem damaged. Later, a transaction that writes checks these entries
//! again and repairs the damage: it sets unreadable records aside, removes entries that do not belong to their timers,
//! and stores missing entries.

use super::check::{INDEXES, has_entry, id_of};
use super::entries::entries;
use super::reader::Reader;
use super::timers::Timers;
use crate::record;
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};

/// The tables that the scrub (the search for damage) checks, in order.
const WALKED: [Table; 1 + INDEXES.len()] = {
    let mut walked = [Table::Timers; 1 + INDEXES.len()];
    let (_, indexes) = walked.split_at_mut(1);
    indexes.copy_from_slice(&INDEXES);
    walked
};

/// The place at which the next step of the scrub (the search for damage) begins. The default is the start of the first
/// table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScrubCursor {
    nth: usize,
    /// The key of the last entry that the scrub has checked. `None` at the start of a table.
    after: Option<Vec<u8>>,
}

impl ScrubCursor {
    /// Returns the start of the table after the table of this cursor. `None` after the last table.
    pub(crate) fn skip(&self) -> Option<Self> {
        let nth = self.nth + 1;
        (nth < WALKED.len()).then_some(Self { nth, after: None })
    }
}

/// A table entry that the scrub (the search for damage) has found damaged. A transaction checks the entry again before
/// it repairs the damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    table: Table,
    key: Vec<u8>,
}

/// The result of one step of the scrub (the search for damage).
#[derive(Debug)]
pub(crate) struct Step {
    /// The place at which the next step begins. `None` after the last table.
    pub(crate) next: Option<ScrubCursor>,
    pub(crate) looked: u64,
    pub(crate) suspects: Vec<Suspect>,
}

/// Runs one step of the scrub: reads at most `limit` entries of a table, starting at `place`, and lists the damaged
/// entries. Changes nothing.
pub(super) fn look<T: Tables>(
    reader: Reader<'_, T>,
    place: &ScrubCursor,
    limit: usize,
) -> Result<Step, StoreError> {
    let mut step = Step { next: None, looked: 0, suspects: Vec::new() };
    let Some(table) = WALKED.get(place.nth).copied() else { return Ok(step) };
    let from = place.after.as_ref().map_or(Vec::new(), |last| [&last[..], &[0]].concat());
    let mut found = Vec::new();
    reader.tables.scan(table, &from, &mut |key, value| {
        let goes_on = found.len() < limit;
        if goes_on {
            found.push((key.to_vec(), value.to_vec()));
        }
        goes_on
    })?;
    step.next = match found.last() {
        // If a key is not greater than the previous key, the scrub would never reach the end of the table.
        Some((last, _)) if found.len() == limit && place.after.as_ref().is_none_or(|after| last > after) => {
            Some(ScrubCursor { nth: place.nth, after: Some(last.clone()) })
        }
        _ => place.skip(),
    };
    for (key, value) in found {
        step.looked += 1;
        let suspect = Suspect { table, key };
        if !suspect.is_whole(reader, &value)? {
            step.suspects.push(suspect);
        }
    }
    Ok(step)
}

impl Suspect {
    /// Returns whether this table entry is undamaged. A record must be readable, and all entries of its timer must be
    /// stored. An index entry must belong to the timer that it names.
    fn is_whole<T: Tables>(&self, reader: Reader<'_, T>, value: &[u8]) -> Result<bool, StoreError> {
        let Some(id) = id_of(self.table, &self.key, value) else { return Ok(false) };
        if self.table != Table::Timers {
            let timer = reader.peek(id)?;
            return Ok(timer.is_some_and(|timer| has_entry(&timer, self.table, &self.key, value)));
        }
        let Ok(timer) = record::decode(id, value) else { return Ok(false) };
        for (table, key, value) in entries(&timer) {
            if reader.tables.get(table, &key)?.as_ref() != Some(&value) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Repairs this table entry if it is still damaged. Returns whether the entry was still damaged.
    pub(super) fn mend<T: Tables>(&self, timers: &mut Timers<T>) -> Result<bool, StoreError> {
        // An entry that was removed after the step does not count as damaged.
        let Some(value) = timers.tables().get(self.table, &self.key)? else { return Ok(false) };
        if self.is_whole(timers.reader(), &value)? {
            return Ok(false);
        }
        let id = id_of(self.table, &self.key, &value);
        if self.table == Table::Timers {
            // `load` sets an unreadable record aside. If the record is readable, entries of its timer are missing.
            let timer = id.map_or(Ok(None), |id| timers.load(id))?;
            timer.map_or(Ok(()), |timer| timers.mend(&timer))?;
        } else {
            let timer = id.map_or(Ok(None), |id| timers.load_named(id))?;
            timers.remove_stray(self.table, &self.key, timer.as_ref())?;
        }
        Ok(true)
    }
}
