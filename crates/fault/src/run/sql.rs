//! Clients that call the SQL functions, in transactions that stay open for some time.

use super::callbacks::{id_of_text, path, policy};
use super::door::{Door, Wanted};
use super::{moment, wall};
use crate::history::{Answer, Call, Place};
use fastrand::Rng;
use serde_json::json;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, SimpleQueryRow};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::timer::TimerId;

/// How long a client waits for the answer to a statement, which may wait for a lock.
const PATIENCE: Duration = Duration::from_secs(30);

/// The statement that replaces the database's function `fresh_id`. The database calls this function to get an id for a
/// timer that is stored without an id. The history needs to know this id, too. So the new function returns the setting
/// `test.id`, which a client sets before it stores such a timer.
const IDS: &str = "CREATE OR REPLACE FUNCTION tourbillon.fresh_id() RETURNS uuid LANGUAGE sql VOLATILE AS
                   $$ SELECT current_setting('test.id')::uuid $$";

/// A client that has its own connection to the server.
pub(super) struct Sql {
    url: String,
    /// The first part of the URLs of callbacks: the URL of the receiver, the process that gets the callbacks.
    receiver: String,
    /// The longest time for which a transaction stays open.
    longest: Duration,
    runtime: Arc<Runtime>,
    rng: Rng,
    client: Option<Client>,
}

impl Sql {
    pub(super) fn new(
        url: String,
        receiver: String,
        longest: Duration,
        runtime: Arc<Runtime>,
        rng: Rng,
    ) -> Self {
        Self { url, receiver, longest, runtime, rng, client: None }
    }

    /// Prepares the database for all clients of the run: replaces the function that chooses the ids of timers, as
    /// [`IDS`] describes.
    pub(super) fn prepare(&mut self) {
        let _connected = self.connect().expect("a connection to the server");
        let _replaced = self.run(IDS).expect("the schema is there");
    }

    fn connect(&mut self) -> Option<&Client> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            let connecting = tokio_postgres::connect(&self.url, NoTls);
            let (client, connection) = self.runtime.block_on(connecting).ok()?;
            drop(self.runtime.spawn(connection));
            self.client = Some(client);
        }
        self.client.as_ref()
    }

    /// Runs a statement, and returns its row; `None` if the statement returns no row. If the statement fails, closes
    /// the connection.
    fn run(&mut self, sql: &str) -> Result<Option<SimpleQueryRow>, ()> {
        let Some(client) = &self.client else { return Err(()) };
        let asking = async { tokio::time::timeout(PATIENCE, client.simple_query(sql)).await };
        let answer = self.runtime.block_on(asking);
        let messages = match answer {
            Ok(Ok(messages)) => messages,
            Ok(Err(error)) => {
                let code = error.code().map_or("", |code| code.code());
                assert!(
                    !code.starts_with("22") && !code.starts_with("42"),
                    "a statement of the run: {error:?}"
                );
                self.client = None;
                return Err(());
            }
            Err(_) => {
                self.client = None;
                return Err(());
            }
        };
        Ok(messages.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        }))
    }

    fn statement(&self, wanted: &Wanted) -> String {
        let uuid = |id| TimerId::from_u128(id).to_string();
        match &wanted.call {
            Call::Cancel(id) => format!("SELECT tourbillon.cancel(id => '{}')", uuid(*id)),
            Call::Move(id, due) => {
                format!("SELECT tourbillon.move_to(id => '{}', due => {})", uuid(*id), moment_of(*due))
            }
            Call::Place(place) => self.place(place, wanted),
        }
    }

    fn place(&self, place: &Place, wanted: &Wanted) -> String {
        let url = format!("{}{}", self.receiver, path(place.id, wanted.fails));
        let due = moment_of(place.due);
        let id = match fresh_id_of(wanted) {
            Some(_) => "NULL".to_owned(),
            None => format!("'{}'", TimerId::from_u128(place.id)),
        };
        let mut policy = policy(wanted.attempts, place.is_once);
        let Some(key) = &place.key else {
            return format!(
                "SELECT tourbillon.schedule_callback('{url}', due => {due}, id => {id}, policy => '{policy}')"
            );
        };
        // The function behind `schedule_callback` returns the timer that it has replaced.
        policy["timeout_ms"] = json!(30_000);
        let mode = if place.replaces { "replace" } else { "reject" };
        format!(
            "SELECT p.outcome, p.old, p.was FROM tourbillon.place_given('callback',
                 '\\x010000'::bytea || tourbillon.sized('{url}'::text) || tourbillon.sized('POST'::text)
                     || tourbillon.varint(0) || tourbillon.varint(0) || tourbillon.varint(15000),
                 {due}, NULL, '{key}', 'default', NULL, '{policy}', '{mode}', NULL, {id}, NULL) p"
        )
    }

    /// Runs the statements of a transaction, with pauses, and ends the transaction. Returns `None` if the transaction
    /// failed before its end, so that it had no effect.
    fn transact(&mut self, wanted: &[Wanted]) -> Option<Vec<Answer>> {
        self.connect()?;
        let pause = self.longest.mul_f64(self.rng.f64()) / u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        let rolls_back = self.rng.u8(..) < 25 && !wanted.iter().any(|wanted| wanted.is_again);
        self.run("BEGIN").ok()?;
        let mut answers = Vec::new();
        for wanted in wanted {
            if let Some(id) = fresh_id_of(wanted) {
                self.run(&format!("SET LOCAL test.id = '{id}'")).ok()?;
            }
            let row = self.run(&self.statement(wanted)).ok()??;
            answers.push(answer_of(&row, wanted));
            thread::sleep(pause);
        }
        if rolls_back {
            // Without a commit, the transaction has no effect, whatever the answer to this statement is.
            let _ended = self.run("ROLLBACK");
            answers.fill(Answer::RolledBack);
        } else if self.run("COMMIT").is_err() {
            answers.fill(Answer::Unknown);
        }
        Some(answers)
    }
}

