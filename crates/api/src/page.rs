//! Lists, one page at a time.

use serde::{Deserialize, Serialize};

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// The items on this page.
    pub items: Vec<T>,
    /// The cursor of the next page, which the client sends as `cursor` in the request for that page. That request must
    /// have the same path and the same conditions, such as `label`. None on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
