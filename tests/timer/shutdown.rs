//! The end of the engine. Armings are forgotten. The timers stay with their owners, and cannot be armed any more.

use crate::support::{
    Gate, HOUR, Log, MS, Rng, assert_settled, lock, recording, wait_until, within_patience,
};
use crate::{Place, SECOND, Tracked, counting, every_dispatch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{ArmError, Armed, Builder, Cancel, Disarm, Fired, Refusal, Timer, Timestamp};

#[test]
fn a_shutdown_forgets_armed_timers_and_leaves_them_to_their_owners() {
    let (mut engine, fired) = counting();
    let mut timers = Vec::new();
    let mut books = Vec::new();
    for _ in 0..5 {
        let (payload, book) = Tracked::new();
        timers.push(engine.handle().timer(payload).unwrap());
        books.push(book);
    }
    // The timers are in five states: never armed, armed, disarmed with a queued ticket, fired, and disarmed without a
    // ticket.
    timers[3].arm(SECOND).unwrap();
    timers[4].arm(SECOND).unwrap();
    timers[4].disarm();
    engine.advance(SECOND);
    timers[1].arm(SECOND).unwrap();
    timers[2].arm(SECOND).unwrap();
    timers[2].disarm();
    let (payload, scheduled) = Tracked::new();
    engine.handle().schedule(SECOND, payload).unwrap();
    // The shutdown returns only scheduled timers, not owned timers.
    assert_eq!(
        engine.handle().shutdown().len(),
        1,
        "the shutdown returned an owned timer, or not the scheduled one"
    );
    scheduled.assert_gone();
    assert_settled(&engine.handle().stats());
    let posted = engine.handle().stats().owned.posted;
    for timer in &timers {
        assert_eq!(
            (timer.deadline(), timer.disarm()),
            (None, Disarm::Idle),
            "a timer is armed after the shutdown"
        );
        assert_eq!(timer.arm(SECOND), Err(ArmError::ShutDown), "an arming after the shutdown is not refused");
        assert_eq!(
            timer.arm_at(Timestamp::ZERO),
            Err(ArmError::ShutDown),
            "an arming after the shutdown is not refused"
        );
        assert_eq!(
            timer.arm_at(Timestamp::MAX),
            Err(ArmError::ShutDown),
            "an arming after the shutdown is not refused"
        );
        assert_eq!(
            (timer.is_armed(), timer.disarm_and_wait()),
            (false, Disarm::Idle),
            "a refused arming left the timer armed"
        );
        assert_eq!(
            timer.payload().book.original_drops(),
            0,
            "the shutdown dropped a payload that has an owner"
        );
    }
    assert_eq!(engine.handle().stats().owned.posted, posted, "a refused arming posted a ticket");
    assert_eq!(ArmError::ShutDown.to_string(), "the engine was shut down");
    engine.advance(10 * SECOND);
    assert_eq!(
        (fired.load(Ordering::SeqCst), engine.handle().stats().owned.alive),
        (1, 5),
        "a timer fired after the shutdown, or left its owner"
    );
    drop(timers);
    books.iter().for_each(|book| book.assert_gone());
    assert_eq!(engine.handle().stats().owned.alive, 0, "a dropped timer is counted as alive");
}

#[test]
fn timers_outlive_their_engine() {
    for builder in every_dispatch() {
        let engine = builder.start(|_: Fired<'_, Tracked>| {}).unwrap();
        let (payload, book) = Tracked::new();
        let timer = engine.handle().timer(payload).unwrap();
        timer.arm(HOUR).unwrap();
        drop(engine);
        assert_eq!(
            (timer.arm(MS), timer.disarm()),
            (Err(ArmError::ShutDown), Disarm::Idle),
            "an engine that is gone does not refuse, or its timer is armed"
        );
        let handle = timer.engine();
        assert!(handle.is_shut_down(), "the handle of a timer does not show the shutdown");
        assert_eq!(
            (book.original_drops(), handle.stats().owned.alive),
            (0, 1),
            "the payload went with the engine, though it has an owner"
        );
        drop(timer);
        book.assert_gone();
        assert_eq!(handle.stats().owned.alive, 0, "a dropped timer is counted as alive");
    }
}

#[test]
fn a_refused_timer_hands_its_payload_back() {
    let (engine, _log) = recording(Builder::new().capacity(2));
    let scheduled = engine.handle().schedule(HOUR, 0).unwrap();
    let timer = engine.handle().timer(1).unwrap();
    // The engine is full of timers of both kinds, and refuses both kinds.
    let error = engine.handle().timer(2).unwrap_err();
    assert_eq!(
        (error.kind, error.payload),
        (Refusal::EngineFull, 2),
        "a full engine made a timer, or kept the refused payload"
    );
    assert_eq!(
        engine.handle().schedule(HOUR, 2).unwrap_err().kind,
        Refusal::EngineFull,
        "an owned timer takes none of the capacity"
    );
    drop(timer);
    let timer = engine.handle().timer(3).unwrap();
    assert_eq!(
        engine.handle().cancel(scheduled),
        Cancel::Cancelled(0),
        "the scheduled timer was lost in the refusals"
    );
    let another = engine.handle().timer(4).unwrap();
    assert_eq!(
        (timer.arm(HOUR), another.arm(HOUR)),
        (Ok(Armed::Pending), Ok(Armed::Pending)),
        "a timer in a slot that was full before cannot be armed"
    );
    assert_eq!(engine.handle().stats().owned.alive, 2, "owned timers are counted wrongly");
    assert!(engine.handle().shutdown().is_empty(), "an owned timer is returned");
    let error = engine.handle().timer(5).unwrap_err();
    assert_eq!(
        (error.kind, error.payload),
        (Refusal::ShutDown, 5),
        "a timer was made after the shutdown, or the refused payload is not the one given"
    );
    let (tracked_engine, _) = counting();
    drop(tracked_engine.handle().shutdown());
    let (payload, book) = Tracked::new();
    drop(tracked_engine.handle().timer(payload).map_err(|error| error.payload));
    book.assert_gone();
    assert_eq!(tracked_engine.handle().stats().owned.alive, 0, "a refused timer is counted as alive");
}

#[test]
fn a_handler_that_shuts_the_engine_down_finds_every_other_timer_forgotten() {
    let place: Arc<OnceLock<[Timer<u64>; 2]>> = Arc::default();
    let in_handler = Arc::downgrade(&place);
    let mut engine = Builder::new()
        .driven(move |fired: Fired<'_, u64>| {
            assert!(fired.engine().shutdown().is_empty(), "an owned timer is returned");
            for other in in_handler.upgrade().unwrap().get().unwrap() {
                assert_eq!(
                    (other.is_armed(), other.disarm()),
                    (false, Disarm::Idle),
                    "another timer is armed after the shutdown"
                );
                assert_eq!(
                    other.arm(MS),
                    Err(ArmError::ShutDown),
                    "an arming after the shutdown is not refused"
                );
            }
        })
        .unwrap();
    // Another timer is due at the same time, and another timer is due later.
    let timer = engine.handle().timer(0).unwrap();
    assert!(place.set([1, 2].map(|n| engine.handle().timer(n).unwrap())).is_ok());
    let [with_it, later] = place.get().unwrap();
    timer.arm(SECOND).unwrap();
    with_it.arm(SECOND).unwrap();
    later.arm(2 * SECOND).unwrap();
    engine.advance(5 * SECOND);
    let stats = engine.handle().stats();
    assert_eq!(
        (stats.owned.fired, stats.total.panics),
        (1, 0),
        "a timer fired after the shutdown, or an assertion inside the handler failed"
    );
    assert_eq!(
        (timer.arm(MS), timer.disarm()),
        (Err(ArmError::ShutDown), Disarm::Idle),
        "the timer whose handler shut the engine down is not refused"
    );
    drop(timer);
    assert_eq!(engine.handle().stats().owned.alive, 2, "the shutdown took timers from their owners");
}

#[test]
fn a_handler_that_shut_the_engine_down_cannot_arm_its_own_timer() {
    let log = Log::new();
    let sink = log.clone();
    let mut engine = Builder::new()
        .driven(move |fired: Fired<'_, u64>| {
            drop(fired.engine().shutdown());
            sink.push((fired.timer().unwrap().arm(MS), fired.timer().unwrap().deadline()));
        })
        .unwrap();
    let timer = engine.handle().timer(0).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(5 * SECOND);
    assert_eq!(
        (timer.deadline(), timer.arm(MS)),
        (None, Err(ArmError::ShutDown)),
        "the timer whose handler shut the engine down is armed"
    );
    assert_eq!(engine.handle().stats().owned.fired, 1, "it fired after the shutdown");
    assert_eq!(
        log.take(),
        [(Err(ArmError::ShutDown), None)],
        "an arming inside the handler, after the shutdown, is not refused"
    );
}

