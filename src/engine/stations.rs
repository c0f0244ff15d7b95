//! The stations of an engine, one at each shard. Tickets go to the shards through the stations' lanes, and the stations
//! count the engine's timers.

use super::totals::Totals;
use crate::base::counters::Counter;
use crate::base::sync::StdArc;
use crate::base::tick::Timestamp;
use crate::lockfree::inbox::{Lane, Pushed};
use crate::lockfree::parker::{Look, Notified};
use crate::shard::{ShardSet, StationShared, first_check};
use crate::system::clock::EngineClock;

/// The number of stale tickets (requests to check timers) that may stay in the wheels even if few timers exist:
/// half a MiB of tickets.
const STALE_SLACK: u64 = 65_536;

/// An engine's stations, in the order of the shards. A station is the engine's part of a shard: the engine's inbox and
/// wheel there.
pub(crate) struct Stations {
    all: Box<[StdArc<StationShared>]>,
    /// The number of timers that the shutdown has returned. No station (an engine's part of a shard) counts these
    /// timers.
    returned: Counter,
}

impl Stations {
    pub(super) fn new(set: &ShardSet, lane_capacity: u64) -> Self {
        let station = |n| StdArc::new(set.station_for(n, lane_capacity));
        Self { all: (0..set.shards().len()).map(station).collect(), returned: Counter::new() }
    }

    #[inline]
    pub(crate) fn all(&self) -> &[StdArc<StationShared>] {
        &self.all
    }

    #[inline(always)]
    pub(super) fn at(&self, shard: usize) -> &StationShared {
        &self.all[shard]
    }

    #[inline]
    pub(super) fn are_closed(&self) -> bool {
        self.all[0].parker.is_closed()
    }

    /// Closes the stations, the engine's parts of the shards. Threads that schedule find them closed, and the threads
    /// that lead the shards drop them.
    pub(super) fn close(&self) {
        for station in &self.all {
            station.parker.close();
        }
    }

    /// Closes the stations (the engine's parts of the shards) in the child of a fork. Wakes no thread.
    pub(super) fn close_in_child(&self) {
        for station in &self.all {
            station.parker.close_in_child();
        }
    }

    /// Returns the moment at which the shard numbered `shard` should first check a timer that is armed for `deadline`.
    /// The moment may be before the deadline, so that the shard checks many timers at once.
    pub(super) fn first_check(&self, shard: usize, deadline: Timestamp, clock: &EngineClock) -> Timestamp {
        self.about_now(shard, clock).map_or(deadline, |now| first_check(now, deadline))
    }

    /// Returns about the time, in nanoseconds, until `deadline`, for a thread whose timers go to the shard numbered
    /// `shard`. Returns zero if no cheap reading of the time is at hand.
    #[cfg(feature = "async")]
    pub(super) fn ahead(&self, shard: usize, deadline: Timestamp, clock: &EngineClock) -> u64 {
        let now = self.about_now(shard, clock);
        now.map_or(0, |now| deadline.as_nanos().saturating_sub(now.as_nanos()))
    }

    /// Returns a moment that stands for the present: that at which the shard turns next. Only if the shard turns at
    /// once, reads the clock, unless the program has made the clock. Returns `None` if the shard sleeps until it is
    /// woken: then it has nothing to do with which a check could be combined.
    fn about_now(&self, shard: usize, clock: &EngineClock) -> Option<Timestamp> {
        match self.at(shard).parker.looks_at()? {
            Look::At(next) => Some(next),
            Look::AtOnce => clock.is_of_the_system().then(|| clock.now()),
        }
    }

    /// Notifies the shard numbered `shard` about a ticket that the caller has pushed into a lane (a thread's queue to a
    /// shard) to that shard.
    #[inline]
    pub(super) fn notify(&self, shard: usize, pushed: Pushed, deadline: Timestamp) -> Notified {
        let deadline = if pushed == Pushed::Crowding { Timestamp::ZERO } else { deadline };
        self.all[shard].parker.notify(deadline)
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.all.iter().flat_map(|station| station.inbox.lanes())
    }

    /// Returns the number of armings of owned timers that have posted a ticket to a shard.
    pub(crate) fn posted_arms(&self) -> u64 {
        self.lanes().map(Lane::posted_arms).sum()
    }

    pub(super) fn count_returned(&self, timers: u64) {
        self.returned.add(timers);
    }

    /// Returns the total counts of timers, over all threads. The counters are read at different instants. Later events,
    /// such as a firing, are read before earlier events, such as the scheduling. So no difference of two counts becomes
    /// negative.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals { returned: self.returned.get(), ..Totals::default() };
        for station in &self.all {
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

    /// Asks the shards to drop stale tickets from their wheels, if stale tickets outnumber the live timers.
    #[cold]
    pub(super) fn consider_a_sweep(&self) {
        let tickets: u64 = self.all.iter().map(|station| station.counters.tickets.get()).sum();
        let totals = self.totals();
        if tickets > 2 * (totals.pending() + totals.owned()) + STALE_SLACK {
            for station in &self.all {
                station.want_sweep();
            }
        }
    }
}
