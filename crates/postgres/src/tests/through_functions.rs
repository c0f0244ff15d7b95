//! Runs the conformance suite through the functions for callers.
//!
//! The stores of these tests pass each single creation, cancel, move and acknowledgement to a function. They pass all
//! other calls to the store behind them. The functions decide by the test clock, because `now_ms` is replaced.

use super::server::maker_of;
use crate::PostgresStore;
use crate::layout::{Id, Stored, millis};
use crate::link::{Failure, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_postgres::types::Type;
use tourbillon::ManualClock;
use tourbillon_conformance::{self as conformance, Life};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, Refusal, Token};
use tourbillon_durable::store::dry_run::admit;
use tourbillon_durable::store::{
    Call, Durability, Hook, Hooked, IfPresent, MemoryStore, Op, Outcome, StoreError, StoreFuture, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};
use tourbillon_fault::Postgres;

/// Passes each single creation, cancel, move and acknowledgement to a function.
struct Functions(Arc<PostgresStore>);

/// The numbers of operations that `store_timer`, `cancel`, `move_to` and `done` have applied.
static APPLIED: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

fn count(function: usize) {
    APPLIED[function].fetch_add(1, Ordering::Relaxed);
}

/// The time to the farthest moment for which the tests call a function. The functions refuse moments that are too far
/// away. The longest year has 366 days.
const FAR: Duration = Duration::from_secs(99 * 366 * 86_400);

/// The namespace, the key and the id by which a function finds a timer.
fn named(at: &Address) -> (Option<&str>, Option<&str>, Option<Id>) {
    match at {
        Address::Id(id) => (None, None, Some(Id(*id))),
        Address::Key(at) => (Some(&at.namespace), Some(&at.key), None),
    }
}

fn phase_of(word: &str) -> Phase {
    match word {
        "leased" => Phase::Leased,
        "parked" => Phase::Parked,
        "dead" => Phase::Dead,
        _ => Phase::Pending,
    }
}

async fn place(session: &mut Session, timer: &Timer, mode: IfPresent, now: i64) -> Result<Outcome, Failure> {
    count(0);
    let stored = Stored::of(timer);
    let (payload, labels) = (&*stored.payload, stored.labels_json());
    let (scheduled, replaces) = (
        millis(timer.scheduled),
        match mode {
            IfPresent::ReplaceOnly(id) => Some(Id(id)),
            _ => None,
        },
    );
    let mode = match mode {
        IfPresent::Reject => "reject",
        IfPresent::Keep => "keep",
        IfPresent::Replace => "replace",
        IfPresent::ReplaceKeepDue => "replace-keep-due",
        IfPresent::ReplaceOnly(_) => "replace-only",
    };
    let sql =
        "SELECT p.outcome, p.id, p.old, p.was FROM tourbillon.store_timer($1, $2, $3, $4, $5, $6, $7, $8,
                   CASE WHEN $9 IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text($9::jsonb)) END,
                   nullif($10::jsonb - 'scheduled', '{}'), $11, $12) p";
    let rows = session
        .query(
            sql,
            &[
                (&stored.id, Type::UUID),
                (&stored.due, Type::INT8),
                (&scheduled, Type::INT8),
                (&now, Type::INT8),
                (&stored.namespace, Type::TEXT),
                (&stored.key, Type::TEXT),
                (&stored.kind, Type::TEXT),
                (&payload, Type::BYTEA),
                (&labels, Type::TEXT),
                (&stored.extra, Type::TEXT),
                (&mode, Type::TEXT),
                (&replaces, Type::UUID),
            ],
        )
        .await?;
    let (row, id) = (&rows[0], timer.id);
    let old = row.get::<_, Option<Id>>(2).map(|old| old.0);
    let was = row.get::<_, Option<&str>>(3).map(phase_of);
    Ok(match (row.get::<_, &str>(0), old, was) {
        ("created", ..) => Outcome::Created(id),
        ("repeated", ..) => Outcome::Repeated(id),
        ("kept", Some(id), Some(was)) => Outcome::Kept { id, was },
        ("replaced", Some(old), Some(was)) => Outcome::Replaced { new: id, old, was },
        ("exists", Some(holder), _) => {
            let created = UtcMillis::from_millis(now.unsigned_abs());
            Outcome::KeyExists { holder, refused: Box::new(Timer { created, ..timer.clone() }) }
        }
        _ => Outcome::NotFound,
    })
}

async fn cancel(
    session: &mut Session,
    at: &Address,
    only: Option<TimerId>,
    found: Option<Timer>,
) -> Result<Outcome, Failure> {
    count(1);
    let (namespace, key, id) = named(at);
    let id = id.or(only.map(Id));
    if let (Address::Id(at), Some(only)) = (at, only)
        && *at != only
    {
        return Ok(Outcome::NotFound);
    }
    let sql = "SELECT tourbillon.cancel($1, coalesce($2, ''), $3)";
    let rows = session.query(sql, &[(&key, Type::TEXT), (&namespace, Type::TEXT), (&id, Type::UUID)]).await?;
    Ok(match (rows[0].get::<_, &str>(0), found) {
        ("cancelled", Some(timer)) => Outcome::Cancelled(Box::new(timer)),
        ("in-flight", Some(timer)) => Outcome::InFlight(timer.id),
        _ => Outcome::NotFound,
    })
}

