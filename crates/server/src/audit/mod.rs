//! Records the changes of the service, with their authors, in the audit trail.
//!
//! A change begins a [`PendingEntry`], and ends it with the outcome of the change. A pending entry that is dropped
//! without an outcome, for example because the client goes away, is written with an unknown outcome. If an entry cannot
//! be written, the change is still made, and the log has the error.

mod change;
mod trail;

pub(crate) use change::{Deed, End};
pub(crate) use trail::{Trail, Wanted};

use crate::asker;
use crate::state::{Tokens, id_of_token};
use crate::task;
use std::io;
use std::path::Path;
use tokio::runtime::Handle;
use tourbillon_api::{AuditAuthor, AuditEntry, AuditVia, Page, Problem, ProblemKind};
use tracing::{error, info};
use trail::{TrailPosition, shorten};

/// An audit entry that is not written yet, because its change is still under way. The entry is written when the change
/// ends.
#[derive(Debug)]
pub(crate) struct PendingEntry {
    trail: Trail,
    /// The description of the change. `None` once the entry is written or given up.
    deed: Option<Deed>,
    by: AuditAuthor,
}

impl PendingEntry {
    /// Adds facts about the change to its description.
    pub(crate) fn add(mut self, more: impl FnOnce(Deed) -> Deed) -> Self {
        self.deed = self.deed.take().map(more);
        self
    }

    /// Writes the entry with the outcome `end`. Returns once the entry survives a power failure.
    pub(crate) async fn end(mut self, end: impl Into<End>) {
        // `write` starts its thread at the first poll. So the entry is written even if this future is dropped from here
        // on.
        if let Some(deed) = self.deed.take() {
            write(self.trail.clone(), deed.entry(self.by.clone(), end.into())).await;
        }
    }

    /// Writes the entry with the outcome `end`. Blocks the calling thread until the entry survives a power failure.
    pub(crate) fn end_blocking(mut self, end: impl Into<End>) {
        if let Some(deed) = self.deed.take() {
            append(&self.trail, deed.entry(self.by.clone(), end.into()));
        }
    }

    /// Drops this value without writing an entry, because the request has changed nothing.
    pub(crate) fn forget(mut self) {
        self.deed = None;
    }
}

impl Drop for PendingEntry {
    fn drop(&mut self) {
        let (Some(deed), Ok(runtime)) = (self.deed.take(), Handle::try_current()) else { return };
        let unknown = End::unknown();
        let (trail, entry) = (self.trail.clone(), deed.entry(self.by.clone(), unknown));
        // A drop cannot wait, and it may happen on a thread of the runtime, which must not block.
        drop(runtime.spawn_blocking(move || append(&trail, entry)));
    }
}

/// Writes an entry into the log and the audit trail, on a thread that may block.
async fn write(trail: Trail, entry: AuditEntry) {
    // `append` logs a failure itself.
    let _written = task::blocking(move || append(&trail, entry)).await;
}

/// Writes an entry into the log and the audit trail. Blocks the calling thread.
fn append(trail: &Trail, mut entry: AuditEntry) {
    // Texts from clients may be longer than a log line should be.
    shorten(&mut entry);
    // The log line comes first, because the trail may be unable to take the entry, as on a full disk.
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

/// Returns the JSON string for a value, without its quotes. Returns an empty text if the JSON for the value is not a
/// string.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// Writes and reads the audit trail of the service. Clones share the trail.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    trail: Trail,
    tokens: Tokens,
}

impl Audit {
    /// Opens the audit trail in the folder `data`. `tokens` has the names of the tokens that authors use.
    pub(crate) fn new(data: &Path, tokens: Tokens) -> Self {
        Self { trail: Trail::of(data), tokens }
    }

    /// Returns the author of changes by the current request.
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

    /// Begins the audit entry of a change by the current request.
    pub(crate) fn begin(&self, deed: Deed) -> PendingEntry {
        PendingEntry { trail: self.trail.clone(), deed: Some(deed), by: self.author() }
    }

    /// Runs `change` for the current request, and writes an audit entry with the outcome.
    pub(crate) async fn note<T>(
        &self,
        deed: Deed,
        change: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let entry = self.begin(deed);
        let answer = change.await;
        entry.end(&answer).await;
        answer
    }

    /// Runs `change`, which changes a timer, for the current request. Writes an audit entry only if the request came
    /// from a page in a browser, because programs change timers too often for the trail.
    pub(crate) async fn note_on_page<T>(
        &self,
        deed: impl FnOnce() -> Deed,
        change: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        match asker::present().is_some_and(|asker| asker.is_page()) {
            true => self.note(deed(), change).await,
            false => change.await,
        }
    }

    /// Writes a finished entry into the log and the audit trail, on a thread that may block.
    pub(crate) async fn write(&self, entry: AuditEntry) {
        write(self.trail.clone(), entry).await;
    }

    /// Returns a page of the audit trail's entries, the newest first, with the cursor of the next page if more entries
    /// may follow.
    ///
    /// Each node has its own trail, with the changes that clients requested from this node.
    pub(crate) async fn entries(
        &self,
        wanted: Wanted,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Page<AuditEntry>, Problem> {
        let no_cursor = || Problem::new(ProblemKind::BadRequest, "the cursor is none of this list");
        let before = cursor.map(|cursor| TrailPosition::parse(cursor).ok_or_else(no_cursor)).transpose()?;
        let trail = self.trail.clone();
        let read = task::blocking(move || trail.newest(&wanted, before, limit as usize)).await;
        let failed = |error: io::Error| {
            Problem::new(ProblemKind::Internal, format!("the audit trail cannot be read: {error}"))
        };
        let (items, next) = read.map_err(failed)?.map_err(failed)?;
        Ok(Page { items, next: next.map(TrailPosition::cursor) })
    }
}
