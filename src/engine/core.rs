//! The core of an engine, which the engine's handles and threads share. Each part of the core has its own state and its
//! own file. This file has the calls that need several parts.

use super::admission::Admission;
use super::anchors::Anchors;
use super::due::Due;
use super::hooks::Hooks;
use super::membership::Membership;
use super::owned::{Rearmed, Remains};
use super::quiescence::Quiescence;
use super::timers::Timers;
use crate::base::error::ArmError;
use crate::base::sync::StdArc;
use crate::base::tick::{TickLength, Timestamp};
use crate::base::ticket::TimerId;
use crate::dispatch::{Dispatcher, Guarded};
use crate::lockfree::slab::Slab;
use crate::shard::ShardSet;
use crate::system::clock::EngineClock;
use core::fmt;
use core::task::Waker;

/// The function that an engine calls for each timer that fires. It wraps the user's handler.
pub(crate) type Handler<T> = Box<dyn for<'a> Fn(Due<'a, T>, &'a StdArc<Core<T>>) + Send + Sync>;

/// The state of an engine. The engine's handles share it with the threads that serve the engine.
pub(crate) struct Core<T> {
    pub(super) timers: Timers<T>,
    pub(super) quiescence: Quiescence,
    pub(super) membership: Membership,
    pub(super) handler: Handler<T>,
    pub(super) guarded: Guarded,
    pub(super) hooks: Hooks,
    /// The anchors: one reference for each thread, by which the thread's owned timers keep the engine alive.
    pub(super) anchors: StdArc<Anchors>,
}

/// The settings of an engine, with the builder's defaults filled in.
pub(crate) struct Settings {
    pub(crate) capacity: u32,
    pub(crate) lane_capacity: u64,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) guarded: Guarded,
}

impl Settings {
    pub(crate) const DEFAULT_CAPACITY: u32 = 1 << 24;
    pub(crate) const DEFAULT_LANE_CAPACITY: u64 = 1 << 16;

    #[cfg(feature = "async")]
    pub(crate) fn by_default(dispatcher: Dispatcher) -> Self {
        let (capacity, lane_capacity) = (Self::DEFAULT_CAPACITY, Self::DEFAULT_LANE_CAPACITY);
        Self { capacity, lane_capacity, dispatcher, guarded: Guarded::new(None) }
    }
}

impl<T: Send + 'static> Core<T> {
    pub(crate) fn new(set: StdArc<ShardSet>, settings: Settings, handler: Handler<T>) -> Self {
        let slab = Slab::new(settings.capacity, set.settings().clock.now());
        let timers = Timers::new(slab, &set, settings.lane_capacity);
        Self {
            quiescence: Quiescence::new(set.made_in()),
            membership: Membership::new(timers.admission().engine(), set, settings.dispatcher),
            timers,
            handler,
            guarded: settings.guarded,
            hooks: Hooks::new(),
            anchors: Anchors::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn timers(&self) -> &Timers<T> {
        &self.timers
    }

    #[inline(always)]
    pub(crate) fn admission(&self) -> &Admission {
        self.timers.admission()
    }

    /// Returns the engine's clock. Delays count from this clock's present moment, and the clock decides whether a
    /// deadline has come.
    #[inline(always)]
    pub(crate) fn clock(&self) -> &EngineClock {
        self.admission().clock()
    }

    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(super) fn anchors(&self) -> &StdArc<Anchors> {
        &self.anchors
    }

    /// Returns the set of shards, with the threads that serve the engine.
    pub(crate) fn set(&self) -> &ShardSet {
        self.membership.set()
    }

    pub(crate) fn tick(&self) -> TickLength {
        self.set().settings().tick
    }

    /// If the handler of the one-shot `id` runs, waits until the handler has ended.
    pub(crate) fn wait_for_end(&self, id: TimerId) {
        let Some(control) = self.timers.control(id) else { return };
        if control.is_running(id) {
            self.quiescence.wait_for_end(id.index(), || control.has_ended(id));
        }
    }

    /// If the handler of the owned timer in slot `index` runs, waits until the handler has ended.
    pub(crate) fn wait_for_run(&self, index: u32) {
        let timer = self.timers.slots().owned(index);
        let Some(run) = timer.await_run() else { return };
        self.quiescence.wait_until(|| timer.has_run(run));
    }

    /// Completes the arming of an owned timer whose ticket (a request to check the timer) is missing or comes too late.
    /// Queues a new ticket. If `insist` is true, does so even beyond the capacity of the lane (the calling thread's
    /// queue).
    #[cold]
    #[inline(never)]
    pub(crate) fn queue(&self, index: u32, deadline: Timestamp, insist: bool) -> Rearmed {
        let outcome = self.timers.queue(index, deadline, insist);
        self.shut_if_refused(index, outcome)
    }

    /// Arms an owned timer with a new ticket for `shard`. The timer's present ticket may be at another shard. The
    /// caller must have stored the deadline by [`postpone`](super::postpone).
    pub(crate) fn queue_on(&self, shard: usize, index: u32, deadline: Timestamp, insist: bool) -> Rearmed {
        let outcome = self.timers.queue_on(shard, index, deadline, insist);
        self.shut_if_refused(index, outcome)
    }

    fn shut_if_refused(&self, index: u32, outcome: Rearmed) -> Rearmed {
        if matches!(outcome, Err(ArmError::ShutDown | ArmError::Forked)) {
            // The shutdown may have reached this timer before the timer was queued.
            self.shut_late_timer(index);
        }
        outcome
    }

    /// Makes an owned timer refuse every arming from now on. Wakes the threads that wait for the end of the timer's
    /// last run. Returns `None` if the slot does not belong to an owned timer.
    pub(super) fn shut_timer(&self, index: u32) -> Option<Remains<T>> {
        let remains = self.timers.shut(index)?;
        if remains.is_awaited() {
            self.quiescence.announce();
        }
        Some(remains)
    }

    /// Makes an owned timer refuse every arming. The caller has posted a ticket to an engine that is shut down. The
    /// shutdown may have missed the timer.
    pub(super) fn shut_late_timer(&self, index: u32) {
        if let Some(remains) = self.shut_timer(index) {
            self.settle(remains);
        }
    }

    /// Drops the payload of an owned timer after a shutdown, and wakes the task that waits for the timer. Survives a
    /// panic of the payload's drop and of the waker.
    pub(super) fn settle(&self, remains: Remains<T>) {
        let (payload, waker) = remains.into_parts();
        self.guarded.run(|| drop(payload));
        self.wake(waker);
    }

    /// Wakes the task of `waker`, if there is any. Survives a panic of the waker.
    pub(super) fn wake(&self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.guarded.run(|| waker.wake());
        }
    }
}

impl<T> fmt::Debug for Core<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("id", &self.timers.admission.engine()).finish_non_exhaustive()
    }
}
