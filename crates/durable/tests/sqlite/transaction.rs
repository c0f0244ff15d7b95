//! Reads and writes timers as rows within a transaction.

use rusqlite::types::Value;
use rusqlite::{Row, Transaction, params, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Death, Lease, Phase, State, Token};
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Address, Payload, Timer, TimerId};

/// The time for which the store remembers the id of an ended timer, in milliseconds. The caller must have chosen the
/// id.
const HOUR: i64 = 3_600_000;

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

pub(crate) fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::caused_by(StoreErrorKind::Corrupt, error)
}

pub(crate) fn limit(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Limit, message)
}

pub(crate) fn millis(moment: UtcMillis) -> i64 {
    moment.as_millis().try_into().unwrap()
}

pub(crate) fn moment(millis: i64) -> UtcMillis {
    UtcMillis::from_millis(millis.try_into().unwrap())
}

pub(crate) fn bytes(id: TimerId) -> Vec<u8> {
    id.as_u128().to_be_bytes().into()
}

fn id_of(bytes: Vec<u8>) -> TimerId {
    TimerId::from_u128(u128::from_be_bytes(bytes.try_into().unwrap()))
}

pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

fn of_json<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "pending",
        Phase::Leased => "leased",
        Phase::Parked => "parked",
        Phase::Dead => "dead",
        Phase::Done | Phase::Withdrawn => "not stored",
    }
}

fn timer_of(row: &Row<'_>) -> rusqlite::Result<Timer> {
    let text = |column: &str| row.get::<_, Option<String>>(column);
    let some = |column: &str| row.get::<_, String>(column);
    let phase = some("phase")?;
    let state = match &*phase {
        "pending" => State::Pending,
        "leased" => State::Leased(Lease {
            token: Token {
                incarnation: row.get::<_, i64>("incarnation")?.cast_unsigned(),
                claim: row.get::<_, i64>("claim")?.cast_unsigned(),
            },
            until: moment(row.get("until")?),
            withdrawn: text("withdrawn")?.map(|text| of_json(&text)),
        }),
        "parked" => State::Parked(some("reason")?.into()),
        _ => State::Dead(Death { reason: of_json(&some("reason")?), at: moment(row.get("died")?) }),
    };
    Ok(Timer {
        id: id_of(row.get("id")?),
        namespace: some("namespace")?.into(),
        key: text("key")?.map(Into::into),
        kind: some("kind")?.into(),
        payload: Payload(row.get::<_, Vec<u8>>("payload")?.into()),
        labels: of_json(&some("labels")?),
        policy: of_json(&some("policy")?),
        series: text("series")?.map(|text| of_json(&text)),
        created: moment(row.get("created")?),
        scheduled: moment(row.get("scheduled")?),
        due: moment(row.get("due")?),
        deliveries: row.get("deliveries")?,
        failures: row.get("failures")?,
        last_error: text("last_error")?.map(Into::into),
        state,
        trace: text("trace")?.map(Into::into),
        has_chosen_id: row.get("has_chosen_id")?,
    })
}

/// A transaction of the store, at a moment of the store's clock.
pub(crate) struct Act<'a> {
    pub(crate) sql: &'a Transaction<'a>,
    pub(crate) now: UtcMillis,
    pub(crate) wakes: Cell<bool>,
}

impl Act<'_> {
    pub(crate) fn timers(&self, rest: &str, with: Vec<Value>) -> Result<Vec<Timer>> {
        let mut query =
            self.sql.prepare_cached(&format!("SELECT timers.* FROM timers {rest}")).map_err(failed)?;
        let rows = query.query_map(params_from_iter(with), timer_of).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    pub(crate) fn run(&self, sql: &str, with: impl rusqlite::Params) -> Result<()> {
        self.sql.prepare_cached(sql).and_then(|mut run| run.execute(with)).map(drop).map_err(failed)
    }

    pub(crate) fn get(&self, at: &Address) -> Result<Option<Timer>> {
        let mut timers = match at {
            Address::Id(id) => self.timers("WHERE id = ?", vec![bytes(*id).into()]),
            Address::Key(at) => self.timers(
                "WHERE namespace = ? AND key = ? AND has_key",
                vec![at.namespace.to_string().into(), at.key.to_string().into()],
            ),
        }?;
        Ok(timers.pop())
    }

    fn remove(&self, id: TimerId) -> Result<()> {
        self.run("DELETE FROM timers WHERE id = ?", [bytes(id)])
    }

    /// Stores a timer in place of the stored timer with the same id.
    pub(crate) fn store(&self, timer: &Timer) -> Result<()> {
        self.remove(timer.id)?;
        let (mut lease, mut reason, mut died, mut has_key) = (None, None, None, timer.key.is_some());
        match &timer.state {
            State::Pending => self.wakes.set(true),
            State::Leased(held) => {
                has_key &= held.withdrawn.is_none();
                lease = Some(*held);
            }
            State::Parked(why) => reason = Some(why.to_string()),
            State::Dead(death) => {
                (reason, died, has_key) = (Some(json(&death.reason)), Some(millis(death.at)), false);
            }
        }
        self.run(
            "INSERT INTO timers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                bytes(timer.id),
                timer.namespace,
                timer.key,
                has_key,
                timer.kind,
                timer.payload.0,
                json(&timer.labels),
                json(&timer.policy),
                timer.series.as_ref().map(json),
                millis(timer.created),
                millis(timer.scheduled),
                millis(timer.due),
                timer.deliveries,
                timer.failures,
                timer.last_error,
                name(timer.state.phase()),
                lease.map(|lease| lease.token.incarnation.cast_signed()),
                lease.map(|lease| lease.token.claim.cast_signed()),
                lease.map(|lease| millis(lease.until)),
                lease.and_then(|lease| lease.withdrawn).map(|withdrawn| json(&withdrawn)),
                reason,
                died,
                timer.trace,
                timer.has_chosen_id,
            ],
        )?;
        for label in &timer.labels {
            let with = params![timer.namespace, label, bytes(timer.id)];
            self.run("INSERT OR IGNORE INTO labels VALUES (?, ?, ?)", with)?;
        }
        Ok(())
    }

    /// Removes a timer that has ended. Remembers the id if the caller chose it.
    pub(crate) fn end(&self, timer: &Timer) -> Result<()> {
        if timer.has_chosen_id {
            let until = millis(self.now) + HOUR;
            self.run("INSERT OR REPLACE INTO remembered VALUES (?, ?)", params![bytes(timer.id), until])?;
        }
        self.remove(timer.id)
    }

    pub(crate) fn is_stored(&self, id: TimerId) -> Result<bool> {
        Ok(self.get(&Address::Id(id))?.is_some())
    }
}
