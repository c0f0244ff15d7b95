//! Lists, a page at a time.

use serde::{Deserialize, Serialize};

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// The cursor of the next page, if there may be one. It holds for the same filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
