//! The thread of a node: sends signs of life, releases shards, and looks at the shards for due timers.

use super::sweep::Sweep;
use crate::claim::Claims;
use crate::deployment::Deployment;
use crate::layout::Shard;
use crate::node::{LONGEST_POLL, Node};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread;
use tourbillon::Timestamp;
use tourbillon_durable::store::{ServerTime, StoreError};

/// The shortest pause between two rounds of the background thread, so that the thread does not spin.
const SHORTEST: Duration = Duration::from_millis(5);

/// The pause between two checks whether other nodes are still connected to the server. A node that stays without a
/// connection is declared dead.
const CONNECTIONS: Duration = Duration::from_millis(500);

/// A task that the background thread has begun, for example a poll of some shards. The future sends requests to the
/// servers, waits for the answers and processes them.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The parts of a store that its background thread uses.
pub(crate) struct Upkeep {
    deployment: Arc<Deployment>,
    node: Arc<Node>,
    claims: Arc<Claims>,
    pub(crate) sweep: Arc<Sweep>,
}

/// A request of the background thread that polls or releases some shards. While this value exists, the node's state
/// marks the shards as asked, so that the thread sends no second request for them. The drop of the value removes the
/// mark, even if the request has failed.
struct ShardRequest {
    node: Arc<Node>,
    shards: Vec<Shard>,
}

impl ShardRequest {
    fn new(node: &Arc<Node>, shards: Vec<Shard>) -> Self {
        node.state().shards.set_asked(&shards, true);
        Self { node: Arc::clone(node), shards }
    }
}

impl Drop for ShardRequest {
    fn drop(&mut self) {
        self.node.state().shards.set_asked(&self.shards, false);
    }
}

/// The state of the background thread between its rounds.
///
/// Each `Weak` shows whether a task of one kind is running: the task keeps the strong reference until it ends.
#[derive(Default)]
struct Rounds {
    tasks: FuturesUnordered<Task>,
    /// Can be upgraded while the server has not answered this node's last sign of life. By a sign of life (heartbeat),
    /// a node tells the server that it is still running.
    sign: Weak<()>,
    /// The moment at which the background thread last sent a sign of life (heartbeat) of this node.
    last_sign: Option<Timestamp>,
    /// Can be upgraded while the server has not answered the last check for dead nodes.
    check: Weak<()>,
    /// The moment at which the background thread last sent a check for dead nodes.
    last_check: Option<Timestamp>,
    /// Can be upgraded while a step of the [sweep](Sweep) is running. The sweep repairs stored data.
    step: Weak<()>,
    /// The moment at which the background thread last began a step of the [sweep](Sweep), which repairs stored data.
    last_step: Option<Timestamp>,
}

impl Upkeep {
    pub(crate) fn new(claims: Arc<Claims>) -> Self {
        let (deployment, node) = (Arc::clone(&claims.deployment), Arc::clone(&claims.node));
        let sweep = Arc::new(Sweep::new(Arc::clone(&deployment), Arc::clone(&node)));
        Self { deployment, node, claims, sweep }
    }
}

/// Starts the background thread of a store. The thread ends when the store is dropped: the store then closes the node's
/// `bell`, the signal for which the thread waits.
pub(crate) fn start(upkeep: &Arc<Upkeep>) -> Result<(), StoreError> {
    let (bell, weak) = (Arc::clone(&upkeep.node.bell), Arc::downgrade(upkeep));
    let body = move || {
        let waker = Waker::from(Arc::clone(&bell));
        let mut rounds = Rounds::default();
        loop {
            let Some(upkeep) = weak.upgrade() else { return };
            // A round may panic, and so may a subscriber that the round calls. The next round does the rest.
            // The payload of a panic is leaked, since its drop may panic, too.
            let next = catch_unwind(AssertUnwindSafe(|| rounds.begin(&upkeep))).map_err(Box::leak);
            let next = next.unwrap_or(LONGEST_POLL);
            // The thread must not keep the parts of a dropped store alive while it waits.
            drop(upkeep);
            // An answer may have changed the duties: another round follows at once.
            // A panic ends one task, but other tasks may be ready. Another round polls these tasks at once.
            let has_answers = catch_unwind(AssertUnwindSafe(|| rounds.advance(&waker))).map_err(Box::leak);
            let has_answers = has_answers.unwrap_or(true);
            let next = if has_answers { SHORTEST } else { next.max(SHORTEST) };
            if !bell.wait(next) {
                return;
            }
        }
    };
    thread::Builder::new().name("tourbillon-poll".into()).spawn(body).map(drop).map_err(StoreError::from)
}

