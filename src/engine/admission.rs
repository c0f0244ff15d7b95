//! The admission of timers: a slot, room in the lane, the wake of the shard, and the sweep that bounds stale tickets.
//! Both kinds of timers pass here.

use super::core::Core;
use super::local::Local;
use crate::base::error::Refusal;
use crate::base::tick::Timestamp;
use crate::base::trace;
use crate::lockfree::inbox::Pushed;
use crate::lockfree::parker::Notified;

/// The number of stale tickets that may stay in the wheels, however few timers live: 1 MiB of tickets.
const STALE_SLACK: u64 = 65_536;
/// A thread checks whether a sweep is due after this many cancels of its own.
pub(super) const CANCELS_PER_CHECK: u64 = 4_096;

/// A vacant slot, held by the caller that reserved it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Slot(pub(super) u32);

impl<T: Send + 'static> Core<T> {
    /// Takes a slot for a timer that `local` is about to schedule.
    #[inline(always)]
    pub(crate) fn reserve(&self, local: &mut Local) -> Result<Slot, Refusal> {
        if !local.lane.has_room() {
            return Err(self.refuse_for_want_of_room(local));
        }
        match local.magazines.take(self.slots()) {
            Some(index) => Ok(Slot(index)),
            None => Err(self.refuse_for_want_of_a_slot()),
        }
    }

    #[inline]
    pub(super) fn notify(&self, local: &Local, pushed: Pushed, deadline: Timestamp) -> Notified {
        let deadline = if pushed == Pushed::Crowding { Timestamp::ZERO } else { deadline };
        self.stations[local.home].parker.notify(deadline)
    }

    /// Refuses a timer because the lane is full. Wakes a sleeping shard, so that the shard drains the lane.
    #[cold]
    pub(super) fn refuse_for_want_of_room(&self, local: &Local) -> Refusal {
        self.stations[local.home].parker.wake_if_asleep();
        if self.is_shut_down() {
            return self.why_closed();
        }
        if self.lane_full.note(self.now()) {
            trace::lane_full(self.id, local.home, local.lane.lane().capacity());
        }
        Refusal::LaneFull
    }

    /// Refuses a timer because every slot is in use, or kept in reserve by other threads.
    #[cold]
    pub(super) fn refuse_for_want_of_a_slot(&self) -> Refusal {
        if self.is_shut_down() {
            return self.why_closed();
        }
        if self.engine_full.note(self.now()) {
            trace::engine_full(self.id, self.slots().capacity());
        }
        Refusal::EngineFull
    }

    /// Asks the shards to sweep when stale tickets outnumber the live timers.
    #[cold]
    pub(super) fn consider_a_sweep(&self) {
        let tickets: u64 = self.stations.iter().map(|station| station.counters.tickets.get()).sum();
        let totals = self.totals();
        if tickets > 2 * (totals.pending() + totals.owned()) + STALE_SLACK {
            for station in &self.stations {
                station.want_sweep();
            }
        }
    }
}
