//! Races on an owned timer.
//!
//! Each row was tried: the named ordering was made `Relaxed` or the step was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | F3: `postpone`'s light fence | `arm_races_with_fire`, `arm_races_with_reissue`, `disarm_and_arm_race_with_a_check`, and 2 more |
//! | F3: `disarm`'s light fence | `disarm_and_arm_race_with_a_check`, `disarm_races_with_fire` |
//! | F3: the heavy fence of `keep_due` | `arm_races_with_fire`, `arm_races_with_reissue`, `disarm_and_arm_race_with_a_check`, and 3 more |
//! | S1: `queue` does not mark a timer that is checking | `arm_races_with_fire`, `arm_races_with_reissue`, `disarm_and_arm_race_with_a_check`, and 5 more |
//! | S1: `queue` does not mark a running timer | `arm_races_with_fire`, `disarm_and_arm_race_with_a_check`, `nothing_begins_before_the_last_acknowledged_deadline`, and 2 more |
//! | S1: `withdraw` does not mark the timer | `a_disarm_tells_without_a_fence`, `disarm_and_arm_race_with_a_check`, `disarm_races_with_a_handler_that_disarms`, and 2 more |
//! | S1: `decide` ignores `changed` | `disarm_and_arm_race_with_a_check`, `one_arming_during_a_check_fires_once`, `changes_are_seen_by_a_check_without_a_fence`, and 1 more |
//! | S1: `end` ignores `changed` | `arm_races_with_fire`, `disarm_and_arm_race_with_a_check`, `nothing_begins_before_the_last_acknowledged_deadline`, and 2 more |
//! | S1: `begin` does not consume | `one_arming_fires_once`, `one_arming_during_a_check_fires_once` |
//! | O3: `check_for` with an unknown check queues for its deadline | `two_arms` |
//! | O3: `check_for` ignores the tag | `arm_races_with_reissue`, `changes_are_seen_by_a_check_without_a_fence`, `changes_are_seen_without_a_fence`, and 1 more |
//! | O3: `check_for` queues no ticket within the unit | `arm_races_with_reissue`, `arm_races_with_shut`, `changes_are_seen_by_a_check_without_a_fence`, and 2 more |
//! | O3: `queue_anew` queues for the new deadline alone | `a_move_races_with_an_arm` |
//! | O2: `queued` keeps the sequence | `arm_races_with_reissue`, `changes_are_seen_by_a_check_without_a_fence`, `changes_are_seen_without_a_fence`, and 1 more |
//! | O2: `begin_check` takes any stamp | `two_arms` |
//! | O5: `end` ignores a drop | `drop_races_with_fire`, `drop_races_with_running_handler`, `drop_races_with_shut_and_fire` |
//! | O5: `release` vacates a timer that is checking | none: the timer's holder finds another stamp; the slot's next owner might get the same stamp |
//! | O5: `shut` frees a running timer | `drop_races_with_shut_and_fire` |
//! | `queue` ignores the shutdown | `arm_races_with_shut` |
//! | S1, S2: `update`'s Acquire | `disarm_and_arm_race_with_a_check`, `one_arming_during_a_check_fires_once`, `changes_are_seen_by_a_check_without_a_fence`, and 1 more |
//! | S1, S2: `update`'s Release | `a_disarm_tells_without_a_fence`, `drop_races_with_fire`, `drop_races_with_running_handler`, and 5 more |
//! | S1: `update`'s Acquire on failure | `idle_sees_what_the_run_did` |
//! | S2: `disarm`'s load | `idle_sees_what_the_run_did` |
//! | S2: `has_run` | `who_waits_sees_what_the_run_did` |
//! | S2: `await_run` | `who_comes_too_late_to_wait_for_a_run_sees_what_it_did` |
//! | the Acquire of `check`, `begin`, `end`, `armed_for`; Release of the deadlines (T3) | none: a CAS comes first, or no model has such a reader |
//! | S2: Release of `own` | none here: its reader is the shutdown, see `last_run` |

use super::model;
use crate::base::sync::{AtomicU64, Ordering, StdArc};
use crate::base::tick::{Tick, Timestamp};
use crate::base::ticket::{Insertion, Ticket};
use crate::lockfree::barrier::Barrier;
use crate::lockfree::slab::{Magazines, Slab};
use crate::lockfree::state::Control;
use crate::lockfree::state::owned::{AfterRun, Arm, Begin, Disarm, Owned, Release};
use crate::shard::keep_due;

