//! The thread of a node: signs of life, releases, and looks at the shards.

use super::LONGEST_POLL;
use crate::layout::Shard;
use crate::shared::Core;
use crate::sweep::Sweep;
use crate::time::moment;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use tourbillon::Timestamp;
use tourbillon_durable::store::StoreError;

/// The shortest time between two rounds, so that no state of affairs makes the thread spin.
const SHORTEST: Duration = Duration::from_millis(5);

/// The pause between two looks at the connections of the others.
const CONNECTIONS: Duration = Duration::from_millis(500);

/// What the thread has sent and has no answer to.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Shards at which a look is. The mark is taken back however the look ends.
struct Asked {
    core: Arc<Core>,
    shards: Vec<Shard>,
}

impl Asked {
    fn new(core: &Arc<Core>, shards: Vec<Shard>) -> Self {
        core.nodes.state().shards.set_asked(&shards, true);
        Self { core: Arc::clone(core), shards }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.core.nodes.state().shards.set_asked(&self.shards, false);
    }
}

/// What the thread remembers between its rounds.
#[derive(Default)]
struct Rounds {
    tasks: FuturesUnordered<Task>,
    /// A sign of life is at the server. Only the task has the other end.
    sign: Weak<()>,
    /// The start of the last sign.
    tried: Option<Timestamp>,
    /// A look for the dead is at the server. Only the task has the other end.
    look: Weak<()>,
    /// The start of the last one.
    looked: Option<Timestamp>,
    /// A step of the sweep is at the servers. Only the task has the other end.
    step: Weak<()>,
    /// The start of the last step.
    swept: Option<Timestamp>,
    sweep: Arc<Mutex<Sweep>>,
}

/// Starts the thread of a store. It ends when the store's bell is closed.
pub(crate) fn start(core: &Arc<Core>) -> Result<(), StoreError> {
    let (bell, weak) = (Arc::clone(&core.nodes.bell), Arc::downgrade(core));
    let body = move || {
        let waker = Waker::from(Arc::clone(&bell));
        let mut rounds = Rounds::default();
        loop {
            let Some(core) = weak.upgrade() else { return };
            // A subscriber of the caller's may panic, or a round. The next one does what this one has left.
            let next = catch_unwind(AssertUnwindSafe(|| rounds.begin(&core))).unwrap_or(LONGEST_POLL);
            drop(core);
            // What an answer has changed is looked at in another round at once.
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
    /// Sends what is due. Returns the time until something else is.
    fn begin(&mut self, core: &Arc<Core>) -> Duration {
        let (nodes, now) = (&core.nodes, core.time.now());
        let (pause, is_split) = (nodes.pause(), core.is_split);
        if core.is_behind(now) {
            let this = Arc::clone(core);
            self.send(async move {
                // The shards are free for others at the end of their time, if not before.
                let _left = this.leave().await;
                this.wake();
            });
            return pause;
        }
        let (is_sign_due, unwanted, looks) = {
            let mut state = nodes.state();
            if !state.is_member {
                return pause;
            }
            state.divide(nodes.incarnation, now);
            let is_sign_due = state.is_sign_due(now, nodes.ttl);
            (is_sign_due, state.shards.unwanted(), state.shards.for_poll(pause, is_split))
        };
        // However rare the polls are: another node may have come, and waits for its shards.
        let pause_of_signs = pause.min(LONGEST_POLL).min(nodes.ttl / 8);
        let has_rested = self.tried.is_none_or(|tried| moment() - tried >= pause_of_signs);
        if is_sign_due && has_rested && self.sign.strong_count() == 0 {
            let (this, mark) = (Arc::clone(core), Arc::new(()));
            (self.sign, self.tried) = (Arc::downgrade(&mark), Some(moment()));
            self.send(async move {
                let _failed = this.give_sign(false).await;
                drop(mark);
            });
        }
        for group in core.groups_of(unwanted) {
            let asked = Asked::new(core, group);
            self.send(async move { asked.core.release_shards(asked.shards.clone()).await });
        }
        for group in core.groups_of(looks) {
            let asked = Asked::new(core, group);
            self.send(async move { asked.core.look_at(asked.shards.clone()).await });
        }
        let has_rested = self.looked.is_none_or(|looked| moment() - looked >= CONNECTIONS);
        if has_rested && nodes.sees_connections() && self.look.strong_count() == 0 {
            let (this, mark) = (Arc::clone(core), Arc::new(()));
            (self.look, self.looked) = (Arc::downgrade(&mark), Some(moment()));
            self.send(async move {
                // A user without the right to ask, for example: then the time of the shards decides.
                let _failed = this.look_for_dead().await;
                drop(mark);
            });
        }
        let has_rested = self.swept.is_none_or(|swept| moment() - swept >= nodes.pause_of_sweep());
        if has_rested && self.step.strong_count() == 0 {
            let (this, sweep, mark) = (Arc::clone(core), Arc::clone(&self.sweep), Arc::new(()));
            (self.step, self.swept) = (Arc::downgrade(&mark), Some(moment()));
            self.send(async move {
                // What is left is found again.
                let _failed = this.mend_leases(&sweep).await;
                if is_split {
                    let _failed = this.sweep(&sweep).await;
                }
                drop(mark);
            });
        }
        let state = nodes.state();
        let sign =
            if self.sign.strong_count() > 0 { pause } else { state.rest_of_sign(core.time.now(), nodes.ttl) };
        // A sign that failed is tried again after its pause.
        let sign = if is_sign_due { pause_of_signs } else { sign };
        state.shards.rest(pause).min(sign).min(pause).min(CONNECTIONS)
    }

    fn send(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(Box::pin(task));
    }

    /// Takes the answers that are there. Returns whether there were some.
    fn advance(&mut self, waker: &Waker) -> bool {
        let mut context = Context::from_waker(waker);
        let mut has_answers = false;
        while let Poll::Ready(Some(())) = self.tasks.poll_next_unpin(&mut context) {
            has_answers = true;
        }
        has_answers
    }
}
