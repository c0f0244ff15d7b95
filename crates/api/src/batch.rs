//! Many changes in one request.

use crate::shape::{absent, needed};
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
#[serde(tag = "op", rename_all = "kebab-case", try_from = "Shape")]
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

/// A change as it is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    op: Op,
    key: Option<String>,
    idempotency_key: Option<String>,
    id: Option<String>,
    timer: Option<Box<NewTimer>>,
    to: Option<Delay>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Op {
    Put,
    Cancel,
    Move,
}

impl TryFrom<Shape> for Change {
    type Error = String;

    fn try_from(shape: Shape) -> Result<Self, String> {
        let Shape { op, key, idempotency_key, id, timer, to } = shape;
        let of_put = [("timer", timer.is_some()), ("idempotency_key", idempotency_key.is_some())];
        let of_move = ("to", to.is_some());
        match op {
            Op::Put => {
                absent("put", &[("id", id.is_some()), of_move])?;
                Ok(Self::Put { key, idempotency_key, timer: needed("timer", timer)? })
            }
            Op::Cancel => {
                absent("cancel", &of_put)?;
                absent("cancel", &[of_move])?;
                Ok(Self::Cancel { key, id })
            }
            Op::Move => {
                absent("move", &of_put)?;
                Ok(Self::Move { key, id, to: needed("to", to)? })
            }
        }
    }
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