#[test]
fn a_timer_armed_by_its_handler_that_then_shuts_the_engine_down_is_forgotten() {
    let mut engine = Builder::new()
        .driven(|fired: Fired<'_, u64>| {
            assert_eq!(
                fired.timer().unwrap().arm(MS),
                Ok(Armed::Running),
                "an arming inside the handler, before the shutdown, is refused"
            );
            assert!(fired.engine().shutdown().is_empty(), "an owned timer is returned");
        })
        .unwrap();
    let timer = engine.handle().timer(0).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!(
        (timer.deadline(), timer.disarm()),
        (None, Disarm::Idle),
        "the arming before the shutdown is in force after it"
    );
    engine.advance(SECOND);
    assert_eq!(timer.arm(MS), Err(ArmError::ShutDown), "an arming after the shutdown is not refused");
    assert_eq!(
        (engine.handle().stats().owned.fired, engine.handle().stats().total.panics),
        (1, 0),
        "it fired after the shutdown, or an assertion inside the handler failed"
    );
}

#[test]
fn a_timer_dropped_by_the_handler_that_shut_the_engine_down_drops_its_payload_once() {
    let place: Place<Tracked> = Place::default();
    let in_handler = Arc::clone(&place);
    let mut engine = Builder::new()
        .driven(move |fired: Fired<'_, Tracked>| {
            assert!(fired.engine().shutdown().is_empty(), "an owned timer is returned");
            drop(lock(&in_handler).take());
            assert_eq!(
                fired.payload.book.original_drops(),
                0,
                "the payload was dropped while its handler ran"
            );
        })
        .unwrap();
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(SECOND).unwrap();
    *lock(&place) = Some(timer);
    engine.advance(2 * SECOND);
    book.assert_gone();
    assert_eq!(
        (engine.handle().stats().owned.alive, engine.handle().stats().total.panics),
        (0, 0),
        "the timer is counted as alive, or an assertion inside the handler failed"
    );
}

