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

/// Admits timers to an engine: gives each timer a slot, and its ticket (a request to check the timer) a lane (a
/// thread's queue to a shard).
pub(crate) struct Admission {
    engine: u64,
    place: Place,
    stations: Stations,
    slots: StdArc<Slots>,
    clock: EngineClock,
    set: StdArc<ShardSet>,
    /// The counts of refused calls. They are on cache lines of their own: each refusal writes them, and every call
    /// reads the other fields.
    refusals: CachePadded<RefusalCounts>,
}

/// The counts of refused calls, by the reason for the refusal.
struct RefusalCounts {
    /// Counts calls that were refused because all slots were taken.
    engine_full: Refusals,
    /// Counts calls that were refused because the calling thread's lane was full.
    lane_full: Refusals,
}

impl Admission {
    /// Makes the admission (the part that admits timers) of a new engine on `set`. The engine's timers get their slots
    /// from `slots`.
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

    /// Returns the engine's place: an index into each thread's storage. At this index a thread keeps its data about the
    /// engine.
    #[inline(always)]
    pub(super) fn place(&self) -> usize {
        self.place.index()
    }

    /// Returns the engine's stations, its parts of the shards: one for each shard.
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

    #[inline]
    pub(crate) fn set(&self) -> &StdArc<ShardSet> {
        &self.set
    }

    /// Returns the counter of calls that found no slot.
    pub(crate) fn engine_full(&self) -> &Refusals {
        &self.refusals.engine_full
    }

    /// Returns the counter of calls that found no room in the calling thread's lane, its queue to the shard.
    pub(crate) fn lane_full(&self) -> &Refusals {
        &self.refusals.lane_full
    }

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
    /// If the shard sleeps, wakes it to drain the lane.
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

    /// Refuses a timer because no vacant slot is left for the calling thread. Every slot is in use, or in reserve for
    /// another thread.
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
