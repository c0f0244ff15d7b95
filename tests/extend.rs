//! The module `extend`. With it, another crate (a *layer*) builds its own kinds of timers on the engine. It has calls
//! on payloads in place, calls that never wait, and hooks at the end of the engine.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{Gate, HOUR, Log, MS, within_patience};
use tourbillon::extend::{Base, Due, Payload, WhenFull};
use tourbillon::{Armed, Builder, DrivenEngine, Engine, Refusal, RescheduleError, Timestamp};

/// A payload without `Clone`. The payload counts how often the layer reads it.
struct Seen(Arc<AtomicU64>);

/// Makes a layer whose payloads count their runs. Also returns a log with the kinds of the timers that fired.
fn counting(builder: Builder) -> (DrivenEngine<Seen>, Base<Seen>, Log<&'static str>) {
    let log = Log::new();
    let sink = log.clone();
    let handler = move |due: Due<'_, Seen>| {
        let (Seen(count), kind) = match &due.payload {
            Payload::Taken(seen) => (seen, "taken"),
            Payload::Kept(seen) => (*seen, "kept"),
        };
        count.fetch_add(1, Ordering::Relaxed);
        sink.push(kind);
    };
    let (engine, base) = Base::driven(builder, handler).unwrap();
    (engine, base, log)
}

fn seen() -> (Seen, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    (Seen(Arc::clone(&count)), count)
}

/// Fills the calling thread's lane (its queue to the shard) with one-shots that are not due.
fn fill_the_lane(base: &Base<Seen>) {
    let far = Timestamp::ZERO + HOUR;
    while base.handle().try_schedule_at(far, seen().0).is_ok() {}
}

#[test]
fn a_handler_looks_at_payloads_where_they_are() {
    let (mut engine, base, log) = counting(Builder::new());
    let (payload, count) = seen();
    let timer = base.timer(payload).unwrap();
    for _ in 0..3 {
        timer.arm(MS).unwrap();
        engine.advance(2 * MS);
    }
    base.handle().schedule(MS, seen().0).unwrap();
    engine.advance(2 * MS);
    assert_eq!(log.take(), ["kept", "kept", "kept", "taken"]);
    assert_eq!(count.load(Ordering::Relaxed), 3);
    assert_eq!(Arc::strong_count(&count), 2, "no clone of the payload");
    drop(timer);
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn an_arming_that_never_waits_fails_for_want_of_room_or_exceeds_it() {
    let (mut engine, base, log) = counting(Builder::new().lane_capacity(64));
    let [first, second] = [(); 2].map(|()| base.timer(seen().0).unwrap());
    let soon = base.handle().now() + 5 * MS;
    first.arm_at(soon).unwrap();
    fill_the_lane(&base);
    // The first timer's ticket is already queued, and suffices.
    assert_eq!(base.try_arm_at(&first, soon + MS, WhenFull::Fail), Ok(Armed::Pending));
    assert_eq!(base.try_arm_at(&second, soon, WhenFull::Fail), Err(Refusal::LaneFull));
    let mut rounds = 0;
    assert!(!base.await_room(&mut rounds), "no other thread drains the lane");
    assert_eq!(rounds, 0);
    assert_eq!(base.try_arm_at(&second, soon, WhenFull::Exceed), Ok(Armed::Pending));
    engine.advance(10 * MS);
    assert_eq!(log.take(), ["kept", "kept"]);
    drop(engine);
    let refused = [WhenFull::Fail, WhenFull::Exceed].map(|full| base.try_arm_at(&second, soon, full));
    assert_eq!(refused, [Err(Refusal::ShutDown); 2]);
}

#[test]
fn a_move_that_never_waits_fails_for_want_of_room_and_leaves_the_timer() {
    let (mut engine, base, log) = counting(Builder::new().lane_capacity(64));
    let handle = base.handle();
    let soon = handle.now() + 5 * MS;
    let id = handle.schedule_at(soon, seen().0).unwrap();
    let moved = handle.try_reschedule_at(id, soon + MS).unwrap();
    assert!(matches!(handle.try_reschedule_at(id, soon), Err(RescheduleError::Gone)));
    fill_the_lane(&base);
    assert!(matches!(handle.try_reschedule_at(moved, soon), Err(RescheduleError::LaneFull)));
    assert_eq!(handle.deadline(moved), Some(soon + MS));
    engine.advance(10 * MS);
    assert_eq!(log.take(), ["taken"]);
}

#[test]
fn a_thread_knows_where_it_would_wait_for_itself() {
    within_patience(|| {
        let (gate, answers) = (Gate::new(), Log::new());
        let (its_gate, sink) = (gate.clone(), answers.clone());
        let handler = move |due: Due<'_, Base<()>>| {
            if let Payload::Kept(base) = due.payload {
                sink.push((base.may_wait_for_shards(), base.may_wait_for_handlers()));
                its_gate.open();
            }
        };
        // The payload is `elsewhere`, the base of another engine.
        let (other, elsewhere) = Base::start(Builder::new().shards(1), |_: Due<'_, ()>| {}).unwrap();
        let (engine, base): (Engine<Base<()>>, _) = Base::start(Builder::new().shards(1), handler).unwrap();
        assert!(base.may_wait_for_shards() && base.may_wait_for_handlers());
        let timer = base.timer(elsewhere).unwrap();
        timer.arm(Duration::ZERO).unwrap();
        gate.pass();
        timer.disarm_and_wait();
        assert_eq!(answers.take(), [(true, true)], "of another engine a handler may wait");
        drop((other, engine));
        assert!(!base.may_wait_for_shards(), "its threads have ended");
    });
}

#[test]
fn a_handler_must_not_wait_for_its_own_engine() {
    let answers = Log::new();
    let sink = answers.clone();
    let handler = move |due: Due<'_, Weakly>| {
        if let Payload::Taken(Weakly(base)) = due.payload {
            sink.push((base.may_wait_for_shards(), base.may_wait_for_handlers()));
        }
    };
    let (mut engine, base) = Base::driven(Builder::new(), handler).unwrap();
    assert!(!base.may_wait_for_shards(), "there is no thread to wait for");
    assert!(base.may_wait_for_handlers());
    engine.handle().schedule(MS, Weakly(base.clone())).unwrap();
    engine.advance(2 * MS);
    assert_eq!(answers.take(), [(false, false)]);
}

