//! A change as the audit trail has it, and its outcome.

use crate::state::now;
use tourbillon_api::{AuditAction, AuditAuthor, AuditEntry, AuditOutcome, Problem};

/// A change that belongs in the trail.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    action: AuditAction,
    namespace: Option<String>,
    target: Option<String>,
    detail: Option<String>,
}

impl Deed {
    pub(crate) const fn new(action: AuditAction) -> Self {
        Self { action, namespace: None, target: None, detail: None }
    }

    pub(crate) fn namespace(self, name: &str) -> Self {
        Self { namespace: Some(name.to_owned()), ..self }
    }

    /// Names the changed thing: the id of a timer or a token, the key of a schedule.
    pub(crate) fn target(self, target: impl Into<String>) -> Self {
        Self { target: Some(target.into()), ..self }
    }

    /// Describes the change. The text must have no secret and no payload.
    pub(crate) fn detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The entry about this change. The reason of a failure takes the place of the detail.
    pub(crate) fn entry(self, by: AuditAuthor, end: End) -> AuditEntry {
        let Self { action, namespace, target, detail } = self;
        let End { outcome, count, reason } = end;
        AuditEntry { at: now(), action, outcome, by, namespace, target, count, detail: reason.or(detail) }
    }
}

/// The outcome of a change.
#[derive(Clone, Debug)]
pub(crate) struct End {
    outcome: AuditOutcome,
    count: Option<u64>,
    reason: Option<String>,
}

impl End {
    const fn of(outcome: AuditOutcome) -> Self {
        Self { outcome, count: None, reason: None }
    }

    /// The change goes on.
    pub(crate) const fn begun() -> Self {
        Self::of(AuditOutcome::Begun)
    }

    /// The change was made.
    pub(crate) const fn done() -> Self {
        Self::of(AuditOutcome::Done)
    }

    /// The change was not made, or not to its end.
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::of(AuditOutcome::Failed) }
    }

    /// It is not known whether the change was made.
    pub(crate) const fn unknown() -> Self {
        Self::of(AuditOutcome::Unknown)
    }

    /// Adds the number of timers that were changed.
    pub(crate) fn count(self, count: u64) -> Self {
        Self { count: Some(count), ..self }
    }
}

impl<T> From<&Result<T, Problem>> for End {
    fn from(answer: &Result<T, Problem>) -> Self {
        match answer {
            Ok(_) => Self::done(),
            Err(problem) if problem.outcome.is_some() => {
                Self { reason: Some(problem.to_string()), ..Self::unknown() }
            }
            Err(problem) => Self::failed(problem.to_string()),
        }
    }
}
