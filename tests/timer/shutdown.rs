//! The end of the engine: timers are forgotten, stay with their owners and can be armed no more.

use crate::support::{
    Gate, HOUR, Log, MS, Rng, assert_settled, lock, recording, wait_until, within_patience,
};
use crate::{Place, SECOND, Tracked, counting, every_dispatch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{ArmError, Armed, Builder, Cancel, Disarm, Fired, ScheduleErrorKind, Timer, Timestamp};

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
    // Never armed, armed, disarmed with its ticket out, fired, disarmed with no ticket out.
    timers[3].arm(SECOND).unwrap();
    timers[4].arm(SECOND).unwrap();
    timers[4].disarm();
    engine.advance(SECOND);
    timers[1].arm(SECOND).unwrap();
    timers[2].arm(SECOND).unwrap();
    timers[2].disarm();
    let (payload, scheduled) = Tracked::new();
    engine.handle().schedule(SECOND, payload).unwrap();
    // Only what was scheduled is returned.
    assert_eq!(engine.handle().shutdown().len(), 1);
    scheduled.assert_gone();
    assert_settled(&engine.handle().stats());
    let posted = engine.handle().stats().owned.posted;
    for timer in &timers {
        assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
        assert_eq!(timer.arm(SECOND), Err(ArmError::ShutDown));
        assert_eq!(timer.arm_at(Timestamp::ZERO), Err(ArmError::ShutDown));
        assert_eq!(timer.arm_at(Timestamp::MAX), Err(ArmError::ShutDown));
        assert_eq!((timer.is_armed(), timer.disarm_and_wait()), (false, Disarm::Idle));
        assert_eq!(timer.payload().book.original_drops(), 0);
    }
    assert_eq!(engine.handle().stats().owned.posted, posted);
    assert_eq!(ArmError::ShutDown.to_string(), "the engine was shut down");
    engine.advance(10 * SECOND);
    assert_eq!((fired.load(Ordering::SeqCst), engine.handle().stats().owned.alive), (1, 5));
    drop(timers);
    books.iter().for_each(|book| book.assert_gone());
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

#[test]
fn timers_outlive_their_engine() {
    for builder in every_dispatch() {
        let engine = builder.build(|_: Fired<'_, Tracked>| {}).unwrap();
        let (payload, book) = Tracked::new();
        let timer = engine.handle().timer(payload).unwrap();
        timer.arm(HOUR).unwrap();
        drop(engine);
        assert_eq!((timer.arm(MS), timer.disarm()), (Err(ArmError::ShutDown), Disarm::Idle));
        let handle = timer.engine();
        assert!(handle.is_shut_down());
        assert_eq!((book.original_drops(), handle.stats().owned.alive), (0, 1));
        drop(timer);
        book.assert_gone();
        assert_eq!(handle.stats().owned.alive, 0);
    }
}

#[test]
fn a_refused_timer_hands_its_payload_back() {
    let (engine, _log) = recording(Builder::new().capacity(2));
    let scheduled = engine.handle().schedule(HOUR, 0).unwrap();
    let timer = engine.handle().timer(1).unwrap();
    // Full of both kinds, for both kinds.
    let error = engine.handle().timer(2).unwrap_err();
    assert_eq!((error.kind, error.payload), (ScheduleErrorKind::EngineFull, 2));
    assert_eq!(engine.handle().schedule(HOUR, 2).unwrap_err().kind, ScheduleErrorKind::EngineFull);
    drop(timer);
    let timer = engine.handle().timer(3).unwrap();
    assert_eq!(engine.handle().cancel(scheduled), Cancel::Cancelled(0));
    let another = engine.handle().timer(4).unwrap();
    assert_eq!((timer.arm(HOUR), another.arm(HOUR)), (Ok(Armed::Pending), Ok(Armed::Pending)));
    assert_eq!(engine.handle().stats().owned.alive, 2);
    assert!(engine.handle().shutdown().is_empty());
    let error = engine.handle().timer(5).unwrap_err();
    assert_eq!((error.kind, error.payload), (ScheduleErrorKind::ShutDown, 5));
    let (tracked_engine, _) = counting();
    drop(tracked_engine.handle().shutdown());
    let (payload, book) = Tracked::new();
    drop(tracked_engine.handle().timer(payload).map_err(|error| error.payload));
    book.assert_gone();
    assert_eq!(tracked_engine.handle().stats().owned.alive, 0);
}

#[test]
fn a_handler_that_shuts_the_engine_down_finds_every_other_timer_forgotten() {
    let place: Arc<OnceLock<[Timer<u64>; 2]>> = Arc::default();
    let in_handler = Arc::downgrade(&place);
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, u64>| {
            assert!(fired.engine().shutdown().is_empty());
            for other in in_handler.upgrade().unwrap().get().unwrap() {
                assert_eq!((other.is_armed(), other.disarm()), (false, Disarm::Idle));
                assert_eq!(other.arm(MS), Err(ArmError::ShutDown));
            }
        })
        .unwrap();
    // One that is due with it, and one that is not.
    let timer = engine.handle().timer(0).unwrap();
    assert!(place.set([1, 2].map(|n| engine.handle().timer(n).unwrap())).is_ok());
    let [with_it, later] = place.get().unwrap();
    timer.arm(SECOND).unwrap();
    with_it.arm(SECOND).unwrap();
    later.arm(2 * SECOND).unwrap();
    engine.advance(5 * SECOND);
    let stats = engine.handle().stats();
    assert_eq!((stats.owned.fired, stats.total.panics), (1, 0));
    assert_eq!((timer.arm(MS), timer.disarm()), (Err(ArmError::ShutDown), Disarm::Idle));
    drop(timer);
    assert_eq!(engine.handle().stats().owned.alive, 2);
}

#[test]
fn a_handler_that_shut_the_engine_down_cannot_arm_its_own_timer() {
    let log = Log::new();
    let sink = log.clone();
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, u64>| {
            drop(fired.engine().shutdown());
            sink.push((fired.timer().unwrap().arm(MS), fired.timer().unwrap().deadline()));
        })
        .unwrap();
    let timer = engine.handle().timer(0).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(5 * SECOND);
    assert_eq!((timer.deadline(), timer.arm(MS)), (None, Err(ArmError::ShutDown)));
    assert_eq!(engine.handle().stats().owned.fired, 1);
    assert_eq!(log.take(), [(Err(ArmError::ShutDown), None)]);
}

