//! Runs one operation: reads its lists of timers page by page, and changes the timers of each page.

use super::Operations;
use super::work::{BackfillWork, Unfinished, Work};
use crate::audit::End;
use crate::convert::unavailable;
use crate::task;
use core::time::Duration;
use std::sync::Arc;
use tourbillon_durable::schedule::{ScheduleFault, ScheduleKey};
use tourbillon_durable::store::{Durability, Filter, StoreError};
use tourbillon_durable::timer::Timer;
use tourbillon_durable::{Cancelled, Changed, Effect, UtcMillis};

/// The number of timers that one step of an operation reads, if the store makes all changes of a step in one
/// transaction.
const AT_ONCE: u32 = 200;
/// The number of timers that one step of an operation reads, if the store makes each change in a transaction of its
/// own, as Redis does. On Redis, a step that searches for keys with a given prefix sends requests about all shards.
/// Large steps therefore need fewer requests in total.
const AT_ONCE_APART: u32 = 1_000;
/// The number of timers that a backfill of a schedule creates in one step.
const OCCURRENCES_AT_ONCE: usize = 100;
/// The longest time from the start of a backfill to its last step. A repeated step must not create its timers twice.
/// The store prevents this by the ids of the timers, which it stores for an hour after the timers have ended.
const LONGEST_BACKFILL: Duration = Duration::from_secs(3_300);
/// The pause of an operation after the first error of the store. Each further error doubles the pause.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause of an operation after an error of the store.
const LONG_PAUSE: Duration = Duration::from_secs(10);

impl Operations {
    /// Starts a task that runs an operation on many timers.
    pub(super) fn run(self: &Arc<Self>, id: Box<str>, unfinished: Unfinished) {
        let (scan, task) = (BulkScan::new(Arc::clone(self), id, unfinished), self.tasks.begin());
        task::start(async move {
            scan.run().await;
            // The scan is already dropped. So once no task is counted, no task holds the store, and the store may be
            // opened again.
            drop(task);
        });
    }
}

/// The reason why a step of an operation failed.
enum Halt {
    /// The store has failed. Another attempt may succeed if the error is transient.
    Store(StoreError),
    /// No other attempt can succeed, for the reason in this text.
    Final(String),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A running operation that reads and changes many timers.
struct BulkScan {
    operations: Arc<Operations>,
    id: Box<str>,
    unfinished: Unfinished,
}

impl BulkScan {
    fn new(operations: Arc<Operations>, id: Box<str>, unfinished: Unfinished) -> Self {
        Self { operations, id, unfinished }
    }

    /// Runs the operation until it ends, the service stops, or another node takes the operation.
    async fn run(mut self) {
        let lists = self.unfinished.work.lists(&self.unfinished.namespace);
        let operations = Arc::clone(&self.operations);
        let mut pause = SHORT_PAUSE;
        let error = loop {
            if operations.stop.has_begun() {
                // In a shared store, this write names no node for the operation, so that another node can take it over
                // at once.
                drop(operations.write_records().await);
                return;
            }
            let Some(list) = lists.get(self.unfinished.list) else { break None };
            let step = self.step(list).await;
            if !operations.records.has(&self.id) {
                // Another node has taken the operation over.
                return;
            }
            operations.records.update(&self.id, &self.unfinished);
            match step {
                Ok(()) => pause = SHORT_PAUSE,
                Err(Halt::Store(error)) if error.is_transient() => {
                    tokio::select! {
                        () = tokio::time::sleep(pause) => pause = (2 * pause).min(LONG_PAUSE),
                        () = operations.stop.begun() => {}
                    }
                }
                // While the service stops, the store is closed, so every call fails. The next start continues the
                // operation.
                Err(_) if operations.stop.has_begun() => {}
                Err(Halt::Store(error)) => break Some(unavailable(&error).detail),
                Err(Halt::Final(reason)) => break Some(reason),
            }
            if operations.records.is_old() {
                drop(operations.write_records().await);
            }
            tokio::task::yield_now().await;
        };
        let end = error.clone().map_or_else(End::done, End::failed).count(self.unfinished.changed);
        operations.records.end(&self.id, error);
        operations.record_audit(&self.id, &self.unfinished, end).await;
        // If the service stops before the end is stored, the next start runs the operation again. A step that is made
        // again changes nothing, and a backfill that is too old for this fails.
        operations.write_end(&self.id).await;
    }

