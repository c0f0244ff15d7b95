//! Work on many timers, which goes on after the answer to its request and after a restart.
//!
//! An operation walks over a list of timers, a page at a time, and changes each page in one transaction. It leaves the
//! timers alone that were made, or have died, after its start: a timer that is made once the request was answered
//! stays, even if it has the label.

use super::Service;
use super::audit;
use super::deed::End;
use super::events::event;
use super::operations::{Unfinished, Work};
use crate::convert::unavailable;
use core::time::Duration;
use std::io;
use tourbillon_api::{AuditAuthor, Event, EventKind, Operation, Problem, ProblemKind};
use tourbillon_durable::store::{Durability, Filter, StoreError};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Changed, Effect};

/// The number of timers in one transaction.
const AT_ONCE: u32 = 200;
/// The same on Redis, where no transaction has them all: a page by the beginning of the key asks all sets of keys.
const AT_ONCE_SHARED: u32 = 1_000;
/// The time by which two nodes' estimates of the server's time may differ: they are late by at most the time of an
/// answer.
const SKEW: Duration = Duration::from_millis(200);

impl Service {
    /// Begins an operation. It begins even if the future is dropped.
    pub(crate) async fn begin(&self, namespace: &str, work: Work) -> Result<Operation, Problem> {
        self.namespace(namespace)?;
        let (service, namespace, by) = (self.clone(), namespace.to_owned(), self.author());
        let begun = tokio::spawn(async move {
            let deed = work.deed(&namespace);
            let begun = service.begin_whole(&namespace, work, by.clone()).await;
            // A limit that is reached changes nothing, and may be reached without end.
            if begun.as_ref().is_err_and(|problem| problem.kind != ProblemKind::LimitReached) {
                audit::write(service.trail(), deed.entry(by, End::from(&begun))).await;
            }
            begun
        })
        .await;
        begun.unwrap_or_else(|error| Err(Problem::new(ProblemKind::Internal, error.to_string())))
    }

    /// The operations of a namespace that run, or have ended within the last hour, the last one first.
    pub(crate) async fn list_operations(&self, namespace: &str) -> Result<Vec<Operation>, Problem> {
        self.namespace(namespace)?;
        Ok(self.operations().list(namespace).await)
    }

