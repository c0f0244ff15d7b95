//! Threads that start, end, or use several engines.

use crate::OnDrop;
use crate::support::{HOUR, Log, MS, Rng, assert_settled, payloads, recording, wait_until};
use std::cell::RefCell;
use std::thread;
use tourbillon::{Builder, Cancel, Engine, Fired, Handle};

#[test]
fn a_thread_that_ends_may_use_the_engine_from_its_thread_locals() {
    thread_local! {
        static LAST_WORDS: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
    }
    // The engine's thread-local part may be dropped before the test's own thread-local or after it. The test tries both
    // orders.
    for engine_first in [true, false] {
        let log = Log::new();
        let sink = log.clone();
        let engine = Engine::new(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
        let handle = Handle::clone(engine.handle());
        let thread = thread::spawn(move || {
            let last = handle.clone();
            let last_words = OnDrop::new(move || {
                let id = last.schedule(HOUR, 3).unwrap();
                let id = last.reschedule(id, 2 * HOUR).unwrap();
                assert_eq!(last.cancel(id), Cancel::Cancelled(3));
                last.schedule(MS, 2).unwrap();
            });
            if engine_first {
                handle.schedule(MS, 1).unwrap();
            }
            LAST_WORDS.set(Some(last_words));
            if !engine_first {
                handle.schedule(MS, 1).unwrap();
            }
        });
        thread.join().unwrap();
        wait_until("both have fired", || log.len() == 2);
        assert_eq!(log.take_sorted(), [1, 2]);
        assert_settled(&engine.handle().stats());
    }
}

#[test]
fn threads_that_come_and_go_lose_no_timer() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Engine::new(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    for n in 0..100 {
        thread::scope(|scope| {
            scope.spawn(|| engine.handle().schedule(MS, n).unwrap());
        });
    }
    wait_until("all have fired", || log.len() == 100);
    assert_eq!(log.take_sorted(), (0..100).collect::<Vec<u64>>());
}

#[test]
fn a_thread_may_use_several_engines_in_turn() {
    // A thread keeps a part for each engine that it uses. The parts of engines that have ended are dropped to make
    // room.
    let mut engines: Vec<_> = (0..4).map(|_| recording(Builder::new().capacity(100))).collect();
    let mut rng = Rng::new(4);
    let mut expected = vec![Vec::new(); engines.len()];
    for payload in 0..2_000 {
        if payload == 1_000 {
            engines[3] = recording(Builder::new());
            expected[3].clear();
        }
        let which = rng.index(engines.len());
        let (engine, _) = &mut engines[which];
        let id = engine.handle().schedule(MS, payload).unwrap();
        if rng.chance(50) {
            assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(payload));
        } else {
            expected[which].push(payload);
        }
        if rng.chance(10) {
            engine.advance(MS);
        }
    }
    for ((engine, log), expected) in engines.iter_mut().zip(&expected) {
        engine.advance(MS);
        assert_eq!(payloads(&log.take()), *expected);
        assert_settled(&engine.handle().stats());
    }
}
