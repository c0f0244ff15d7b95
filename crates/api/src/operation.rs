//! Work on many timers, which goes on after the answer.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// The timers that the request cancels. It has one of `label` and `key_prefix`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelMany {
    /// All timers that have this label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub label: Option<String>,
    /// All timers whose keys begin with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub key_prefix: Option<String>,
}

/// The dead timers that the request replays: all of the namespace, or those with a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReplayMany {
    /// The label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// Work on many timers. It goes on after a restart of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Operation {
    /// The operation's id.
    pub id: String,
    /// The operation's state.
    pub state: OperationState,
    /// The moment at which it began.
    pub begun: Moment,
    /// The number of timers that were changed so far, or of occurrences that a backfill has made.
    pub changed: u64,
    /// The number of changed timers of which a delivery had begun.
    pub in_flight: u64,
    /// The number of timers that stayed as they were, since other timers have their keys by now. For a backfill, the
    /// number of instants that already had occurrences.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused: u64,
    /// The error of an operation that failed.
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
    /// The work goes on.
    Running,
    /// The work is done.
    Done,
    /// The work has ended with an error. The changes that were made stay.
    Failed,
}
