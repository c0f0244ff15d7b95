//! The audit trail.

use crate::error::Error;
use crate::pages::{Paged, word};
use crate::path::join;
use crate::transport::Transport;
use std::sync::Arc;
use tourbillon_api::{AuditAction, AuditEntry, Moment};

/// The conditions of a list of the audit trail, and its pages, the newest entry first.
#[derive(Clone, Debug)]
pub struct Audit(Paged);

impl Audit {
    pub(crate) fn new(transport: Arc<Transport>) -> Self {
        Self(Paged::new(transport, join(&["v1", "audit"])))
    }

    /// Only changes in this namespace. A token that is for one namespace needs it.
    #[must_use]
    pub fn namespace(self, name: impl Into<String>) -> Self {
        Self(self.0.with("namespace", name))
    }

    /// Only changes by the token with this name or id.
    #[must_use]
    pub fn token(self, name: impl Into<String>) -> Self {
        Self(self.0.with("token", name))
    }

    /// Only changes of this kind.
    #[must_use]
    pub fn action(self, action: AuditAction) -> Self {
        Self(self.0.with("action", word(action)))
    }

    /// Only entries from this moment on.
    #[must_use]
    pub fn since(self, moment: Moment) -> Self {
        Self(self.0.with("since", moment.to_string()))
    }

    /// Only entries before this moment.
    #[must_use]
    pub fn until(self, moment: Moment) -> Self {
        Self(self.0.with("until", moment.to_string()))
    }

    /// Sets the greatest number of entries of a page. 50 by default, at most 200.
    #[must_use]
    pub fn page_size(self, entries: u32) -> Self {
        Self(self.0.with("limit", entries.to_string()))
    }

    /// The next page, or none after the last page.
    ///
    /// # Errors
    ///
    /// See [`Error`]. After an error the same page is asked for again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<AuditEntry>>, Error> {
        self.0.next_page().await
    }
}
