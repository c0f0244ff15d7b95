//! The scrub: a walk through all records and indexes in small steps, which finds damage that no operation has met.
//!
//! A step reads, and lists the entries that seem damaged. The damage is mended in a transaction that writes, which
//! looks again: a record that cannot be read is set aside, an entry that is not its timer's is removed, and an entry
//! that a timer lacks is stored.

use super::check::INDEXES;
use super::entries::{entries, id_at_end};
use super::timers::Ledger;
use crate::record;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use crate::timer::{Timer, TimerId};

/// The tables of a walk, in order.
const WALKED: [Table; 1 + INDEXES.len()] = {
    let mut walked = [Table::Timers; 1 + INDEXES.len()];
    let (_, indexes) = walked.split_at_mut(1);
    indexes.copy_from_slice(&INDEXES);
    walked
};

/// The place from which a walk goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScrubCursor {
    nth: usize,
    /// The last entry that was looked at.
    after: Option<Vec<u8>>,
}

impl ScrubCursor {
    /// The start of the next table; `None` at the end.
    pub(crate) fn skip(&self) -> Option<Self> {
        let nth = self.nth + 1;
        (nth < WALKED.len()).then_some(Self { nth, after: None })
    }
}

/// An entry that seems damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    table: Table,
    key: Vec<u8>,
}

/// A step of a walk.
#[derive(Debug)]
pub(crate) struct Step {
    /// `None` at the end of the walk.
    pub(crate) next: Option<ScrubCursor>,
    pub(crate) looked: u64,
    pub(crate) suspects: Vec<Suspect>,
}

/// The timer of an entry.
fn id_of(table: Table, key: &[u8], value: &[u8]) -> Option<TimerId> {
    id_at_end(if table == Table::Keys { value } else { key })
}

fn has_entry(timer: &Timer, table: Table, key: &[u8], value: &[u8]) -> bool {
    entries(timer).iter().any(|entry| entry.0 == table && entry.1 == key && entry.2 == value)
}

impl<T: Tables> Ledger<T> {
    /// Looks at some entries, from this place on.
    pub(crate) fn scrub(&self, place: &ScrubCursor, limit: usize) -> Result<Step, StoreError> {
        let mut step = Step { next: None, looked: 0, suspects: Vec::new() };
        let Some(table) = WALKED.get(place.nth).copied() else { return Ok(step) };
        let from = place.after.as_ref().map_or(Vec::new(), |last| [&last[..], &[0]].concat());
        let mut found = Vec::new();
        self.tables.scan(table, &from, &mut |key, value| {
            let goes_on = found.len() < limit;
            if goes_on {
                found.push((key.to_vec(), value.to_vec()));
            }
            goes_on
        })?;
        step.next = match found.last() {
            // A key that does not follow would lead the walk round in a circle.
            Some((last, _))
                if found.len() == limit && place.after.as_ref().is_none_or(|after| last > after) =>
            {
                Some(ScrubCursor { nth: place.nth, after: Some(last.clone()) })
            }
            _ => place.skip(),
        };
        for (key, value) in found {
            step.looked += 1;
            if !self.is_whole(table, &key, &value)? {
                step.suspects.push(Suspect { table, key });
            }
        }
        Ok(step)
    }

    fn is_whole(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        let Some(id) = id_of(table, key, value) else { return Ok(false) };
        if table != Table::Timers {
            return Ok(self.peek(id)?.is_some_and(|timer| has_entry(&timer, table, key, value)));
        }
        let Ok(timer) = record::decode(id, value) else { return Ok(false) };
        for (table, key, value) in entries(&timer) {
            if self.tables.get(table, &key)?.as_ref() != Some(&value) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Mends the damaged ones of these entries. Returns their number.
    pub(crate) fn mend_suspects(&mut self, suspects: Vec<Suspect>) -> Result<u64, StoreError> {
        let mut damaged = 0;
        for Suspect { table, key } in suspects {
            // An entry that has gone since was not damaged.
            let Some(value) = self.tables.get(table, &key)? else { continue };
            if self.is_whole(table, &key, &value)? {
                continue;
            }
            damaged += 1;
            let timer = match id_of(table, &key, &value) {
                Some(id) if table == Table::Timers => self.load(id)?,
                Some(id) => self.load_named(id)?,
                None => None,
            };
            let phase = match table {
                Table::Due => Some(Phase::Pending),
                Table::Leases => Some(Phase::Leased),
                Table::Parked => Some(Phase::Parked),
                Table::Dead => Some(Phase::Dead),
                _ => None,
            };
            match (table, phase, timer) {
                (Table::Timers, _, None) => {}
                (Table::Timers, _, Some(timer)) => self.mend(&timer)?,
                (_, Some(phase), timer) => self.remove_stray(table, &key, timer.as_ref(), phase)?,
                (_, None, timer) => {
                    self.tables.remove(table, &key)?;
                    timer.map_or(Ok(()), |timer| self.mend(&timer))?;
                }
            }
        }
        Ok(damaged)
    }

    /// Whether a request of this transaction has met damage.
    pub(crate) fn has_met_damage(&self) -> bool {
        self.quarantined > 0 || self.has_mended
    }
}
