//! The admission of timers: the state that a thread needs in order to bring a timer in, whatever the payload. It
//! consists of slots, the stations with their lanes, and the reasons to refuse a timer. Both kinds of timers pass here.

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

/// The admission of an engine's timers.
pub(crate) struct Admission {
    engine: u64,
    place: Place,
    stations: Stations,
    slots: StdArc<Slots>,
    clock: EngineClock,
    set: StdArc<ShardSet>,
    /// Written at each refusal, on lines of its own: every admission reads the other fields.
    refusals: CachePadded<RefusalCounts>,
}

/// The counts of refused calls, by their reason.
struct RefusalCounts {
    /// Calls that found no slot.
    engine_full: Refusals,
    /// Calls that found no room in their lane.
    lane_full: Refusals,
}

impl Admission {
    /// The admission of another engine on `set`, to these slots.
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

    /// The engine's number.
    #[inline(always)]
    pub(crate) fn engine(&self) -> u64 {
        self.engine
    }

    /// The index of the engine's place, at which each thread keeps its part.
    #[inline(always)]
    pub(super) fn place(&self) -> usize {
        self.place.index()
    }

    /// The engine's stations.
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

    /// The set of shards that the engine is on.
    #[inline]
    pub(crate) fn set(&self) -> &StdArc<ShardSet> {
        &self.set
    }

    /// Calls that found no slot.
    pub(crate) fn engine_full(&self) -> &Refusals {
        &self.refusals.engine_full
    }

    /// Calls that found no room in their lane.
    pub(crate) fn lane_full(&self) -> &Refusals {
        &self.refusals.lane_full
    }

    /// Whether the engine was shut down: it admits no timer.
    #[inline]
    pub(crate) fn is_shut_down(&self) -> bool {
        self.stations.are_closed()
    }

    /// Whether this process is the child of a fork, and the engine was built before the fork.
    pub(crate) fn is_forked(&self) -> bool {
        self.set.is_forked()
    }

    /// The reason why a closed engine refuses.
    pub(crate) fn why_closed(&self) -> Refusal {
        if self.is_forked() { Refusal::Forked } else { Refusal::ShutDown }
    }

    /// Refuses a timer because a lane to `shard` is full, which has room for `capacity` tickets. Wakes a sleeping
    /// shard, so that the shard drains the lane.
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

    /// Refuses a timer because every slot is in use, or kept in reserve by other threads.
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
