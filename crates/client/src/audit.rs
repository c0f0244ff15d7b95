//! Reads a service's audit trail, which records requested changes.

use crate::error::Error;
use crate::pages::{Paged, word};
use crate::path::join;
use crate::transport::Transport;
use std::sync::Arc;
use tourbillon_api::{AuditAction, AuditEntry, Moment};

/// A list of entries of the audit trail, narrowed by conditions. The list is read page by page, the newest entry first.
#[derive(Clone, Debug)]
pub struct Audit(Paged);

impl Audit {
    pub(crate) fn new(transport: Arc<Transport>) -> Self {
        Self(Paged::new(transport, join(&["v1", "audit"])))
    }

    /// Keeps only entries about changes in this namespace. If the client's own token is limited to a single namespace,
    /// this condition is required.
    #[must_use]
    pub fn namespace(self, name: impl Into<String>) -> Self {
        Self(self.0.with("namespace", name))
    }

    /// Keeps only entries about changes that were made with a certain token. `name` is the name or the id of the token.
    #[must_use]
    pub fn token(self, name: impl Into<String>) -> Self {
        Self(self.0.with("token", name))
    }

    /// Keeps only entries about changes of this kind, for example the creation of a token.
    #[must_use]
    pub fn action(self, action: AuditAction) -> Self {
        Self(self.0.with("action", word(action)))
    }

    /// Keeps only entries about changes that were made at this moment or later.
    #[must_use]
    pub fn since(self, moment: Moment) -> Self {
        Self(self.0.with("since", moment.to_string()))
    }

    /// Keeps only entries about changes that were made before this moment.
    #[must_use]
    pub fn until(self, moment: Moment) -> Self {
        Self(self.0.with("until", moment.to_string()))
    }

    /// Sets the greatest number of entries in a page. The default is 50, the maximum 200.
    #[must_use]
    pub fn page_size(self, entries: u32) -> Self {
        Self(self.0.with("limit", entries.to_string()))
    }

    /// Fetches the next page of the list. Returns `None` after the last page.
    ///
    /// # Errors
    ///
    /// See [`Error`]. If a call fails, the next call asks for the same page again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<AuditEntry>>, Error> {
        self.0.next_page().await
    }
}
