//! Reads the answers of the SQL functions for callers.

use super::error::{CallError, CallErrorKind};
use serde::Deserialize;
use tourbillon_api::CancelResult;
use tourbillon_durable::state::Phase;
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Changed, Placed, UtcMillis};

/// A timer, as [`Transactional::look`](crate::Transactional::look) returns it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Seen {
    /// The id of the timer.
    pub id: TimerId,
    /// The namespace in which the key and the labels are valid.
    pub namespace: Box<str>,
    /// The key. `None` if the timer has no key.
    pub key: Option<Box<str>>,
    /// The timer's kind.
    pub kind: Box<str>,
    /// The phase of the timer.
    pub phase: Phase,
    /// The timer may be delivered from this moment on.
    pub due: UtcMillis,
    /// The moment for which the timer is scheduled. Retries and snoozes move `due`, but not this moment.
    pub scheduled: UtcMillis,
    /// The moment at which the timer was created.
    pub created: UtcMillis,
    /// The number of deliveries that began.
    pub deliveries: u32,
    /// The number of deliveries that failed.
    pub failures: u32,
    /// The error of the last failed delivery.
    pub last_error: Option<Box<str>>,
    /// The reason why the timer is dead, or parked (not delivered until something happens).
    pub reason: Option<Box<str>>,
    /// The labels.
    pub labels: Vec<Box<str>>,
    /// The end of the lease, if the timer is being delivered.
    pub leased_until: Option<UtcMillis>,
}

type Answer<A> = Option<Result<A, CallError>>;

/// Reads the answer of the function `place`: a row of the type `placed`, as JSON.
pub(super) fn placed(answer: Option<&str>) -> Answer<Placed> {
    #[derive(Deserialize)]
    struct Row {
        outcome: Box<str>,
        id: Option<TimerId>,
        old: Option<TimerId>,
        was: Option<Phase>,
    }

    let row: Row = serde_json::from_str(answer?).ok()?;
    Some(match (&*row.outcome, row.id, row.old, row.was) {
        ("created", Some(id), ..) => Ok(Placed::Created(id)),
        ("repeated", Some(id), ..) => Ok(Placed::Repeated(id)),
        ("kept", Some(id), _, Some(was)) => Ok(Placed::Kept { id, was }),
        ("replaced", Some(new), Some(old), Some(was)) => Ok(Placed::Replaced { new, old, was }),
        ("exists", _, Some(holder), _) => {
            let message = format!("the timer {holder} has the key");
            Err(CallError::new(CallErrorKind::KeyExists(Some(holder)), message))
        }
        ("not-found", ..) => Err(CallError::new(CallErrorKind::NotFound, "no timer has the key")),
        _ => return None,
    })
}

/// Reads the answer of the functions `schedule_callback` and `schedule_queue`: the id of the new timer.
pub(super) fn id(answer: Option<&str>) -> Answer<TimerId> {
    answer?.parse().ok().map(Ok)
}

pub(super) fn cancelled(answer: Option<&str>) -> Answer<CancelResult> {
    Some(Ok(match answer? {
        "cancelled" => CancelResult::Cancelled,
        "in-flight" => CancelResult::InFlight,
        "not-found" => CancelResult::NotFound,
        _ => return None,
    }))
}

pub(super) fn moved(answer: Option<&str>) -> Answer<Changed> {
    Some(Ok(match answer? {
        "moved" => Changed::Changed,
        "leased" => Changed::Refused(Phase::Leased),
        "dead" => Changed::Refused(Phase::Dead),
        "not-found" => Changed::NotFound,
        _ => return None,
    }))
}

pub(super) fn seen(answer: Option<&str>) -> Answer<Option<Seen>> {
    match answer {
        None => Some(Ok(None)),
        Some(row) => serde_json::from_str(row).ok().map(|seen| Ok(Some(seen))),
    }
}

pub(super) fn done(answer: Option<&str>) -> Answer<()> {
    (answer? == "done").then_some(Ok(()))
}
