//! Defines the store in SQLite. Each timer has a row. SQL keeps the indexes, and triggers keep the counts.

use crate::transaction::{Act, Result, failed, millis};
use rusqlite::{Connection, Transaction};
use std::cell::Cell;
use std::future::ready;
use std::sync::{Arc, Mutex};
use tourbillon::{Clock, ManualClock};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Answer, Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit, Op,
    Outcome, Page, Reaped, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};

const SCHEMA: &str = "
    CREATE TABLE timers (
        id BLOB PRIMARY KEY, namespace TEXT NOT NULL, key TEXT, has_key INTEGER NOT NULL, kind TEXT NOT NULL,
        payload BLOB NOT NULL, labels TEXT NOT NULL, policy TEXT NOT NULL, series TEXT, created INTEGER NOT NULL,
        scheduled INTEGER NOT NULL, due INTEGER NOT NULL, deliveries INTEGER NOT NULL, failures INTEGER NOT NULL,
        last_error TEXT, phase TEXT NOT NULL, incarnation INTEGER, claim INTEGER, until INTEGER, withdrawn TEXT,
        reason TEXT, died INTEGER, trace TEXT, has_chosen_id INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX keys ON timers (namespace, key) WHERE has_key;
    CREATE INDEX pending ON timers (due, id) WHERE phase = 'pending';
    CREATE INDEX leased ON timers (until, id) WHERE phase = 'leased';
    CREATE INDEX parked ON timers (reason, due, id) WHERE phase = 'parked';
    CREATE INDEX dead ON timers (died, id) WHERE phase = 'dead';
    CREATE TABLE labels (namespace TEXT, label TEXT, id BLOB, PRIMARY KEY (namespace, label, id)) WITHOUT ROWID;
    CREATE TABLE remembered (id BLOB PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE counts (namespace TEXT, phase TEXT, count INTEGER NOT NULL, PRIMARY KEY (namespace, phase));
    CREATE TRIGGER comes AFTER INSERT ON timers BEGIN
        INSERT INTO counts VALUES (new.namespace, new.phase, 1) ON CONFLICT DO UPDATE SET count = count + 1;
    END;
    CREATE TRIGGER goes AFTER DELETE ON timers BEGIN
        UPDATE counts SET count = count - 1 WHERE namespace = old.namespace AND phase = old.phase;
        DELETE FROM counts WHERE count = 0;
        DELETE FROM labels WHERE id = old.id;
    END;
";

type Wake = Box<dyn Fn() + Send + Sync>;

pub(crate) struct SqliteStore {
    database: Mutex<Connection>,
    clock: ManualClock,
    wakes: Arc<Mutex<Vec<Wake>>>,
}

impl SqliteStore {
    pub(crate) fn new(clock: ManualClock) -> rusqlite::Result<Self> {
        let database = Connection::open_in_memory()?;
        database.execute_batch(SCHEMA)?;
        let wakes: Arc<Mutex<Vec<Wake>>> = Arc::default();
        let on_step = Arc::clone(&wakes);
        clock.subscribe(Box::new(move || {
            on_step.lock().unwrap().iter().for_each(|wake| wake());
            true
        }));
        Ok(Self { database: Mutex::new(database), clock, wakes })
    }

    fn act<'a, T: Send + 'a>(&self, act: impl FnOnce(&Act<'_>) -> Result<T>) -> Answer<'a, T> {
        let mut database = self.database.lock().unwrap();
        let run = |sql: Transaction<'_>| {
            let transaction = Act { sql: &sql, now: self.now(), wakes: Cell::new(false) };
            let result = act(&transaction);
            let wakes = transaction.wakes.get();
            match result {
                Ok(answer) => sql.commit().map_err(failed).map(|()| (answer, wakes)),
                Err(error) => sql.rollback().map_err(failed).and(Err(error)),
            }
        };
        let result = database.transaction().map_err(failed).and_then(run);
        drop(database);
        if matches!(result, Ok((_, true))) {
            self.wakes.lock().unwrap().iter().for_each(|wake| wake());
        }
        Box::pin(ready(result.map(|(answer, _)| answer)))
    }
}

impl TimerStore for SqliteStore {
    fn now(&self) -> UtcMillis {
        UtcMillis::from_nanos(self.clock.now().as_nanos())
    }

    fn apply(&self, ops: Vec<Op>, _: Durability) -> Answer<'_, Vec<Outcome>> {
        self.act(|act| ops.into_iter().map(|op| act.apply(op)).collect())
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed> {
        self.act(|act| act.claim(by, claim, limit))
    }

    fn recover(&self, by: Claimant, claim: u64) -> Answer<'_, Vec<Leased>> {
        self.act(|act| {
            let timers = act.timers(
                "WHERE phase = 'leased' AND incarnation = ? AND claim = ? ORDER BY until, id",
                vec![by.incarnation.cast_signed().into(), claim.cast_signed().into()],
            )?;
            let token = Token { incarnation: by.incarnation, claim };
            Ok(timers.into_iter().map(|timer| Leased { timer, token }).collect())
        })
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Answer<'_, Vec<TimerId>> {
        self.act(|act| act.renew(by, leases))
    }

    fn reap(&self, limit: u32) -> Answer<'_, Reaped> {
        self.act(|act| act.reap(limit))
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Answer<'_, Vec<(UtcMillis, TimerId)>> {
        self.act(|act| {
            let timers = act.timers(
                "WHERE phase = 'pending' AND due >= ? AND due < ? ORDER BY due, id LIMIT ?",
                vec![millis(from).into(), millis(until).into(), i64::from(limit).into()],
            )?;
            Ok(timers.into_iter().map(|timer| (timer.due, timer.id)).collect())
        })
    }

    fn get(&self, at: Address) -> Answer<'_, Option<Timer>> {
        self.act(|act| act.get(&at))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page> {
        self.act(|act| act.list(&filter, cursor.as_ref(), limit))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.act(|act| act.counts("SELECT namespace, phase, count FROM counts"))
    }

    fn horizon(&self) -> Answer<'_, Horizon> {
        self.act(|act| {
            let mut horizon = Horizon::empty(act.now);
            for timer in act.timers("WHERE phase = 'pending'", vec![])? {
                horizon.add(timer.due, 1);
            }
            Ok(horizon)
        })
    }

    /// Compares the stored counts of timers with a new count. A difference is an error, because only the library can
    /// make a `Fault`.
    fn check(&self) -> Answer<'_, Vec<Fault>> {
        self.act(|act| {
            let counts = act.counts("SELECT namespace, phase, count FROM counts")?;
            let recount =
                act.counts("SELECT namespace, phase, count(*) FROM timers GROUP BY namespace, phase")?;
            if counts == recount {
                return Ok(Vec::new());
            }
            let message = format!("{counts:?} counted as {recount:?}");
            Err(StoreError::new(StoreErrorKind::Corrupt, message))
        })
    }

    fn export<'a>(&'a self, mut each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()> {
        self.act(|act| {
            let timers = act.timers("ORDER BY id", vec![])?;
            let _all = timers.iter().all(&mut each);
            Ok(())
        })
    }

    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()> {
        self.act(|act| act.import(timers))
    }

    fn subscribe(&self, wake: Wake) {
        self.wakes.lock().unwrap().push(wake);
    }
}
