//! The results of a timer's calls, in each of its states.

use crate::support::{Gate, HOUR, Log, MS, Shot, lock, recording, wait_until};
use crate::{SECOND, at, nanos, on_time, with_held_jobs};
use std::sync::{Arc, OnceLock, mpsc};
use tourbillon::{Armed, Builder, Disarm, Fired, Job, Timer, Timestamp};

#[test]
fn the_answers_tell_whether_the_timer_was_armed() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    let is = |deadline: Option<Timestamp>| {
        assert_eq!(
            (timer.deadline(), timer.is_armed()),
            (deadline, deadline.is_some()),
            "deadline and is_armed contradict each other"
        );
    };
    assert_eq!(*timer.payload(), 7, "the timer has another payload");
    is(None);
    // The timer is new.
    assert_eq!(
        (timer.disarm(), timer.disarm_and_wait()),
        (Disarm::Idle, Disarm::Idle),
        "a timer that was never armed"
    );
    // The timer is armed. Its ticket is in the lane, and in the second round in the wheel.
    for _ in 0..2 {
        assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
        is(Some(at(SECOND)));
        assert_eq!(timer.arm_at(at(2 * SECOND)), Ok(Armed::Pending));
        is(Some(at(2 * SECOND)));
        assert_eq!(timer.disarm(), Disarm::Disarmed);
        is(None);
        // The timer is disarmed, and its ticket is still queued.
        assert_eq!(
            (timer.disarm(), timer.disarm_and_wait()),
            (Disarm::Idle, Disarm::Idle),
            "a second disarm took something away"
        );
        engine.turn();
    }
    // The timer is disarmed, and no ticket is queued any more.
    engine.advance(5 * SECOND);
    assert_eq!((timer.disarm(), timer.disarm()), (Disarm::Idle, Disarm::Idle), "a timer without a ticket");
    is(None);
    // The timer has fired.
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    engine.advance(SECOND);
    assert_eq!(log.take().len(), 1, "it did not fire once");
    is(None);
    assert_eq!(
        (timer.disarm(), timer.disarm_and_wait()),
        (Disarm::Idle, Disarm::Idle),
        "a timer that has fired"
    );
    // The timer is armed again.
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    assert_eq!(
        timer.disarm_and_wait(),
        Disarm::Disarmed,
        "the disarm that waits does not return that it was armed"
    );
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    engine.advance(SECOND);
    assert_eq!(log.take().len(), 1, "an arming after `disarm_and_wait` did not fire once");
}

#[test]
fn the_answers_while_its_own_handler_runs() {
    // The handler calls the timer through its argument, and through a shared reference to the timer.
    let shared: Arc<OnceLock<Timer<u64>>> = Arc::default();
    let (in_handler, log) = (Arc::downgrade(&shared), Log::new());
    let sink = log.clone();
    let mut engine = Builder::new()
        .driven(move |fired: Fired<'_, u64>| {
            let now = fired.engine().now();
            let shared = in_handler.upgrade().unwrap();
            let (by_ref, timer) = (fired.timer().unwrap(), shared.get().unwrap());
            assert_eq!(fired.id(), timer.id(), "the handler runs for another timer");
            // The timer runs. It is not armed until the handler arms it again.
            assert_eq!(
                (by_ref.deadline(), timer.deadline()),
                (None, None),
                "it is armed for the deadline that it runs for"
            );
            assert_eq!(
                [by_ref.disarm(), timer.disarm(), timer.disarm_and_wait()],
                [Disarm::Running; 3],
                "a disarm inside the handler does not return that it runs"
            );
            assert_eq!(by_ref.arm(2 * SECOND), Ok(Armed::Running));
            assert_eq!(
                timer.deadline(),
                Some(now + 2 * SECOND),
                "the arming inside the handler is not in force"
            );
            assert_eq!(timer.disarm(), Disarm::Running);
            assert_eq!(by_ref.deadline(), None, "the arming that was taken away is in force");
            assert_eq!(timer.arm_at(now + SECOND), Ok(Armed::Running));
            assert_eq!(by_ref.arm_at(now + 3 * SECOND), Ok(Armed::Running));
            assert!(timer.is_armed(), "the last arming inside the handler is not in force");
            if fired.payload == 1 {
                assert_eq!(by_ref.disarm(), Disarm::Running);
            }
            sink.push(Shot::of(&fired));
        })
        .unwrap();
    assert!(shared.set(engine.handle().timer(0).unwrap()).is_ok());
    let timer = shared.get().unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(8 * SECOND);
    let expected = [1, 4, 7].map(|second| on_time(0, at(second * SECOND)));
    assert_eq!(log.take(), expected, "it fired for another arming than the last one of each run");
    assert_eq!(engine.handle().stats().total.panics, 0, "an assertion inside the handler failed");
    assert_eq!(timer.disarm(), Disarm::Disarmed, "the arming of the last run was lost");
}