mod arming;
mod disarming;

/// A deadline in the same unit as `DUE` and `LATER`. The timer's state counts in units. An extra word distinguishes the
/// deadlines within a unit.
pub(super) const EARLY: Timestamp = Timestamp::from_nanos(10);
pub(super) const DUE: Timestamp = Timestamp::from_nanos(20);
pub(super) const LATER: Timestamp = Timestamp::from_nanos(30);

/// Runs a model twice: with three deadlines in one unit of the timer's state, and with each deadline in a unit of its
/// own. The state itself distinguishes deadlines in different units.
fn model_of_three_deadlines(name: &str, f: fn([Timestamp; 3])) {
    model(name, move || f([EARLY, DUE, LATER]));
    let apart = [EARLY, DUE, LATER].map(|deadline| Timestamp::from_nanos(deadline.as_nanos() << 24));
    model(name, move || f(apart));
}

/// A slab with one timer, whose payload is 7. Each thread also has the ticket (entry for the wheel) that it posted
/// last, until the ticket is due.
pub(super) struct World {
    pub(super) slab: Slab<u32>,
    pub(super) index: u32,
    /// The ticket that each thread posted last: the deadline in the high bits, and the stamp in the low bits. 0 stands
    /// for none.
    tickets: [AtomicU64; 2],
}

const NONE: u64 = 0;
/// The index of the model's main thread, which owns the timer.
pub(super) const OWNER: usize = 0;
/// The index of the model's other thread.
pub(super) const OTHER: usize = 1;

impl World {
    fn new() -> StdArc<Self> {
        let world = Self::vacant();
        world.make();
        world
    }

    /// Makes a world whose slot has no timer.
    pub(super) fn vacant() -> StdArc<Self> {
        let slab = Slab::new(2, Timestamp::ZERO);
        let index = Magazines::new().take(slab.slots()).unwrap();
        StdArc::new(Self { slab, index, tickets: [AtomicU64::new(NONE), AtomicU64::new(NONE)] })
    }

    /// Makes the timer in the world's slot, which must be vacant.
    pub(super) fn make(&self) {
        // SAFETY: the slot is vacant. The magazine gave it to this world, and no thread has put it back.
        unsafe { self.slab.write(self.index, 7) };
        self.timer().own(true);
    }

    /// Makes a world whose timer is armed for `deadline`. Also returns the stamp of the timer's ticket.
    pub(super) fn armed(deadline: Timestamp) -> (StdArc<Self>, u16) {
        let world = Self::new();
        assert_eq!(
            world.arm(OWNER, deadline),
            Arm::Pending,
            "an arm of a timer at rest was not acknowledged"
        );
        let stamp = world.take_ticket(OWNER).unwrap().1;
        (world, stamp)
    }

    pub(super) fn control(&self) -> &Control {
        self.slab.slots().control(self.index)
    }

