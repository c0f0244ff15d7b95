//! Dropping a timer. It does not fire any more. Its payload is dropped once, as soon as no handler uses it.

use crate::support::{Gate, HOUR, MS, lock, wait_until, within_patience};
use crate::{Place, SECOND, Tracked, counting};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tourbillon::{ArmError, Armed, Builder, Disarm, Engine, Fired, Job, ManualClock, Timer, Timestamp};

#[test]
fn a_dropped_timer_does_not_fire_and_its_payload_goes_at_once() {
    let (mut engine, fired) = counting();
    let make = || {
        let (payload, book) = Tracked::new();
        let timer = engine.handle().timer(payload).unwrap();
        (timer, book)
    };
    // The timer is at rest and was never armed.
    let (timer, book) = make();
    drop(timer);
    book.assert_gone();
    // The timer is armed, and its ticket is in the lane.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    drop(timer);
    book.assert_gone();
    // The timer is disarmed, and its ticket is still queued.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    timer.disarm();
    drop(timer);
    book.assert_gone();
    // The timer is armed, and its ticket is in the wheel.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    engine.turn();
    drop(timer);
    book.assert_gone();
    engine.advance(2 * SECOND);
    assert_eq!(fired.load(Ordering::SeqCst), 0, "a dropped timer fired");
    // The timer has fired, and is at rest.
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!(fired.load(Ordering::SeqCst), 1, "it did not fire before it was dropped");
    assert_eq!(
        (book.clones.load(Ordering::SeqCst), book.original_drops()),
        (1, 0),
        "the firing did not clone the payload once, or dropped it"
    );
    drop(timer);
    book.assert_gone();
    let stats = engine.handle().stats();
    assert_eq!(
        (stats.owned.alive, stats.total.tickets),
        (0, 0),
        "a dropped timer is counted as alive, or its ticket is left"
    );
}

#[test]
fn the_payload_of_a_timer_dropped_while_its_handler_runs_goes_when_that_has_ended() {
    let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
    let (at_gate, sets) = (gate.clone(), Arc::clone(&ended));
    let engine = Builder::new()
        .workers(1)
        .start(move |fired: Fired<'_, Tracked>| {
            at_gate.pass();
            assert_eq!(
                fired.payload.book.original_drops(),
                0,
                "the payload was dropped while its handler ran"
            );
            drop(fired);
            sets.store(true, Ordering::SeqCst);
        })
        .unwrap();
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(MS).unwrap();
    gate.await_arrival();
    // The drop does not wait for the handler. The timer was armed again, but does not fire again.
    assert_eq!(timer.arm(Duration::ZERO), Ok(Armed::Running));
    drop(timer);
    assert_eq!(
        (book.original_drops(), engine.handle().stats().owned.alive),
        (0, 1),
        "the drop did not leave the payload to the handler"
    );
    gate.open();
    wait_until("the payload is dropped", || book.original_drops() == 1);
    assert!(ended.load(Ordering::SeqCst), "the payload was dropped before the end of its handler");
    // A thread of the engine drops the payload. It is the thread that ran the handler, or the thread that found the
    // ticket of the second arming.
    assert!(
        lock(&book.dropped_by).as_deref().is_some_and(|name| name.starts_with("tb-")),
        "the payload was dropped by no thread of the engine"
    );
    book.assert_gone();
    wait_until("it is not counted any more", || engine.handle().stats().owned.alive == 0);
    thread::sleep(5 * MS);
    assert_eq!(
        (engine.handle().stats().owned.fired, engine.handle().stats().total.panics),
        (1, 0),
        "it fired for the arming before its drop, or an assertion inside the handler failed"
    );
}

#[test]
fn a_timer_dropped_inside_its_own_handler_is_armed_no_more() {
    let place: Place<Tracked> = Place::default();
    let in_handler = Arc::clone(&place);
    let mut engine = Builder::new()
        .driven(move |fired: Fired<'_, Tracked>| {
            let by_ref = fired.timer().unwrap();
            assert_eq!(by_ref.arm(Duration::ZERO), Ok(Armed::Running));
            drop(lock(&in_handler).take());
            assert_eq!(
                fired.payload.book.original_drops(),
                0,
                "the payload was dropped while its handler ran"
            );
            assert_eq!(by_ref.arm(Duration::ZERO), Err(ArmError::Dropped), "a dropped timer was armed");
            assert_eq!(by_ref.arm_at(Timestamp::MAX), Err(ArmError::Dropped), "a dropped timer was armed");
            assert_eq!(by_ref.disarm(), Disarm::Running, "the disarm does not return that the handler runs");
            assert_eq!(ArmError::Dropped.to_string(), "the timer was dropped");
        })
        .unwrap();
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(SECOND).unwrap();
    *lock(&place) = Some(timer);
    engine.advance(SECOND);
    book.assert_gone();
    engine.advance(10 * SECOND);
    let stats = engine.handle().stats();
    assert_eq!(
        (stats.owned.fired, stats.owned.alive, stats.total.panics),
        (1, 0, 0),
        "it fired again, is counted as alive, or an assertion inside the handler failed"
    );
}

#[test]
fn a_due_timer_dropped_before_a_worker_takes_it_goes_with_the_job_or_with_the_engine() {
    for shut_down in [false, true] {
        let (clock, jobs) = (ManualClock::new(), Arc::new(Mutex::new(Vec::<Job>::new())));
        let queue = Arc::clone(&jobs);
        let engine = Builder::new()
            .shards(1)
            .clock(clock.clone())
            .executor(move |job| lock(&queue).push(job))
            .start(|_: Fired<'_, Tracked>| panic!("it was dropped"))
            .unwrap();
        let (payload, book) = Tracked::new();
        let timer = engine.handle().timer(payload).unwrap();
        timer.arm(MS).unwrap();
        clock.advance(MS);
        wait_until("it is handed over", || lock(&jobs).len() == 1);
        drop(timer);
        assert_eq!(engine.handle().stats().owned.alive, 1, "the slot was vacated while a job had its ticket");
        if shut_down {
            assert!(engine.handle().shutdown().is_empty(), "an owned timer is returned");
            book.assert_gone();
        }
        std::mem::take(&mut *lock(&jobs)).into_iter().for_each(Job::run);
        book.assert_gone();
        let stats = engine.handle().stats();
        assert_eq!(
            (stats.owned.alive, stats.owned.fired, stats.total.panics),
            (0, 0, 0),
            "a dropped timer fired, or is counted as alive"
        );
    }
}

#[test]
fn a_payloads_drop_may_use_the_engine_and_drop_another_timer_of_it() {
    /// A link in a chain of timers. Each timer is in the payload of the next.
    #[derive(Clone)]
    struct Link {
        previous: Option<Arc<Timer<Link>>>,
    }

    within_patience(|| {
        let engine = Engine::new(|fired: Fired<'_, Link>| drop(fired.payload.previous)).unwrap();
        let mut payload = Link { previous: None };
        for _ in 0..50 {
            let timer = engine.handle().timer(payload).unwrap();
            timer.arm(HOUR).unwrap();
            payload = Link { previous: Some(Arc::new(timer)) };
        }
        assert_eq!(engine.handle().stats().owned.alive, 50, "the timers of the chain are not alive");
        drop(payload);
        assert_eq!(
            engine.handle().stats().owned.alive,
            0,
            "a timer whose owner was dropped with a payload is alive"
        );
    });
}
