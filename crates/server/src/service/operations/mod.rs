//! Runs operations on many timers. An operation continues after the answer to its request, and after a restart.
//!
//! An operation reads a list of timers page by page, and changes the timers of each page. A cancellation ignores timers
//! that were created after its start, and a replay ignores timers that died after its start. So a timer that is created
//! after the answer to the request is not cancelled, even if it matches the request.
//!
//! The moments of timers come from the store's clock, which may step back. New timers would then seem to be older than
//! an operation that still runs. So an operation fails once the store's clock is before the operation's start.
//!
//! On a database server, a node only estimates the server's time. A slow answer makes the estimate too high, and the
//! next quick answer lowers it, although no clock has stepped. So an operation begins only once the lower bound of the
//! time is after its start. From then on, an estimate before the start shows that a clock has stepped back.

mod dead_group;
mod records;
mod scan;
mod work;

pub(crate) use dead_group::{DeadGroup, DeadWork};
pub(crate) use records::OperationRecords;
pub(crate) use work::{BackfillWork, Work};

use super::recorder::ChangeRecorder;
use crate::audit::{Audit, End};
use crate::convert::not_stored;
use crate::state::{Namespaces, Stop};
use crate::task::{self, Tasks};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tourbillon_api::{AuditAuthor, Operation, Problem, ProblemKind};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Timers, UtcMillis};
use work::Unfinished;

/// The greatest difference between the store's clocks on two nodes. Each node estimates the time of the store's server.
/// The estimate is ahead by about the time that the server's answer takes.
const SKEW: Duration = Duration::from_millis(200);

/// The longest time for which an operation waits at its start until the store's clock is surely past the start. To this
/// time, the possible error of the estimate of the store's clock is added.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The time between two attempts to write the end of an operation.
const REPEATED: Duration = Duration::from_secs(1);

fn unread(error: &io::Error) -> Problem {
    let detail = format!("the operations of the other nodes cannot be read: {error}");
    Problem::new(ProblemKind::StoreUnavailable, detail).with_retry_after_ms(1_000)
}

/// Runs operations that change many timers, and reports their progress.
pub(crate) struct Operations {
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) schedules: Schedules,
    pub(super) records: OperationRecords,
    pub(super) audit: Audit,
    pub(super) recorder: ChangeRecorder,
    pub(super) stop: Stop,
    pub(super) tasks: Tasks,
}

impl Operations {
    /// Begins an operation that changes many timers of a namespace. If the future is dropped, the operation still
    /// begins.
    pub(crate) async fn begin(self: &Arc<Self>, namespace: &str, work: Work) -> Result<Operation, Problem> {
        self.namespaces.require(namespace)?;
        work.check()?;
        // The author is read here, because the new task does not have the task-local sender of the request.
        let (this, namespace, author) = (Arc::clone(self), namespace.to_owned(), self.audit.author());
        let begun = tokio::spawn(async move {
            let deed = work.deed(&namespace);
            let begun = this.begin_whole(&namespace, work, author.clone()).await;
            // A refusal by a limit changes nothing, so the trail gets no entry. Otherwise a client could fill the trail
            // with refused requests.
            if begun.as_ref().is_err_and(|problem| problem.kind != ProblemKind::LimitReached) {
                this.audit.write(deed.entry(author, End::from(&begun))).await;
            }
            begun
        })
        .await;
        begun.unwrap_or_else(|error| Err(Problem::new(ProblemKind::Internal, error.to_string())))
    }

    /// Returns the operations of a namespace that are running or ended within the last hour, the latest first.
    pub(crate) async fn list(&self, namespace: &str) -> Result<Vec<Operation>, Problem> {
        let number = self.namespaces.require(namespace)?.number;
        self.records.list((namespace, number)).await.map_err(|error| unread(&error))
    }

