//! Repeated arming. A timer fires once, for the deadline that was acknowledged last.

use crate::support::{HOUR, Log, MS, Rng, Shot, recording, wait_until};
use crate::{SECOND, at, due, on_time};
use std::time::Duration;
use tourbillon::{Armed, Builder, Disarm, Fired, Timestamp};

#[test]
fn a_timer_that_is_put_off_fires_once_at_its_last_deadline() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    for _ in 0..1_000 {
        assert_eq!(timer.arm(100 * MS), Ok(Armed::Pending));
        engine.advance(MS);
    }
    assert_eq!(engine.handle().stats().owned.posted, 1, "postponing it took another ticket");
    assert_eq!(
        timer.deadline(),
        Some(at(1_099 * MS)),
        "an arming that was acknowledged is not the one in force"
    );
    engine.advance(SECOND);
    assert_eq!(
        log.take(),
        [on_time(7, at(1_099 * MS))],
        "it fired for a deadline that was put off, or not once"
    );
    assert_eq!(timer.disarm(), Disarm::Idle, "it is armed after its firing");
    drop(timer);
    assert_eq!(engine.handle().stats().owned.alive, 0, "a dropped timer is counted as alive");
}

#[test]
fn a_deadline_before_the_ticket_is_kept_and_the_later_one_is_forgotten() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    timer.arm(10 * SECOND).unwrap();
    engine.turn();
    timer.arm(SECOND).unwrap();
    assert_eq!(
        engine.handle().stats().owned.posted,
        2,
        "the earlier deadline has no ticket of its own, or more than one"
    );
    engine.advance(20 * SECOND);
    assert_eq!(
        log.take(),
        [on_time(7, at(SECOND))],
        "the ticket of the later deadline fired, or the earlier deadline was lost"
    );
    assert!(!timer.is_armed(), "the later deadline is still in force");
}

#[test]
fn a_deadline_moved_ahead_and_back_again_fires_there() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    for seconds in [10, 1, 5, 2, 8, 3] {
        timer.arm(seconds * SECOND).unwrap();
        engine.turn();
    }
    engine.advance(20 * SECOND);
    assert_eq!(
        log.take(),
        [on_time(7, at(3 * SECOND))],
        "it fired for a deadline that was replaced, or not once"
    );
    assert_eq!(
        engine.handle().stats().owned.posted,
        2,
        "a deadline that an earlier ticket covers took a ticket"
    );
}

#[test]
fn a_disarmed_timer_whose_ticket_comes_due_fires_nothing_and_is_armed_again() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    timer.arm(SECOND).unwrap();
    assert_eq!(timer.disarm(), Disarm::Disarmed);
    assert_eq!(timer.deadline(), None, "a disarmed timer has a deadline");
    engine.advance(2 * SECOND);
    assert_eq!(
        (log.len(), engine.handle().stats().total.tickets),
        (0, 0),
        "the ticket of a disarmed timer fired it, or is still in the wheel"
    );
    assert_eq!(timer.disarm(), Disarm::Idle, "it was armed by its old ticket");
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    engine.advance(2 * SECOND);
    assert_eq!(log.take(), [on_time(7, at(3 * SECOND))], "the arming after the old ticket was lost");
    assert_eq!(engine.handle().stats().owned.posted, 2, "the second arming relied on a ticket that was gone");
}

#[test]
fn many_timers_put_off_again_and_again_fire_on_their_ticks_once_nobody_does() {
    // The timers are like the connections of a server. Each is armed at its own pace for a while, and then no more.
    // Many checks fall together, but the firings do not.
    for count in [10, 300, 5_000] {
        let (mut engine, log) = recording(Builder::new());
        let mut rng = Rng::new(count);
        let timers: Vec<_> = (0..count).map(|n| engine.handle().timer(n).unwrap()).collect();
        let mut deadlines = vec![Timestamp::ZERO; timers.len()];
        for step in 0..2_000 {
            for (which, timer) in timers.iter().enumerate() {
                if step == 0 || rng.below(step) < 20 {
                    deadlines[which] = engine.handle().now() + 5 * SECOND + rng.nanos_below(SECOND);
                    timer.arm_at(deadlines[which]).unwrap();
                }
            }
            engine.advance(5 * MS + rng.nanos_below(MS));
            for shot in log.take() {
                let which = usize::try_from(shot.payload).unwrap();
                assert_eq!(
                    shot.deadline,
                    std::mem::take(&mut deadlines[which]),
                    "a firing for a deadline that is not in force"
                );
                assert!(
                    shot.at >= shot.deadline && shot.at <= due(shot.deadline, MS),
                    "early or late: {shot:?}"
                );
            }
        }
        engine.advance(10 * SECOND);
        let shots = log.take();
        for shot in &shots {
            assert!(shot.at >= shot.deadline && shot.at <= due(shot.deadline, MS), "early or late: {shot:?}");
        }
        let mut fired: Vec<Timestamp> = shots.iter().map(|shot| shot.deadline).collect();
        fired.sort_unstable();
        deadlines.retain(|&deadline| deadline > Timestamp::ZERO);
        deadlines.sort_unstable();
        assert_eq!(fired, deadlines, "a deadline that was left in force did not fire once");
        let owned = engine.handle().stats().owned;
        assert!(owned.postponed < 20 * count, "looks did not gather: {owned:?}");
        assert_eq!(engine.handle().stats().total.tickets, 0, "tickets are left after the last firing");
    }
}

#[test]
fn a_real_engine_fires_owned_timers_not_early() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .tick(Duration::from_micros(100))
        .start(move |fired: Fired<'_, u64>| sink.push(Shot::of(&fired)))
        .unwrap();
    let timers: Vec<_> = (0..2_000).map(|n| engine.handle().timer(n).unwrap()).collect();
    let mut rng = Rng::new(8);
    let mut deadlines = Vec::new();
    for timer in &timers {
        // Each timer is armed for later moments, and then for its last deadline. It is not due before that.
        for _ in 0..3 {
            timer.arm(HOUR + rng.nanos_below(HOUR)).unwrap();
        }
        let deadline = engine.handle().now() + 20 * MS + rng.nanos_below(30 * MS);
        assert_eq!(timer.arm_at(deadline), Ok(Armed::Pending));
        deadlines.push(deadline);
    }
    wait_until("all have fired", || log.len() == timers.len());
    let mut shots = log.take();
    shots.sort_unstable_by_key(|shot| shot.payload);
    assert!(
        shots.iter().map(|shot| shot.deadline).eq(deadlines),
        "a timer fired for another deadline than its last"
    );
    assert!(shots.iter().all(|shot| shot.at >= shot.deadline), "a timer fired early");
}
