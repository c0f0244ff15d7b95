//! Encodes a timer as a *record*, the bytes that a store keeps, and decodes it.
//!
//! ```text
//! version (1 byte) | length of the namespace (1 byte) | namespace | other fields, in postcard | checksum (4 bytes)
//! ```
//! The other fields are written in postcard, a compact binary format. The id is the key of the record in the store, so
//! the record does not contain it. The checksum is a CRC-32 of the id and of all bytes before the checksum. So each
//! read detects a damaged record, and a record that is stored under another timer's id. The namespace comes first, so
//! the store can count the record in its namespace even if a later byte is damaged. The creation time and the scheduled
//! time are stored as distances from the due moment, which are short numbers. Most timers that wait for their first
//! delivery have the default in each field of [`Others`]. These fields then take a single byte together.
//!
//! A program decodes only records of its own version. A store sets the bytes of other records aside. So processes that
//! share a store must write the same version. For this reason, a new version of the records also needs a new version of
//! the shared store's layout.

use crate::phase::State;
use crate::plan::Series;
use crate::policy::Policy;
use crate::timer::{Payload, Timer, TimerId};
use core::fmt;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tourbillon_words::UtcMillis;

/// The version of the record format. If the format changes, this version must change. The layout of each store, which
/// describes where the store keeps its data, then needs a new version, too. The store on Redis does not compile until
/// its list of layouts has an entry with this version.
pub(crate) const VERSION: u8 = 4;

/// The length of a record's checksum, in bytes.
const CHECKSUM: usize = 4;

/// The fields of a record that follow the namespace.
#[derive(Serialize, Deserialize)]
struct Fields<'a> {
    key: Option<Cow<'a, str>>,
    kind: Cow<'a, str>,
    payload: Cow<'a, Payload>,
    due: UtcMillis,
    /// The milliseconds from the creation to the due moment. Negative if the timer was due before its creation.
    created_before: i64,
    /// The milliseconds from the scheduled moment to the due moment.
    scheduled_before: i64,
    /// The other fields of the timer. `None` if each of them has its default.
    others: Option<Others<'a>>,
}

/// The fields of a record that have their defaults in most pending timers.
#[derive(PartialEq, Serialize, Deserialize)]
struct Others<'a> {
    labels: Cow<'a, [Box<str>]>,
    /// The timer's policy. `None` for the default policy.
    policy: Option<Cow<'a, Policy>>,
    series: Option<Cow<'a, Series>>,
    deliveries: u32,
    failures: u32,
    last_error: Option<Cow<'a, str>>,
    state: Cow<'a, State>,
    trace: Option<Cow<'a, str>>,
    has_chosen_id: bool,
    age_from: Option<UtcMillis>,
}

impl Default for Others<'_> {
    fn default() -> Self {
        Self {
            labels: Cow::Borrowed(&[]),
            policy: None,
            series: None,
            deliveries: 0,
            failures: 0,
            last_error: None,
            state: Cow::Owned(State::Pending),
            trace: None,
            has_chosen_id: false,
            age_from: None,
        }
    }
}

/// Returns the milliseconds from `from` to `to`, negative if `to` is earlier. The result cannot overflow, because the
/// latest moment is in the year 9999, far below 2^63 milliseconds.
fn distance(from: UtcMillis, to: UtcMillis) -> i64 {
    to.as_millis().cast_signed().wrapping_sub(from.as_millis().cast_signed())
}

/// Returns the moment that is `distance` milliseconds before `moment`. `None` if the result is outside the range of
/// [`UtcMillis`].
fn before(moment: UtcMillis, distance: i64) -> Option<UtcMillis> {
    let millis = moment.as_millis().checked_sub_signed(distance)?;
    // `from_millis` shortens a moment that is too late. The comparison finds such a moment.
    Some(UtcMillis::from_millis(millis)).filter(|moment| moment.as_millis() == millis)
}

/// The reason why a record cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The record has this version, which this program cannot decode.
    Version(u8),
    /// The checksum does not match the id and the bytes: the record is damaged, or belongs to another id.
    Checksum,
    /// The checksum matches, but the bytes do not describe a timer.
    Form,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "the record has version {version}, and {VERSION} is read"),
            Self::Checksum => {
                f.write_str("the record is damaged, or stands under another id: its checksum differs")
            }
            Self::Form => f.write_str("the record is not a timer"),
        }
    }
}

