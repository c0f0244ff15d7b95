//! Describes the work of operations on many timers, and its progress.

use super::dead_group::DeadWork;
use crate::audit::Deed;
use crate::service::stored_timers::is_withdrawn;
use serde::{Deserialize, Serialize};
use tourbillon_api::{AuditAction, AuditAuthor, CancelMany, Operation, OperationState, Problem, ReplayMany};
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{Cursor, Filter};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Change, UtcMillis};

/// The greatest length of a label or of the beginning of a key, in bytes. No label and no key is longer.
const LONGEST_TEXT: usize = 255;

/// The work of an operation: the timers that it selects, and their change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    Cancel(CancelMany),
    Replay(ReplayMany),
    Dead(DeadWork),
    Backfill(BackfillWork),
}

/// The range of past instants for which an operation creates the timers of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BackfillWork {
    pub(crate) key: Box<str>,
    /// The id of the schedule. Another schedule under the same key has another id.
    pub(crate) schedule: TimerId,
    /// The number of instants for which the operation may still create timers. The plan of the schedule may have got
    /// more instants since the request was admitted.
    pub(crate) left: usize,
    /// The start of the range. An instant at exactly this moment is in the range.
    pub(crate) from: UtcMillis,
    pub(crate) until: UtcMillis,
}

impl Work {
    /// Returns the filters that select the timers that the operation may change. The operation reads all timers that
    /// match the first filter, page by page, and then the timers that match the next filter.
    pub(super) fn lists(&self, namespace: &str) -> Vec<Filter> {
        let namespace = Some(namespace.into());
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        match self {
            Self::Cancel(CancelMany { label, key_prefix: None }) => {
                vec![Filter { namespace, label: text(label), ..Filter::default() }]
            }
            Self::Cancel(CancelMany { key_prefix, .. }) => {
                // A list by key has no dead timers, so dead timers have a list of their own.
                let living = Filter { namespace, key_prefix: text(key_prefix), ..Filter::default() };
                let dead = Filter { phase: Some(Phase::Dead), ..living.clone() };
                vec![living, dead]
            }
            // A backfill creates timers and changes none, so it never reads this list.
            Self::Backfill(_) => vec![Filter { namespace, ..Filter::default() }],
            Self::Replay(ReplayMany { label }) => {
                vec![Filter { namespace, label: text(label), phase: Some(Phase::Dead), ..Filter::default() }]
            }
            Self::Dead(DeadWork { label, .. }) => {
                let label = label.clone();
                vec![Filter { namespace, label, phase: Some(Phase::Dead), ..Filter::default() }]
            }
        }
    }