#[test]
fn the_answers_while_a_handler_runs_on_a_worker() {
    let (gate, log) = (Gate::new(), Log::new());
    let (at_gate, sink) = (gate.clone(), log.clone());
    let engine = Builder::new()
        .workers(1)
        .start(move |fired: Fired<'_, u64>| {
            sink.push(Shot::of(&fired));
            at_gate.pass();
        })
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    timer.arm(MS).unwrap();
    gate.await_arrival();
    assert_eq!(
        (timer.deadline(), timer.disarm()),
        (None, Disarm::Running),
        "its handler runs, and the calls do not say so"
    );
    assert_eq!(timer.arm(HOUR), Ok(Armed::Running));
    assert!(timer.is_armed(), "the arming during the run is not in force");
    assert_eq!(timer.disarm(), Disarm::Running);
    assert!(!timer.is_armed(), "the disarm during the run left it armed");
    let again = engine.handle().now() + MS;
    assert_eq!(timer.arm_at(again), Ok(Armed::Running));
    assert_eq!(timer.deadline(), Some(again), "the last arming during the run is not in force");
    assert_eq!(log.len(), 1, "a second handler runs beside the first");
    gate.open();
    wait_until("it has fired again", || log.len() == 2);
    let shots = log.take();
    assert_eq!(shots[1].deadline, again, "it fired for an arming that was taken away");
    assert!(shots[1].at >= again, "it fired early after its run");
    wait_until("it is at rest", || timer.disarm() == Disarm::Idle);
}

#[test]
fn a_due_timer_that_waits_for_a_worker_is_armed_and_may_be_put_off_and_disarmed() {
    let log = Log::new();
    let (engine, clock, jobs) = with_held_jobs(&log);
    let timer = engine.handle().timer(7).unwrap();
    let fall_due = || {
        timer.arm(MS).unwrap();
        let deadline = timer.deadline();
        clock.advance(MS);
        wait_until("it is handed over", || lock(&jobs).len() == 1);
        assert_eq!(timer.deadline(), deadline, "a due timer that waits for a worker has lost its deadline");
    };
    let run_jobs = || std::mem::take(&mut *lock(&jobs)).into_iter().for_each(Job::run);
    // The timer is due, and is then disarmed.
    fall_due();
    assert_eq!(timer.disarm(), Disarm::Disarmed);
    assert_eq!(
        (timer.disarm_and_wait(), timer.is_armed()),
        (Disarm::Idle, false),
        "the disarm left a due timer armed"
    );
    run_jobs();
    assert_eq!((log.len(), timer.disarm()), (0, Disarm::Idle), "a due timer that was disarmed fired");
    // The timer is due, and is then armed for a later moment.
    fall_due();
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    let later = timer.deadline().unwrap();
    run_jobs();
    assert_eq!(
        (log.len(), timer.deadline()),
        (0, Some(later)),
        "a due timer that was put off fired, or lost its new deadline"
    );
    let turns = engine.handle().stats().total.turns;
    clock.set(nanos(later.as_nanos() - 1));
    wait_until("the shard has looked", || engine.handle().stats().total.turns > turns);
    assert_eq!(
        (lock(&jobs).len(), timer.deadline()),
        (0, Some(later)),
        "it came due before its new deadline"
    );
    // The timer is disarmed, and armed again for a moment that has passed.
    clock.set(later);
    wait_until("it is handed over", || lock(&jobs).len() == 1);
    assert_eq!(timer.disarm(), Disarm::Disarmed);
    assert_eq!(timer.arm_at(at(MS)), Ok(Armed::Pending));
    run_jobs();
    assert_eq!(
        log.take(),
        [Shot { at: later, deadline: at(MS), payload: 7 }],
        "the arming for a moment that has come did not fire once"
    );
    assert_eq!(timer.disarm(), Disarm::Idle, "it is armed after its firing");
}

#[test]
fn timers_and_what_handlers_get_of_them_can_be_printed() {
    let (sender, printed) = mpsc::channel();
    let mut engine = Builder::new()
        .driven(move |fired: Fired<'_, u64>| sender.send(format!("{:?}", fired.timer().unwrap())).unwrap())
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    assert!(format!("{timer:?}").contains("deadline: None"), "the text of a timer at rest");
    timer.arm(SECOND).unwrap();
    assert!(format!("{timer:?}").contains("1000000000"), "the text of an armed timer lacks its deadline");
    engine.advance(SECOND);
    assert!(printed.recv().unwrap().contains("TimerRef"), "the text of what the handler gets");
}
