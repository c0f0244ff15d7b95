//! The core: an engine, as its handles and the threads that serve it share it. Its parts are here, and the methods that
//! read them; the operations on the parts are in the other files of this folder.

use super::anchors::Anchors;
use super::due::Due;
use super::hooks::Hooks;
use super::place::Place;
use super::totals::Totals;
use crate::base::counters::{Counter, Refusals};
use crate::base::error::Refusal;
use crate::base::sync::{Condvar, Mutex, OnceLock, StdArc};
use crate::base::tick::{TickLength, Timestamp};
use crate::base::ticket::TimerId;
use crate::dispatch::{Dispatcher, Guarded};
use crate::lockfree::inbox::Lane;
use crate::lockfree::sessions::Sessions;
use crate::lockfree::slab::{Slab, Slots};
use crate::lockfree::state::Control;
use crate::shard::{Owner, Presence, ShardSet, StationShared, next_id};
use crate::system::clock::{ClockReport, EngineClock};
use crate::system::forks::Watch;
use core::fmt;
use core::task::Waker;
use core::time::Duration;

/// The user's handler, as the engine calls it.
pub(crate) type Handler<T> = Box<dyn for<'a> Fn(Due<'a, T>, &'a StdArc<Core<T>>) + Send + Sync>;

/// An engine, as its handles and the threads that serve it share it.
pub(crate) struct Core<T> {
    pub(super) id: u64,
    pub(super) place: Place,
    pub(super) slab: Slab<T>,
    /// The engine's station at each shard.
    pub(super) stations: Box<[StdArc<StationShared>]>,
    pub(super) clock: EngineClock,
    pub(super) dispatcher: Dispatcher,
    pub(super) handler: Handler<T>,
    pub(super) guarded: Guarded,
    pub(super) set: StdArc<ShardSet>,
    /// The set's owner, until the engine is shut down.
    pub(super) owner: Mutex<Option<StdArc<Owner>>>,
    pub(super) presence: StdArc<Presence>,
    /// Calls that found no slot, and calls that found no room in their lane.
    pub(super) engine_full: Refusals,
    pub(super) lane_full: Refusals,
    /// The number of workers that are between the start and the end of a chunk, and how far a shutdown has come.
    pub(super) sessions: Sessions,
    /// Threads wait here for a handler, for the end of the last session, or for the eviction.
    pub(super) quiescence: (Mutex<()>, Condvar),
    pub(super) returned: Counter,
    /// The function that clones the payloads of owned timers for the handler, once there are such timers.
    pub(super) clone_payload: OnceLock<fn(&T) -> T>,
    /// The function that takes the waker of a waiting task out of the payload of an owned timer, if payloads have
    /// wakers.
    pub(super) waker_of: OnceLock<fn(&T) -> Option<Waker>>,
    /// The functions to call at the end.
    pub(super) hooks: Hooks,
    /// The anchors by which the owned timers of each thread hold the core.
    pub(super) anchors: StdArc<Anchors>,
    pub(super) forks: OnceLock<Watch>,
}

/// The settings of an engine, with the builder's defaults filled in.
pub(crate) struct Settings {
    pub(crate) capacity: u32,
    pub(crate) lane_capacity: u64,
    /// The threads that handlers run on.
    pub(crate) dispatcher: Dispatcher,
    pub(crate) guarded: Guarded,
}

impl Settings {
    pub(crate) const DEFAULT_CAPACITY: u32 = 1 << 24;
    pub(crate) const DEFAULT_LANE_CAPACITY: u64 = 1 << 16;

    /// The builder's defaults.
    #[cfg(feature = "async")]
    pub(crate) fn by_default(dispatcher: Dispatcher) -> Self {
        let (capacity, lane_capacity) = (Self::DEFAULT_CAPACITY, Self::DEFAULT_LANE_CAPACITY);
        Self { capacity, lane_capacity, dispatcher, guarded: Guarded::new(None) }
    }
}

