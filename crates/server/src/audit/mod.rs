//! Records changes of the service, with their authors, in the audit trail.
//!
//! A change begins a [`Note`], and ends the note with its outcome. If a note is dropped without an outcome, its entry
//! says that the outcome is not known. This happens if the client goes away, for example. If an entry cannot be
//! written, the change is still made, and the log has the reason.

mod change;
mod trail;

pub(crate) use change::{Deed, End};
pub(crate) use trail::{Trail, Wanted};

use crate::asker;
use crate::state::{Tokens, id_of_token};
use std::io;
use std::path::Path;
use tokio::runtime::Handle;
use tourbillon_api::{AuditAuthor, AuditEntry, AuditVia, Page, Problem, ProblemKind};
use tracing::{error, info};
use trail::TrailPosition;

/// The audit entry of a change that is under way. It is written when the change ends.
#[derive(Debug)]
pub(crate) struct Note {
    trail: Trail,
    /// The description of the change. `None` once the entry is written or given up.
    deed: Option<Deed>,
    by: AuditAuthor,
}

impl Note {
    /// Adds facts to the description that were not known when the note began.
    pub(crate) fn add(mut self, more: impl FnOnce(Deed) -> Deed) -> Self {
        self.deed = self.deed.take().map(more);
        self
    }

    /// Writes the entry. Returns once the entry survives a loss of power.
    pub(crate) async fn end(mut self, end: impl Into<End>) {
        if let Some(deed) = self.deed.take() {
            write(self.trail.clone(), deed.entry(self.by.clone(), end.into())).await;
        }
    }

    /// Writes the entry as [`end`](Self::end) does, but blocks the calling thread.
    pub(crate) fn end_blocking(mut self, end: impl Into<End>) {
        if let Some(deed) = self.deed.take() {
            append(&self.trail, deed.entry(self.by.clone(), end.into()));
        }
    }

    /// Drops the note without writing an entry, since nothing was changed.
    pub(crate) fn forget(mut self) {
        self.deed = None;
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let (Some(deed), Ok(runtime)) = (self.deed.take(), Handle::try_current()) else { return };
        let unknown = End::unknown();
        let (trail, entry) = (self.trail.clone(), deed.entry(self.by.clone(), unknown));
        drop(runtime.spawn_blocking(move || append(&trail, entry)));
    }
}

/// Writes an entry on a thread that may block.
async fn write(trail: Trail, entry: AuditEntry) {
    // `append` logs a failure itself.
    let _written = tokio::task::spawn_blocking(move || append(&trail, entry)).await;
}

/// Writes an entry into the log and into the audit trail.
fn append(trail: &Trail, entry: AuditEntry) {
    log(&entry);
    if let Err(error) = trail.append(entry) {
        error!(target: "audit", "the audit trail cannot be written: {error}");
    }
}

fn log(entry: &AuditEntry) {
    let AuditEntry { action, outcome, by, namespace, target, count, detail, .. } = entry;
    let (action, outcome, via) = (word(action), word(outcome), word(&by.via));
    info!(
        target: "audit",
        action,
        outcome,
        via,
        token = by.token.as_deref(),
        token_id = by.token_id.as_deref(),
        peer = by.peer.as_deref(),
        request = by.request_id.as_deref(),
        namespace = namespace.as_deref(),
        changed = target.as_deref(),
        count,
        detail = detail.as_deref(),
        "a change was noted"
    );
}

/// Returns the text of a value that is a single word in JSON.
fn word(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// Begins and reads entries of a service's audit trail. Clones share the trail.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    trail: Trail,
    tokens: Tokens,
}

impl Audit {
    /// Opens the audit trail in this data folder. `tokens` gives the names of the authors.
    pub(crate) fn new(data: &Path, tokens: Tokens) -> Self {
        Self { trail: Trail::of(data), tokens }
    }

    /// Returns the author of a change, which is the sender of the current request.
    pub(crate) fn author(&self) -> AuditAuthor {
        let asker = asker::present();
        let token = asker.as_ref().and_then(|asker| asker.token());
        let is_page = asker.as_ref().is_some_and(|asker| asker.is_page());
        AuditAuthor {
            via: if is_page { AuditVia::Page } else { AuditVia::Api },
            token: token.and_then(|token| self.tokens.name(token)),
            token_id: token.map(id_of_token),
            user: None,
            peer: asker.as_ref().and_then(|asker| asker.peer()).map(|peer| peer.to_string()),
            request_id: asker.map(|asker| asker.id().text().to_owned()),
        }
    }

    /// Begins the entry of a change that the current request makes.
    pub(crate) fn begin(&self, deed: Deed) -> Note {
        Note { trail: self.trail.clone(), deed: Some(deed), by: self.author() }
    }

    /// Begins the entry of a change if the current request came from a browser's page. Returns `None` for other
    /// requests, since programs change timers too often for the trail.
    pub(crate) fn begin_on_page(&self, deed: impl FnOnce() -> Deed) -> Option<Note> {
        asker::present().is_some_and(|asker| asker.is_page()).then(|| self.begin(deed()))
    }

    /// Writes a finished entry on a thread that may block.
    pub(crate) async fn write(&self, entry: AuditEntry) {
        write(self.trail.clone(), entry).await;
    }

    /// Returns a page of entries, the newest first. Also returns the cursor of the next page, if there may be more
    /// entries.
    ///
    /// If nodes share a store, the entries are the changes that were requested from this node.
    pub(crate) async fn entries(
        &self,
        wanted: Wanted,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Page<AuditEntry>, Problem> {
        let no_cursor = || Problem::new(ProblemKind::BadRequest, "the cursor is none of this list");
        let before = cursor.map(|cursor| TrailPosition::parse(cursor).ok_or_else(no_cursor)).transpose()?;
        let trail = self.trail.clone();
        let read = tokio::task::spawn_blocking(move || trail.newest(&wanted, before, limit as usize)).await;
        let failed = |error: io::Error| {
            Problem::new(ProblemKind::Internal, format!("the audit trail cannot be read: {error}"))
        };
        let (items, next) = read.map_err(|error| failed(io::Error::other(error)))?.map_err(failed)?;
        Ok(Page { items, next: next.map(TrailPosition::cursor) })
    }
}