impl Rounds {
    /// Begins the tasks that are due now, such as polls of shards and signs of life. Returns the time until the next
    /// task is due.
    fn begin(&mut self, upkeep: &Upkeep) -> Duration {
        let Upkeep { deployment, node, claims, sweep } = upkeep;
        let (now, pause) = (deployment.time.now(), node.pause());
        if node.is_behind(now) {
            let (node, deployment) = (Arc::clone(node), Arc::clone(deployment));
            self.send(async move {
                // If this fails, the shards become free for other nodes when their `ttl` is over.
                let _left = node.leave().await;
                deployment.alarm.wake();
            });
            return pause;
        }
        // The block releases the lock before the requests are made, because `ShardRequest::new` takes the lock again.
        let (is_sign_due, unwanted, looks) = {
            let mut state = node.state();
            if !state.is_member {
                return pause;
            }
            state.divide(node.incarnation, now);
            let is_sign_due = state.is_sign_due(now, node.ttl);
            (is_sign_due, state.shards.unwanted(), state.shards.for_poll(pause))
        };
        // Signs are frequent even if polls are rare, since a new node waits for its shards.
        let pause_of_signs = pause.min(LONGEST_POLL).min(node.ttl / 8);
        let has_rested = self.last_sign.is_none_or(|sent| ServerTime::moment() - sent >= pause_of_signs);
        if is_sign_due && has_rested && self.sign.strong_count() == 0 {
            let (node, mark) = (Arc::clone(node), Arc::new(()));
            (self.sign, self.last_sign) = (Arc::downgrade(&mark), Some(ServerTime::moment()));
            self.send(async move {
                let _failed = node.give_sign(false).await;
                // This use moves the mark into the task. Without this use, the mark would end at once, and a later
                // round would send another sign before the answer.
                drop(mark);
            });
        }
        for group in deployment.topology.groups(unwanted) {
            let request = ShardRequest::new(node, group);
            // The request keeps its own list of shards, because its drop removes their marks.
            self.send(async move { request.node.release_shards(request.shards.clone()).await });
        }
        for group in deployment.topology.groups(looks) {
            let (request, claims) = (ShardRequest::new(node, group), Arc::clone(claims));
            self.send(async move { claims.look_at(request.shards.clone()).await });
        }
        let has_rested = self.last_check.is_none_or(|sent| ServerTime::moment() - sent >= CONNECTIONS);
        if has_rested && node.sees_connections() && self.check.strong_count() == 0 {
            let (node, mark) = (Arc::clone(node), Arc::new(()));
            (self.check, self.last_check) = (Arc::downgrade(&mark), Some(ServerTime::moment()));
            self.send(async move {
                // If the user may not ask, the shards of a dead node become free when their `ttl` is over.
                let _failed = node.look_for_dead().await;
                drop(mark);
            });
        }
        let has_rested =
            self.last_step.is_none_or(|begun| ServerTime::moment() - begun >= node.pause_of_sweep());
        if has_rested && self.step.strong_count() == 0 {
            let (sweep, mark) = (Arc::clone(sweep), Arc::new(()));
            let has_loose_redirects = deployment.topology.has_loose_redirects();
            (self.step, self.last_step) = (Arc::downgrade(&mark), Some(ServerTime::moment()));
            self.send(async move {
                // After a failed step, later steps find the rest.
                let _failed = sweep.repair_leases().await;
                if has_loose_redirects {
                    let _failed = sweep.sweep_redirects().await;
                }
                drop(mark);
            });
        }
        let state = node.state();
        let sign = if self.sign.strong_count() > 0 {
            pause
        } else {
            state.rest_of_sign(deployment.time.now(), node.ttl)
        };
        // A sign that failed is sent again after its pause.
        let sign = if is_sign_due { pause_of_signs } else { sign };
        state.shards.rest(pause).min(sign).min(pause).min(CONNECTIONS)
    }

    fn send(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(Box::pin(task));
    }

    /// Polls the futures of the running tasks. Returns whether any task has ended.
    fn advance(&mut self, waker: &Waker) -> bool {
        let mut context = Context::from_waker(waker);
        let mut has_answers = false;
        while let Poll::Ready(Some(())) = self.tasks.poll_next_unpin(&mut context) {
            has_answers = true;
        }
        has_answers
    }
}
