//! Disarms and drops against firings and checks.

use super::super::model;
use super::{DUE, LATER, OTHER, OWNER, World, assert_vacant, being_checked, model_of_three_deadlines};
use crate::base::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::base::tick::Timestamp;
use crate::lockfree::barrier::Barrier;
use crate::lockfree::state::owned::{Arm, Check, Disarm, Shut, Withdrawn};

/// A disarm of a timer races with a firing. Legal endings: (a) nothing fires, and the disarm returns `Disarmed`; (b)
/// the timer fires, and the disarm returns `Running`, or `Idle` if the handler has ended.
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

/// The drop of a timer's handle races with a firing. Legal endings: (a) the handle frees the timer, whether the timer
/// fired before or not; (b) the worker frees the timer. The timer is freed exactly once.
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

/// A handler sees the payload until the handler's end, although the timer's handle is dropped. The thread that frees
/// the payload sees the handler's effects.
#[test]
fn drop_races_with_running_handler() {
    model("drop_races_with_running_handler", || {
        let (world, stamp) = World::armed(DUE);
        assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
        let other = StdArc::clone(&world);
        let worker = thread::spawn(move || {
            // SAFETY: O5: the timer's run has not ended.
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

/// A disarmed timer keeps its ticket (entry in the wheel) for the next arming. Between the disarm and the arming, a
/// check may find the timer disarmed.
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

/// A timer was postponed and is then disarmed. A check finds the last deadline far ahead, and the timer keeps a ticket;
/// or it finds the last deadline near, and the timer comes to rest. An arming relies on that ticket, or posts one.
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

/// Two disarms of a timer race. Legal endings: one disarm returns `Disarmed`, or both do. Nothing fires.
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

/// A handler arms its own timer, and the owner disarms the timer afterwards. Legal endings: (a) the handler still runs,
/// and the disarm reports that it took the arming away; (b) the handler has ended, and the disarm returns `Armed`; (c)
/// the handler ends at that moment and finds the timer disarmed. In case (c) the disarm returns `Idle`, as if the
/// handler had not armed the timer. Nothing fires for that arming.
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

/// If a disarm of an armed timer returns `Idle`, its thread sees the handler's effects.
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

/// If a disarm returns `Disarmed`, the timer does not fire, even if the handler disarms its own timer.
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

/// Two armings without any fence race with a firing. The flag `changed` alone informs the timer's holder of both
/// armings.
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

/// Two armings without any fence race with a shard's check. The flag `changed` alone informs the timer's holder of both
/// armings.
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

/// A disarm without any fence races with a firing. The flag `changed` alone informs the timer's holder of the disarm.
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

/// The shutdown, the worker that holds the timer, and the drop of the handle race. One of the three frees the payload.
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

/// A thread that waits for a run of a timer's handler sees the handler's effects.
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

/// A disarm finds that the timer's handler runs. If the handler has ended before the thread can wait for it, the thread
/// sees the handler's effects all the same.
#[test]
fn who_comes_too_late_to_wait_for_a_run_sees_what_it_did() {
    model("who_comes_too_late_to_wait_for_a_run_sees_what_it_did", || {
        let (world, stamp) = World::armed(DUE);
        assert!(world.check(OWNER, stamp, DUE), "the check did not find the timer due");
        let effect = StdArc::new(AtomicU64::new(0));
        let (other, written) = (StdArc::clone(&world), StdArc::clone(&effect));
        let worker = thread::spawn(move || {
            other.fire(OTHER, stamp, DUE, || written.store(1, Ordering::Relaxed));
        });
        // `Timer::disarm_and_wait`, then `Core::wait_for_run`.
        if world.disarm() == Disarm::Running && world.timer().await_run().is_none() {
            assert_eq!(
                effect.load(Ordering::Relaxed),
                1,
                "the wait was too late, and what the handler did is not seen"
            );
        }
        worker.join().unwrap();
    });
}
