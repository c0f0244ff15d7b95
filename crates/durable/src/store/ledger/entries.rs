//! Computes the entries that a timer has in each table.

use crate::record;
use crate::state::{Phase, State};
use crate::store::tables::Table;
use crate::timer::{KeyOf, Timer, TimerId};
use tourbillon_words::UtcMillis;

pub(crate) type Entry = (Table, Vec<u8>, Vec<u8>);

pub(super) fn id_bytes(id: TimerId) -> [u8; 16] {
    id.as_u128().to_be_bytes()
}

/// Returns the 6 bytes by which a moment is stored in a table's key. 6 bytes suffice for the latest moment, in the year
/// 9999.
pub(super) fn moment_bytes(moment: UtcMillis) -> [u8; 6] {
    let bytes = moment.as_millis().to_be_bytes();
    [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
}

/// Returns the key of a pending timer in the index by due moment.
pub(crate) fn due_entry(due: UtcMillis, id: TimerId) -> Vec<u8> {
    [&moment_bytes(due)[..], &id_bytes(id)].concat()
}

pub(crate) fn moment_of(bytes: &[u8]) -> UtcMillis {
    let mut all = [0; 8];
    for (to, from) in all[2..].iter_mut().zip(bytes) {
        *to = *from;
    }
    UtcMillis::from_millis(u64::from_be_bytes(all))
}

/// Returns the id in the last 16 bytes of a key. `None` if the key is shorter.
pub(super) fn id_at_end(key: &[u8]) -> Option<TimerId> {
    let (_, id) = key.split_last_chunk::<16>()?;
    Some(TimerId::from_u128(u128::from_be_bytes(*id)))
}

/// Returns a text with its length in front, as the first part of a table's key. Because of the length, the result for
/// one text is never a prefix of the result for another text.
pub(super) fn part(text: &str) -> Vec<u8> {
    part_before(text, &[])
}

fn part_before(text: &str, rest: &[u8]) -> Vec<u8> {
    // `limits` refuses to store a longer text. A search with a longer text compares the texts of the timers that it
    // finds.
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    [&[length], text.as_bytes(), rest].concat()
}

pub(super) fn key_key(namespace: &str, key: &str) -> Vec<u8> {
    part_before(namespace, key.as_bytes())
}

/// Splits a key of the table `Keys`, made by [`key_key`], into the namespace and the timer's key.
pub(crate) fn key_of(key: &[u8]) -> Option<KeyOf> {
    let (length, rest) = key.split_first()?;
    let (namespace, key) = rest.split_at_checked(usize::from(*length))?;
    let text = |bytes| core::str::from_utf8(bytes).ok().map(Into::into);
    Some(KeyOf { namespace: text(namespace)?, key: text(key)? })
}

pub(super) fn label_key(namespace: &str, label: &str) -> Vec<u8> {
    part_before(namespace, &part(label))
}

pub(super) fn count_key(namespace: &str, phase: Phase) -> Vec<u8> {
    [namespace.as_bytes(), &[phase as u8]].concat()
}

pub(super) fn hour_key(hour: u32) -> [u8; 4] {
    hour.to_be_bytes()
}

/// Returns the table for the timer's phase, and the key of the timer's entry in that table.
pub(super) fn phase_entry(timer: &Timer) -> (Table, Vec<u8>) {
    let (table, before) = match &timer.state {
        State::Pending => (Table::Due, moment_bytes(timer.due).to_vec()),
        State::Leased(lease) => (Table::Leases, moment_bytes(lease.until).to_vec()),
        State::Parked(reason) => (Table::Parked, [&part(reason)[..], &moment_bytes(timer.due)].concat()),
        State::Dead(death) => (Table::Dead, moment_bytes(death.at).to_vec()),
    };
    (table, [&before[..], &id_bytes(timer.id)].concat())
}

/// Returns whether `key` is the key of the timer's entry in `table`, the table for the timer's phase. Compares the
/// bytes, because different bytes can stand for the same moment: [`moment_of`] reads a moment that is too late as
/// [`UtcMillis::MAX`].
pub(super) fn is_phase_entry(timer: &Timer, table: Table, key: &[u8]) -> bool {
    let (its_table, its_key) = phase_entry(timer);
    its_table == table && its_key == key
}

/// Returns the prefix of the keys in [`Table::Stopped`] for a namespace and a phase.
pub(super) fn stopped_prefix(namespace: &str, phase: Phase) -> Vec<u8> {
    part_before(namespace, &[phase as u8])
}

/// Returns the key of a timer's entry in [`Table::Keyless`].
pub(super) fn keyless_key(namespace: &str, id: TimerId) -> Vec<u8> {
    part_before(namespace, &id_bytes(id))
}

/// Returns all table entries that the store must have for a timer (invariant L1 of [`ledger`](super)).
pub(crate) fn entries(timer: &Timer) -> Vec<Entry> {
    let id = id_bytes(timer.id);
    let mut entries = vec![(Table::Timers, id.to_vec(), record::encode(timer))];
    let (table, key) = phase_entry(timer);
    let phase = timer.state.phase();
    if matches!(phase, Phase::Parked | Phase::Dead) {
        let stopped = [&stopped_prefix(&timer.namespace, phase)[..], &key].concat();
        entries.push((Table::Stopped, stopped, Vec::new()));
    }
    entries.push((table, key, Vec::new()));
    for (nth, label) in timer.labels.iter().enumerate() {
        // A store also accepts timers whose labels repeat. Equal labels share an entry, and `Check` counts the entries.
        if timer.labels[..nth].contains(label) {
            continue;
        }
        entries.push((Table::Labels, [&label_key(&timer.namespace, label)[..], &id].concat(), Vec::new()));
    }
    match timer.key.as_ref().filter(|_| timer.owns_key()) {
        Some(key) => entries.push((Table::Keys, key_key(&timer.namespace, key), id.to_vec())),
        // A timer that was withdrawn during its delivery has lost its key, so it is listed here.
        None if phase != Phase::Dead => {
            entries.push((Table::Keyless, keyless_key(&timer.namespace, timer.id), Vec::new()));
        }
        None => {}
    }
    entries
}