/// Returns the id that the database's function `fresh_id` must return for the operation `wanted` (see [`IDS`]). Returns
/// `None` if the client passes the id in its statement, or if the operation creates no timer. The client passes the ids
/// of half of the timers, and the ids of all timers that it sends again.
fn fresh_id_of(wanted: &Wanted) -> Option<TimerId> {
    match &wanted.call {
        Call::Place(place) if !wanted.is_again && place.id.is_multiple_of(2) => {
            Some(TimerId::from_u128(place.id))
        }
        _ => None,
    }
}

/// Returns an SQL expression for a moment.
fn moment_of(millis: u64) -> String {
    format!("'{}'::timestamptz", UtcMillis::from_millis(millis))
}

/// Converts the row of a statement to the answer that the history records.
fn answer_of(row: &SimpleQueryRow, wanted: &Wanted) -> Answer {
    let id = |column| row.get(column).and_then(id_of_text).unwrap_or_default();
    match &wanted.call {
        // The answer does not say whether an earlier call has created the timer.
        Call::Place(place) if place.key.is_none() => {
            if wanted.is_again {
                Answer::Repeated
            } else {
                Answer::Created
            }
        }
        _ => match row.get(0) {
            Some("created") => Answer::Created,
            Some("repeated") => Answer::Repeated,
            Some("replaced") => Answer::Replaced(id(1), row.get(2) == Some("leased")),
            Some("exists") => Answer::KeyExists(id(1)),
            Some("cancelled") => Answer::Cancelled,
            Some("in-flight") => Answer::InFlight,
            Some("moved") => Answer::Moved,
            Some("leased" | "dead") => Answer::Leased,
            Some("not-found") => Answer::NotFound,
            other => panic!("an unknown answer: {other:?}"),
        },
    }
}

impl Door for Sql {
    /// Returns the machine's time of day. The PostgreSQL server of the run uses the same clock.
    fn now(&mut self) -> UtcMillis {
        UtcMillis::from_millis((wall() + moment()) / 1_000)
    }

    fn may_repeat(&self, wanted: &Wanted) -> bool {
        fresh_id_of(wanted).is_none()
    }

    fn send(&mut self, wanted: &[Wanted]) -> Vec<Answer> {
        self.transact(wanted).unwrap_or_else(|| {
            thread::sleep(Duration::from_millis(100));
            vec![Answer::Failed; wanted.len()]
        })
    }
}
