//! Work on many timers, which goes on after the answer to its request and after a restart.
//!
//! An operation walks over a list of timers, a page at a time, and changes each page in one transaction. It leaves the timers
//! alone that were made, or have died, after its start: a timer that is made once the request was answered stays, even if it
//! has the label. The operations that have not ended are in a small file with their places in their lists. The file is
//! written at the start of an operation, at its end, and once a second in between: after a kill the work goes on from an
//! earlier place, where the timers are gone already that were cancelled since, and are not counted.

use super::events::event;
use super::{Service, files};
use crate::convert::unavailable;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::watch;
use tourbillon_api::{
    CancelMany, Event, EventKind, Moment, Operation, OperationState, Problem, ProblemKind, ReplayMany,
};
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{Cursor, Durability, Filter, StoreError};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Cancelled, Change, Changed, Effect, UtcMillis};

/// The greatest number of operations at a time.
const MOST_RUNNING: usize = 16;
/// The greatest number of operations that have ended and are shown.
const MOST_ENDED: usize = 1_000;
/// The time for which an operation is shown after its end.
const SHOWN: Duration = Duration::from_secs(3_600);
/// The number of timers in one transaction.
const AT_ONCE: u32 = 200;
/// The time between two writes of the file, unless an operation starts or ends.
const WRITTEN: Duration = Duration::from_secs(1);

/// What an operation does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    Cancel(CancelMany),
    Replay(ReplayMany),
}

impl Work {
    /// The lists over which the operation walks, one after the other.
    fn lists(&self, namespace: &str) -> Vec<Filter> {
        let namespace = Some(namespace.into());
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        match self {
            Self::Cancel(CancelMany { label, key_prefix: None }) => {
                vec![Filter { namespace, label: text(label), ..Filter::default() }]
            }
            Self::Cancel(CancelMany { key_prefix, .. }) => {
                // Dead timers have left their keys, and are listed apart.
                let living = Filter { namespace, key_prefix: text(key_prefix), ..Filter::default() };
                let dead = Filter { phase: Some(Phase::Dead), ..living.clone() };
                vec![living, dead]
            }
            Self::Replay(ReplayMany { label }) => {
                vec![Filter { namespace, label: text(label), phase: Some(Phase::Dead), ..Filter::default() }]
            }
        }
    }

    /// The change of a timer, none if the operation leaves the timer alone.
    fn change(&self, timer: &Timer, begun: UtcMillis) -> Option<Change> {
        match (self, &timer.state) {
            (Self::Cancel(_), _) if timer.created <= begun => Some(Change::Cancel(timer.id.into())),
            (Self::Replay(_), State::Dead(death)) if death.at <= begun => Some(Change::Replay(timer.id)),
            _ => None,
        }
    }
}

/// An operation that has not ended, as it is in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Unfinished {
    namespace: Box<str>,
    work: Work,
    begun: UtcMillis,
    changed: u64,
    in_flight: u64,
    refused: u64,
    /// The number of the list.
    list: usize,
    /// The place in the list.
    cursor: Option<Cursor>,
}

type File = BTreeMap<Box<str>, Unfinished>;

struct Record {
    operation: Operation,
    namespace: Box<str>,
    unfinished: Option<Unfinished>,
    ended: Option<Instant>,
}

/// The operations of a service.
pub(crate) struct Operations {
    path: PathBuf,
    records: Mutex<BTreeMap<Box<str>, Record>>,
    /// The moment at which the file was last written, held by its writer.
    written: Mutex<Instant>,
    /// The number of tasks.
    tasks: watch::Sender<usize>,
}

