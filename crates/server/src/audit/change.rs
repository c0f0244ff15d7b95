//! Describes a change and its outcome for the audit trail.

use crate::clock::now;
use tourbillon_api::{AuditAction, AuditAuthor, AuditEntry, AuditOutcome, Problem};

/// The description of a change in the audit trail: the action, the namespace, the changed object and a detail.
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

    /// Adds the object of the change: the id of a timer or token, or the key of a schedule.
    pub(crate) fn target(self, target: impl Into<String>) -> Self {
        Self { target: Some(target.into()), ..self }
    }

    /// Adds a detail for people to the description. The text must not contain secrets or payloads.
    pub(crate) fn detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// Makes the audit trail's entry about this change by the author `by`. If the change failed, the reason in `end`
    /// replaces the detail.
    pub(crate) fn entry(self, by: AuditAuthor, end: End) -> AuditEntry {
        let Self { action, namespace, target, detail } = self;
        let End { outcome, count, reason } = end;
        AuditEntry { at: now(), action, outcome, by, namespace, target, count, detail: reason.or(detail) }
    }
}

/// The outcome of a change for the audit trail, with the number of changed timers or the reason of a failure.
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

    /// Makes the outcome of a change that is still under way.
    pub(crate) const fn begun() -> Self {
        Self::of(AuditOutcome::Begun)
    }

    /// Makes the outcome of a change that was made.
    pub(crate) const fn done() -> Self {
        Self::of(AuditOutcome::Done)
    }

    /// Makes the outcome of a change that failed for the reason `reason`. A part of the change may have been made.
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::of(AuditOutcome::Failed) }
    }

    /// Makes the outcome of a change that may or may not have been made.
    pub(crate) const fn unknown() -> Self {
        Self::of(AuditOutcome::Unknown)
    }

    /// Adds the number of changed timers.
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
