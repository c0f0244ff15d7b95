//! The part of a station that producers and workers share: the inbox, the parker, the counters, and requests to the
//! shard.

use crate::base::counters::StationCounters;
use crate::base::sync::{AtomicBool, Ordering, StdArc};
use crate::lockfree::inbox::Inbox;
use crate::lockfree::parker::Parker;
use crate::lockfree::roster::Roster;

/// The data of a station (an engine's part of a shard) that all threads use: the inbox for new tickets, the word on
/// which the shard's thread sleeps, and the counters. The rest of the station belongs to the thread that leads the
/// shard.
#[derive(Debug)]
pub(crate) struct StationShared {
    pub(crate) inbox: StdArc<Inbox>,
    pub(crate) parker: Parker,
    pub(crate) counters: StationCounters,
    sweep_wanted: AtomicBool,
    check_wanted: AtomicBool,
}

impl StationShared {
    /// Makes the shared data of a station that never rests.
    pub(crate) fn new(lane_capacity: u64, roster: &StdArc<Roster>) -> Self {
        Self::with(lane_capacity, Parker::new(StdArc::clone(roster)))
    }

    pub(super) fn with(lane_capacity: u64, parker: Parker) -> Self {
        Self {
            inbox: StdArc::new(Inbox::new(lane_capacity)),
            parker,
            counters: StationCounters::new(),
            sweep_wanted: AtomicBool::new(false),
            check_wanted: AtomicBool::new(false),
        }
    }

    /// Asks the shard to drop the stale tickets (requests to check timers) in the engine's wheel.
    pub(crate) fn want_sweep(&self) {
        // Ordering: Relaxed. The parker's fences order this store as they order a push (F1): the shard looks at the
        // flag between its announcement and its sleep.
        self.sweep_wanted.store(true, Ordering::Relaxed);
        self.parker.wake_if_asleep();
    }

    pub(crate) fn is_sweep_wanted(&self) -> bool {
        // Ordering: Relaxed. See `want_sweep`.
        self.sweep_wanted.load(Ordering::Relaxed)
    }

    /// Clears the request for a sweep of stale tickets. The leader (the thread that runs the shard) must call this
    /// before the sweep begins. A request during the sweep then asks for another sweep.
    pub(super) fn take_sweep_wanted(&self) {
        // Ordering: Relaxed. Nothing is published. If the sweep takes a stale ticket for a live ticket, the ticket
        // stays until the next sweep.
        self.sweep_wanted.store(false, Ordering::Relaxed);
    }

    /// Asks the shard to check the batches (groups of due timers) that workers are running, because an executor has
    /// dropped a job.
    pub(crate) fn want_check(&self) {
        // Ordering: Release [H3 of `dispatch::batch`]. The job's count. The parker's fences order the flag against
        // the shard's sleep, as in `want_sweep`.
        self.check_wanted.store(true, Ordering::Release);
        self.parker.wake_if_asleep();
    }

    /// Tells the shard that workers have taken tickets of a batch, a group of due timers. If the shard holds tickets
    /// back, it wakes and hands over more tickets.
    pub(crate) fn made_room(&self) {
        // The shard checks for room between its announcement and its sleep (F1).
        self.parker.wake_if_asleep_and(|| self.counters.held_back.get() > 0);
    }

    pub(crate) fn is_check_wanted(&self) -> bool {
        // Ordering: Relaxed. The value is a hint. `take_check_wanted` is the synchronising read.
        self.check_wanted.load(Ordering::Relaxed)
    }

    /// Clears the request for a check of batches. The leader must call this before the check begins. A job that is
    /// dropped during the check then asks for another check.
    pub(crate) fn take_check_wanted(&self) {
        // Ordering: Acquire [H3 of `dispatch::batch`]. Pairs with `want_check`.
        self.check_wanted.swap(false, Ordering::Acquire);
    }
}
