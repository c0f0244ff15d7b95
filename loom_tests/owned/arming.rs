//! Armings against firings, checks and other armings.

use super::super::model;
use super::{DUE, EARLY, LATER, OTHER, OWNER, World, assert_vacant, model_of_three_deadlines};
use crate::base::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::lockfree::state::owned::{Arm, Disarm, Shut};

/// An arming of a timer races with a firing. Legal endings: (a) the timer does not fire for the old deadline, and fires
/// for the new deadline when that comes; (b) the timer fires for the old deadline, and then for the new deadline. An
/// acknowledged arming is never lost.
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

/// A timer moves to another lane (queue to a shard) while the shard of the old lane checks the timer. Legal endings:
/// (a) the old ticket does nothing, or its shard has queued a ticket for the new deadline, and the timer fires for the
/// new deadline; (b) the timer fires for the old deadline, and then for the new deadline. The timer never fires by both
/// tickets.
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

/// A timer moves to another lane for a late deadline. At the same time another thread arms the timer for an earlier
/// deadline, and relies on the queued ticket (a request to check the timer). Legal ending: the deadline that was stored
/// last counts, and the timer fires at that deadline, once.
#[test]
fn a_move_races_with_an_arm() {
    model_of_three_deadlines("a_move_races_with_an_arm", |[early, due, later]| {
        let (world, stamp) = World::armed(early);
        let other = StdArc::clone(&world);
        let arms = thread::spawn(move || other.arm(OTHER, due));
        assert_eq!(world.arm_anew(OWNER, later), Arm::Pending, "a move before any look was not acknowledged");
        assert_eq!(arms.join().unwrap(), Arm::Pending, "an arm before any look was not acknowledged");
        let in_force = world.timer().armed_for().unwrap();
        // The old ticket also comes due. It is stale.
        assert_eq!(world.turn(OTHER, stamp, early), None, "the ticket that was replaced fired the timer");
        let fired = [world.settle(early), world.settle(due), world.settle(later)];
        assert_eq!(
            fired,
            if in_force == due { [None, Some(due), None] } else { [None, None, Some(later)] },
            "it did not fire once, at the deadline that was stored last"
        );
    });
}

/// An arm of a timer returns before any handler has begun. Then no handler begins before the deadline of that arm.
#[test]
fn nothing_begins_before_the_last_acknowledged_deadline() {
    model("nothing_begins_before_the_last_acknowledged_deadline", || {
        let (world, stamp) = World::armed(DUE);
        let begun = StdArc::new(AtomicU64::new(0));
        let (other, begins) = (StdArc::clone(&world), StdArc::clone(&begun));
        let shard = thread::spawn(move || {
            if other.check(OTHER, stamp, DUE) {
                other.fire(OTHER, stamp, DUE, || {
                    // Both sides make a read-modify-write. So the later of them sees the earlier.
                    begins.fetch_add(1, Ordering::AcqRel);
                });
            }
        });
        let armed = world.arm(OWNER, LATER);
        let begun_when_acknowledged = begun.fetch_add(0, Ordering::AcqRel);
        shard.join().unwrap();
        if armed == Arm::Pending && begun_when_acknowledged == 0 {
            // A handler may have begun between the last look of the arm and this look. Then the arm returned `Running`.
            assert_eq!(begun.load(Ordering::Relaxed), 0, "begun after the acknowledgement");
        }
        assert_eq!(world.settle(LATER), Some(LATER), "an acknowledged deadline was lost");
    });
}

/// An arming of a timer races with a shard that queues an early ticket again. Legal endings: the ticket is queued for
/// the old deadline or for the new deadline. In the first case, if the new deadline is earlier, the arm queues another
/// ticket. So a ticket is always due in time.
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

/// Two armings of a timer race. Legal ending: the deadline that was stored last counts, and the timer fires at that
/// deadline, once.
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

/// A handler arms its own timer while the owner disarms the timer. The state that was stored last counts. The timer
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

/// An arm of a timer races with the shutdown. Either the arm returns `Shut`, or the shutdown forgets the arming.
/// Nothing fires any more.
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

/// A timer has one arming, and fires once for it. Legal endings: the timer fires (a) by the ticket that was queued
/// before, or (b) by a new ticket.
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

/// A timer with one arming fires once, although a shard checks the timer at the same time. Both the disarm and the arm
/// mark the timer as changed.
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
