//! The bytes of a stored timer.
//!
//! ```text
//! version (1 byte) | length of the namespace (1 byte) | namespace | the other fields, after postcard
//! ```
//! The id is the record's key and not in the record. The namespace stands in front, so that a record of which the rest
//! cannot be read is still counted where it belongs. A later version reads the earlier ones; records of a version that is
//! not known are set aside with their bytes.

use crate::phase::State;
use crate::plan::Series;
use crate::policy::Policy;
use crate::timer::{Payload, Timer, TimerId};
use crate::utc::UtcMillis;
use core::fmt;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

const VERSION: u8 = 1;

/// The fields after the namespace.
#[derive(Serialize, Deserialize)]
struct Fields<'a> {
    key: Option<Cow<'a, str>>,
    kind: Cow<'a, str>,
    payload: Cow<'a, Payload>,
    labels: Cow<'a, [Box<str>]>,
    /// `None` for the default policy.
    policy: Option<Cow<'a, Policy>>,
    series: Option<Cow<'a, Series>>,
    created: UtcMillis,
    scheduled: UtcMillis,
    due: UtcMillis,
    deliveries: u32,
    failures: u32,
    last_error: Option<Cow<'a, str>>,
    state: Cow<'a, State>,
    trace: Option<Cow<'a, str>>,
    has_chosen_id: bool,
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the record cannot be read")
    }
}

/// The record of a timer.
pub(crate) fn encode(timer: &Timer) -> Vec<u8> {
    let fields = Fields {
        key: timer.key.as_deref().map(Cow::Borrowed),
        kind: Cow::Borrowed(&timer.kind),
        payload: Cow::Borrowed(&timer.payload),
        labels: Cow::Borrowed(&timer.labels),
        policy: (timer.policy != Policy::default()).then_some(Cow::Borrowed(&timer.policy)),
        series: timer.series.as_ref().map(Cow::Borrowed),
        created: timer.created,
        scheduled: timer.scheduled,
        due: timer.due,
        deliveries: timer.deliveries,
        failures: timer.failures,
        last_error: timer.last_error.as_deref().map(Cow::Borrowed),
        state: Cow::Borrowed(&timer.state),
        trace: timer.trace.as_deref().map(Cow::Borrowed),
        has_chosen_id: timer.has_chosen_id,
    };
    let mut record = Vec::with_capacity(96 + timer.payload.0.len());
    record.push(VERSION);
    let namespace = timer.namespace.as_bytes();
    record.push(u8::try_from(namespace.len()).expect("limits admit 255 bytes"));
    record.extend_from_slice(namespace);
    postcard::to_extend(&fields, record).expect("memory takes all bytes")
}

/// The timer of a record.
pub(crate) fn decode(id: TimerId, record: &[u8]) -> Result<Timer, Unreadable> {
    let (namespace, rest) = split(record).ok_or(Unreadable)?;
    if record[0] != VERSION {
        return Err(Unreadable);
    }
    let (fields, rest) = postcard::take_from_bytes::<Fields<'_>>(rest).map_err(|_| Unreadable)?;
    if !rest.is_empty() {
        return Err(Unreadable);
    }
    let text = |text: Cow<'_, str>| text.into_owned().into_boxed_str();
    Ok(Timer {
        id,
        namespace: namespace.into(),
        key: fields.key.map(text),
        kind: text(fields.kind),
        payload: fields.payload.into_owned(),
        labels: fields.labels.into_owned(),
        policy: fields.policy.map(Cow::into_owned).unwrap_or_default(),
        series: fields.series.map(Cow::into_owned),
        created: fields.created,
        scheduled: fields.scheduled,
        due: fields.due,
        deliveries: fields.deliveries,
        failures: fields.failures,
        last_error: fields.last_error.map(text),
        state: fields.state.into_owned(),
        trace: fields.trace.map(text),
        has_chosen_id: fields.has_chosen_id,
    })
}

/// The namespace of a record, which may be unreadable otherwise.
pub(crate) fn namespace(record: &[u8]) -> Option<&str> {
    split(record).map(|(namespace, _)| namespace)
}

/// The namespace and the other fields.
fn split(record: &[u8]) -> Option<(&str, &[u8])> {
    let (_version, rest) = record.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (namespace, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((core::str::from_utf8(namespace).ok()?, rest))
}
