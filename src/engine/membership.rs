//! The membership of an engine in a set of shards. It knows on which threads the engine's handlers run, and whether a
//! caller may wait for handlers.

use crate::base::sync::{Mutex, OnceLock, StdArc, ignore_poison};
use crate::dispatch::Dispatcher;
use crate::shard::{Owner, Presence, ShardSet, Station, here};
use crate::system::forks::{self, Watch};

/// An engine's membership in a set of shards: a reference that keeps the set's threads running, and the threads on
/// which the engine's handlers run.
pub(crate) struct Membership {
    engine: u64,
    set: StdArc<ShardSet>,
    dispatcher: Dispatcher,
    /// The reference by which the engine keeps the set's threads running. `None` after a shutdown of the engine.
    owner: Mutex<Option<StdArc<Owner>>>,
    presence: StdArc<Presence>,
    forks: OnceLock<Watch>,
}

impl Membership {
    pub(super) fn new(engine: u64, set: StdArc<ShardSet>, dispatcher: Dispatcher) -> Self {
        Self {
            engine,
            dispatcher,
            owner: Mutex::new(None),
            presence: Presence::of(set.shards().len()),
            set,
            forks: OnceLock::new(),
        }
    }

    #[inline]
    pub(crate) fn set(&self) -> &ShardSet {
        &self.set
    }

    pub(super) fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// Returns the number of workers that run handlers. Returns zero if the shards' own threads run the handlers, or if
    /// the number is unknown.
    pub(crate) fn workers(&self) -> usize {
        self.dispatcher.workers()
    }

    pub(super) fn presence(&self) -> &StdArc<Presence> {
        &self.presence
    }

    /// Keeps the set's threads running until the engine is shut down. Calls `in_child` in each child of a fork.
    pub(super) fn begin(&self, owner: &StdArc<Owner>, in_child: impl Fn() + Send + Sync + 'static) {
        *ignore_poison(self.owner.lock()) = Some(StdArc::clone(owner));
        if self.set.is_served() {
            self.forks.get_or_init(|| forks::watch(Box::new(in_child)));
        }
        if self.dispatcher.is_inline() {
            self.set.note_inline_handlers();
        }
    }

    /// Adds the engine's stations (its parts of the shards) to their shards.
    pub(super) fn join(&self, stations: Vec<Station>) {
        self.set.join(stations);
    }

    /// Drops the engine's stations, if the set has no threads that do so. The caller has closed the stations before.
    pub(super) fn dismiss(&self) {
        self.set.dismiss_if_without_threads(!self.must_not_wait_here());
    }

    /// Waits until the shards have dropped the engine's stations. Returns at once if the calling thread must not wait.
    pub(super) fn await_dismissal(&self) {
        if self.may_wait_for_shards() {
            self.presence.await_end();
        }
    }

    /// Stops keeping the set's threads running. The threads end when the last engine and handle of the set have gone.
    /// If `may_wait` is true and the threads are ending, waits until they have ended. After that, the program may
    /// unload their code.
    pub(super) fn end(&self, may_wait: bool) {
        let owner =
            if may_wait { Some(ignore_poison(self.owner.lock())) } else { self.owner.try_lock().ok() };
        if let Some(mut owner) = owner {
            // This happens under the lock, so that a second call finds the set closed.
            drop(owner.take());
        }
        if may_wait {
            self.set.await_end();
        }
    }

    /// Records that the calling thread runs handlers of the engine, until it calls [`here::end_firing`].
    #[inline]
    pub(super) fn begin_firing(&self) {
        here::begin_firing(self.engine, self.set.id(), self.dispatcher.own_workers().is_some());
    }

    /// Returns whether the calling thread is in a turn (one pass) of an event loop that runs a shard of the set.
    #[inline]
    pub(super) fn is_turned_here(&self) -> bool {
        self.set.is_turned_here()
    }

    /// Returns whether this process is the child of a fork, and the engine was built before the fork.
    pub(crate) fn is_forked(&self) -> bool {
        self.set.is_forked()
    }

    /// Returns whether this process is the child of a fork, and the engine was started before the fork.
    pub(crate) fn is_in_child(&self) -> bool {
        self.set.is_in_child()
    }

    pub(crate) fn may_wait_for_shards(&self) -> bool {
        !self.is_in_child() && self.set.may_wait_for_shards()
    }

    /// Returns whether the caller must not wait for a handler. `Handle::cancel_and_wait` names the places for users.
    /// The caller could wait for itself inside a handler of the engine, and on a thread that leads a shard. A thread of
    /// the rayon pool could wait for itself, too, because it may be working on behalf of a handler. In the child of a
    /// fork, the handler's thread does not exist.
    pub(crate) fn must_not_wait_here(&self) -> bool {
        self.is_in_child()
            || here::is_firing(self.engine)
            || self.set.is_led_here()
            || self.dispatcher.is_worker_here()
    }
}
