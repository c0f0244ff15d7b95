//! Slots and ids. Tickets and ids of a slot's former timers do not affect its present timer.

use crate::support::recording;
use crate::{SECOND, at, on_time};
use std::sync::mpsc;
use tourbillon::{Armed, Builder, Cancel, DrivenEngine, Fired, Handle, RescheduleError};

#[test]
fn a_timers_id_is_good_for_nothing_that_takes_scheduled_timers() {
    let (sender, ids) = mpsc::channel();
    let check = |engine: &Handle<u64>, id| {
        assert_eq!(
            (engine.cancel(id), engine.cancel_and_wait(id)),
            (Cancel::Gone, Cancel::Gone),
            "the id of an owned timer cancelled something"
        );
        assert!(
            matches!(engine.reschedule(id, SECOND), Err(RescheduleError::Gone)),
            "the id of an owned timer rescheduled something"
        );
        assert!(
            matches!(engine.try_reschedule_at(id, at(SECOND)), Err(RescheduleError::Gone)),
            "the id of an owned timer rescheduled something, without waiting"
        );
        assert_eq!(
            (engine.deadline(id), engine.remaining(id)),
            (None, None),
            "the id of an owned timer names a scheduled one"
        );
    };
    let mut engine = Builder::new()
        .driven(move |fired: Fired<'_, u64>| {
            check(&fired.engine(), fired.id());
            sender.send(fired.id()).unwrap();
        })
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    let id = timer.id();
    check(engine.handle(), id);
    timer.arm(SECOND).unwrap();
    check(engine.handle(), id);
    engine.turn();
    check(engine.handle(), id);
    timer.disarm();
    check(engine.handle(), id);
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    check(engine.handle(), id);
    timer.arm(2 * SECOND).unwrap();
    engine.advance(2 * SECOND);
    assert_eq!(ids.try_iter().collect::<Vec<_>>(), [id, id], "the handler saw another id");
    assert_eq!(
        (timer.id(), timer.arm(SECOND)),
        (id, Ok(Armed::Pending)),
        "the calls with its id changed the timer"
    );
    drop(timer);
    check(engine.handle(), id);
    let stats = engine.handle().stats();
    assert_eq!(
        (stats.scheduled, stats.cancelled, stats.total.panics),
        (0, 0, 0),
        "an owned timer is counted as scheduled, or an assertion inside the handler failed"
    );
}

#[test]
fn stale_ids_and_tickets_of_one_kind_never_reach_the_other_kind_in_their_slot() {
    // The two kinds of timers use one slot in turn. A ticket of a former timer comes due while the next timer has the
    // slot.
    let (mut engine, log) = recording(Builder::new().capacity(1));
    let mut stale = Vec::new();
    let assert_all_stale = |engine: &DrivenEngine<u64>, stale: &[_]| {
        for &id in stale {
            assert_eq!(
                (engine.handle().cancel(id), engine.handle().deadline(id)),
                (Cancel::Gone, None),
                "a stale id reached the present timer"
            );
            assert!(
                matches!(engine.handle().reschedule(id, SECOND), Err(RescheduleError::Gone)),
                "a stale id moved the present timer"
            );
        }
    };
    for round in 0..40 {
        let start = engine.handle().now();
        // The timer is scheduled, and is cancelled once its ticket is in the wheel.
        let id = engine.handle().schedule(SECOND, round).unwrap();
        assert_all_stale(&engine, &stale);
        engine.turn();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(round), "the scheduled timer was lost");
        stale.push(id);
        // The owned timer is armed for a moment after the other timer's deadline, or is dropped before that.
        let timer = engine.handle().timer(1_000 + round).unwrap();
        assert!(!stale.contains(&timer.id()), "the slot's owned timer has the id of a former timer");
        assert_all_stale(&engine, &stale);
        timer.arm(2 * SECOND).unwrap();
        assert_all_stale(&engine, &stale);
        assert_eq!(timer.deadline(), Some(start + 2 * SECOND), "a stale id changed the arming");
        if round % 2 == 0 {
            engine.advance(2 * SECOND);
            assert_eq!(
                log.take(),
                [on_time(1_000 + round, start + 2 * SECOND)],
                "a former timer's ticket fired the owned one, or it did not fire"
            );
        } else {
            engine.turn();
        }
        stale.push(timer.id());
        drop(timer);
        // A timer is scheduled again, for a moment after the owned timer's deadline.
        let id = engine.handle().schedule(3 * SECOND, 2_000 + round).unwrap();
        assert!(!stale.contains(&id), "the slot's scheduled timer has the id of a former timer");
        assert_all_stale(&engine, &stale);
        let deadline = engine.handle().deadline(id).unwrap();
        engine.advance(4 * SECOND);
        assert_eq!(
            log.take(),
            [on_time(2_000 + round, deadline)],
            "a former timer's ticket fired the scheduled one, or it did not fire"
        );
        stale.push(id);
        assert_eq!(engine.handle().stats().owned.alive, 0, "the owned timer is counted as alive");
    }
    assert_eq!(engine.handle().stats().pending, 0, "a timer is left");
}

/// A ticket has a stamp of 15 bits. Here the wheel has tickets of former timers with every stamp, so some of them fit
/// the slot's present timer.
#[test]
fn a_former_timers_ticket_whose_stamp_fits_fires_nothing() {
    const STAMPS: u64 = 1 << 15;
    let (mut engine, log) = recording(Builder::new().capacity(2));
    // This timer stands first in the wheel, so that no turn looks at the stale tickets.
    engine.handle().schedule(SECOND / 10, 0).unwrap();
    for n in 0..2 * STAMPS {
        let timer = engine.handle().timer(n).unwrap();
        timer.arm_at(at(SECOND)).unwrap();
        engine.turn();
    }
    assert!(engine.handle().stats().total.tickets >= 2 * STAMPS, "the stale tickets are gone");
    let timer = engine.handle().timer(1).unwrap();
    timer.arm_at(at(3 * SECOND)).unwrap();
    engine.advance(2 * SECOND);
    assert_eq!(log.take().len(), 1, "a former timer's ticket fired");
    assert_eq!(timer.deadline(), Some(at(3 * SECOND)), "a former timer's ticket disarmed the present timer");
    engine.advance(2 * SECOND);
    assert_eq!(log.take(), [on_time(1, at(3 * SECOND))], "the timer did not fire once, on its deadline");
    assert_eq!(engine.handle().stats().total.tickets, 0, "tickets of former timers are left");
}

#[test]
fn tickets_of_a_timers_predecessors_in_its_slot_fire_nothing() {
    // Owned timers use one slot, one after the other.
    let (mut engine, log) = recording(Builder::new().capacity(1));
    for n in 0..200 {
        let timer = engine.handle().timer(n).unwrap();
        timer.arm_at(at(SECOND)).unwrap();
        engine.turn();
    }
    let timer = engine.handle().timer(1_000).unwrap();
    timer.arm_at(at(SECOND)).unwrap();
    engine.turn();
    timer.arm_at(at(3 * SECOND)).unwrap();
    engine.advance(2 * SECOND);
    assert_eq!(
        (log.len(), timer.deadline()),
        (0, Some(at(3 * SECOND))),
        "a former timer's ticket fired, or disarmed, the present one"
    );
    engine.advance(2 * SECOND);
    assert_eq!(
        log.take(),
        [on_time(1_000, at(3 * SECOND))],
        "the present timer did not fire once, on its deadline"
    );
    assert_eq!(engine.handle().stats().total.tickets, 0, "tickets of former timers are left");
}
