//! Makes this process a node of the deployment, and gives its signs of life (heartbeats). A node is a process that
//! claims timers, and has a row in the table `node`.
//!
//! | this process | becomes | by |
//! |---|---|---|
//! | is not a node | a node | a claim |
//! | is a node | stays a node | a sign of life, four times in the `ttl` |
//! | is a node | not a node | `leave`, or the removal of the row by another node, which takes this node for dead. A claim that finds no row makes the process a node again |

use super::mark::Mark;
use crate::deployment::{Deployment, ms};
use crate::link::{Failure, Param, Session};
use core::sync::atomic::AtomicBool;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_postgres::types::Type;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::StoreError;

/// The version of the program, as the table of the nodes shows it.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// This process as a node: a process that claims timers of the deployment, and has a row in the table `node`. Before
/// its first claim, the process is not a node yet.
pub(crate) struct Node {
    pub(crate) deployment: Arc<Deployment>,
    /// A random number that identifies this run of the process, as a value of the type `bigint`.
    pub(crate) incarnation: i64,
    pub(crate) name: Box<str>,
    pub(crate) ttl: Duration,
    /// Whether this process listens for notifications. The functions for callers send none if no living node listens.
    pub(crate) listens: bool,
    state: Mutex<State>,
    /// Lets only one claim or [look](crate::upkeep) run at a time, because each of them begins at the low-water marks
    /// that the previous claim or look has set.
    pub(crate) claims: tokio::sync::Mutex<()>,
    /// Whether this node has leased a timer since it last added up the rows of the table `tally` (changes of the
    /// numbers of timers).
    pub(crate) has_claimed: AtomicBool,
    /// Wakes the [task](crate::upkeep) of the node, because the process has become a node, a notification has arrived,
    /// or the store is dropped.
    pub(crate) bell: Notify,
}

#[derive(Default)]
struct State {
    is_member: bool,
    /// The moment of the last sign of life (heartbeat), by the store's time. `None` while the process is not a node.
    sign: Option<UtcMillis>,
    mark: Mark,
    /// The error of the last upkeep (the sums of the table `tally`), if it failed.
    upkeep_fault: Option<StoreError>,
}

impl Node {
    /// `incarnation` is a random number that identifies this run of the process.
    pub(crate) fn new(
        deployment: Arc<Deployment>,
        incarnation: u64,
        name: Box<str>,
        ttl: Duration,
        listens: bool,
    ) -> Self {
        Self {
            deployment,
            incarnation: incarnation.cast_signed(),
            name,
            ttl,
            listens,
            state: Mutex::default(),
            claims: tokio::sync::Mutex::default(),
            has_claimed: AtomicBool::new(false),
            bell: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy of this node's low-water marks: the due moments up to which its claims have read the timers.
    pub(crate) fn mark(&self) -> Mark {
        self.state().mark.clone()
    }

    /// Calls `change` with this node's low-water marks, which `change` may alter. Returns the result of `change`.
    pub(crate) fn with_mark<T>(&self, change: impl FnOnce(&mut Mark) -> T) -> T {
        change(&mut self.state().mark)
    }

    pub(crate) fn upkeep_fault(&self) -> Option<StoreError> {
        self.state().upkeep_fault.clone()
    }

    /// Records whether the last upkeep (the sums of the table `tally`) has failed.
    pub(crate) fn note_upkeep(&self, fault: Option<StoreError>) {
        self.state().upkeep_fault = fault;
    }

    pub(crate) fn is_member(&self) -> bool {
        self.state().is_member
    }

    /// Records that this process is not a node any longer, because the server has no row for it.
    pub(crate) fn put_out(&self) {
        {
            let mut state = self.state();
            (state.is_member, state.sign) = (false, None);
        }
        // The owners of the shards are unknown from now on.
        self.deployment.alarm.set_others(0);
    }

    /// Returns whether the process must give a sign of life (heartbeat): a quarter of the `ttl` has passed since the
    /// last sign, or the process is not a node yet.
    pub(crate) fn is_sign_due(&self) -> bool {
        let (state, now) = (self.state(), self.deployment.time.now());
        // If `now` is before the last sign, the clock was set back.
        let is_old = |sign: UtcMillis| now < sign || now - sign >= self.ttl / 4;
        !state.is_member || state.sign.is_none_or(is_old)
    }

    /// Gives a sign of life (heartbeat): renews the row of this process in the table `node`, or inserts the row if the
    /// process is not a node yet. The same statement divides the shards (parts of the timers) among all live nodes.
    /// This node gives up and takes over shards accordingly.
    pub(crate) async fn give_sign(&self, session: &mut Session) -> Result<(), Failure> {
        let (name, version, ttl) = (&*self.name, VERSION, ms(self.ttl));
        let now = self.deployment.argument();
        let sql = "SELECT tourbillon.sign($1, $2, $3, $4, $5, $6)";
        let params: [Param<'_>; 6] = [
            (&now, Type::INT8),
            (&self.incarnation, Type::INT8),
            (&name, Type::TEXT),
            (&version, Type::TEXT),
            (&ttl, Type::INT8),
            (&self.listens, Type::BOOL),
        ];
        session.query(sql, &params).await?;
        self.has_signed();
        Ok(())
    }

    /// Records that the server has received a sign of life (heartbeat) now, and that this process is a node.
    pub(crate) fn has_signed(&self) {
        let was_member = {
            let (mut state, now) = (self.state(), self.deployment.time.now());
            state.sign = Some(now);
            core::mem::replace(&mut state.is_member, true)
        };
        if !was_member {
            self.bell.notify_one();
        }
    }

    /// Removes this process from the nodes. Its shards are free afterwards.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        let _claim = self.claims.lock().await;
        if !self.is_member() {
            return Ok(());
        }
        let mut session = self.deployment.session().await?;
        let sql = "SELECT 1 FROM tourbillon.leave($1)";
        let left = session.query(sql, &[(&self.incarnation, Type::INT8)]).await;
        self.put_out();
        left.map(drop).map_err(Failure::into_error)
    }
}