    pub(super) fn timer(&self) -> Owned<'_> {
        self.slab.slots().owned(self.index)
    }

    fn post(&self, party: usize, stamp: u16, deadline: Timestamp) {
        self.tickets[party].store(deadline.as_nanos() << 32 | u64::from(stamp), Ordering::Relaxed);
    }

    fn take_ticket(&self, party: usize) -> Option<(Timestamp, u16)> {
        let ticket = self.tickets[party].load(Ordering::Relaxed);
        self.tickets[party].store(NONE, Ordering::Relaxed);
        let stamp = u16::try_from(ticket & u64::from(u32::MAX)).unwrap();
        (ticket != NONE).then_some((Timestamp::from_nanos(ticket >> 32), stamp))
    }

    pub(super) fn arm(&self, party: usize, deadline: Timestamp) -> Arm {
        self.arm_past(self.slab.slots().barrier(), party, deadline)
    }

    fn arm_past(&self, barrier: Barrier, party: usize, deadline: Timestamp) -> Arm {
        if self.timer().with_barrier(barrier).postpone(deadline) {
            return Arm::Pending;
        }
        match self.timer().queue(deadline, |deadline| deadline.min(EARLY)) {
            Arm::Queue { stamp, check } => {
                self.post(party, stamp, check);
                Arm::Pending
            }
            other => other,
        }
    }

    /// Arms the timer by a new ticket, even if a ticket is queued. An arming that moves the timer to another lane works
    /// in this way.
    fn arm_anew(&self, party: usize, deadline: Timestamp) -> Arm {
        let _covered = self.timer().with_barrier(self.slab.slots().barrier()).postpone(deadline);
        match self.timer().queue_anew(deadline) {
            Arm::Queue { stamp, check } => {
                self.post(party, stamp, check);
                Arm::Pending
            }
            other => other,
        }
    }

    fn disarm(&self) -> Disarm {
        self.timer().disarm().into()
    }

    /// Handles a due ticket as a shard does. Returns true if the timer is due.
    fn check(&self, party: usize, stamp: u16, now: Timestamp) -> bool {
        let mut due = vec![Ticket::new(Tick(0), self.index, stamp)];
        let insert_again = |insertion: Insertion| self.post(party, insertion.stamp, insertion.deadline);
        keep_due(self.slab.slots(), &mut due, now, |deadline| deadline, insert_again);
        !due.is_empty()
    }

    /// Handles a due timer as a worker does. Returns the deadline for which the timer fired, or `None` if it did not
    /// fire.
    fn fire(&self, party: usize, stamp: u16, now: Timestamp, handler: impl FnOnce()) -> Option<Timestamp> {
        self.fire_with(party, stamp, now, handler, || {})
    }

    /// Works as `fire`. If the engine is shut down during the handler's run, the end of the run calls `last_word`.
    pub(super) fn fire_with(
        &self,
        party: usize,
        stamp: u16,
        now: Timestamp,
        handler: impl FnOnce(),
        last_word: impl FnOnce(),
    ) -> Option<Timestamp> {
        match self.timer().begin(stamp, now) {
            Begin::Run { deadline } => {
                assert!(deadline <= now, "fired early");
                // SAFETY: O5: this thread has not ended the run.
                assert_eq!(
                    unsafe { *self.slab.peek(self.index) },
                    7,
                    "the payload was freed before its run had ended"
                );
                handler();
                match self.timer().end_with(last_word).then {
                    AfterRun::Later { stamp, check } => self.post(party, stamp, check),
                    AfterRun::AtRest => {}
                    AfterRun::Free => self.free(),
                }
                Some(deadline)
            }
            Begin::Later { stamp, check } => {
                self.post(party, stamp, check);
                None
            }
            Begin::AtRest => None,
            Begin::Free => {
                self.free();
                None
            }
        }
    }

    /// Handles a due ticket: checks the timer, and fires the timer if it is due. Returns the deadline for which the
    /// timer fired.
    pub(super) fn turn(&self, party: usize, stamp: u16, now: Timestamp) -> Option<Timestamp> {
        if self.check(party, stamp, now) { self.fire(party, stamp, now, || {}) } else { None }
    }

    /// Fires the timer if a posted ticket is due at `now`. Only one thread may be left. Returns the deadline for which
    /// the timer fired.
    pub(super) fn settle(&self, now: Timestamp) -> Option<Timestamp> {
        let mut fired = None;
        for party in [OWNER, OTHER] {
            let Some((due, stamp)) = self.take_ticket(party) else { continue };
            if due > now {
                self.post(party, stamp, due);
            } else if let Some(deadline) = self.turn(party, stamp, now) {
                assert_eq!(fired.replace(deadline), None, "fired twice");
            }
        }
        fired
    }

    pub(super) fn free(&self) {
        // SAFETY: O5: this thread vacated the slot.
        assert_eq!(
            unsafe { self.slab.take(self.index) },
            7,
            "the payload was freed twice, or not written whole"
        );
    }

    pub(super) fn drop_handle(&self) {
        match self.timer().release() {
            Release::Vacated => self.free(),
            Release::Left => {}
        }
    }
}

/// Asserts that the timer's slot is vacant, in the generation after the first: the slot was freed exactly once.
pub(super) fn assert_vacant(world: &World) {
    assert_vacant_in(world, 1);
}

/// Asserts that the timer's slot is vacant, in the generation with this number.
pub(super) fn assert_vacant_in(world: &World, generation: u64) {
    let (id, _) = world.control().arm(world.index, DUE);
    assert!(id.is_of(generation), "the slot was not freed once");
}

/// Makes a timer that a shard is checking, after the heavy side of the barrier. From here on nothing depends on the
/// light side. Also returns the stamp of the timer's ticket.
pub(super) fn being_checked() -> (StdArc<World>, u16) {
    let (world, stamp) = World::armed(DUE);
    assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
    (world, stamp)
}