impl Operations {
    /// Reads the operations that have not ended.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file: File = files::read(path)?.unwrap_or_default();
        let records = file.into_iter().map(|(id, unfinished)| {
            let operation = unfinished.shown(&id);
            let namespace = unfinished.namespace.clone();
            (id, Record { operation, namespace, unfinished: Some(unfinished), ended: None })
        });
        Ok(Self {
            path: path.to_owned(),
            records: Mutex::new(records.collect()),
            written: Mutex::new(Instant::now()),
            tasks: watch::Sender::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operations that have not ended.
    fn unfinished(&self) -> File {
        let records = self.lock();
        records.iter().filter_map(|(id, record)| Some((id.clone(), record.unfinished.clone()?))).collect()
    }

    pub(super) fn running(&self) -> usize {
        self.lock().values().filter(|record| record.ended.is_none()).count()
    }

    /// Writes the file. Blocks.
    fn write(&self) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        files::replace(&self.path, &self.unfinished())?;
        *written = Instant::now();
        Ok(())
    }

    fn is_old(&self) -> bool {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > WRITTEN
    }

    /// Waits until no task runs, for at most so long. Blocks.
    pub(super) fn await_end(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while *self.tasks.borrow() > 0 {
            if begun.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Forgets operations that have ended long ago.
    fn forget(records: &mut BTreeMap<Box<str>, Record>) {
        records.retain(|_, record| record.ended.is_none_or(|ended| ended.elapsed() < SHOWN));
        let mut ended: Vec<_> =
            records.iter().filter_map(|(id, record)| Some((record.ended?, id.clone()))).collect();
        if let Some(surplus) = ended.len().checked_sub(MOST_ENDED) {
            ended.sort_unstable();
            for (_, id) in ended.into_iter().take(surplus) {
                records.remove(&id);
            }
        }
    }
}

impl Unfinished {
    fn shown(&self, id: &str) -> Operation {
        Operation {
            id: id.to_owned(),
            state: OperationState::Running,
            begun: Moment::from_millis(self.begun.as_millis()),
            changed: self.changed,
            in_flight: self.in_flight,
            refused: self.refused,
            error: None,
        }
    }
}

impl Service {
    /// Begins an operation. It begins even if the future is dropped.
    pub(crate) async fn begin(&self, namespace: &str, work: Work) -> Result<Operation, Problem> {
        self.namespace(namespace)?;
        let (service, namespace) = (self.clone(), namespace.to_owned());
        let begun = tokio::spawn(async move { service.begin_whole(&namespace, work).await }).await;
        begun.unwrap_or_else(|error| Err(Problem::new(ProblemKind::Internal, error.to_string())))
    }

    async fn begin_whole(&self, namespace: &str, work: Work) -> Result<Operation, Problem> {
        if self.stop().has_begun() {
            return Err(Problem::new(ProblemKind::Stopping, ""));
        }
        let store = self.timers().timer_store();
        let begun = store.now();
        let unfinished = Unfinished {
            namespace: namespace.into(),
            work,
            begun,
            changed: 0,
            in_flight: 0,
            refused: 0,
            list: 0,
            cursor: None,
        };
        let id: Box<str> = TimerId::fresh().to_string().into();
        let operation = unfinished.shown(&id);
        {
            let mut records = self.operations().lock();
            Operations::forget(&mut records);
            if records.values().filter(|record| record.ended.is_none()).count() >= MOST_RUNNING {
                let detail = format!("at most {MOST_RUNNING} operations run at a time");
                return Err(Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(1_000));
            }
            let (operation, namespace) = (operation.clone(), namespace.into());
            records.insert(
                id.clone(),
                Record { operation, namespace, unfinished: Some(unfinished.clone()), ended: None },
            );
        }
        if let Err(error) = self.write_operations().await {
            self.operations().lock().remove(&id);
            let detail = format!("the operation could not be stored: {error}");
            return Err(Problem::new(ProblemKind::StoreUnavailable, detail).with_retry_after_ms(1_000));
        }
        // A timer that is made after the answer is made at a later millisecond.
        for _ in 0..100 {
            if store.now() > begun {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.run(id, unfinished);
        Ok(operation)
    }

    /// An operation, if the namespace has one with this id that is not forgotten.
    pub(crate) fn operation(&self, namespace: &str, id: &str) -> Option<Operation> {
        let mut records = self.operations().lock();
        Operations::forget(&mut records);
        let record = records.get(id).filter(|record| *record.namespace == *namespace)?;
        Some(record.operation.clone())
    }

    /// Goes on with the operations that have not ended.
    pub(super) fn resume_operations(&self) {
        for (id, unfinished) in self.operations().unfinished() {
            self.run(id, unfinished);
        }
    }

    async fn write_operations(&self) -> io::Result<()> {
        let service = self.clone();
        let written = tokio::task::spawn_blocking(move || service.operations().write()).await;
        written.map_err(io::Error::other).and_then(|written| written)
    }

    fn run(&self, id: Box<str>, unfinished: Unfinished) {
        struct Counted(Arc<super::Inner>);

        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.operations.tasks.send_modify(|tasks| *tasks -= 1);
            }
        }

        self.operations().tasks.send_modify(|tasks| *tasks += 1);
        let (service, counted) = (self.clone(), Counted(Arc::clone(&self.0)));
        tokio::spawn(async move {
            service.walk(&id, unfinished).await;
            drop(service);
            drop(counted);
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
            self.note(id, &unfinished);
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
        if let Some(record) = self.operations().lock().get_mut(id) {
            record.operation.state =
                if error.is_none() { OperationState::Done } else { OperationState::Failed };
            record.operation.error = error;
            record.unfinished = None;
            record.ended = Some(Instant::now());
        }
        // If the file cannot be written, the next start finds nothing left to do.
        drop(self.write_operations().await);
    }

    /// Shows the progress of an operation.
    fn note(&self, id: &str, unfinished: &Unfinished) {
        if let Some(record) = self.operations().lock().get_mut(id) {
            record.operation = unfinished.shown(id);
            record.unfinished = Some(unfinished.clone());
        }
    }

    /// Changes the timers of one page.
    async fn step(&self, unfinished: &mut Unfinished, list: &Filter) -> Result<(), StoreError> {
        let page = self.timers().list(list.clone(), unfinished.cursor.clone(), AT_ONCE).await?;
        let timers = page.timers.iter();
        let (changes, ids): (Vec<_>, Vec<_>) = timers
            .filter_map(|timer| Some((unfinished.work.change(timer, unfinished.begun)?, timer.id)))
            .unzip();
        if !changes.is_empty() {
            let effects = self.timers().batch(changes, Durability::PowerLoss).await?;
            for (id, effect) in ids.into_iter().zip(effects) {
                match effect {
                    Ok(Effect::Cancelled(Cancelled::Cancelled(timer))) => {
                        unfinished.changed += 1;
                        self.show_cancelled(&unfinished.namespace, id, timer.key.as_deref());
                    }
                    Ok(Effect::Cancelled(Cancelled::InFlight)) => {
                        unfinished.changed += 1;
                        unfinished.in_flight += 1;
                        self.show_cancelled(&unfinished.namespace, id, None);
                    }
                    Ok(Effect::Changed(Changed::Changed)) => unfinished.changed += 1,
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
        self.counters().cancelled.add(1);
        self.events().show(|| Event {
            id: Some(id.to_string()),
            key: key.map(str::to_owned),
            ..event(EventKind::Cancelled, namespace)
        });
    }
}