#[test]
fn a_shutdown_waits_for_the_handler_and_the_timer_armed_meanwhile_is_forgotten() {
    within_patience(|| {
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, sets) = (gate.clone(), Arc::clone(&ended));
        let engine = Builder::new()
            .workers(1)
            .start(move |fired: Fired<'_, u64>| {
                at_gate.pass();
                // The arming is refused, or is acknowledged and then forgotten.
                let _either = fired.timer().unwrap().arm(Duration::ZERO);
                sets.store(true, Ordering::SeqCst);
            })
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        timer.arm(MS).unwrap();
        gate.await_arrival();
        thread::scope(|scope| {
            scope.spawn(|| {
                wait_until("the shutdown has begun", || engine.handle().is_shut_down());
                thread::sleep(5 * MS);
                gate.open();
            });
            assert!(engine.handle().shutdown().is_empty(), "an owned timer is returned");
            assert!(ended.load(Ordering::SeqCst), "the shutdown did not wait for the handler");
        });
        assert_eq!(
            (timer.deadline(), timer.disarm()),
            (None, Disarm::Idle),
            "the timer is armed after the shutdown"
        );
        assert_eq!(timer.arm(MS), Err(ArmError::ShutDown), "an arming after the shutdown is not refused");
        assert_eq!(engine.handle().stats().owned.fired, 1, "the arming during the shutdown fired");
    });
}

#[test]
fn timers_that_race_with_a_shutdown_end_armed_no_more_and_drop_their_payloads_once() {
    // Threads make, arm, postpone and drop timers until a call is refused for the shutdown.
    for round in 0..30 {
        let (sender, books) = mpsc::channel();
        let engine = Builder::new()
            .tick(Duration::from_micros(100))
            .shards(2)
            .workers(2)
            .start(|fired: Fired<'_, Tracked>| {
                let _either = fired.timer().unwrap().arm(Duration::ZERO);
            })
            .unwrap();
        let kept = thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|number| {
                    let (engine, sender) = (&engine, sender.clone());
                    scope.spawn(move || {
                        let mut rng = Rng::new(100 * round + number);
                        let mut timers: Vec<Timer<Tracked>> = Vec::new();
                        loop {
                            let (payload, book) = Tracked::new();
                            sender.send(book).unwrap();
                            let Ok(timer) = engine.handle().timer(payload) else { break };
                            timers.push(timer);
                            let at = rng.index(timers.len());
                            match timers[at].arm(rng.nanos_below(MS)) {
                                Ok(_) => {}
                                Err(error) => {
                                    assert_eq!(
                                        error,
                                        ArmError::ShutDown,
                                        "an arming is refused for another reason than the shutdown"
                                    );
                                    break;
                                }
                            }
                            if rng.chance(60) {
                                drop(timers.swap_remove(at));
                            }
                        }
                        timers
                    })
                })
                .collect();
            thread::sleep(2 * MS);
            assert!(engine.handle().shutdown().is_empty(), "an owned timer is returned");
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for timer in &kept {
            assert_eq!(
                (timer.deadline(), timer.disarm()),
                (None, Disarm::Idle),
                "a timer is armed after the shutdown"
            );
            assert_eq!(
                timer.arm(Duration::ZERO),
                Err(ArmError::ShutDown),
                "an arming after the shutdown is not refused"
            );
        }
        assert_eq!(
            engine.handle().stats().owned.alive,
            kept.len() as u64,
            "the timers that are left are not those of the threads"
        );
        drop(kept);
        assert_eq!(
            (engine.handle().stats().owned.alive, engine.handle().stats().total.panics),
            (0, 0),
            "a dropped timer is counted as alive, or the handler panicked"
        );
        drop(sender);
        books.into_iter().for_each(|book| book.assert_gone());
    }
}
