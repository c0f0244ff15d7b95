//! Waits until changes are as durable as the policy requires, on a connection of its own.
//!
//! `WAIT` covers all changes that the server had made when the previous command on the same connection ended. Commands
//! behind a `WAIT` are delayed by it. So each connection for scripts has a second connection to the same server, which
//! sends only `PING` and `WAIT`. No script then waits for a replica.
//!
//! One attempt to connect makes both connections, and a script's answer comes with the [`Witness`] of this attempt. So
//! a witness confirms only changes of the server on which the script ran. After a failover, the `WAIT` of the new
//! primary would succeed even if the new primary never had the changes. A server that has become a replica refuses
//! `WAIT`, and a restart of the server closes the connection.
//!
//! A *round* is one `WAIT` for all callers that ask at the same time. A round covers the scripts that ran before the
//! round began, so a caller that comes during a round waits for the next round.

use super::error::{LinkError, no_reply};
use super::settings::SyncPolicy;
use core::fmt;
use core::time::Duration;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisResult, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The time after a failed round for which the next round is expected to fail, too. A round is one `WAIT` for all
/// callers that wait at the same time.
const MEMORY: Duration = Duration::from_secs(5);

/// A function that is called when a connection has ended.
pub(crate) type OnEnd = Arc<dyn Fn() + Send + Sync>;

/// Confirms that the changes of one server are as durable as a [`SyncPolicy`] requires.
pub(crate) struct Witness {
    connection: MultiplexedConnection,
    policy: SyncPolicy,
    /// The longest time for a reply of the server. This includes the time that the server waits until its replicas or
    /// the append-only files have a change.
    limit: Duration,
    on_end: OnEnd,
    runtime: Handle,
    rounds: Mutex<Rounds>,
}

#[derive(Default)]
struct Rounds {
    /// The callers for which the next round will send one `WAIT`.
    waiting: Vec<oneshot::Sender<Result<(), Box<str>>>>,
    is_running: bool,
    /// The moment at which the last round ended if that round failed, and `None` otherwise. A round is one `WAIT` for
    /// several callers.
    failed: Option<Instant>,
}

