//! Many changes in one request.

use crate::{Cancelled, Changed, Delay, NewTimer, Placed, Problem};
use serde::{Deserialize, Serialize};

/// Changes that are made in order, in one transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The changes, at most 1,000.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub changes: Vec<Change>,
}

/// One change of a batch. A change of an existing timer names it by either its key or its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Change {
    /// Makes a timer.
    Put {
        /// The new timer's key. A timer without a key has only an id.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255, pattern = r"^[^\u0000]*$"))]
        key: Option<String>,
        /// The idempotency key, like the header `Idempotency-Key` of a single request.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
        idempotency_key: Option<String>,
        /// The settings of the new timer.
        timer: Box<NewTimer>,
    },
    /// Cancels a timer.
    Cancel {
        /// The key of the timer to cancel.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255, pattern = r"^[^\u0000]*$"))]
        key: Option<String>,
        /// The id of the timer to cancel.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(format = "uuid"))]
        id: Option<String>,
    },
    /// Moves a timer's due moment.
    Move {
        /// The key of the timer whose due moment moves.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255, pattern = r"^[^\u0000]*$"))]
        key: Option<String>,
        /// The id of the timer whose due moment moves.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(format = "uuid"))]
        id: Option<String>,
        /// The new due moment.
        to: Delay,
    },
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchAnswer {
    /// One result for each change of the batch, in the order of the changes.
    pub results: Vec<BatchResult>,
}

/// The result of one change of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BatchResult {
    /// The answer to the creation of a timer. Its `outcome` says whether the new timer was stored, or an earlier timer
    /// stays in its place.
    Placed(Placed),
    /// The answer to the cancellation of a timer. Its `result` says whether the timer was cancelled.
    Cancelled(Cancelled),
    /// The timer's due moment was moved.
    Changed(Changed),
    /// The change was refused. The other changes are not affected.
    Problem(Problem),
}