#[test]
fn a_timer_armed_by_its_handler_that_then_shuts_the_engine_down_is_forgotten() {
    let mut engine = Builder::new()
        .build_driven(|fired: Fired<'_, u64>| {
            assert_eq!(fired.timer().unwrap().arm(MS), Ok(Armed::Running));
            assert!(fired.engine().shutdown().is_empty());
        })
        .unwrap();
    let timer = engine.handle().timer(0).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
    engine.advance(SECOND);
    assert_eq!(timer.arm(MS), Err(ArmError::ShutDown));
    assert_eq!((engine.handle().stats().owned.fired, engine.handle().stats().total.panics), (1, 0));
}

#[test]
fn a_timer_dropped_by_the_handler_that_shut_the_engine_down_drops_its_payload_once() {
    let place: Place<Tracked> = Place::default();
    let in_handler = Arc::clone(&place);
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, Tracked>| {
            assert!(fired.engine().shutdown().is_empty());
            drop(lock(&in_handler).take());
            assert_eq!(fired.payload.book.original_drops(), 0);
        })
        .unwrap();
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(SECOND).unwrap();
    *lock(&place) = Some(timer);
    engine.advance(2 * SECOND);
    book.assert_gone();
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().total.panics), (0, 0));
}

#[test]
fn a_shutdown_waits_for_the_handler_and_the_timer_armed_meanwhile_is_forgotten() {
    within_patience(|| {
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, sets) = (gate.clone(), Arc::clone(&ended));
        let engine = Builder::new()
            .workers(1)
            .build(move |fired: Fired<'_, u64>| {
                at_gate.pass();
                // Heard that it is shut down, or acknowledged and forgotten.
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
            assert!(engine.handle().shutdown().is_empty());
            assert!(ended.load(Ordering::SeqCst));
        });
        assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
        assert_eq!(timer.arm(MS), Err(ArmError::ShutDown));
        assert_eq!(engine.handle().stats().owned.fired, 1);
    });
}

#[test]
fn timers_that_race_with_a_shutdown_end_armed_no_more_and_drop_their_payloads_once() {
    // Threads make, arm, put off and drop timers until they hear of the shutdown.
    for round in 0..30 {
        let (sender, books) = mpsc::channel();
        let engine = Builder::new()
            .tick(Duration::from_micros(100))
            .shards(2)
            .workers(2)
            .build(|fired: Fired<'_, Tracked>| {
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
                                    assert_eq!(error, ArmError::ShutDown);
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
            assert!(engine.handle().shutdown().is_empty());
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for timer in &kept {
            assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
            assert_eq!(timer.arm(Duration::ZERO), Err(ArmError::ShutDown));
        }
        assert_eq!(engine.handle().stats().owned.alive, kept.len() as u64);
        drop(kept);
        assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().total.panics), (0, 0));
        drop(sender);
        books.into_iter().for_each(|book| book.assert_gone());
    }
}
