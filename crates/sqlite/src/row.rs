//! Converts timers to rows, and rows to timers.
//!
//! A row has the timer's record, and columns for the indexes and for people who read the table with SQL. The record has
//! a checksum. So if a column differs from the record, the column is damaged and the record is valid.

use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::timer::{Timer, TimerId};

/// Converts a moment to the number that SQLite stores: the milliseconds since the start of 1970.
pub(crate) fn millis(moment: UtcMillis) -> i64 {
    i64::try_from(moment.as_millis()).unwrap_or(i64::MAX)
}

/// Converts a stored number of milliseconds to a moment. A negative number, which only damage causes, becomes zero.
pub(crate) fn moment(millis: i64) -> UtcMillis {
    UtcMillis::from_millis(u64::try_from(millis).unwrap_or(0))
}

pub(crate) fn id_bytes(id: TimerId) -> [u8; 16] {
    id.as_u128().to_be_bytes()
}

/// Returns the id with these bytes, or `None` if the number of bytes is not 16.
pub(crate) fn id_of(bytes: &[u8]) -> Option<TimerId> {
    bytes.try_into().ok().map(|bytes| TimerId::from_u128(u128::from_be_bytes(bytes)))
}

/// Returns the number that stands for a phase in the table, or `None` for the phases of timers that are not stored.
pub(crate) fn number(phase: Phase) -> Option<i64> {
    match phase {
        Phase::Pending => Some(0),
        Phase::Leased => Some(1),
        Phase::Parked => Some(2),
        Phase::Dead => Some(3),
        Phase::Done | Phase::Withdrawn => None,
    }
}

pub(crate) const PHASES: [Phase; 4] = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead];

/// The columns of a timer's row, without its id and without its record (the whole timer, encoded, with a checksum).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Columns<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) key: Option<&'a str>,
    /// True if the timer has a key, and no other timer may have the same key. A timer loses its key when it is given
    /// up, or when it is cancelled or replaced during its delivery.
    pub(crate) owns_key: bool,
    pub(crate) kind: &'a str,
    pub(crate) phase: i64,
    pub(crate) created: i64,
    pub(crate) due: i64,
    /// The moment at which the timer's lease ends, or `None` if the timer has no lease.
    pub(crate) until: Option<i64>,
    pub(crate) incarnation: Option<i64>,
    pub(crate) claim: Option<i64>,
    /// The reason why the timer is parked (set aside, and not delivered even if it is due), or `None` if it is not
    /// parked.
    pub(crate) reason: Option<&'a str>,
    /// The moment at which the timer became dead (given up: it is not delivered again), or `None` if it is not dead.
    pub(crate) died: Option<i64>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(timer: &'a Timer) -> Self {
        let (mut lease, mut reason, mut died) = (None, None, None);
        match &timer.state {
            State::Pending => {}
            State::Leased(held) => lease = Some(*held),
            State::Parked(why) => reason = Some(&**why),
            State::Dead(death) => died = Some(millis(death.at)),
        }
        Self {
            namespace: &timer.namespace,
            key: timer.key.as_deref(),
            owns_key: timer.key.is_some() && timer.owns_key(),
            kind: &timer.kind,
            phase: number(timer.state.phase()).unwrap_or(0),
            created: millis(timer.created),
            due: millis(timer.due),
            until: lease.map(|lease| millis(lease.until)),
            incarnation: lease.map(|lease| lease.token.incarnation.cast_signed()),
            claim: lease.map(|lease| lease.token.claim.cast_signed()),
            reason,
            died,
        }
    }
}