impl<T: Send + 'static> Core<T> {
    pub(crate) fn new(set: StdArc<ShardSet>, settings: Settings, handler: Handler<T>) -> Self {
        let clock = set.settings().clock.clone();
        let station = |n| StdArc::new(set.station_for(n, settings.lane_capacity));
        Self {
            id: next_id(),
            place: Place::take(),
            slab: Slab::new(settings.capacity, clock.now()),
            stations: (0..set.shards().len()).map(station).collect(),
            clock,
            dispatcher: settings.dispatcher,
            handler,
            guarded: settings.guarded,
            presence: Presence::of(set.shards().len()),
            set,
            owner: Mutex::new(None),
            engine_full: Refusals::new(),
            lane_full: Refusals::new(),
            sessions: Sessions::new(),
            quiescence: (Mutex::new(()), Condvar::new()),
            returned: Counter::new(),
            clone_payload: OnceLock::new(),
            waker_of: OnceLock::new(),
            hooks: Hooks::new(),
            anchors: Anchors::new(),
            forks: OnceLock::new(),
        }
    }

    /// The present moment from which deadlines are counted.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The present moment that decides whether a deadline has come.
    pub(crate) fn true_now(&self) -> Timestamp {
        self.clock.true_now()
    }

    /// The time that a thread may sleep to be awake at `deadline`; `None` if no sleep helps.
    pub(crate) fn sleep_for(&self, deadline: Timestamp) -> Option<Duration> {
        self.clock.as_dyn().sleep_for(self.clock.true_now(), deadline)
    }

    /// Whether `deadline` has come. The fast clock is read first: a deadline that has not come by the fast clock has
    /// not come.
    #[inline]
    pub(crate) fn has_come(&self, deadline: Timestamp) -> bool {
        self.clock.now() >= deadline && self.clock.true_now() >= deadline
    }

    pub(crate) fn clock_report(&self) -> ClockReport {
        self.clock.as_dyn().report()
    }

    pub(crate) fn tick(&self) -> TickLength {
        self.set.settings().tick
    }

    /// The shards and the threads that serve the engine.
    pub(crate) fn set(&self) -> &ShardSet {
        &self.set
    }

    /// The engine's stations, in the order of the shards.
    pub(crate) fn stations(&self) -> &[StdArc<StationShared>] {
        &self.stations
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The number of workers that run handlers; zero where the shards run them, or where the number is unknown.
    pub(crate) fn workers(&self) -> usize {
        self.dispatcher.workers()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.slots().capacity()
    }

    /// Calls that found no slot.
    pub(crate) fn engine_full(&self) -> &Refusals {
        &self.engine_full
    }

    /// Calls that found no room in their lane.
    pub(crate) fn lane_full(&self) -> &Refusals {
        &self.lane_full
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.stations[0].parker.is_closed()
    }

    /// Whether this process is the child of a fork, and the engine was built before the fork.
    pub(crate) fn is_forked(&self) -> bool {
        self.set.is_forked()
    }

    /// The reason why a closed engine refuses.
    pub(super) fn why_closed(&self) -> Refusal {
        if self.is_forked() { Refusal::Forked } else { Refusal::ShutDown }
    }

    pub(crate) fn slots(&self) -> &Slots {
        self.slab.slots()
    }

    pub(super) fn control(&self, id: TimerId) -> Option<&Control> {
        self.slots().get(id.index())
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.stations.iter().flat_map(|station| station.inbox.lanes())
    }

    /// Armings of owned timers that posted a ticket.
    pub(crate) fn posted_arms(&self) -> u64 {
        self.lanes().map(Lane::posted_arms).sum()
    }

    /// The numbers of scheduled, cancelled and fired timers so far, over all threads. Later events are read first, so
    /// that no difference is negative because the counters are read at different instants.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals { returned: self.returned.get(), ..Totals::default() };
        for station in &self.stations {
            totals.fired += station.counters.fired();
        }
        for lane in self.lanes() {
            let (created, destroyed) = lane.created_and_destroyed();
            totals.created += created;
            totals.destroyed += destroyed;
        }
        totals.cancelled = self.lanes().map(Lane::cancelled).sum();
        totals.scheduled = self.lanes().map(Lane::scheduled).sum();
        totals
    }
}

impl<T> fmt::Debug for Core<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("id", &self.id).finish_non_exhaustive()
    }
}