/// Computes the checksum of a record from the timer's id and from `record`, the bytes before the checksum.
fn checksum(id: TimerId, record: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.as_u128().to_be_bytes());
    hasher.update(record);
    hasher.finalize().to_le_bytes()
}

pub(crate) fn encode(timer: &Timer) -> Vec<u8> {
    let others = Others {
        labels: Cow::Borrowed(&timer.labels),
        policy: (timer.policy != Policy::default()).then_some(Cow::Borrowed(&timer.policy)),
        series: timer.series.as_ref().map(Cow::Borrowed),
        deliveries: timer.deliveries,
        failures: timer.failures,
        last_error: timer.last_error.as_deref().map(Cow::Borrowed),
        state: Cow::Borrowed(&timer.state),
        trace: timer.trace.as_deref().map(Cow::Borrowed),
        has_chosen_id: timer.has_chosen_id,
        age_from: timer.age_from,
    };
    let fields = Fields {
        key: timer.key.as_deref().map(Cow::Borrowed),
        kind: Cow::Borrowed(&timer.kind),
        payload: Cow::Borrowed(&timer.payload),
        due: timer.due,
        created_before: distance(timer.created, timer.due),
        scheduled_before: distance(timer.scheduled, timer.due),
        others: (others != Others::default()).then_some(others),
    };
    let mut record = Vec::with_capacity(96 + timer.payload.0.len());
    record.push(VERSION);
    let namespace = timer.namespace.as_bytes();
    record.push(u8::try_from(namespace.len()).expect("limits admit 255 bytes"));
    record.extend_from_slice(namespace);
    let mut record = postcard::to_extend(&fields, record).expect("memory takes all bytes");
    let checksum = checksum(timer.id, &record);
    record.extend_from_slice(&checksum);
    record
}

pub(crate) fn decode(id: TimerId, record: &[u8]) -> Result<Timer, Unreadable> {
    // The version comes before the checksum, because a record of another version may have another kind of checksum.
    let version = *record.first().ok_or(Unreadable::Form)?;
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let (record, stored) = record.split_last_chunk::<CHECKSUM>().ok_or(Unreadable::Checksum)?;
    if checksum(id, record) != *stored {
        return Err(Unreadable::Checksum);
    }
    let (namespace, rest) = split(record).ok_or(Unreadable::Form)?;
    let (fields, rest) = postcard::take_from_bytes::<Fields<'_>>(rest).map_err(|_| Unreadable::Form)?;
    if !rest.is_empty() {
        return Err(Unreadable::Form);
    }
    let text = |text: Cow<'_, str>| text.into_owned().into_boxed_str();
    let others = fields.others.unwrap_or_default();
    Ok(Timer {
        id,
        namespace: namespace.into(),
        key: fields.key.map(text),
        kind: text(fields.kind),
        payload: fields.payload.into_owned(),
        labels: others.labels.into_owned(),
        policy: others.policy.map(Cow::into_owned).unwrap_or_default(),
        series: others.series.map(Cow::into_owned),
        created: before(fields.due, fields.created_before).ok_or(Unreadable::Form)?,
        scheduled: before(fields.due, fields.scheduled_before).ok_or(Unreadable::Form)?,
        due: fields.due,
        deliveries: others.deliveries,
        failures: others.failures,
        last_error: others.last_error.map(text),
        state: others.state.into_owned(),
        trace: others.trace.map(text),
        has_chosen_id: others.has_chosen_id,
        age_from: others.age_from,
    })
}

/// Returns the namespace in a record, even if the other fields are unreadable. `None` if the namespace is unreadable.
pub(crate) fn namespace(record: &[u8]) -> Option<&str> {
    split(record).map(|(namespace, _)| namespace)
}

/// Returns the namespace and the key that a damaged record seems to have, so that a person can find the timer. `None`
/// if the namespace is unreadable.
pub(crate) fn seeming_name(record: &[u8]) -> Option<(&str, Option<String>)> {
    let (namespace, rest) = split(record)?;
    // The key is the first field after the namespace.
    let key = postcard::take_from_bytes::<Option<&str>>(rest).ok().and_then(|(key, _)| key);
    Some((namespace, key.map(str::to_owned)))
}