    async fn begin_whole(
        self: &Arc<Self>,
        namespace: &str,
        work: Work,
        author: AuditAuthor,
    ) -> Result<Operation, Problem> {
        let begun = self.await_start().await?;
        if self.stop.has_begun() {
            return Err(Problem::new(ProblemKind::Stopping, ""));
        }
        let number = self.namespaces.require(namespace)?.number;
        let unfinished = Unfinished::new(namespace, number, work, begun, author);
        let id: Box<str> = TimerId::fresh().to_string().into();
        let operation = unfinished.shown(&id);
        self.records.add(&id, &unfinished)?;
        if let Err(error) = self.write_records().await {
            let problem = not_stored("the operation could not be stored", &error);
            self.withdraw(&id, &problem.detail);
            return Err(problem);
        }
        if self.namespaces.is_shared() {
            // The clock of another node may lag behind a little. Without this wait, the next timers of that node would
            // count as created before the start.
            tokio::time::sleep(SKEW).await;
        }
        // The audit entry about the start is written before the task starts, so that it precedes the entry about the
        // end.
        self.record_audit(&id, &unfinished, End::begun()).await;
        self.run(id, unfinished);
        Ok(operation)
    }

    /// Returns the moment at which an operation begins. First waits until the store's clock shows a later moment, so
    /// that timers that are created after the answer have a later moment of creation.
    async fn await_start(&self) -> Result<UtcMillis, Problem> {
        let store = self.timers.timer_store();
        let begun = store.now();
        let (waits_since, longest) = (Instant::now(), begun - store.least_now() + LONGEST_WAIT);
        while store.least_now() <= begun {
            if waits_since.elapsed() > longest {
                let detail = "the store's clock has stepped back";
                return Err(Problem::new(ProblemKind::StoreUnavailable, detail).with_retry_after_ms(1_000));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(begun)
    }

    /// Ends an operation whose start could not be written. The store may have the operation even so, and another node
    /// or the next start would then run it. So starts a task that writes the end of the operation.
    fn withdraw(self: &Arc<Self>, id: &str, error: &str) {
        self.records.end(id, Some(error.to_owned()));
        let (this, id, task) = (Arc::clone(self), Box::<str>::from(id), self.tasks.begin());
        task::start(async move {
            this.write_end(&id).await;
            // The task must not use the store once it is no longer counted.
            drop(this);
            drop(task);
        });
    }

    /// Retries to write the end of an operation until the store has it. Once the service stops, tries only once more.
    async fn write_end(self: &Arc<Self>, id: &str) {
        drop(self.write_records().await);
        while self.records.lacks_end(id) && !self.stop.has_begun() {
            tokio::select! {
                () = tokio::time::sleep(REPEATED) => {}
                () = self.stop.begun() => {}
            }
            // Each write has the ends of all operations. So all these tasks together make only one attempt a second.
            if self.stop.has_begun() || self.records.is_old() {
                drop(self.write_records().await);
            }
        }
    }

    /// Writes an entry about an operation into the audit trail, unless the operation's author is unknown.
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

    /// Continues the operations of nodes that have stopped or died. Ignores an error, because the next call tries
    /// again.
    pub(crate) async fn take_over(self: &Arc<Self>) {
        for (id, unfinished) in self.records.take_over().await.unwrap_or_default() {
            self.run(id, unfinished);
        }
    }

    /// Writes all operations of this process into the file `operations.json`, or into the shared document if nodes
    /// share the timers. So the next write makes up for a failed write.
    async fn write_records(self: &Arc<Self>) -> io::Result<()> {
        let (this, stops) = (Arc::clone(self), self.stop.has_begun());
        let written = task::blocking(move || this.records.write(stops)).await;
        written.and_then(|written| written)
    }

    /// Returns the operation with this id, even if another node runs it. Returns `None` if the namespace has no such
    /// operation. Fails if the store does not answer, because `None` could then be wrong.
    pub(crate) async fn find(&self, namespace: &str, id: &str) -> Result<Option<Operation>, Problem> {
        let Some(owner) = self.namespaces.find(namespace) else { return Ok(None) };
        self.records.find((namespace, owner.number), id).await.map_err(|error| unread(&error))
    }

    /// Returns the number of operations that are running in this process.
    pub(crate) fn running(&self) -> usize {
        self.records.running()
    }
}
