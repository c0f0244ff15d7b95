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
//! | the Acquire of `check`, `begin`, `end`, `armed_for`; Release of the deadlines (T3) | none: a CAS comes first, or no model has such a reader |
//! | S2: Release of `own` | none here: its reader is the shutdown, see `last_run` |

use super::model;
use crate::base::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::base::tick::{Tick, Timestamp};
use crate::base::ticket::{Insertion, Ticket};
use crate::lockfree::barrier::Barrier;
use crate::lockfree::slab::{Magazines, Slab};
use crate::lockfree::state::Control;
use crate::lockfree::state::owned::{AfterRun, Arm, Begin, Check, Disarm, Owned, Release, Shut, Withdrawn};
use crate::shard::keep_due;

/// Deadlines within one unit of a check, which the extra word distinguishes.
pub(super) const EARLY: Timestamp = Timestamp::from_nanos(10);
pub(super) const DUE: Timestamp = Timestamp::from_nanos(20);
pub(super) const LATER: Timestamp = Timestamp::from_nanos(30);

/// Runs a model with deadlines in one unit, and with deadlines a unit apart, which the state distinguishes.
fn model_of_three_deadlines(name: &str, f: fn([Timestamp; 3])) {
    model(name, move || f([EARLY, DUE, LATER]));
    let apart = [EARLY, DUE, LATER].map(|deadline| Timestamp::from_nanos(deadline.as_nanos() << 20));
    model(name, move || f(apart));
}

/// A slab with one owned timer, whose payload is 7, and the tickets that each thread posted last, until they are due.
pub(super) struct World {
    pub(super) slab: Slab<u32>,
    pub(super) index: u32,
    /// Deadline above stamp.
    tickets: [AtomicU64; 2],
}

const NONE: u64 = 0;
/// The model's main thread, which has the timer.
pub(super) const OWNER: usize = 0;
/// The model's other thread.
pub(super) const OTHER: usize = 1;

impl World {
    fn new() -> StdArc<Self> {
        let world = Self::vacant();
        world.make();
        world
    }

    /// A world whose slot has no timer yet.
    pub(super) fn vacant() -> StdArc<Self> {
        let slab = Slab::new(2, Timestamp::ZERO);
        let index = Magazines::new().take(slab.slots()).unwrap();
        StdArc::new(Self { slab, index, tickets: [AtomicU64::new(NONE), AtomicU64::new(NONE)] })
    }

    /// Makes the timer in its slot, which is vacant.
    pub(super) fn make(&self) {
        // SAFETY: the magazine gave the vacant slot, and no thread put it back.
        unsafe { self.slab.write(self.index, 7) };
        self.timer().own();
    }