    /// Fails if a text of the request has a zero byte, or is longer than any label or key. All nodes write their
    /// operations into one document, so a namespace with long texts would leave no room for the operations of other
    /// namespaces.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let texts = match self {
            Self::Cancel(CancelMany { label, key_prefix }) => {
                [("/label", label.as_deref()), ("/key_prefix", key_prefix.as_deref())]
            }
            Self::Replay(ReplayMany { label }) => [("/label", label.as_deref()), ("", None)],
            Self::Dead(DeadWork { label, .. }) => [("/label", label.as_deref()), ("", None)],
            // The schedule exists, so its key is short.
            Self::Backfill(_) => return Ok(()),
        };
        let is_too_long = |text: Option<&str>| text.is_some_and(|text| text.len() > LONGEST_TEXT);
        if let Some((pointer, _)) = texts.into_iter().find(|(_, text)| is_too_long(*text)) {
            return Err(Problem::field(pointer, format!("at most {LONGEST_TEXT} bytes")));
        }
        let has_zero_byte = |text: Option<&str>| text.is_some_and(|text| text.contains('\0'));
        match texts.into_iter().find(|(_, text)| has_zero_byte(*text)) {
            Some((pointer, _)) => Err(Problem::field(pointer, "the text has a zero byte")),
            None => Ok(()),
        }
    }

    /// Describes the operation for the audit trail.
    pub(super) fn deed(&self, namespace: &str) -> Deed {
        let (action, detail) = match self {
            Self::Cancel(CancelMany { label: Some(label), .. }) => {
                (AuditAction::CancelMany, format!("timers with the label {label:?}"))
            }
            Self::Cancel(CancelMany { key_prefix, .. }) => {
                let prefix = key_prefix.as_deref().unwrap_or_default();
                (AuditAction::CancelMany, format!("timers whose keys begin with {prefix:?}"))
            }
            Self::Replay(ReplayMany { label: Some(label) }) => {
                (AuditAction::ReplayMany, format!("dead timers with the label {label:?}"))
            }
            Self::Replay(ReplayMany { label: None }) => {
                (AuditAction::ReplayMany, "all dead timers".to_owned())
            }
            Self::Dead(DeadWork { label, group, is_drop }) => {
                let action = if *is_drop { AuditAction::CancelMany } else { AuditAction::ReplayMany };
                let of_label = label.as_ref().map(|label| format!(" with the label {label:?}"));
                let of_group = group.as_ref().map(|group| format!(" of {}: {}", group.place, group.error));
                let parts = [of_label, of_group].map(Option::unwrap_or_default).concat();
                (action, format!("dead timers{parts}"))
            }
            Self::Backfill(BackfillWork { key, from, until, .. }) => {
                let detail = format!("the schedule {key:?}, from {from} until {until}");
                (AuditAction::Backfill, detail)
            }
        };
        Deed::new(action).namespace(namespace).detail(detail)
    }

    /// Returns the change that the operation makes to a timer, or `None` if the operation ignores the timer. `begun` is
    /// the moment at which the operation began.
    pub(super) fn change(&self, timer: &Timer, begun: UtcMillis) -> Option<Change> {
        match (self, &timer.state) {
            // A timer that was cancelled or replaced during its delivery would count a second time.
            (Self::Cancel(_), state) if timer.created <= begun && !is_withdrawn(state) => {
                Some(Change::Cancel(timer.id.into()))
            }
            (Self::Replay(_), State::Dead(death)) if death.at <= begun => Some(Change::Replay(timer.id)),
            (Self::Dead(work), State::Dead(death)) if death.at <= begun => work.change(timer),
            _ => None,
        }
    }
}

/// The stored form of an unfinished operation on many timers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Unfinished {
    pub(super) namespace: Box<str>,
    /// The random number of the namespace. A later namespace of the same name has another number.
    pub(super) number: u64,
    pub(super) work: Work,
    pub(super) begun: UtcMillis,
    pub(super) changed: u64,
    pub(super) in_flight: u64,
    pub(super) refused: u64,
    /// The index, in [`Work::lists`], of the filter whose timers the operation reads at present.
    pub(super) list: usize,
    /// The position that the operation has reached among the timers that match the filter at index `list`. `None`
    /// before the first of these timers.
    pub(super) cursor: Option<Cursor>,
    /// The person or program that requested the operation. `None` if an earlier version of the service stored the
    /// operation.
    #[serde(default)]
    pub(super) by: Option<AuditAuthor>,
}

impl Unfinished {
    /// Makes an operation on the namespace `namespace`, which has the number `number`, without any progress.
    pub(super) fn new(namespace: &str, number: u64, work: Work, begun: UtcMillis, by: AuditAuthor) -> Self {
        let (namespace, by) = (namespace.into(), Some(by));
        Self {
            namespace,
            number,
            work,
            begun,
            changed: 0,
            in_flight: 0,
            refused: 0,
            list: 0,
            cursor: None,
            by,
        }
    }

    pub(super) fn shown(&self, id: &str) -> Operation {
        Operation {
            id: id.to_owned(),
            state: OperationState::Running,
            begun: self.begun.into(),
            changed: self.changed,
            in_flight: self.in_flight,
            refused: self.refused,
            error: None,
        }
    }
}
