//! Counts the pending timers by the time until they are due, mostly from the stored counts of each hour (L4).

use super::entries::{moment_bytes, moment_of};
use super::hours::Hours;
use super::reader::Reader;
use crate::state::Phase;
use crate::store::error::StoreError;
use crate::store::horizon::{AN_HOUR, Horizon, hour_of, start_of};
use crate::store::tables::{Table, Tables};
use tourbillon_words::UtcMillis;

/// The greatest number of index entries that one call of [`horizon()`] reads. The call counts timers one by one if they
/// are due between the start of the current hour of UTC and an hour from now. For all other timers, it adds up the
/// stored counts of each hour.
pub(crate) const LOOKS: usize = 50_000;
/// The greatest number of hours whose stored counts one call of [`horizon()`] adds up. Ten years have 87,600 hours.
const HOURS: usize = 100_000;

/// Counts the pending timers of all namespaces by due moment. Reads at most `looks` entries of the index by due moment.
pub(super) fn horizon<T: Tables>(
    reader: Reader<'_, T>,
    now: UtcMillis,
    looks: usize,
) -> Result<Horizon, StoreError> {
    let mut horizon = Horizon::empty(now);
    let (first, near) = (hour_of(now), horizon.spans[AN_HOUR].until);
    // The first spans end in the middle of an hour of UTC, so their timers are counted one by one.
    let mut looked = 0;
    let mut cut = None;
    // The scan begins with the hour and not with `now`, because its number is later subtracted from the counts of whole
    // hours.
    reader.tables.scan(Table::Due, &moment_bytes(start_of(first)), &mut |key, _| {
        let due = moment_of(key);
        if due > near || looked == looks {
            cut = (due <= near).then_some(due);
            return false;
        }
        looked += 1;
        horizon.add(due, 1);
        true
    })?;
    let (mut hours, mut in_near, mut cut_hour) = (0, 0_u64, None);
    Hours::each(reader.tables, |hour, count| {
        if hours == HOURS {
            cut_hour = Some(hour);
            return false;
        }
        hours += 1;
        if (first..=hour_of(near)).contains(&hour) {
            in_near = in_near.saturating_add(count);
        } else {
            // An earlier hour is over, and the later spans end with an hour. So all timers of this hour are in the same
            // span.
            horizon.add(start_of(hour), count);
        }
        true
    })?;
    if let Some(cut) = cut {
        let from = horizon.span_of(cut);
        // The next span is inexact, too: its part of the hour of `near` follows only from a complete scan.
        horizon.spans[from..=AN_HOUR + 1].iter_mut().for_each(|span| span.is_exact = false);
    } else {
        // The first spans end within an hour. The other timers of that hour belong to the next span.
        let later = &mut horizon.spans[AN_HOUR + 1].count;
        *later = later.saturating_add(in_near.saturating_sub(looked as u64));
    }
    if let Some(hour) = cut_hour {
        let from = horizon.span_of(start_of(hour));
        horizon.spans[from..].iter_mut().for_each(|span| span.is_exact = false);
    }
    if cut.is_some() || cut_hour.is_some() {
        horizon.unplaced = reader.counts()?.of(Phase::Pending).saturating_sub(horizon.placed());
    }
    Ok(horizon)
}