/// A payload that contains the base (the layer's handle) of its own engine.
struct Weakly(Base<Weakly>);

#[test]
fn hooks_run_once_at_the_end_and_late_ones_at_once() {
    let panics = Log::new();
    let sink = panics.clone();
    let (engine, base, _) = counting(Builder::new().on_panic(move |_| sink.push(())));
    let log = Log::new();
    let say = |word: &'static str| {
        let (log, handle) = (log.clone(), base.handle().clone());
        move || {
            assert!(handle.is_shut_down() && handle.is_empty());
            log.push(word);
        }
    };
    base.handle().schedule(HOUR, seen().0).unwrap();
    base.at_shutdown(say("first"));
    base.at_shutdown(|| panic!("a hook"));
    base.at_shutdown(say("second"));
    assert_eq!(log.len(), 0);
    assert_eq!(base.handle().shutdown().len(), 1);
    assert_eq!(log.take(), ["first", "second"]);
    assert_eq!(panics.len(), 1, "a hook's panic is reported");
    base.at_shutdown(say("late"));
    assert_eq!(log.take(), ["late"]);
    drop(engine);
    assert!(base.handle().shutdown().is_empty() && log.take().is_empty());
}

#[test]
fn dropping_an_engine_runs_its_hooks_and_drops_what_they_have() {
    let (engine, base) = Base::start(Builder::new().shards(1), |_: Due<'_, ()>| {}).unwrap();
    let (kept, log) = (Arc::new(()), Log::new());
    let (held, sink) = (Arc::clone(&kept), log.clone());
    base.at_shutdown(move || sink.push(Arc::strong_count(&held)));
    drop(engine);
    assert_eq!((log.take(), Arc::strong_count(&kept)), (vec![2], 1));
}
