//! The thread of a node: sends signs of life, releases shards, and looks at the shards for due timers.

use super::sweep::Sweep;
use crate::claim::Claims;
use crate::deployment::{Deployment, moment};
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
use tourbillon_durable::store::StoreError;

/// The shortest pause between two rounds of the background thread, so that the thread does not spin.
const SHORTEST: Duration = Duration::from_millis(5);

/// The pause between two checks of the connections of other nodes.
const CONNECTIONS: Duration = Duration::from_millis(500);

/// A call to the servers that the background thread has begun. The future waits for the answer, and processes it.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The parts of a store that its background thread uses.
pub(crate) struct Upkeep {
    deployment: Arc<Deployment>,
    node: Arc<Node>,
    claims: Arc<Claims>,
    pub(crate) sweep: Arc<Sweep>,
}

/// A poll or a release of some shards by the background thread. The shards are marked as waiting for an answer until
/// this value is dropped, even if the call fails.
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
/// Each `Weak` shows whether a call is under way: the task of the call has the strong reference, and drops it at the
/// end.
#[derive(Default)]
struct Rounds {
    tasks: FuturesUnordered<Task>,
    /// Can be upgraded while a sign of life of this node waits for the server's answer.
    sign: Weak<()>,
    /// The moment at which the background thread last sent a sign of life.
    tried: Option<Timestamp>,
    /// Can be upgraded while a check for dead nodes waits for the server's answer.
    look: Weak<()>,
    /// The moment at which the background thread last sent a check for dead nodes.
    looked: Option<Timestamp>,
    /// Can be upgraded while a step of the [sweep](Sweep) is under way. The sweep repairs stored data.
    step: Weak<()>,
    /// The moment at which the background thread last began a step of the [sweep](Sweep), which repairs stored data.
    swept: Option<Timestamp>,
}

impl Upkeep {
    pub(crate) fn new(claims: Arc<Claims>) -> Self {
        let (deployment, node) = (Arc::clone(&claims.deployment), Arc::clone(&claims.node));
        let sweep = Arc::new(Sweep::new(Arc::clone(&deployment), Arc::clone(&node)));
        Self { deployment, node, claims, sweep }
    }
}

/// Starts the background thread of a store. The thread ends when the bell of the node is closed.
pub(crate) fn start(upkeep: &Arc<Upkeep>) -> Result<(), StoreError> {
    let (bell, weak) = (Arc::clone(&upkeep.node.bell), Arc::downgrade(upkeep));
    let body = move || {
        let waker = Waker::from(Arc::clone(&bell));
        let mut rounds = Rounds::default();
        loop {
            let Some(upkeep) = weak.upgrade() else { return };
            // A round may panic, and so may a subscriber that the round calls. The next round does the rest.
            let next = catch_unwind(AssertUnwindSafe(|| rounds.begin(&upkeep))).unwrap_or(LONGEST_POLL);
            drop(upkeep);
            // An answer may have changed the duties: another round follows at once.
            let has_answers = catch_unwind(AssertUnwindSafe(|| rounds.advance(&waker))).unwrap_or(true);
            let next = if has_answers { SHORTEST } else { next.max(SHORTEST) };
            if !bell.wait(next) {
                return;
            }
        }
    };
    thread::Builder::new().name("tourbillon-poll".into()).spawn(body).map(drop).map_err(StoreError::from)
}

impl Rounds {
    /// Sends the calls that are due now. Returns the time until the next call is due.
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
        let has_rested = self.tried.is_none_or(|tried| moment() - tried >= pause_of_signs);
        if is_sign_due && has_rested && self.sign.strong_count() == 0 {
            let (node, mark) = (Arc::clone(node), Arc::new(()));
            (self.sign, self.tried) = (Arc::downgrade(&mark), Some(moment()));
            self.send(async move {
                let _failed = node.give_sign(false).await;
                drop(mark);
            });
        }
        for group in deployment.topology.groups(unwanted) {
            let request = ShardRequest::new(node, group);
            self.send(async move { request.node.release_shards(request.shards.clone()).await });
        }
        for group in deployment.topology.groups(looks) {
            let (request, claims) = (ShardRequest::new(node, group), Arc::clone(claims));
            self.send(async move { claims.look_at(request.shards.clone()).await });
        }
        let has_rested = self.looked.is_none_or(|looked| moment() - looked >= CONNECTIONS);
        if has_rested && node.sees_connections() && self.look.strong_count() == 0 {
            let (node, mark) = (Arc::clone(node), Arc::new(()));
            (self.look, self.looked) = (Arc::downgrade(&mark), Some(moment()));
            self.send(async move {
                // If the user may not ask, the shards of a dead node become free when their `ttl` is over.
                let _failed = node.look_for_dead().await;
                drop(mark);
            });
        }
        let has_rested = self.swept.is_none_or(|swept| moment() - swept >= node.pause_of_sweep());
        if has_rested && self.step.strong_count() == 0 {
            let (sweep, mark) = (Arc::clone(sweep), Arc::new(()));
            let has_loose_redirects = deployment.topology.has_loose_redirects();
            (self.step, self.swept) = (Arc::downgrade(&mark), Some(moment()));
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

    /// Polls the calls that are under way. Returns whether any call has ended.
    fn advance(&mut self, waker: &Waker) -> bool {
        let mut context = Context::from_waker(waker);
        let mut has_answers = false;
        while let Poll::Ready(Some(())) = self.tasks.poll_next_unpin(&mut context) {
            has_answers = true;
        }
        has_answers
    }
}