async fn move_to(
    session: &mut Session,
    at: &Address,
    due: UtcMillis,
    found: Option<Timer>,
) -> Result<Outcome, Failure> {
    count(2);
    let (namespace, key, id) = named(at);
    let due = millis(due);
    let sql = "SELECT tourbillon.move_to($1, timestamptz 'epoch' + $2 * interval '1 ms', NULL, coalesce($3, ''), $4)";
    let rows = session
        .query(sql, &[(&key, Type::TEXT), (&due, Type::INT8), (&namespace, Type::TEXT), (&id, Type::UUID)])
        .await?;
    Ok(match (rows[0].get::<_, &str>(0), found) {
        ("moved", Some(timer)) => Outcome::Changed(timer.id),
        (word @ ("leased" | "dead"), _) => Outcome::Refused(Refusal::State(phase_of(word))),
        _ => Outcome::NotFound,
    })
}

async fn done(session: &mut Session, id: TimerId, token: Token) -> Result<Outcome, Failure> {
    count(3);
    let text = format!("{:016x}{:016x}", token.incarnation, token.claim);
    let sql = "SELECT 1 FROM tourbillon.done($1, $2)";
    match session.query(sql, &[(&Id(id), Type::UUID), (&text, Type::TEXT)]).await {
        Ok(_) => Ok(Outcome::Ended { id, phase: Phase::Done, next: None, skipped: 0 }),
        Err(Failure::Failed(error)) if error.to_string().contains("TB001") => {
            Ok(Outcome::Refused(Refusal::Stale))
        }
        Err(failure) => Err(failure),
    }
}

/// Makes a store that passes operations to the SQL functions. Makes these functions use the test clock.
pub(super) fn through_functions(store: Arc<PostgresStore>) -> Arc<dyn TimerStore> {
    let pool = Arc::clone(&store.deployment.pool);
    let replaced = store.deployment.pool.spawn(async move {
        let mut session = pool.session().await.map_err(Failure::into_error)?;
        let sql = "CREATE OR REPLACE FUNCTION tourbillon.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
                   $$ SELECT current_setting('test.now')::bigint $$";
        session.run(sql).await.map_err(Failure::into_error)
    });
    pollster::block_on(replaced).unwrap();
    let hook = Functions(Arc::clone(&store));
    Arc::new(Hooked::new(store, hook))
}

impl Functions {
    /// Returns whether a function can apply an operation.
    fn takes(&self, op: &Op, found: Option<&Timer>) -> bool {
        let is_near = |due: UtcMillis| due < self.0.now() + FAR;
        match op {
            Op::Place(timer, _) => timer.state == tourbillon_durable::state::State::Pending,
            Op::Cancel(..) => true,
            Op::Move(_, due) => is_near(*due),
            Op::Ack(..) => found.is_none_or(|timer| timer.series.is_none()),
            _ => false,
        }
    }

    async fn apply_one(&self, op: Op) -> Result<Vec<Outcome>, StoreError> {
        let at = match &op {
            Op::Cancel(at, _) | Op::Move(at, _) => Some(at.clone()),
            Op::Ack(id, _) => Some(Address::Id(*id)),
            _ => None,
        };
        let found = match at {
            Some(at) => self.0.get(at).await?,
            None => None,
        };
        if admit(&op).is_err() || !self.takes(&op, found.as_ref()) {
            return self.0.apply(vec![op], Durability::PowerLoss).await;
        }
        let (store, now) = (Arc::clone(&self.0), millis(self.0.now()));
        let applied = self.0.deployment.pool.spawn(async move {
            let result = async {
                let mut session = store.deployment.pool.session().await?;
                session.begin().await?;
                let text = now.to_string();
                session.query("SELECT set_config('test.now', $1, true)", &[(&text, Type::TEXT)]).await?;
                let outcome = match &op {
                    Op::Place(timer, mode) => place(&mut session, timer, *mode, now).await?,
                    Op::Cancel(at, only) => cancel(&mut session, at, *only, found).await?,
                    Op::Move(at, due) => move_to(&mut session, at, *due, found).await?,
                    Op::Ack(id, token) => done(&mut session, *id, *token).await?,
                    _ => Outcome::NotFound,
                };
                if let Outcome::Refused(Refusal::Stale) = outcome {
                    // After the error, the transaction can only be rolled back.
                    session.roll_back().await;
                } else {
                    session.commit().await?;
                }
                Ok(outcome)
            };
            result.await.map_err(Failure::into_error)
        });
        let outcome = applied.await?;
        self.0.deployment.alarm.wake();
        Ok(vec![outcome])
    }
}

impl Hook for Functions {
    type Seen = ();

    fn see(&self, _: Call<'_>) {}

    fn answer<'a, T: Send + 'a>(
        &'a self,
        (): (),
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        pass_on()
    }

    fn apply<'a>(
        &'a self,
        store: &'a dyn TimerStore,
        mut ops: Vec<Op>,
        durability: Durability,
    ) -> StoreFuture<'a, Vec<Outcome>> {
        match (ops.pop(), ops.is_empty()) {
            (Some(op), true) => Box::pin(self.apply_one(op)),
            (last, _) => {
                ops.extend(last);
                store.apply(ops, durability)
            }
        }
    }
}

fn maker(server: &Postgres) -> impl Fn(ManualClock) -> Arc<dyn TimerStore> {
    let make = maker_of(server, "function");
    move |clock| through_functions(make(clock))
}

#[test]
fn the_functions_conform() {
    let Some(server) = Postgres::start(&[]) else { return };
    let cases = conformance::CASES.iter().copied().flatten();
    assert_eq!(conformance::failures(cases, &maker(&server)), [""; 0]);
    let applied = APPLIED.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert!(
        applied.iter().all(|count| *count > 10),
        "too few operations were those of functions: {applied:?}"
    );
}

#[test]
fn the_functions_have_the_outcomes_of_the_store_in_memory() {
    let Some(server) = Postgres::start(&[]) else { return };
    let in_memory = |clock: ManualClock| Arc::new(MemoryStore::new(clock)) as Arc<dyn TimerStore>;
    conformance::differential(&in_memory, &maker(&server), 0..10, &Life::default());
}
