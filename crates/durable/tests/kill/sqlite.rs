//! Kills a process that has its timers in SQLite. The process makes some changes in its own transactions. Each second
//! delivery writes an effect in the transaction of its end.

use crate::PATIENCE;
use crate::child::{self, Job, Subject};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tourbillon_durable::store::TimerStore;
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Delivery, Placed, Spec, Timers, Verdict};
use tourbillon_sqlite::rusqlite::{Connection, TransactionBehavior};
use tourbillon_sqlite::{NotEnded, SqliteStore, Transactional};

struct Sqlite {
    path: PathBuf,
    store: Arc<dyn TimerStore>,
    transactional: Transactional,
}

impl Sqlite {
    fn connect(&self) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }
}

impl Subject for Sqlite {
    const CHILD: &'static str = "sqlite::child_process";

    fn open(folder: &Path) -> Self {
        let path = folder.join("shop.db");
        let store = SqliteStore::open(&path).unwrap();
        let subject = Self { path, transactional: store.transactional(), store: Arc::new(store) };
        subject.connect().execute_batch("CREATE TABLE IF NOT EXISTS effects (job INTEGER)").unwrap();
        subject
    }

    fn store(&self) -> Arc<dyn TimerStore> {
        Arc::clone(&self.store)
    }

    fn schedule(&self, timers: &Timers, spec: Spec<Job>) -> Placed {
        if fastrand::bool() {
            return timers.schedule_blocking(spec).unwrap();
        }
        let mut connection = self.connect();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let placed = self.transactional.schedule(&transaction, spec).unwrap();
        transaction.commit().unwrap();
        if fastrand::bool() {
            self.transactional.wake();
        }
        placed
    }

    fn cancel(&self, timers: &Timers, id: TimerId) -> Cancelled {
        if fastrand::bool() {
            return timers.cancel_blocking(id).unwrap();
        }
        self.transactional.cancel(&self.connect(), id).unwrap()
    }

    fn has_effect(job: u64) -> bool {
        job / child::THREADS % 2 == 1
    }

    fn end(&self, job: u64, delivery: &Delivery) -> Verdict {
        if !Self::has_effect(job) {
            return Verdict::Done;
        }
        let mut connection = self.connect();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        transaction.execute("INSERT INTO effects VALUES (?)", [job.cast_signed()]).unwrap();
        match self.transactional.done(&transaction, delivery.id, delivery.token) {
            Ok(_) => transaction.commit().into(),
            Err(NotEnded::Lost(_)) => transaction.rollback().into(),
            Err(error) => panic!("{error}"),
        }
    }

    fn effects(&self) -> Vec<u64> {
        let connection = self.connect();
        let mut query = connection.prepare("SELECT job FROM effects").unwrap();
        let jobs = query.query_map([], |row| row.get::<_, i64>(0)).unwrap();
        jobs.map(|job| job.unwrap().cast_unsigned()).collect()
    }
}

#[test]
fn child_process() {
    child::run::<Sqlite>();
}

#[test]
fn nothing_is_lost_early_or_doubled_without_a_reason_by_kill_9() {
    let history = crate::check::<Sqlite>();
    assert!(history.effects() > 0, "{history}");
}
