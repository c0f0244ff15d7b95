//! Runs operations on many timers. An operation goes on after the answer to its request, and after a restart.
//!
//! An operation reads a list of timers page by page, and changes the timers of each page. It leaves out timers that
//! were created or have died after the operation's start. So a timer that is created after the answer to the request is
//! kept, even if it has the label.

mod dead_group;
mod records;
mod scan;
mod work;

pub(crate) use dead_group::{DeadGroup, DeadWork};
pub(crate) use records::OperationRecords;
pub(crate) use work::{BackfillWork, Work};

use super::recorder::ChangeRecorder;
use crate::audit::{Audit, End};
use crate::state::{Namespaces, Stop};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use tourbillon_api::{AuditAuthor, Operation, Problem, ProblemKind};
use tourbillon_durable::Timers;
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::timer::TimerId;
use work::Unfinished;

/// The greatest difference between two nodes' estimates of the server's time. The server's answer takes time, so
/// an estimate can lag behind.
const SKEW: Duration = Duration::from_millis(200);

/// Runs operations that change many timers, and reports their progress.
pub(crate) struct Operations {
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) schedules: Schedules,
    pub(super) records: OperationRecords,
    pub(super) audit: Audit,
    pub(super) recorder: ChangeRecorder,
    pub(super) stop: Stop,
}

impl Operations {
    /// Begins an operation that changes many timers of a namespace. The operation begins even if the future is dropped.
    pub(crate) async fn begin(self: &Arc<Self>, namespace: &str, work: Work) -> Result<Operation, Problem> {
        self.namespaces.require(namespace)?;
        let (this, namespace, author) = (Arc::clone(self), namespace.to_owned(), self.audit.author());
        let begun = tokio::spawn(async move {
            let deed = work.deed(&namespace);
            let begun = this.begin_whole(&namespace, work, author.clone()).await;
            // A refusal by a limit changes nothing, so it gets no entry. A client could cause refusals without end,
            // which would fill the trail.
            if begun.as_ref().is_err_and(|problem| problem.kind != ProblemKind::LimitReached) {
                this.audit.write(deed.entry(author, End::from(&begun))).await;
            }
            begun
        })
        .await;
        begun.unwrap_or_else(|error| Err(Problem::new(ProblemKind::Internal, error.to_string())))
    }

    /// Returns the operations of a namespace that are running, or that ended within the last hour. The latest comes
    /// first.
    pub(crate) async fn list(&self, namespace: &str) -> Result<Vec<Operation>, Problem> {
        self.namespaces.require(namespace)?;
        Ok(self.records.list(namespace).await)
    }

    async fn begin_whole(
        self: &Arc<Self>,
        namespace: &str,
        work: Work,
        author: AuditAuthor,
    ) -> Result<Operation, Problem> {
        if self.stop.has_begun() {
            return Err(Problem::new(ProblemKind::Stopping, ""));
        }
        let store = self.timers.timer_store();
        let begun = store.now();
        let unfinished = Unfinished::new(namespace, work, begun, author);
        let id: Box<str> = TimerId::fresh().to_string().into();
        let operation = unfinished.shown(&id);
        self.records.add(&id, &unfinished)?;
        if let Err(error) = self.write_records().await {
            self.records.remove(&id);
            let detail = format!("the operation could not be stored: {error}");
            return Err(Problem::new(ProblemKind::StoreUnavailable, detail).with_retry_after_ms(1_000));
        }
        if self.namespaces.is_shared() {
            // The clock of another node may be a little behind. Without this wait, that node's next timers would count
            // as created before the start.
            tokio::time::sleep(SKEW).await;
        }
        // The moment of the start must be over. Timers that are created after the answer then have a later moment.
        for _ in 0..100 {
            if store.now() > begun {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.record_audit(&id, &unfinished, End::begun()).await;
        self.run(id, unfinished);
        Ok(operation)
    }

    /// Writes an entry about an operation into the audit trail. Does nothing if the operation's author is unknown.
    async fn record_audit(&self, id: &str, unfinished: &Unfinished, end: End) {
        if let Some(author) = unfinished.by.clone() {
            let deed = unfinished.work.deed(&unfinished.namespace).target(id);
            self.audit.write(deed.entry(author, end)).await;
        }
    }

    /// Continues the operations that an earlier process of this service has left unfinished.
    pub(crate) fn resume(self: &Arc<Self>) {
        for (id, unfinished) in self.records.unfinished() {
            self.run(id, unfinished);
        }
    }

    /// Continues the operations of nodes that have stopped or died. After an error, the next call tries again.
    pub(crate) async fn take_over(self: &Arc<Self>) {
        for (id, unfinished) in self.records.take_over().await.unwrap_or_default() {
            self.run(id, unfinished);
        }
    }

    /// Writes all operations into their file, or into the document that nodes share. After a failed write, the next
    /// write contains all operations again.
    async fn write_records(self: &Arc<Self>) -> io::Result<()> {
        let (this, stops) = (Arc::clone(self), self.stop.has_begun());
        let written = tokio::task::spawn_blocking(move || this.records.write(stops)).await;
        written.map_err(io::Error::other).and_then(|written| written)
    }

    /// Returns the operation with this id, even if another node runs it. Returns `None` if the namespace has no such
    /// operation.
    pub(crate) async fn find(&self, namespace: &str, id: &str) -> Option<Operation> {
        self.records.find(namespace, id).await
    }

    /// Returns the number of operations that are running in this process.
    pub(crate) fn running(&self) -> usize {
        self.records.running()
    }

    /// Waits for at most `patience` until no operation runs in this process. Returns whether all operations have ended.
    /// Blocks the calling thread.
    pub(crate) fn await_end(&self, patience: Duration) -> bool {
        self.records.await_end(patience)
    }
}
