//! Slots, payloads and stacks. An engine gives them back and uses them again, also at its end.

use crate::support::{
    HOUR, MS, Rng, assert_settled, on_a_thread_that_stays, recording, wait_until, within_patience,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Cancel, Engine, Fired, Handle, Refusal, RescheduleError, Timestamp};

/// Guards against fault P2 of other engines: a stop returned timers that were not pending any more, or lost those that
/// still waited to be inserted.
#[test]
fn timers_that_race_with_a_shutdown_are_fired_returned_or_refused() {
    let engine = Builder::new().shards(2).start(|_: Fired<'_, u64>| {}).unwrap();
    let accepted = AtomicU64::new(0);
    let returned = thread::scope(|scope| {
        for seed in 0..4 {
            let (engine, accepted) = (&engine, &accepted);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                loop {
                    match engine.handle().schedule(rng.nanos_below(4 * MS), seed) {
                        Ok(_) => accepted.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert_eq!((error.kind, error.payload), (Refusal::ShutDown, seed));
                            return;
                        }
                    };
                }
            });
        }
        thread::sleep(20 * MS);
        engine.handle().shutdown().len() as u64
    });
    let stats = engine.handle().stats();
    assert_eq!(stats.fired + returned, accepted.load(Ordering::Relaxed));
    assert_eq!(stats.returned, returned);
    assert_settled(&stats);
}