    /// Runs one step of the operation: changes the next page of the timers that match `list`, or creates timers of a
    /// schedule for past instants.
    async fn step(&mut self, list: &Filter) -> Result<(), Halt> {
        // The operation of a dead node may continue long after its start. It must not change a later namespace of the
        // same name.
        let number = self.unfinished.number;
        self.operations.namespaces.freshen().await;
        if self.operations.namespaces.find(&self.unfinished.namespace).is_none_or(|now| now.number != number)
        {
            return Err(Halt::Final("the namespace of the operation was removed".to_owned()));
        }
        if let Work::Backfill(backfill) = &self.unfinished.work {
            let backfill = backfill.clone();
            return self.backfill(backfill).await;
        }
        let Operations { timers, recorder, .. } = &*self.operations;
        // Both numbers must be at most `Timers::MOST_CHANGES`, because all changes of a step are one batch.
        let at_once = if timers.timer_store().is_transactional() { AT_ONCE } else { AT_ONCE_APART };
        let page = timers.list(list.clone(), self.unfinished.cursor.clone(), at_once).await?;
        let (work, begun) = (&self.unfinished.work, self.unfinished.begun);
        // The clock is read after the page, so this check also covers timers of the page that were created after the
        // clock had stepped back. A corrected estimate of the store's time does not fail the check: when the operation
        // was stored, the lower bound of the time was already after `begun`.
        if timers.timer_store().now() < begun {
            let reason = "the store's clock has stepped back to a moment before the start of the operation";
            return Err(Halt::Final(reason.to_owned()));
        }
        let all = page.timers.iter();
        let (changes, befores): (Vec<_>, Vec<_>) =
            all.filter_map(|timer| Some((work.change(timer, begun)?, timer))).unzip();
        if !changes.is_empty() {
            let at = recorder.now();
            // The stored position of the operation survives a power failure. So the changes before this position must
            // survive it, too.
            let effects = timers.batch(changes, Durability::PowerLoss).await?;
            for (before, effect) in befores.into_iter().zip(effects) {
                self.count(before, at, effect.ok());
            }
        }
        self.unfinished.cursor = page.next;
        if self.unfinished.cursor.is_none() {
            self.unfinished.list += 1;
        }
        Ok(())
    }

    /// Counts and records the effect of the operation on a timer. `before` is the timer before the change. `at` is a
    /// moment before the change. It is recorded as the moment of a replay.
    fn count(&mut self, before: &Timer, at: UtcMillis, effect: Option<Effect>) {
        let (unfinished, recorder) = (&mut self.unfinished, &self.operations.recorder);
        match effect {
            Some(Effect::Cancelled(Cancelled::Cancelled(timer))) => {
                unfinished.changed += 1;
                recorder.remember_cancelled(&timer);
                recorder.cancelled_in_bulk(&unfinished.namespace, before.id, timer.key.as_deref());
            }
            Some(Effect::Cancelled(Cancelled::InFlight)) => {
                unfinished.changed += 1;
                unfinished.in_flight += 1;
                recorder.cancelled_in_bulk(&unfinished.namespace, before.id, None);
            }
            // Among the changes of operations, only a replay has this effect.
            Some(Effect::Changed(Changed::Changed)) => {
                unfinished.changed += 1;
                recorder.replayed(before, at);
            }
            // A newer timer may take the key of a dead timer, and the dead timer then cannot be replayed.
            Some(Effect::Changed(Changed::KeyExists(_))) => unfinished.refused += 1,
            // The timer has ended or changed after the page was read.
            _ => {}
        }
    }

    /// Runs one step of a backfill: creates the next timers of a schedule for a range of past instants.
    async fn backfill(&mut self, work: BackfillWork) -> Result<(), Halt> {
        let at = ScheduleKey::new(self.unfinished.namespace.clone(), work.key.clone());
        let schedules = self.operations.schedules.clone();
        // The limit counts from the start of the backfill, since the moment of a step whose answer was lost is unknown.
        let now = self.operations.timers.timer_store().now();
        if now > self.unfinished.begun + LONGEST_BACKFILL {
            let reason = "the backfill began too long ago: another step could make occurrences twice";
            return Err(Halt::Final(reason.to_owned()));
        }
        let limit = OCCURRENCES_AT_ONCE.min(work.left);
        let step = task::blocking(move || {
            schedules.backfill(&at, work.from, work.until, limit, Some(work.schedule))
        });
        let step = match step.await {
            Ok(Ok(step)) => step,
            Ok(Err(ScheduleFault::Store(error))) => return Err(error.into()),
            // Another attempt does not help if the schedule was removed, or if the call has panicked.
            Ok(Err(fault)) => return Err(Halt::Final(fault.to_string())),
            Err(error) => return Err(Halt::Final(error.to_string())),
        };
        let unfinished = &mut self.unfinished;
        unfinished.changed += step.stored;
        unfinished.refused += step.repeated + step.waiting;
        self.operations.recorder.count_created(&unfinished.namespace, step.stored);
        match (step.next, &mut unfinished.work) {
            (Some(next), Work::Backfill(work)) if work.left > limit => {
                (work.from, work.left) = (next, work.left - limit);
            }
            // The backfill is complete, or has reached its limit. It has a single list, so the next index ends the
            // operation.
            _ => unfinished.list += 1,
        }
        Ok(())
    }
}
