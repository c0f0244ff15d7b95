//! Panics in handlers, and in the clones and drops of payloads. Each panic ends where it began.

use crate::support::lock;
use crate::{Place, SECOND, Tracked, counting};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tourbillon::{Armed, Builder, Disarm, Fired};

#[test]
fn a_timer_whose_handler_panics_is_armed_again() {
    let mut engine = Builder::new()
        .driven(|fired: Fired<'_, u64>| {
            if fired.payload == 1 {
                fired.timer().unwrap().arm(SECOND).unwrap();
            }
            resume_unwind(Box::new("a handler"));
        })
        .unwrap();
    // A timer is armed from outside, and by its handler before the handler panics.
    let (outside, inside) = (engine.handle().timer(0).unwrap(), engine.handle().timer(1).unwrap());
    outside.arm(SECOND).unwrap();
    inside.arm(SECOND).unwrap();
    for round in 1..=5 {
        engine.advance(SECOND);
        assert_eq!(engine.handle().stats().total.panics, 2 * round, "a panic was not counted once");
        assert_eq!(outside.disarm(), Disarm::Idle, "the panic left the timer in its run");
        assert_eq!(outside.arm(SECOND), Ok(Armed::Pending), "a timer whose handler panicked cannot be armed");
        assert!(inside.is_armed(), "the arming before the panic was lost");
    }
    assert_eq!(engine.handle().stats().owned.fired, 10, "a firing is missing");
}

#[test]
fn a_payload_whose_clone_panics_costs_one_firing() {
    let (mut engine, fired) = counting();
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    book.clone_panics.store(true, Ordering::SeqCst);
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!(
        (fired.load(Ordering::SeqCst), engine.handle().stats().total.panics),
        (0, 1),
        "the handler ran without a payload, or the panic was not counted once"
    );
    assert_eq!(timer.disarm(), Disarm::Idle, "the panic left the timer in its run");
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!(
        (fired.load(Ordering::SeqCst), engine.handle().stats().total.panics),
        (1, 1),
        "the next firing is missing, or panicked"
    );
    drop(timer);
    book.assert_gone();
    assert_eq!(engine.handle().stats().owned.alive, 0, "a dropped timer is counted as alive");
}

#[test]
fn a_payload_whose_drop_panics_costs_nobody_else_anything() {
    let place: Place<Tracked> = Place::default();
    let (in_handler, hooked) = (Arc::clone(&place), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&hooked);
    let mut engine = Builder::new()
        .on_panic(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .driven(move |_: Fired<'_, Tracked>| drop(lock(&in_handler).take()))
        .unwrap();
    let make = || {
        let (payload, book) = Tracked::new();
        book.drop_panics.store(true, Ordering::SeqCst);
        (engine.handle().timer(payload).unwrap(), book)
    };
    // The timer is dropped here, so the panic unwinds here.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    assert!(
        catch_unwind(AssertUnwindSafe(|| drop(timer))).is_err(),
        "the panic of the drop did not reach the caller"
    );
    book.assert_gone();
    // The timer is dropped inside its handler. The panic ends there, and another timer of the same tick fires.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    let (another, another_book) = make();
    another.arm(SECOND).unwrap();
    *lock(&place) = Some(timer);
    engine.advance(SECOND);
    book.assert_gone();
    assert_eq!(
        (hooked.load(Ordering::SeqCst), engine.handle().stats().owned.fired),
        (1, 2),
        "the panic did not reach the hook once, or took another firing along"
    );
    another_book.drop_panics.store(false, Ordering::SeqCst);
    another.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!(engine.handle().stats().owned.fired, 3, "the engine did not go on after the panic");
    drop(another);
    another_book.assert_gone();
    assert_eq!(engine.handle().stats().owned.alive, 0, "a dropped timer is counted as alive");
}