/// Guards against fault P20 of other engines: calls after a stop blocked.
#[test]
fn everything_answers_at_once_after_a_shutdown() {
    within_patience(|| {
        let engine = Builder::new().lane_capacity(64).start(|_: Fired<'_, u64>| {}).unwrap();
        let id = engine.handle().schedule(HOUR, 1).unwrap();
        assert_eq!(engine.handle().shutdown().len(), 1);
        // There are more calls than the lane has room for, and their deadlines look like sentinels.
        for n in 0..1_000 {
            for deadline in [0, 1, u64::MAX - 1, u64::MAX].map(Timestamp::from_nanos) {
                let error = engine.handle().schedule_at(deadline, n).unwrap_err();
                assert_eq!((error.kind, error.payload), (Refusal::ShutDown, n));
            }
            let error = engine.handle().try_schedule(Duration::MAX, n).unwrap_err();
            assert_eq!((error.kind, error.payload), (Refusal::ShutDown, n));
            let error = engine.handle().schedule_batch([(MS, n), (HOUR, n)]).unwrap_err();
            assert_eq!((error.kind, error.refused.len()), (Refusal::ShutDown, 2));
        }
        assert_eq!(engine.handle().cancel(id), Cancel::Gone);
        assert_eq!(engine.handle().cancel_and_wait(id), Cancel::Gone);
        assert_eq!(engine.handle().remaining(id), None);
        assert!(matches!(engine.handle().reschedule(id, MS), Err(RescheduleError::Gone)));
        assert_eq!(engine.handle().shutdown(), []);
        assert_settled(&engine.handle().stats());
    });
}

/// Guards against fault P22 of other engines: timers that re-armed themselves kept their captured context for ever.
#[test]
fn a_payload_is_dropped_as_soon_as_its_timer_ends() {
    let mut engine = Builder::new().driven(|_: Fired<'_, Arc<()>>| {}).unwrap();
    let payload = Arc::new(());
    let id = engine.handle().schedule(MS, Arc::clone(&payload)).unwrap();
    let id = engine.handle().reschedule(id, HOUR).unwrap();
    assert_eq!(Arc::strong_count(&payload), 2);
    drop(engine.handle().cancel(id));
    assert_eq!(Arc::strong_count(&payload), 1);
    engine.handle().schedule(MS, Arc::clone(&payload)).unwrap();
    engine.advance(MS);
    assert_eq!(Arc::strong_count(&payload), 1);
    engine.handle().schedule(MS, Arc::clone(&payload)).unwrap();
    drop(engine);
    assert_eq!(Arc::strong_count(&payload), 1);
}

/// Guards against fault R22 of other engines: reference cycles kept timers and wakers alive after the shutdown.
#[test]
fn payloads_that_hold_the_engine_do_not_keep_it_alive() {
    struct Holder {
        _engine: Handle<Holder>,
        _probe: Arc<()>,
    }
    let probe = Arc::new(());
    let in_handler = Arc::clone(&probe);
    let engine = Engine::new(move |_: Fired<'_, Holder>| drop(Arc::clone(&in_handler))).unwrap();
    for delay in [MS, HOUR, Duration::MAX] {
        let holder = Holder { _engine: Handle::clone(engine.handle()), _probe: Arc::clone(&probe) };
        engine.handle().schedule(delay, holder).unwrap();
    }
    thread::sleep(2 * MS);
    drop(engine);
    // A worker may still be on its way out of the engine.
    wait_until("the engine is gone", || Arc::strong_count(&probe) == 1);
}

/// Guards against fault R23 of other engines: a call after the shutdown failed an assertion.
#[test]
fn an_engine_shut_down_at_the_end_of_time_still_answers() {
    let (mut engine, log) = recording(Builder::new());
    engine.handle().schedule(HOUR, 0).unwrap();
    engine.advance_to(Timestamp::MAX);
    assert_eq!(log.len(), 1);
    let id = engine.handle().schedule(HOUR, 1).unwrap();
    engine.turn();
    assert_eq!(engine.handle().shutdown().len(), 1);
    engine.turn();
    engine.advance(HOUR);
    assert_eq!(engine.handle().cancel(id), Cancel::Gone);
    assert_eq!(engine.handle().shutdown(), []);
}

/// Guards against fault R30 of other engines: a large wheel was built on the stack, which overflowed.
#[test]
fn an_engine_is_built_on_a_small_stack() {
    let built = thread::Builder::new().stack_size(64 << 10).spawn(|| {
        let (mut engine, log) = recording(Builder::new().shards(64));
        for shard in 0..64 {
            engine.handle().use_shard(shard);
            for power in 0..40 {
                engine.handle().schedule(Duration::from_micros(1 << power), 0).unwrap();
            }
        }
        engine.advance(Duration::from_micros(1 << 40));
        log.len()
    });
    assert_eq!(built.unwrap().join().unwrap(), 64 * 40);
}

/// Guards against fault R32 of other engines: late or refused schedules were dropped without an error.
#[test]
fn every_refusal_hands_its_payload_back() {
    let engine = Builder::new().capacity(100).driven(|_: Fired<'_, u64>| {}).unwrap();
    let mut refused = 0;
    for n in 0..200 {
        if let Err(error) = engine.handle().schedule(HOUR, n) {
            assert_eq!((error.kind, error.payload), (Refusal::EngineFull, n));
            refused += 1;
        }
    }
    assert_eq!((refused, engine.handle().len()), (100, 100));
    let error = engine.handle().schedule_batch((0..3).map(|n| (HOUR, n))).unwrap_err();
    assert_eq!(error.refused.iter().map(|&(_, payload)| payload).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(engine.handle().stats().scheduled, 100);
}

/// Guards against fault R32 of other engines: late or refused schedules were dropped without an error.
#[test]
fn slots_that_fired_timers_vacate_are_not_hoarded() {
    // The slots of a chunk of fired timers must not pile up at one thread. The bound is 1/32 of the capacity.
    let (mut engine, _) = recording(Builder::new().capacity(64));
    for n in 0..64 {
        engine.handle().schedule(MS, n).unwrap();
    }
    engine.advance(MS);
    let handle = engine.handle();
    thread::scope(|scope| {
        let one_each = || handle.schedule(HOUR, 0).unwrap();
        let _staying: Vec<_> = (0..8).map(|_| on_a_thread_that_stays(scope, one_each)).collect();
        let mut pending = 8;
        while handle.schedule(HOUR, 0).is_ok() {
            pending += 1;
        }
        assert!(pending >= 64 - 2 * 8, "{pending}");
    });
}

/// Returns the number of threads, of `threads`, that can have one timer each at the same time.
fn threads_with_a_timer_each(engine: &tourbillon::DrivenEngine<u64>, threads: u64) -> u64 {
    let handle = engine.handle();
    thread::scope(|scope| {
        let one_each = || u64::from(handle.schedule(HOUR, 0).is_ok());
        let staying: Vec<_> = (0..threads).map(|_| on_a_thread_that_stays(scope, one_each)).collect();
        staying.iter().map(|(scheduled, _)| scheduled).sum()
    })
}

/// The pitfalls in `src/DESIGN.md` lack this fault, which was found in this engine: small capacities were refused
/// although few timers were pending.
#[test]
fn hundreds_of_threads_have_a_timer_each_in_a_small_engine() {
    // Threads keep slots in their magazines. These must not use up an engine in which hardly a timer is pending.
    for capacity in [4_096, 16_384] {
        for threads in [65, 300, 900] {
            let (engine, _) = recording(Builder::new().capacity(capacity));
            assert_eq!(threads_with_a_timer_each(&engine, threads), threads, "of {capacity}");
        }
    }
}

/// The pitfalls in `src/DESIGN.md` lack this fault, which was found in this engine: other threads could not use the
/// slots that a thread had vacated.
#[test]
fn hundreds_of_threads_share_what_fired_timers_vacated() {
    // Each slot was used before, so slots come back in whole magazines. Other threads must get them.
    for capacity in [4_096, 16_384] {
        let (mut engine, _) = recording(Builder::new().capacity(capacity));
        let handle = engine.handle();
        let fill = || (0..u64::from(capacity)).for_each(|n| _ = handle.schedule(MS, n).unwrap());
        thread::scope(|scope| scope.spawn(fill).join().unwrap());
        engine.advance(MS);
        assert_eq!(engine.handle().stats().fired, u64::from(capacity));
        assert_eq!(threads_with_a_timer_each(&engine, 900), 900, "of {capacity}");
    }
}

/// The pitfalls in `src/DESIGN.md` lack this fault, which a remedy for hoarded slots could cause: some slots are out of
/// reach for every thread, because the threads' shares become small.
#[test]
fn one_thread_has_every_slot() {
    // The thread gets every slot, even if the shares become small towards the end.
    for capacity in [1, 2, 63, 64, 129, 4_096] {
        let (mut engine, _) = recording(Builder::new().capacity(capacity));
        for _ in 0..3 {
            let handle = engine.handle();
            let fill = || (0..=capacity).take_while(|_| handle.schedule(MS, 0).is_ok()).count();
            let scheduled = thread::scope(|scope| scope.spawn(fill).join().unwrap());
            assert_eq!(scheduled, capacity as usize);
            engine.advance(MS);
        }
    }
}