/// Splits a record into the namespace and the bytes after the namespace.
fn split(record: &[u8]) -> Option<(&str, &[u8])> {
    let (_version, rest) = record.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (namespace, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((core::str::from_utf8(namespace).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use core::time::Duration;

    fn plain() -> Timer {
        let due = UtcMillis::from_millis(1_800_000_000_000);
        Timer {
            id: TimerId::from_u128(1),
            key: Some("0123456789abcdef".into()),
            payload: Payload(vec![7; 64].into()),
            created: UtcMillis::from_millis(1_797_500_000_000),
            scheduled: due,
            due,
            labels: Vec::new(),
            deliveries: 0,
            ..crate::state::tests::timer(State::Pending)
        }
    }

    #[track_caller]
    fn assert_kept(timer: &Timer) {
        assert_eq!(decode(timer.id, &encode(timer)).as_ref(), Ok(timer));
    }

    #[test]
    fn a_plain_timer_has_23_bytes_beside_its_texts_and_its_payload() {
        let timer = plain();
        assert_kept(&timer);
        let Timer { namespace, key, kind, payload, .. } = &timer;
        let texts = namespace.len() + key.as_ref().unwrap().len() + kind.len() + payload.0.len();
        assert_eq!(encode(&timer).len(), texts + 23);
    }

    #[test]
    fn the_bytes_of_a_version_stay_for_timers_of_every_kind() {
        let rows = samples::timers().into_iter().map(|(name, timer)| {
            assert_kept(&timer);
            (name, encode(&timer))
        });
        let advice = "Other bytes are another version of the records, and of each store's layout.";
        samples::assert_fixed("record_v4.txt", rows, advice);
        assert_eq!(VERSION, 4, "the file has the version in its name");
    }

    #[test]
    fn moments_are_kept_in_any_order() {
        let moments = [UtcMillis::ZERO, UtcMillis::from_millis(1), UtcMillis::MAX];
        for due in moments {
            for created in moments {
                for scheduled in moments {
                    assert_kept(&Timer { due, created, scheduled, ..plain() });
                }
            }
        }
    }

    #[test]
    fn each_field_that_is_not_as_by_default_is_kept() {
        assert_kept(&Timer { labels: vec!["a".into(), "b".into()], ..plain() });
        let policy = Policy { timeout: Duration::from_secs(31), ..Policy::default() };
        assert_kept(&Timer { policy, ..plain() });
        assert_kept(&Timer { deliveries: 1, ..plain() });
        assert_kept(&Timer { failures: 1, ..plain() });
        assert_kept(&Timer { last_error: Some("".into()), ..plain() });
        assert_kept(&Timer { state: State::Parked("".into()), ..plain() });
        assert_kept(&Timer { trace: Some("".into()), ..plain() });
        assert_kept(&Timer { has_chosen_id: true, ..plain() });
        assert_kept(&Timer { age_from: Some(UtcMillis::ZERO), ..plain() });
        assert_kept(&Timer { key: None, ..plain() });
    }

    #[test]
    fn a_record_that_is_cut_longer_or_of_another_version_is_unreadable() {
        let timer = Timer { deliveries: 3, ..plain() };
        let record = encode(&timer);
        for len in 0..record.len() {
            assert!(decode(timer.id, &record[..len]).is_err(), "cut to {len} bytes");
        }
        assert_eq!(decode(timer.id, &[&record[..], &[0]].concat()), Err(Unreadable::Checksum));
        for version in (0..=u8::MAX).filter(|version| *version != VERSION) {
            let other = [&[version], &record[1..]].concat();
            assert_eq!(decode(timer.id, &other), Err(Unreadable::Version(version)));
        }
    }

    #[test]
    fn a_flipped_bit_of_a_record_or_of_its_id_makes_it_unreadable() {
        for (_, timer) in samples::timers() {
            let record = encode(&timer);
            for bit in 0..record.len() * 8 {
                let mut flipped = record.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(timer.id, &flipped).is_err(), "bit {bit}");
                // Reading the name of a damaged record may succeed, but must not panic.
                let _name = seeming_name(&flipped);
            }
            for bit in 0..128 {
                let other = TimerId::from_u128(timer.id.as_u128() ^ 1 << bit);
                assert_eq!(decode(other, &record), Err(Unreadable::Checksum), "bit {bit} of the id");
            }
            assert_eq!(seeming_name(&record), Some((&*timer.namespace, timer.key.map(String::from))));
        }
    }

    #[test]
    fn a_moment_out_of_range_makes_a_record_unreadable() {
        let due = UtcMillis::from_millis(5);
        assert_eq!(before(due, 5), Some(UtcMillis::ZERO));
        for distance in [6, i64::MAX, i64::MIN] {
            assert_eq!(before(due, distance), None, "{distance}");
        }
    }
}