impl Witness {
    /// Creates the witness of the server to which `connection` leads. Only the witness may use this connection. The
    /// witness calls `on_end` if the server does not answer. Must be called within a tokio runtime.
    pub(crate) fn new(
        connection: MultiplexedConnection,
        policy: SyncPolicy,
        response_timeout: Duration,
        on_end: OnEnd,
    ) -> Self {
        let limit = response_timeout.saturating_add(policy.timeout());
        Self { connection, policy, limit, on_end, runtime: Handle::current(), rounds: Mutex::default() }
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all changes that the server has made are as durable as the [`SyncPolicy`] of this witness requires.
    /// The future can be polled without a runtime.
    ///
    /// # Errors
    ///
    /// Fails if the changes do not become durable in time, or if the server does not answer.
    pub(crate) async fn confirm(self: &Arc<Self>) -> Result<(), LinkError> {
        let (answer, confirmed) = oneshot::channel();
        let is_first = {
            // Both changes are made under one lock. So either the running task finds this caller in `waiting`, or this
            // caller starts a task.
            let mut rounds = self.rounds();
            rounds.waiting.push(answer);
            !core::mem::replace(&mut rounds.is_running, true)
        };
        if is_first {
            // A task makes the rounds. If a caller made them, the other callers would wait for ever when that caller's
            // future is dropped.
            let this = Arc::clone(self);
            drop(self.runtime.spawn(async move { this.go_round().await }));
        }
        // The sender is dropped without an answer if the runtime ends during the round.
        let confirmed = confirmed.await.unwrap_or_else(|_| Err("the connection is closed".into()));
        confirmed.map_err(|why| LinkError::not_safe(&why))
    }

    /// Returns whether the last round failed, at most [`MEMORY`] ago. A round is one `WAIT` for several callers.
    pub(crate) fn has_just_failed(&self) -> bool {
        self.rounds().failed.is_some_and(|failed| failed.elapsed() < MEMORY)
    }

    /// Makes one round after another until no caller waits. A round is one `WAIT` for all callers that wait when it
    /// begins.
    async fn go_round(&self) {
        loop {
            let waiting = {
                let mut rounds = self.rounds();
                // The flag is cleared under the lock under which `waiting` was found empty, so the next caller starts a
                // task.
                rounds.is_running = !rounds.waiting.is_empty();
                core::mem::take(&mut rounds.waiting)
            };
            if waiting.is_empty() {
                return;
            }
            let answer = self.ask().await;
            self.rounds().failed = answer.as_ref().err().map(|_| Instant::now());
            // Some callers may be gone.
            waiting.into_iter().for_each(|one| drop(one.send(answer.clone())));
        }
    }

    /// Makes one round: waits until the server's present changes are as durable as the policy requires.
    async fn ask(&self) -> Result<(), Box<str>> {
        // `WAIT` covers the changes that the server had made when the command before it ended. So a `PING` goes first.
        let mut commands = redis::pipe();
        commands.cmd("PING");
        commands.add_command(wait(self.policy));
        let mut connection = self.connection.clone();
        let asked = timeout(self.limit, connection.req_packed_commands(&commands, 1, 1)).await;
        let reply: RedisResult<Value> = match asked {
            Ok(Ok(mut replies)) => replies.pop().ok_or_else(no_reply),
            // Both connections are replaced, because a witness confirms only the scripts of its own attempt to connect.
            Ok(Err(error)) => {
                (self.on_end)();
                Err(error)
            }
            Err(_) => {
                (self.on_end)();
                return Err(format!("no reply within {:?}", self.limit).into());
            }
        };
        let reply = reply.and_then(Value::extract_error).map_err(|error| error.to_string())?;
        Ok(judge(self.policy, &reply)?)
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Returns the command by which the server waits for the copies that the policy requires.
fn wait(policy: SyncPolicy) -> Cmd {
    // The server regards 0 as no limit.
    let milliseconds = |timeout: Duration| i32::try_from(timeout.as_millis().max(1)).unwrap_or(i32::MAX);
    match policy {
        // `Dial` makes no witness with this policy. This arm only completes the match.
        SyncPolicy::None => redis::cmd("PING"),
        SyncPolicy::Wait { replicas, timeout } => {
            let mut command = redis::cmd("WAIT");
            command.arg(replicas).arg(milliseconds(timeout));
            command
        }
        SyncPolicy::WaitAof { replicas, timeout } => {
            let mut command = redis::cmd("WAITAOF");
            command.arg(1).arg(replicas).arg(milliseconds(timeout));
            command
        }
    }
}

/// Checks the server's answer to the command of [`wait`] against the policy. The error says which copies are missing.
fn judge(policy: SyncPolicy, answer: &Value) -> Result<(), String> {
    match (policy, answer) {
        (SyncPolicy::None, _) => Ok(()),
        (SyncPolicy::Wait { replicas, .. }, Value::Int(received)) if *received >= i64::from(replicas) => {
            Ok(())
        }
        (SyncPolicy::Wait { replicas, timeout }, Value::Int(received)) => {
            Err(format!("{received} of {replicas} replicas had received it within {timeout:?}"))
        }
        (SyncPolicy::WaitAof { replicas, timeout }, Value::Array(counts)) => match counts[..] {
            [Value::Int(local), Value::Int(remote)] if local >= 1 && remote >= i64::from(replicas) => Ok(()),
            [Value::Int(local), Value::Int(remote)] => Err(format!(
                "it was in the files of {local} of 1 primary and {remote} of {replicas} replicas within {timeout:?}"
            )),
            _ => Err(format!("the server answered {answer:?}")),
        },
        _ => Err(format!("the server answered {answer:?}")),
    }
}