    /// A world whose timer is armed for `deadline`, and the stamp of the timer's ticket.
    pub(super) fn armed(deadline: Timestamp) -> (StdArc<Self>, u32) {
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

    fn post(&self, party: usize, stamp: u32, deadline: Timestamp) {
        self.tickets[party].store(deadline.as_nanos() << 32 | u64::from(stamp), Ordering::Relaxed);
    }

    fn take_ticket(&self, party: usize) -> Option<(Timestamp, u32)> {
        let ticket = self.tickets[party].load(Ordering::Relaxed);
        self.tickets[party].store(NONE, Ordering::Relaxed);
        let stamp = u32::try_from(ticket & u64::from(u32::MAX)).unwrap();
        (ticket != NONE).then_some((Timestamp::from_nanos(ticket >> 32), stamp))
    }

    pub(super) fn arm(&self, party: usize, deadline: Timestamp) -> Arm {
        self.arm_past(self.slab.slots().barrier(), party, deadline)
    }

    fn arm_past(&self, barrier: Barrier, party: usize, deadline: Timestamp) -> Arm {
        if self.timer().with_barrier(barrier).postpone(deadline) {
            return Arm::Pending;
        }
        match self.timer().queue(deadline) {
            Arm::Queue { stamp, check } => {
                self.post(party, stamp, check);
                Arm::Pending
            }
            other => other,
        }
    }

    /// Arms the timer by another ticket, whatever ticket is out, as an arming does that moves the timer to another
    /// lane.
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
    fn check(&self, party: usize, stamp: u32, now: Timestamp) -> bool {
        let mut due = vec![Ticket { tick: Tick(0), index: self.index, stamp }];
        let insert_again = |insertion: Insertion| self.post(party, insertion.stamp, insertion.deadline);
        keep_due(self.slab.slots(), &mut due, now, |deadline| deadline, insert_again);
        !due.is_empty()
    }

    /// Handles a due timer as a worker does. Returns the deadline that the timer fired for.
    fn fire(&self, party: usize, stamp: u32, now: Timestamp, handler: impl FnOnce()) -> Option<Timestamp> {
        self.fire_with(party, stamp, now, handler, || {})
    }

    /// As `fire`, with the last word, which the end of the run says if the shutdown met the run.
    pub(super) fn fire_with(
        &self,
        party: usize,
        stamp: u32,
        now: Timestamp,
        handler: impl FnOnce(),
        last_word: impl FnOnce(),
    ) -> Option<Timestamp> {
        match self.timer().begin(stamp, now) {
            Begin::Run { deadline } => {
                assert!(deadline <= now, "fired early");
                // SAFETY: O5: we have not ended the run.
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

    /// Checks the timer of a due ticket, and fires it if it is due.
    pub(super) fn turn(&self, party: usize, stamp: u32, now: Timestamp) -> Option<Timestamp> {
        if self.check(party, stamp, now) { self.fire(party, stamp, now, || {}) } else { None }
    }

    /// Fires the timers that are due at `now`, of all tickets that were posted. No other thread is left.
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
        // SAFETY: O5: we vacated the slot.
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

/// Legal endings: (a) nothing fires for the old deadline, and the new one fires when it comes; (b) the old one fires,
/// and then the new one. An acknowledged arming is never lost.
#[test]
fn arm_races_with_fire() {
    model_of_three_deadlines("arm_races_with_fire", |[_, due, later]| {
        let (world, stamp) = World::armed(due);
        let other = StdArc::clone(&world);
        let shard = thread::spawn(move || other.turn(OTHER, stamp, due));
        let armed = world.arm(OWNER, later);
        let fired = shard.join().unwrap();
        match (armed, fired) {
            (Arm::Pending, None) => {}
            (Arm::Pending | Arm::Running, Some(deadline)) if deadline == due => {}
            other => panic!("no legal ending: {other:?}"),
        }
        assert_eq!(
            world.timer().armed_for(),
            Some(later),
            "the deadline that was acknowledged is not in force"
        );
        assert_eq!(world.settle(later), Some(later), "an acknowledged deadline was lost");
    });
}

/// A timer moves to another lane while the shard of the old lane looks at it. Legal endings: (a) the old ticket is
/// stale, or its shard has queued one for the new deadline, and the timer fires for that; (b) it fires for the old
/// deadline, and then for the new one. It never fires by both tickets.
#[test]
fn a_move_races_with_fire() {
    model_of_three_deadlines("a_move_races_with_fire", |[_, due, later]| {
        let (world, stamp) = World::armed(due);
        let other = StdArc::clone(&world);
        let shard = thread::spawn(move || other.turn(OTHER, stamp, due));
        let moved = world.arm_anew(OWNER, later);
        match (moved, shard.join().unwrap()) {
            (Arm::Pending, None) => {}
            (Arm::Pending | Arm::Running, Some(deadline)) if deadline == due => {}
            other => panic!("no legal ending: {other:?}"),
        }
        assert_eq!(world.timer().armed_for(), Some(later), "the deadline of the move is not in force");
        assert_eq!(world.settle(later), Some(later), "the moved timer was lost");
        assert_eq!(world.settle(later), None, "it fired by both tickets");
    });
}

/// A timer moves to another lane for a late deadline, while another thread arms it for an earlier one and relies on the
/// ticket that is out. Legal endings: the deadline that was stored last is in force, and the timer fires at that
/// deadline, once.
#[test]
fn a_move_races_with_an_arm() {
    model_of_three_deadlines("a_move_races_with_an_arm", |[early, due, later]| {
        let (world, stamp) = World::armed(early);
        let other = StdArc::clone(&world);
        let arms = thread::spawn(move || other.arm(OTHER, due));
        assert_eq!(world.arm_anew(OWNER, later), Arm::Pending, "a move before any look was not acknowledged");
        assert_eq!(arms.join().unwrap(), Arm::Pending, "an arm before any look was not acknowledged");
        let in_force = world.timer().armed_for().unwrap();
        // The old ticket comes, too, and is stale.
        assert_eq!(world.turn(OTHER, stamp, early), None, "the ticket that was replaced fired the timer");
        let fired = [world.settle(early), world.settle(due), world.settle(later)];
        assert_eq!(
            fired,
            if in_force == due { [None, Some(due), None] } else { [None, None, Some(later)] },
            "it did not fire once, at the deadline that was stored last"
        );
    });
}

/// Once an arm was acknowledged, and no handler had begun, no handler begins before the deadline of that arm.
#[test]
fn nothing_begins_before_the_last_acknowledged_deadline() {
    model("nothing_begins_before_the_last_acknowledged_deadline", || {
        let (world, stamp) = World::armed(DUE);
        let begun = StdArc::new(AtomicU64::new(0));
        let (other, begins) = (StdArc::clone(&world), StdArc::clone(&begun));
        let shard = thread::spawn(move || {
            if other.check(OTHER, stamp, DUE) {
                other.fire(OTHER, stamp, DUE, || {
                    // There is an RMW on both sides: one of them comes first, and the other one sees it.
                    begins.fetch_add(1, Ordering::AcqRel);
                });
            }
        });
        let armed = world.arm(OWNER, LATER);
        let begun_when_acknowledged = begun.fetch_add(0, Ordering::AcqRel);
        shard.join().unwrap();
        if armed == Arm::Pending && begun_when_acknowledged == 0 {
            // A handler may have begun between the acknowledgement's last look and ours only if the arm returned
            // `Running`.
            assert_eq!(begun.load(Ordering::Relaxed), 0, "begun after the acknowledgement");
        }
        assert_eq!(world.settle(LATER), Some(LATER), "an acknowledged deadline was lost");
    });
}

/// Legal endings: the ticket that comes early is queued again for the old deadline or for the new one. If it is queued
/// for the old deadline, and the new one is earlier, the arm queues a ticket of its own. Either way a ticket is due
/// in time.
#[test]
fn arm_races_with_reissue() {
    model_of_three_deadlines("arm_races_with_reissue", |[early, due, later]| {
        let (world, stamp) = World::armed(early);
        assert_eq!(world.arm(OWNER, later), Arm::Pending, "an arm before any look was not acknowledged");
        let other = StdArc::clone(&world);
        // The ticket is queued for `early`: this check finds `later`, or `due`.
        let shard = thread::spawn(move || other.turn(OTHER, stamp, early));
        assert_eq!(world.arm(OWNER, due), Arm::Pending, "an arm during an early look was not acknowledged");
        assert_eq!(shard.join().unwrap(), None, "the ticket of a postponed timer fired it early");
        assert_eq!(world.settle(due), Some(due), "an acknowledged deadline was lost");
        assert_eq!(world.settle(later), None, "it fired for the deadline that was replaced, too");
    });
}

/// Legal endings: (a) nothing fires and the disarm returns `Disarmed`; (b) the timer fires and the disarm returns
/// `Running` or, if the handler has ended, `Idle`.
#[test]
fn disarm_races_with_fire() {
    model("disarm_races_with_fire", || {
        let (world, stamp) = World::armed(DUE);
        let other = StdArc::clone(&world);
        let shard = thread::spawn(move || other.turn(OTHER, stamp, DUE));
        let disarmed = world.disarm();
        match (disarmed, shard.join().unwrap()) {
            (Disarm::Disarmed, None) | (Disarm::Running | Disarm::Idle, Some(DUE)) => {}
            other => panic!("no legal ending: {other:?}"),
        }
        assert_eq!(world.timer().armed_for(), None, "a disarmed timer is armed");
        assert_eq!(world.settle(LATER), None, "a disarmed timer fired");
    });
}

/// Legal endings: the deadline that was stored last is in force, and the timer fires at that deadline, once.
#[test]
fn two_arms() {
    model_of_three_deadlines("two_arms", |[_, due, later]| {
        let world = World::new();
        let other = StdArc::clone(&world);
        let arms = thread::spawn(move || other.arm(OTHER, due));
        assert_eq!(
            world.arm(OWNER, later),
            Arm::Pending,
            "an arm of a timer that is not due was not acknowledged"
        );
        assert_eq!(
            arms.join().unwrap(),
            Arm::Pending,
            "an arm of a timer that is not due was not acknowledged"
        );
        let in_force = world.timer().armed_for().unwrap();
        let fired = [world.settle(due), world.settle(later)];
        assert_eq!(
            fired,
            if in_force == due { [Some(due), None] } else { [None, Some(later)] },
            "it did not fire once, at the deadline that was stored last"
        );
    });
}

/// Legal endings: (a) the handle frees the timer, whether the timer fired before or not; (b) the worker frees it.
/// Exactly one of them does.
#[test]
fn drop_races_with_fire() {
    model("drop_races_with_fire", || {
        let (world, stamp) = World::armed(DUE);
        let other = StdArc::clone(&world);
        let shard = thread::spawn(move || other.turn(OTHER, stamp, DUE));
        world.drop_handle();
        shard.join().unwrap();
        assert_vacant(&world);
    });
}

/// The handler sees the payload until the handler's end; the thread that frees the payload then sees the handler's
/// effects.
#[test]
fn drop_races_with_running_handler() {
    model("drop_races_with_running_handler", || {
        let (world, stamp) = World::armed(DUE);
        assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
        let other = StdArc::clone(&world);
        let worker = thread::spawn(move || {
            // SAFETY: O5: the run has not ended.
            other.fire(OTHER, stamp, DUE, || {
                assert_eq!(
                    unsafe { *other.slab.peek(other.index) },
                    7,
                    "the payload was freed while its handler ran"
                )
            })
        });
        world.drop_handle();
        worker.join().unwrap();
        assert_vacant(&world);
    });
}

/// Asserts that the slot is vacant, in the next generation: it was freed exactly once.
pub(super) fn assert_vacant(world: &World) {
    assert_vacant_in(world, 1);
}

/// Asserts that the slot is vacant, in `generation`.
pub(super) fn assert_vacant_in(world: &World, generation: u64) {
    let (id, _) = world.control().arm(world.index, DUE);
    assert!(id.is_of(generation), "the slot was not freed once");
}

/// A handler arms its own timer while the owner disarms it: the state that was stored last is in force, and the timer
/// fires if it is armed.
#[test]
fn arm_from_inside_the_handler() {
    model("arm_from_inside_the_handler", || {
        let (world, stamp) = World::armed(DUE);
        assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
        let other = StdArc::clone(&world);
        let worker = thread::spawn(move || {
            other.fire(OTHER, stamp, DUE, || {
                assert_eq!(
                    other.arm(OTHER, LATER),
                    Arm::Running,
                    "an arm inside the handler did not return that the handler runs"
                )
            })
        });
        let disarmed = world.disarm();
        match (disarmed, worker.join().unwrap()) {
            // The handler never ran, so nothing armed the timer again.
            (Disarm::Disarmed, None) => {
                assert_eq!(world.settle(LATER), None, "an arming that no handler made fired")
            }
            (Disarm::Running | Disarm::Idle | Disarm::Disarmed, Some(DUE)) => {
                let in_force = world.timer().armed_for();
                assert_eq!(world.settle(LATER), in_force, "what is in force fires, and nothing else");
            }
            other => panic!("no legal ending: {other:?}"),
        }
    });
}

/// A disarmed timer keeps its ticket for the next arming; the check that finds the timer disarmed may come in between.
#[test]
fn disarm_and_arm_race_with_a_check() {
    model_of_three_deadlines("disarm_and_arm_race_with_a_check", |[_, due, later]| {
        let (world, stamp) = World::armed(due);
        let other = StdArc::clone(&world);
        let shard = thread::spawn(move || other.turn(OTHER, stamp, due));
        let disarmed = world.disarm();
        let armed = world.arm(OWNER, later);
        let fired = shard.join().unwrap();
        match (disarmed, armed, fired) {
            (Disarm::Disarmed, Arm::Pending, None)
            | (Disarm::Running, Arm::Running | Arm::Pending, Some(_))
            | (Disarm::Idle, Arm::Pending, Some(_)) => {}
            other => panic!("no legal ending: {other:?}"),
        }
        assert_eq!(world.settle(later), Some(later), "an acknowledged deadline was lost");
    });
}

/// A timer that was postponed and is then disarmed keeps its ticket while its last deadline is ahead: the ticket is
/// due then. An arming relies on that ticket, or on none.
#[test]
fn disarm_and_arm_race_with_an_early_check() {
    model_of_three_deadlines("disarm_and_arm_race_with_an_early_check", |[early, due, later]| {
        let (world, stamp) = World::armed(early);
        assert_eq!(world.arm(OWNER, later), Arm::Pending, "an arm before any look was not acknowledged");
        let other = StdArc::clone(&world);
        let shard = thread::spawn(move || other.turn(OTHER, stamp, early));
        assert_eq!(world.disarm(), Disarm::Disarmed, "the disarm of an armed timer took nothing away");
        assert_eq!(world.disarm(), Disarm::Idle, "the second disarm took something away");
        assert_eq!(world.arm(OWNER, due), Arm::Pending, "an arm after the disarm was not acknowledged");
        assert_eq!(shard.join().unwrap(), None, "the ticket of a postponed timer fired it early");
        assert_eq!(world.settle(due), Some(due), "an acknowledged deadline was lost");
        assert_eq!(world.settle(later), None, "it fired for a deadline that was taken away, too");
        assert_eq!(world.timer().armed_for(), None, "it is armed after its last firing");
    });
}

/// An arm that races with the shutdown returns `Shut`, or the shutdown forgets the arming: nothing fires any more.
#[test]
fn arm_races_with_shut() {
    model("arm_races_with_shut", || {
        let (world, stamp) = World::armed(DUE);
        let other = StdArc::clone(&world);
        let shutdown = thread::spawn(move || {
            assert_eq!(
                other.timer().shut(),
                Some(Shut::Kept),
                "the shutdown freed a timer that has its handle"
            )
        });
        let armed = world.arm(OWNER, EARLY);
        assert!(
            matches!(armed, Arm::Pending | Arm::Shut),
            "the arm neither was acknowledged nor returned the shutdown: {armed:?}"
        );
        shutdown.join().unwrap();
        assert_eq!(world.arm(OWNER, LATER), Arm::Shut, "a timer that is shut was armed");
        assert_eq!(
            world.turn(OWNER, stamp, LATER),
            None,
            "the ticket of the first arming fired after the shutdown"
        );
        assert_eq!(world.settle(LATER), None, "a ticket fired after the shutdown");
        world.drop_handle();
        assert_vacant(&world);
    });
}

/// Legal endings: the timer fires for the deadline of its one arming, (a) through the ticket that was out, or (b)
/// through a ticket of its own. It fires once.
#[test]
fn one_arming_fires_once() {
    model("one_arming_fires_once", || {
        let (world, stamp) = World::armed(DUE);
        assert_eq!(world.disarm(), Disarm::Disarmed, "the disarm of an armed timer took nothing away");
        let other = StdArc::clone(&world);
        let shard = thread::spawn(move || other.turn(OTHER, stamp, LATER));
        let armed = world.arm(OWNER, DUE);
        let fired = [shard.join().unwrap(), world.settle(LATER)];
        assert!(
            matches!(fired, [Some(DUE), None] | [None, Some(DUE)]),
            "the arming fired twice, or never: {armed:?}, {fired:?}"
        );
    });
}

/// The same race on a timer that is checking, so that both the disarm and the arm mark it as changed.
#[test]
fn one_arming_during_a_check_fires_once() {
    model("one_arming_during_a_check_fires_once", || {
        let (world, stamp) = World::armed(DUE);
        assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
        let other = StdArc::clone(&world);
        let worker = thread::spawn(move || other.fire(OTHER, stamp, LATER, || {}));
        if world.disarm() == Disarm::Disarmed {
            let armed = world.arm(OWNER, DUE);
            let fired = [worker.join().unwrap(), world.settle(LATER)];
            assert!(
                matches!(fired, [Some(DUE), None] | [None, Some(DUE)]),
                "the arming fired twice, or never: {armed:?}, {fired:?}"
            );
        } else {
            assert_eq!(
                worker.join().unwrap(),
                Some(DUE),
                "neither the disarm nor the firing took the arming"
            );
        }
    });
}

/// Legal endings: one of the two disarms returns `Disarmed`, or both do. Nothing fires.
#[test]
fn two_disarms() {
    model("two_disarms", || {
        let (world, _) = World::armed(DUE);
        let other = StdArc::clone(&world);
        let second = thread::spawn(move || other.disarm());
        let outcomes = [world.disarm(), second.join().unwrap()];
        assert!(
            outcomes.contains(&Disarm::Disarmed) && !outcomes.contains(&Disarm::Running),
            "no disarm took the arming, or one saw a handler that never ran: {outcomes:?}"
        );
        assert_eq!(world.settle(LATER), None, "a disarmed timer fired");
    });
}

/// A handler arms its own timer, and its owner disarms the timer afterwards. Legal endings: (a) the handler still runs,
/// and the disarm reports that it took the arming away; (b) the handler has ended, and the disarm returns `Armed`; (c)
/// the handler ends at that moment, and its end finds the timer disarmed: the disarm returns `Idle`, as if the handler
/// had not armed the timer. Nothing fires for that arming.
#[test]
fn a_disarm_during_a_run_tells_of_the_arming_that_it_takes_away() {
    model("a_disarm_during_a_run_tells_of_the_arming_that_it_takes_away", || {
        let (world, stamp) = being_checked();
        let armed = StdArc::new(AtomicU64::new(0));
        let (other, arms) = (StdArc::clone(&world), StdArc::clone(&armed));
        let worker = thread::spawn(move || {
            other.fire(OTHER, stamp, DUE, || {
                assert_eq!(
                    other.arm(OTHER, LATER),
                    Arm::Running,
                    "an arm inside the handler did not return that the handler runs"
                );
                arms.store(1, Ordering::Release);
            })
        });
        let was_armed_again = armed.load(Ordering::Acquire) == 1;
        let withdrawn = world.timer().disarm();
        let fired = [worker.join().unwrap(), world.settle(LATER)];
        if was_armed_again {
            assert_ne!(
                withdrawn,
                Withdrawn::Running { was_armed: false },
                "the arming that the disarm took away is not reported"
            );
            assert_eq!(fired, [Some(DUE), None], "the arming that was taken away fired");
        }
    });
}

/// A thread whose disarm of an armed timer returns `Idle` sees the handler's effects.
#[test]
fn idle_sees_what_the_run_did() {
    model("idle_sees_what_the_run_did", || {
        let (world, stamp) = World::armed(DUE);
        assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
        let effect = StdArc::new(AtomicU64::new(0));
        let (other, written) = (StdArc::clone(&world), StdArc::clone(&effect));
        let worker = thread::spawn(move || {
            other.fire(OTHER, stamp, DUE, || written.store(1, Ordering::Relaxed));
        });
        if world.disarm() == Disarm::Idle {
            assert_eq!(effect.load(Ordering::Relaxed), 1, "`Idle` came before what the handler did");
        }
        worker.join().unwrap();
    });
}

/// `Disarmed` and a firing exclude each other also if the handler disarms its own timer.
#[test]
fn disarm_races_with_a_handler_that_disarms() {
    model("disarm_races_with_a_handler_that_disarms", || {
        let (world, stamp) = World::armed(DUE);
        assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
        let other = StdArc::clone(&world);
        let worker = thread::spawn(move || {
            other.fire(OTHER, stamp, DUE, || {
                other.disarm();
            })
        });
        let disarmed = world.disarm();
        match (disarmed, worker.join().unwrap()) {
            (Disarm::Disarmed, None) | (Disarm::Running | Disarm::Idle, Some(DUE)) => {}
            other => panic!("no legal ending: {other:?}"),
        }
    });
}

/// Makes a timer that is checking, after the heavy fence: from here on nothing rests on the light fence.
pub(super) fn being_checked() -> (StdArc<World>, u32) {
    let (world, stamp) = World::armed(DUE);
    assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
    (world, stamp)
}

/// The flag `changed` alone informs the holder, without any fence, of a first arming and of a second one.
#[test]
fn changes_are_seen_without_a_fence() {
    model("changes_are_seen_without_a_fence", || {
        let (world, stamp) = being_checked();
        let other = StdArc::clone(&world);
        let worker = thread::spawn(move || other.fire(OTHER, stamp, DUE, || {}));
        let first = world.arm_past(Barrier::without_light_side(), OWNER, Timestamp::from_nanos(40));
        let second = world.arm_past(Barrier::without_light_side(), OWNER, LATER);
        let fired = worker.join().unwrap();
        assert!(
            matches!((first, fired), (Arm::Pending, None) | (_, Some(DUE))),
            "an arming was acknowledged, and the timer fired for the old deadline, or was lost: {first:?}, {second:?}, {fired:?}"
        );
        assert_eq!(world.settle(LATER), Some(LATER), "an acknowledged deadline was lost");
        assert_eq!(
            world.settle(Timestamp::from_nanos(50)),
            None,
            "the deadline that was replaced fired, too"
        );
    });
}

/// The same race while the shard checks.
#[test]
fn changes_are_seen_by_a_check_without_a_fence() {
    model("changes_are_seen_by_a_check_without_a_fence", || {
        let (world, stamp) = World::armed(DUE);
        assert!(world.timer().begin_check(stamp), "the ticket's stamp is not that of the timer");
        let other = StdArc::clone(&world);
        let shard = thread::spawn(move || match other.timer().check(stamp, DUE, |deadline| deadline) {
            Check::Due => {
                other.fire(OTHER, stamp, DUE, || {});
            }
            Check::Later { stamp, check } => other.post(OTHER, stamp, check),
            Check::AtRest => {}
        });
        let armings = [Timestamp::from_nanos(40), LATER];
        let _ = armings.map(|deadline| world.arm_past(Barrier::without_light_side(), OWNER, deadline));
        shard.join().unwrap();
        assert_eq!(world.settle(LATER), Some(LATER), "an acknowledged deadline was lost");
    });
}

/// The same race with a disarm.
#[test]
fn a_disarm_tells_without_a_fence() {
    model("a_disarm_tells_without_a_fence", || {
        let (world, stamp) = being_checked();
        let other = StdArc::clone(&world);
        let worker = thread::spawn(move || other.fire(OTHER, stamp, DUE, || {}));
        let disarmed = Disarm::from(world.timer().with_barrier(Barrier::without_light_side()).disarm());
        match (disarmed, worker.join().unwrap()) {
            (Disarm::Disarmed, None) | (Disarm::Running | Disarm::Idle, Some(DUE)) => {}
            other => panic!("no legal ending: {other:?}"),
        }
        assert_eq!(world.settle(LATER), None, "a disarmed timer fired");
    });
}

/// The shutdown, the holder and the handle race: one of them frees the payload.
#[test]
fn drop_races_with_shut_and_fire() {
    model("drop_races_with_shut_and_fire", || {
        let (world, stamp) = being_checked();
        let other = StdArc::clone(&world);
        let worker = thread::spawn(move || other.fire(OTHER, stamp, DUE, || {}));
        let third = StdArc::clone(&world);
        let shutdown = thread::spawn(move || {
            if third.timer().shut() == Some(Shut::Free) {
                third.free();
            }
        });
        world.drop_handle();
        worker.join().unwrap();
        shutdown.join().unwrap();
        assert_vacant(&world);
    });
}

/// A thread that waits for a run sees the effects of the run's handler.
#[test]
fn who_waits_sees_what_the_run_did() {
    model("who_waits_sees_what_the_run_did", || {
        let (world, stamp) = World::armed(DUE);
        assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
        let effect = StdArc::new(AtomicU64::new(0));
        let (other, written) = (StdArc::clone(&world), StdArc::clone(&effect));
        let worker = thread::spawn(move || {
            other.fire(OTHER, stamp, DUE, || written.store(1, Ordering::Relaxed));
        });
        while effect.load(Ordering::Relaxed) == 0 {
            if let Some(run) = world.timer().await_run() {
                while !world.timer().has_run(run) {
                    thread::yield_now();
                }
                assert_eq!(
                    effect.load(Ordering::Relaxed),
                    1,
                    "the run has ended, and what its handler did is not seen"
                );
            }
            thread::yield_now();
        }
        worker.join().unwrap();
    });
}
