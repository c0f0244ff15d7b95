//! Transactions: lock the timers of an operation, compute its effect here, and write the effect.
//!
//! | the transaction ends by | the next step |
//! |---|---|
//! | its commit | the answer |
//! | an id or a key that another transaction has taken, a deadlock, a failed serialization; in brief work ([`Work::is_brief`]) also the end of a wait for a lock | the transaction is repeated, up to 64 times |
//! | in other work, the end of a wait for a lock | the transaction is repeated for nine tenths of the response timeout, and then fails with the kind `Held` |
//! | a lost connection before the commit was sent | the transaction is repeated until the patience of the settings ends |
//! | a lost connection after the commit was sent | the answer `Unknown` |
//! | another error | the error |
//!
//! A caller's transaction may lock a timer for minutes, and any number of calls may wait for this timer. So a
//! transaction first waits for a lock for 20 ms only. Its further attempts run on the few connections for waits
//! (`Pool::session_for_wait`), and return the connection after each attempt. Each attempt waits longer than the
//! previous attempt, up to a limit, because the server gives a lock to the transactions that have waited longest.

use crate::deployment::{Deployment, Made};
use crate::link::{Failure, LockWait, Session, io};
use core::future::Future;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::sleep;
use tourbillon_durable::store::{Durability, StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

/// The greatest number of attempts of a transaction while other transactions change the same timers.
const TURNS: u32 = 64;

/// The time in milliseconds for which a statement waits for a lock if [`Work::is_brief`] is true for its transaction.
/// In other transactions, the time for the first attempt.
const BRIEF: u32 = 20;

/// The longest time in milliseconds for which a statement waits for a lock in any attempt.
const LONGEST: u32 = 400;

/// The context in which the attempts of a transaction run. A failed attempt records here how the next attempt must
/// differ.
pub(crate) struct Act {
    pub(crate) deployment: Arc<Deployment>,
    /// A summary of the timers that the present attempt has made pending (waiting until they are due).
    pub(crate) made: Made,
    /// The ids of new timers that an attempt could not insert, because the id or the key was taken. The next attempt
    /// also reads the stored timers with these ids.
    pub(crate) also: BTreeSet<TimerId>,
    /// Whether the attempt must pass over timers that other transactions have locked, instead of waiting for them. True
    /// after an attempt has failed because of another transaction, if [`Work::is_brief`] is true.
    pub(crate) skips: bool,
    /// The time in milliseconds for which each statement waits for a lock.
    wait: u32,
    /// The moment after which no attempt waits for a lock any more.
    until: Instant,
    /// The incarnation of the node in whose shards [`Op::Unpark`](tourbillon_durable::store::Op::Unpark) searches for
    /// parked timers (timers that wait until they are unparked). `None` means all shards.
    pub(crate) owner: Option<i64>,
}

impl Act {
    pub(crate) fn new(deployment: Arc<Deployment>) -> Self {
        let until = Instant::now() + deployment.pool.lock_patience();
        Self {
            deployment,
            made: Made::default(),
            also: BTreeSet::new(),
            skips: false,
            wait: BRIEF,
            until,
            owner: None,
        }
    }
}

/// The work of a transaction. It may run several times, each time in a new transaction.
pub(crate) trait Work: Sync {
    /// The result of the work.
    type Result: Send;

    /// Returns whether the transaction must not wait long for other transactions, for example for a transaction of a
    /// caller. If so, each statement waits for a lock for 20 ms at most. If a statement fails after this time, the work
    /// runs again in a new transaction, and must pass over the timers that other transactions have locked (see
    /// [`Act::skips`]).
    fn is_brief(&self) -> bool {
        false
    }

    /// Does this work once, in the transaction that is open in `session`. The caller then commits the transaction, or
    /// rolls it back after an error.
    fn run(
        &self,
        session: &mut Session,
        act: &mut Act,
    ) -> impl Future<Output = Result<Self::Result, Failure>> + Send;
}

/// Runs operations as transactions.
#[derive(Clone)]
pub(crate) struct Transactions {
    pub(crate) deployment: Arc<Deployment>,
}

impl Transactions {
    /// Runs `work` in a transaction. The table of this module says when the transaction is repeated. Returns the result
    /// of the work.
    pub(crate) async fn transact<W: Work>(
        &self,
        durability: Durability,
        work: &W,
    ) -> Result<W::Result, StoreError> {
        let (begin, mut act) = (Instant::now(), Act::new(Arc::clone(&self.deployment)));
        let mut turns = 0;
        loop {
            act.made = Made::default();
            match self.attempt(durability, &mut act, work).await {
                Ok(value) => {
                    act.made.wake(&self.deployment.alarm);
                    return Ok(value);
                }
                Err(Failure::Held(_)) if !work.is_brief() => {
                    if act.until <= Instant::now() {
                        let most = self.deployment.pool.lock_patience();
                        let message = format!("it was still open after {most:?}");
                        return Err(StoreError::new(StoreErrorKind::Held, message));
                    }
                    act.wait = (act.wait * 2).min(LONGEST);
                }
                Err(failure @ (Failure::Again(_) | Failure::Held(_))) => {
                    turns += 1;
                    act.skips = work.is_brief();
                    if turns >= TURNS {
                        let error = failure.into_error();
                        let message =
                            format!("others changed the same timers during {TURNS} attempts: {error}");
                        return Err(io(message));
                    }
                    if turns > 2 {
                        sleep(Duration::from_millis(u64::from(turns))).await;
                    }
                }
                Err(Failure::Lost(_)) if begin.elapsed() < self.deployment.pool.patience() => {
                    sleep(Duration::from_millis(20)).await;
                }
                Err(failure @ Failure::Unknown(_)) => {
                    // The transaction may have made a timer pending.
                    self.deployment.alarm.wake();
                    return Err(failure.into_error());
                }
                Err(failure) => return Err(failure.into_error()),
            }
        }
    }

    async fn attempt<W: Work>(
        &self,
        durability: Durability,
        act: &mut Act,
        work: &W,
    ) -> Result<W::Result, Failure> {
        let pool = &self.deployment.pool;
        let mut session = match work.is_brief() {
            true => pool.session().await?,
            false if act.wait == BRIEF => pool.session_for_change().await?,
            false => pool.session_for_wait(act.until.saturating_duration_since(Instant::now())).await?,
        };
        let is_synced = durability >= Durability::PowerLoss;
        let settings = if is_synced { "" } else { "SET LOCAL synchronous_commit = off" };
        session.begin_with(settings, LockWait::Short(act.wait)).await?;
        match work.run(&mut session, act).await {
            Ok(value) => {
                match is_synced {
                    true => session.commit_confirmed().await?,
                    false => session.commit().await?,
                }
                Ok(value)
            }
            Err(failure) => {
                session.roll_back().await;
                Err(failure)
            }
        }
    }
}