    async fn begin_whole(&self, namespace: &str, work: Work, by: AuditAuthor) -> Result<Operation, Problem> {
        if self.stop().has_begun() {
            return Err(Problem::new(ProblemKind::Stopping, ""));
        }
        let store = self.timers().timer_store();
        let begun = store.now();
        let unfinished = Unfinished::new(namespace, work, begun, by);
        let id: Box<str> = TimerId::fresh().to_string().into();
        let operation = unfinished.shown(&id);
        self.operations().add(&id, &unfinished)?;
        if let Err(error) = self.write_operations().await {
            self.operations().remove(&id);
            let detail = format!("the operation could not be stored: {error}");
            return Err(Problem::new(ProblemKind::StoreUnavailable, detail).with_retry_after_ms(1_000));
        }
        if self.namespaces().is_shared() {
            // What another node takes for the present moment may be a little earlier.
            tokio::time::sleep(SKEW).await;
        }
        // A timer that is made after the answer is made at a later millisecond.
        for _ in 0..100 {
            if store.now() > begun {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.note_operation(&id, &unfinished, End::begun()).await;
        self.run(id, unfinished);
        Ok(operation)
    }

    /// Writes an entry of the audit trail about an operation, if it is known who has asked for it.
    async fn note_operation(&self, id: &str, unfinished: &Unfinished, end: End) {
        if let Some(by) = unfinished.by.clone() {
            let deed = unfinished.work.deed(&unfinished.namespace).target(id);
            audit::write(self.trail(), deed.entry(by, end)).await;
        }
    }

    /// Goes on with the operations that have not ended.
    pub(super) fn resume_operations(&self) {
        for (id, unfinished) in self.operations().unfinished() {
            self.run(id, unfinished);
        }
    }

    /// Goes on with the operations of nodes that are gone. What fails is tried again by the next call.
    pub(super) async fn take_operations_over(&self) {
        for (id, unfinished) in self.operations().take_over().await.unwrap_or_default() {
            self.run(id, unfinished);
        }
    }

    async fn write_operations(&self) -> io::Result<()> {
        let (service, stops) = (self.clone(), self.stop().has_begun());
        let written = tokio::task::spawn_blocking(move || service.operations().write(stops)).await;
        written.map_err(io::Error::other).and_then(|written| written)
    }

    fn run(&self, id: Box<str>, unfinished: Unfinished) {
        let (service, task) = (self.clone(), self.operations().begin_task());
        tokio::spawn(async move {
            service.walk(&id, unfinished).await;
            // Once no task is counted, no task has the store.
            drop(service);
            drop(task);
        });
    }

    /// Works until the operation ends or the service stops.
    async fn walk(&self, id: &str, mut unfinished: Unfinished) {
        let lists = unfinished.work.lists(&unfinished.namespace);
        let mut pause = Duration::from_millis(50);
        let error = loop {
            if self.stop().has_begun() {
                drop(self.write_operations().await);
                return;
            }
            let Some(list) = lists.get(unfinished.list) else { break None };
            let step = self.step(&mut unfinished, list).await;
            if !self.operations().has(id) {
                // Another node has taken it over.
                return;
            }
            self.operations().note(id, &unfinished);
            match step {
                Ok(()) => pause = Duration::from_millis(50),
                Err(error) if error.is_transient() => {
                    tokio::select! {
                        () = tokio::time::sleep(pause) => pause = (2 * pause).min(Duration::from_secs(10)),
                        () = self.stop().begun() => {}
                    }
                }
                Err(_) if self.stop().has_begun() => {}
                Err(error) => break Some(unavailable(&error).detail),
            }
            if self.operations().is_old() {
                drop(self.write_operations().await);
            }
            tokio::task::yield_now().await;
        };
        let end = error.clone().map_or_else(End::done, End::failed).count(unfinished.changed);
        self.operations().end(id, error);
        self.note_operation(id, &unfinished, end).await;
        // If the file cannot be written, the next start finds nothing left to do.
        drop(self.write_operations().await);
    }

    /// Changes the timers of one page.
    async fn step(&self, unfinished: &mut Unfinished, list: &Filter) -> Result<(), StoreError> {
        if let Work::Backfill(backfill) = &unfinished.work {
            let backfill = backfill.clone();
            return self.backfill_step(unfinished, backfill).await;
        }
        let at_once = if self.namespaces().is_shared() { AT_ONCE_SHARED } else { AT_ONCE };
        let page = self.timers().list(list.clone(), unfinished.cursor.clone(), at_once).await?;
        let all = page.timers.iter();
        let (changes, timers): (Vec<_>, Vec<_>) =
            all.filter_map(|timer| Some((unfinished.work.change(timer, unfinished.begun)?, timer))).unzip();
        if !changes.is_empty() {
            let at = self.flights().now();
            let effects = self.timers().batch(changes, Durability::PowerLoss).await?;
            for (before, effect) in timers.into_iter().zip(effects) {
                let id = before.id;
                match effect {
                    Ok(Effect::Cancelled(Cancelled::Cancelled(timer))) => {
                        unfinished.changed += 1;
                        self.flights().cancelled(&timer);
                        self.show_cancelled(&unfinished.namespace, id, timer.key.as_deref());
                    }
                    Ok(Effect::Cancelled(Cancelled::InFlight)) => {
                        unfinished.changed += 1;
                        unfinished.in_flight += 1;
                        self.show_cancelled(&unfinished.namespace, id, None);
                    }
                    // Of these changes a replay alone answers so.
                    Ok(Effect::Changed(Changed::Changed)) => {
                        unfinished.changed += 1;
                        self.flights().replayed(before, at);
                    }
                    Ok(Effect::Changed(Changed::KeyExists(_))) => unfinished.refused += 1,
                    // The timer has ended or was changed in the meantime.
                    _ => {}
                }
            }
        }
        unfinished.cursor = page.next;
        if unfinished.cursor.is_none() {
            unfinished.list += 1;
        }
        Ok(())
    }

    fn show_cancelled(&self, namespace: &str, id: TimerId, key: Option<&str>) {
        self.count_cancelled(namespace);
        self.events().show(|| Event {
            id: Some(id.to_string()),
            key: key.map(str::to_owned),
            ..event(EventKind::Cancelled, namespace)
        });
    }
}
