//! The audit trail.

use crate::error::Error;
use crate::path::{join, query};
use crate::transport::{Call, Transport};
use core::fmt;
use std::sync::Arc;
use tourbillon_api::{AuditAction, AuditEntry, Moment, Page};

/// The conditions of a list of the audit trail, and its pages: who has changed what, the newest first.
#[derive(Clone)]
pub struct Audit {
    transport: Arc<Transport>,
    namespace: Option<String>,
    token: Option<String>,
    action: Option<AuditAction>,
    since: Option<Moment>,
    until: Option<Moment>,
    page_size: Option<u32>,
    cursor: Option<String>,
    is_done: bool,
}

impl Audit {
    pub(crate) fn new(transport: Arc<Transport>) -> Self {
        Self {
            transport,
            namespace: None,
            token: None,
            action: None,
            since: None,
            until: None,
            page_size: None,
            cursor: None,
            is_done: false,
        }
    }

    /// Only changes in this namespace. A token that is for one namespace needs it.
    #[must_use]
    pub fn namespace(self, name: impl Into<String>) -> Self {
        Self { namespace: Some(name.into()), ..self }
    }

    /// Only changes by the token with this name or id.
    #[must_use]
    pub fn token(self, name: impl Into<String>) -> Self {
        Self { token: Some(name.into()), ..self }
    }

    /// Only changes of this kind.
    #[must_use]
    pub fn action(self, action: AuditAction) -> Self {
        Self { action: Some(action), ..self }
    }

    /// Only entries from this moment on.
    #[must_use]
    pub fn since(self, moment: Moment) -> Self {
        Self { since: Some(moment), ..self }
    }

    /// Only entries before this moment.
    #[must_use]
    pub fn until(self, moment: Moment) -> Self {
        Self { until: Some(moment), ..self }
    }

    /// Sets the greatest number of entries of a page. 50 by default, at most 200.
    #[must_use]
    pub fn page_size(self, entries: u32) -> Self {
        Self { page_size: Some(entries), ..self }
    }

    /// The next page, or none after the last one.
    ///
    /// # Errors
    ///
    /// See [`Error`]. After an error the same page is asked for again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<AuditEntry>>, Error> {
        if self.is_done {
            return Ok(None);
        }
        let action = self.action.and_then(|action| serde_json::to_value(action).ok());
        let text = |moment: Option<Moment>| moment.map(|moment| moment.to_string());
        let (since, until) = (text(self.since), text(self.until));
        let page_size = self.page_size.map(|size| size.to_string());
        let query = query(&[
            ("namespace", self.namespace.as_deref()),
            ("token", self.token.as_deref()),
            ("action", action.as_ref().and_then(|action| action.as_str())),
            ("since", since.as_deref()),
            ("until", until.as_deref()),
            ("limit", page_size.as_deref()),
            ("cursor", self.cursor.as_deref()),
        ]);
        let path = join(&["v1", "audit"]) + &query;
        let Page { items, next } = self.transport.send(&Call::read(path)).await?;
        self.is_done = next.is_none();
        self.cursor = next;
        Ok(Some(items))
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
