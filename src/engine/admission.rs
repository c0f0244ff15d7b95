//! Admits timers to an engine. An admission has everything that a thread needs to add a timer: slots, the stations with
//! their lanes, and the reasons to refuse a timer. It does not depend on the type of the payload. One-shots and owned
//! timers both use it.

use super::place::Place;
use super::stations::Stations;
use crate::base::counters::Refusals;
use crate::base::error::Refusal;
use crate::base::sync::StdArc;
use crate::base::trace;
use crate::lockfree::slab::Slots;
use crate::shard::{ShardSet, next_id};
use crate::system::clock::EngineClock;
use crossbeam_utils::CachePadded;

/// The slots and lanes through which an engine admits timers.
pub(crate) struct Admission {
    engine: u64,
    place: Place,
    stations: Stations,
    slots: StdArc<Slots>,
    clock: EngineClock,
    set: StdArc<ShardSet>,
    /// The counts of refused calls. They are on cache lines of their own, since each refusal writes them and every call
    /// reads the other fields.
    refusals: CachePadded<RefusalCounts>,
}

/// The counts of refused calls, by their reason.
struct RefusalCounts {
    /// Counts calls that were refused because all slots were taken.
    engine_full: Refusals,
    /// Counts calls that were refused because the calling thread's lane was full.
    lane_full: Refusals,
}

impl Admission {
    /// Makes the admission of a new engine on `set`. `slots` are the engine's slots.
    pub(super) fn new(set: &StdArc<ShardSet>, slots: StdArc<Slots>, lane_capacity: u64) -> Self {
        Self {
            engine: next_id(),
            place: Place::take(),
            stations: Stations::new(set, lane_capacity),
            slots,
            clock: set.settings().clock.clone(),
            set: StdArc::clone(set),
            refusals: CachePadded::new(RefusalCounts {
                engine_full: Refusals::new(),
                lane_full: Refusals::new(),
            }),
        }
    }

    /// Returns the engine's number, which no other engine has.
    #[inline(always)]
    pub(crate) fn engine(&self) -> u64 {
        self.engine
    }

    /// Returns the engine's place: the index at which each thread keeps its part of the engine.
    #[inline(always)]
    pub(super) fn place(&self) -> usize {
        self.place.index()
    }

    /// Returns the engine's stations, one for each shard.
    #[inline(always)]
    pub(crate) fn stations(&self) -> &Stations {
        &self.stations
    }

    #[inline(always)]
    pub(crate) fn slots(&self) -> &StdArc<Slots> {
        &self.slots
    }

    #[inline(always)]
    pub(crate) fn clock(&self) -> &EngineClock {
        &self.clock
    }

    /// Returns the set of shards that the engine uses.
    #[inline]
    pub(crate) fn set(&self) -> &StdArc<ShardSet> {
        &self.set
    }

    /// Returns the counter of calls that found no slot.
    pub(crate) fn engine_full(&self) -> &Refusals {
        &self.refusals.engine_full
    }

    /// Returns the counter of calls that found no room in their lane.
    pub(crate) fn lane_full(&self) -> &Refusals {
        &self.refusals.lane_full
    }

    /// Returns whether the engine was shut down, and so admits no timer.
    #[inline]
    pub(crate) fn is_shut_down(&self) -> bool {
        self.stations.are_closed()
    }

    /// Returns whether this process is the child of a fork, and the engine was built before the fork.
    pub(crate) fn is_forked(&self) -> bool {
        self.set.is_forked()
    }

    /// Returns the reason why a closed engine refuses timers.
    pub(crate) fn why_closed(&self) -> Refusal {
        if self.is_forked() { Refusal::Forked } else { Refusal::ShutDown }
    }

    /// Refuses a timer because a lane to `shard` is full. `capacity` is the number of tickets that the lane can hold.
    /// Wakes the shard if it sleeps, so that it drains the lane.
    #[cold]
    pub(super) fn refuse_for_want_of_room(&self, shard: usize, capacity: u64) -> Refusal {
        self.stations.at(shard).parker.wake_if_asleep();
        if self.is_shut_down() {
            return self.why_closed();
        }
        if self.refusals.lane_full.note(self.clock.now()) {
            trace::lane_full(self.engine, shard, capacity);
        }
        Refusal::LaneFull
    }

    /// Refuses a timer because no vacant slot is left for this thread: every slot is in use, or another thread has it
    /// in reserve.
    #[cold]
    pub(super) fn refuse_for_want_of_a_slot(&self) -> Refusal {
        if self.is_shut_down() {
            return self.why_closed();
        }
        if self.refusals.engine_full.note(self.clock.now()) {
            trace::engine_full(self.engine, self.slots.capacity());
        }
        Refusal::EngineFull
    }
}
