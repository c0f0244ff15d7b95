//! Many changes in one request.

use crate::{Cancelled, Changed, Delay, NewTimer, Placed, Problem};
use serde::{Deserialize, Serialize};

/// Changes that are made in order, in one transaction. At most 1,000.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The changes.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub changes: Vec<Change>,
}

/// One change of a batch. A timer is named by its key or by its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Change {
    /// Makes a timer.
    Put {
        /// The key.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(max_length = 255))]
        key: Option<String>,
        /// As the header `Idempotency-Key`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
        idempotency_key: Option<String>,
        /// The timer.
        timer: Box<NewTimer>,
    },
    /// Cancels a timer.
    Cancel {
        /// The key.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(max_length = 255))]
        key: Option<String>,
        /// The id.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(format = "uuid"))]
        id: Option<String>,
    },
    /// Moves a timer's due moment.
    Move {
        /// The key.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(max_length = 255))]
        key: Option<String>,
        /// The id.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(format = "uuid"))]
        id: Option<String>,
        /// The new due moment.
        to: Delay,
    },
}

/// The answer to a batch: a result for each change, in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchAnswer {
    /// The results.
    pub results: Vec<BatchResult>,
}

/// The result of one change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BatchResult {
    /// A timer was made.
    Placed(Placed),
    /// A timer was cancelled, or not.
    Cancelled(Cancelled),
    /// A timer was moved.
    Changed(Changed),
    /// The change was refused. The others are not affected.
    Problem(Problem),
}
