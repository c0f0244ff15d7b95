//! Operations: work on many timers, which continues after the answer.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// A request that cancels many timers. It has exactly one of `label` and `key_prefix`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelMany {
    /// Cancels all timers that have this label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255, pattern = r"^[^\u0000]*$"))]
    pub label: Option<String>,
    /// Cancels all timers whose keys begin with this text. A dead timer, and a timer that was cancelled or replaced
    /// during its delivery, has given up its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255, pattern = r"^[^\u0000]*$"))]
    pub key_prefix: Option<String>,
}

/// A request that replays dead timers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReplayMany {
    /// Replays only the dead timers with this label. By default, all dead timers of the namespace are replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 255, pattern = r"^[^\u0000]*$"))]
    pub label: Option<String>,
}

/// An operation: work on many timers. It continues after a restart of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Operation {
    /// The operation's id.
    pub id: String,
    /// The operation's state.
    pub state: OperationState,
    /// The moment at which the operation began.
    pub begun: Moment,
    /// The number of timers that the operation has changed so far. For a backfill, which makes the timers of a schedule
    /// for past moments, the number of timers made so far. If the process of the operation dies, the operation goes on
    /// from its last stored progress, and does not count the changes that the process has made since then. The progress
    /// is stored once a second. The number is then too low, although all timers are changed.
    pub changed: u64,
    /// The number of cancelled timers whose delivery had already begun. `changed` also counts these timers.
    pub in_flight: u64,
    /// The number of dead timers that were not replayed, because other timers have their keys by now. For a backfill,
    /// the number of past moments for which the schedule already had timers, or makes them by its own rule.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused: u64,
    /// The error, if the operation failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The state of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OperationState {
    /// The operation is in progress.
    Running,
    /// The operation is complete.
    Done,
    /// The operation ended with an error. The changes made until then stay.
    Failed,
}
