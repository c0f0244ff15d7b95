//! Faults of other timer engines, which this one must not have. The comment of a test has its rows, each with the fault
//! of the other engine: `P5` is of engines in Java, Go, C and C++, `R5` of engines in Rust. `src/DESIGN.md` has all
//! rows, also those that other files test and those that cannot apply.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use support::{
    Gate, HOUR, Log, MS, PATIENCE, Rng, Shot, assert_settled, lock, on_a_thread_that_stays, payloads,
    recording, wait_until, within_patience,
};
use tourbillon::{
    BuildError, Builder, Cancel, Clock, Engine, Fired, Handle, Job, ManualClock, Refusal, RescheduleError,
    TimerId, Timestamp,
};

const MICRO: Duration = Duration::from_micros(1);

/// An engine with one unpinned shard on a clock that is moved by hand; its handlers run on the shard's thread.
fn stepped(handler: impl Fn(Fired<'_, u64>) + Send + Sync + 'static) -> (Engine<u64>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Builder::new().clock(clock.clone()).shards(1).unpinned().inline();
    (builder.start(handler).unwrap(), clock)
}

fn ticks(count: u64, tick: Duration) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(tick.as_nanos()).unwrap() * count)
}

/// P1: A cancel between the removal of a timer from its bucket and its expiry decremented the pending count twice.
#[test]
fn a_cancel_storm_during_a_slow_handler_leaves_the_count_at_zero() {
    // One handler holds the tick's first chunk while two threads cancel every timer of that tick.
    let (clock, gate, first) = (ManualClock::new(), Gate::new(), AtomicBool::new(true));
    let at_gate = gate.clone();
    let engine = Builder::new()
        .clock(clock.clone())
        .shards(1)
        .workers(2)
        .start(move |_: Fired<'_, u64>| {
            if first.swap(false, Ordering::Relaxed) {
                at_gate.pass();
            }
        })
        .unwrap();
    let ids: Vec<TimerId> = (0..500).map(|n| engine.handle().schedule(MS, n).unwrap()).collect();
    clock.advance(MS);
    gate.await_arrival();
    let storm = || {
        ids.iter().filter(|&&id| matches!(engine.handle().cancel(id), Cancel::Cancelled(_))).count() as u64
    };
    let cancelled = thread::scope(|scope| {
        let other = scope.spawn(storm);
        storm() + other.join().unwrap()
    });
    gate.open();
    wait_until("the rest has fired", || engine.handle().stats().fired == 500 - cancelled);
    assert_eq!(engine.handle().len(), 0);
    assert_eq!(engine.handle().stats().cancelled, cancelled);
    assert_settled(&engine.handle().stats());
}

/// P2: A stop returned timers that were not pending any more, or lost those that still waited to be inserted.
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

/// P3: A cancel was lost that came while the owner moved the timer between levels.
#[test]
fn a_timer_cancelled_while_its_slot_is_spread_never_fires() {
    // 20,000 timers in one coarse slot, which is spread over the ticks before it begins; some are cancelled at each.
    let (mut engine, log) = recording(Builder::new());
    let mut rng = Rng::new(3);
    let mut ids = Vec::new();
    for payload in 0..20_000 {
        ids.push((engine.handle().schedule(MS * 300 + rng.nanos_below(200 * MS), payload).unwrap(), payload));
    }
    let mut cancelled = BTreeSet::new();
    for _ in 0..520 {
        engine.advance(MS);
        for _ in 0..20 {
            let (id, payload) = ids.swap_remove(rng.index(ids.len()));
            match engine.handle().cancel(id) {
                Cancel::Cancelled(back) => assert!(back == payload && cancelled.insert(payload)),
                outcome => assert_eq!(outcome, Cancel::Gone),
            }
        }
    }
    let fired: BTreeSet<u64> = payloads(&log.take()).into_iter().collect();
    assert!(cancelled.len() > 5_000);
    assert!(fired.is_disjoint(&cancelled));
    assert_eq!(fired.len() + cancelled.len(), 20_000);
    assert_settled(&engine.handle().stats());
}

/// P4: A reset or cancel on another core corrupted the owner's list.
#[test]
fn resets_and_cancels_from_other_threads_neither_lose_nor_double_a_timer() {
    // Three threads move and re-make the same 256 timers; at the end each payload is there once.
    let engine = Builder::new().tick(MICRO).shards(2).start(|_: Fired<'_, u64>| {}).unwrap();
    let ids: Vec<AtomicU64> =
        (0..256).map(|n| AtomicU64::new(engine.handle().schedule(HOUR, n).unwrap().to_bits())).collect();
    thread::scope(|scope| {
        for seed in 0..3 {
            let (engine, ids) = (&engine, &ids);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..20_000 {
                    let place = &ids[rng.index(ids.len())];
                    let id = TimerId::from_bits(place.load(Ordering::Relaxed));
                    let delay = HOUR + rng.nanos_below(1_000 * MS);
                    let moved = if rng.chance(50) {
                        engine.handle().reschedule(id, delay).ok()
                    } else {
                        engine
                            .handle()
                            .cancel(id)
                            .payload()
                            .map(|payload| engine.handle().schedule(delay, payload).unwrap())
                    };
                    // Only the one that won has a new id to store.
                    if let Some(id) = moved {
                        place.store(id.to_bits(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(engine.handle().len(), 256);
    let mut payloads: Vec<u64> = ids
        .iter()
        .map(|id| engine.handle().cancel(TimerId::from_bits(id.load(Ordering::Relaxed))).payload().unwrap())
        .collect();
    payloads.sort_unstable();
    assert_eq!(payloads, (0..256).collect::<Vec<u64>>());
    assert_settled(&engine.handle().stats());
}

/// P5: A wake-up was lost: an earlier timer was inserted between the computation of the next deadline and the sleep.
#[test]
fn a_short_timer_wakes_a_shard_that_goes_to_sleep_on_a_long_one() {
    // Whatever the moment between "compute the next wake-up" and "sleep" at which the short one comes.
    let (sender, fired) = mpsc::channel();
    let engine = Builder::new()
        .tick(MICRO)
        .shards(1)
        .unpinned()
        .inline()
        .start(move |timer| sender.send(timer.payload).unwrap())
        .unwrap();
    engine.handle().schedule(HOUR, u64::MAX).unwrap();
    let mut rng = Rng::new(5);
    for round in 0..3_000 {
        engine.handle().schedule(rng.nanos_below(3 * MICRO), round).unwrap();
        assert_eq!(fired.recv_timeout(PATIENCE), Ok(round));
        for _ in 0..rng.below(400) {
            std::hint::spin_loop();
        }
    }
}

/// P6: Each insertion of a first timer into a shard took a lock or woke a thread.
#[test]
fn timers_later_than_the_next_wake_up_wake_nobody() {
    let (engine, _clock) = stepped(|_| {});
    for n in 0..10_000 {
        engine.handle().schedule(HOUR + MS * n, u64::from(n)).unwrap();
    }
    assert!(engine.handle().stats().total.unparks <= 1, "{:?}", engine.handle().stats().total);
}

/// P7: Sharding was off without notice, by a minimum in place of a maximum.
#[test]
fn timers_are_spread_over_the_shards() {
    let clock = ManualClock::new();
    let engine = Builder::new()
        .clock(clock.clone())
        .shards(4)
        .unpinned()
        .inline()
        .start(|_: Fired<'_, u64>| {})
        .unwrap();
    for shard in 0..4 {
        engine.handle().use_shard(shard);
        for n in 0..10 {
            engine.handle().schedule(MS, n).unwrap();
        }
    }
    clock.advance(MS);
    wait_until("all have fired", || engine.handle().stats().fired == 40);
    assert!(engine.handle().stats().shards.iter().all(|shard| shard.fired == 10));
}

/// P8: Cancelled timers held their memory until their deadline.
#[test]
fn cancelled_timers_do_not_pile_up_until_their_deadlines() {
    let (mut engine, _) = recording(Builder::new());
    for _ in 0..200 {
        let ids: Vec<TimerId> = (0..1_000).map(|n| engine.handle().schedule(HOUR, n).unwrap()).collect();
        // Into the wheel first: what is cancelled in the lane ends there.
        engine.advance(10 * MS);
        assert!(ids.into_iter().all(|id| matches!(engine.handle().cancel(id), Cancel::Cancelled(_))));
        assert!(engine.handle().stats().total.tickets < 75_000, "{}", engine.handle().stats().total.tickets);
    }
    assert!(engine.handle().stats().total.stale_tickets > 100_000);
}

/// P8: Cancelled timers held their memory until their deadline.
#[test]
fn rescheduled_timers_do_not_pile_up_until_their_old_deadlines() {
    let (mut engine, _) = recording(Builder::new());
    let mut ids: Vec<TimerId> = (0..1_000).map(|n| engine.handle().schedule(HOUR, n).unwrap()).collect();
    for _ in 0..200 {
        engine.advance(10 * MS);
        for id in &mut ids {
            *id = engine.handle().reschedule(*id, HOUR).unwrap();
        }
        assert!(engine.handle().stats().total.tickets < 75_000, "{}", engine.handle().stats().total.tickets);
    }
    assert_eq!(engine.handle().len(), 1_000);
}

/// P9: Deadlines were truncated to ticks, so that timers fired early.
/// R7: Timers fired early: delays were rounded down, or longer than the wheel.
/// R8: Timers fired late, by a tick or by a revolution.
#[test]
fn no_timer_fires_early_or_a_tick_late_at_any_phase() {
    let mut rng = Rng::new(9);
    for tick in [1, 3, 10, 999, 1_000, 17_321].map(Duration::from_micros) {
        let (mut engine, log) = recording(Builder::new().tick(tick));
        for payload in 0..2_000 {
            engine.handle().schedule(rng.nanos_below(1_000 * tick), payload).unwrap();
            engine.advance(rng.nanos_below(3 * tick));
        }
        engine.advance(1_001 * tick);
        let shots = log.take();
        assert_eq!(payloads(&shots), (0..2_000).collect::<Vec<u64>>());
        assert!(shots.iter().all(|shot| shot.at >= shot.deadline && shot.at - shot.deadline < tick));
    }
}

/// P10: Index arithmetic was wrong: a narrowing cast before the modulo, a negative modulo, off by one at the last
/// level.
#[test]
fn deadlines_around_every_power_of_two_fire_on_their_tick() {
    for start in [0, 12_345_678, (1 << 33) - 1] {
        let (mut engine, log) = recording(Builder::new().tick(MICRO));
        engine.advance(Duration::from_nanos(start));
        let mut payload = 0;
        for power in 0..54 {
            for nanos in [-1_001, -1_000, -999, -1, 0, 1, 999, 1_000, 1_001] {
                let deadline = (1_000_u64 << power).saturating_add_signed(nanos);
                engine.handle().schedule_at(Timestamp::from_nanos(deadline), payload).unwrap();
                payload += 1;
            }
        }
        engine.advance_to(ticks(1 << 54, MICRO));
        let shots = log.take();
        assert_eq!(payloads(&shots), (0..payload).collect::<Vec<u64>>());
        for shot in shots {
            let due = shot.deadline.as_nanos().next_multiple_of(1_000);
            assert_eq!(shot.at.as_nanos(), due.max(start), "{}", shot.deadline);
        }
    }
}

/// P11: The clock's base moved backwards, or the wall clock jumped.
/// R9: The clock went backwards, or the wall clock was set.
#[test]
fn a_clock_that_steps_back_fires_nothing_early() {
    let (mut engine, log) = recording(Builder::new());
    engine.advance(Duration::from_secs(10));
    engine.clock().set(ticks(2_000, MS));
    engine.handle().schedule(Duration::from_secs(5), 1).unwrap();
    engine.turn();
    assert_eq!(log.len(), 0);
    engine.advance(Duration::from_secs(4));
    assert_eq!(log.len(), 0);
    engine.advance(Duration::from_secs(10));
    let shots = log.take();
    assert!(shots.len() == 1 && shots[0].at >= shots[0].deadline, "{shots:?}");
}

/// P12: A tick thread that was late by more than a revolution did not catch up.
#[test]
fn a_stall_of_three_revolutions_fires_each_timer_once_in_bounded_slices() {
    let (mut engine, log) = recording(Builder::new().tick(MICRO));
    let mut rng = Rng::new(12);
    for payload in 0..50_000 {
        engine.handle().schedule(rng.nanos_below(3 * 65_536 * MICRO), payload).unwrap();
    }
    engine.turn();
    let turns = engine.handle().stats().total.turns;
    engine.clock().advance(3 * 65_536 * MICRO);
    engine.turn();
    assert_eq!(payloads(&log.take()), (0..50_000).collect::<Vec<u64>>());
    assert!(engine.handle().stats().total.turns - turns > 3, "all in one slice");
}

/// P13: A thread that had overslept ran fresh timers too early, or at once.
#[test]
fn a_timer_armed_after_a_long_pause_keeps_its_delay() {
    let (mut engine, log) = recording(Builder::new());
    engine.handle().schedule(MS, 0).unwrap();
    engine.clock().advance(100 * HOUR);
    engine.handle().schedule(7 * MS, 1).unwrap();
    engine.turn();
    assert_eq!(payloads(&log.take()), [0]);
    engine.advance(6 * MS);
    assert_eq!(log.len(), 0);
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), [1]);
}

/// P14: The tick counter wrapped.
#[test]
fn an_engine_goes_on_until_the_last_tick() {
    let (mut engine, log) = recording(Builder::new());
    let last = u64::MAX / 1_000_000;
    engine.clock().set(ticks(last - 10, MS));
    engine.handle().schedule(5 * MS, 5).unwrap();
    engine.handle().schedule(10 * MS, 10).unwrap();
    let beyond = engine.handle().schedule(20 * MS, 20).unwrap();
    engine.advance_to(Timestamp::MAX);
    let expected = [(5, last - 5), (10, last)].map(|(payload, at)| (payload, ticks(at, MS)));
    assert_eq!(log.take().iter().map(|shot| (shot.payload, shot.at)).collect::<Vec<_>>(), expected);
    assert_eq!(engine.handle().cancel(beyond), Cancel::Cancelled(20));
}

/// P16: A timer that re-armed itself in its own callback with zero delay was a busy loop.
#[test]
fn a_timer_that_rearms_itself_without_delay_starves_nobody() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .tick(MICRO)
        .shards(1)
        .inline()
        .start(move |timer: Fired<'_, u64>| match timer.payload {
            0 => drop(timer.engine().schedule(Duration::ZERO, 0)),
            other => sink.push(other),
        })
        .unwrap();
    for _ in 0..10 {
        engine.handle().schedule(Duration::ZERO, 0).unwrap();
    }
    engine.handle().schedule(5 * MS, 1).unwrap();
    wait_until("the other timer has fired", || log.len() == 1);
    // The others were refused when they came back.
    assert!(engine.handle().shutdown().len() <= 10);
    assert_settled(&engine.handle().stats());
}

/// P16: A timer that re-armed itself in its own callback with zero delay was a busy loop.
/// R19: A timer was put back into the slot that was being drained: an endless loop.
#[test]
fn a_timer_that_rearms_itself_for_the_tick_being_fired_comes_once_a_tick() {
    let mut engine = Builder::new()
        .driven(|timer: Fired<'_, u64>| {
            timer.engine().schedule_at(timer.deadline, timer.payload).unwrap();
        })
        .unwrap();
    engine.handle().schedule(MS, 0).unwrap();
    engine.advance(10 * MS);
    assert_eq!(engine.handle().stats().fired, 10);
}

/// P17: A callback cancelled itself, or dropped its engine.
#[test]
fn a_handler_may_cancel_its_own_timer() {
    let log = Log::new();
    let sink = log.clone();
    let mut engine = Builder::new()
        .driven(move |timer: Fired<'_, ()>| {
            let engine = timer.engine();
            sink.push([engine.cancel(timer.id()), engine.cancel_and_wait(timer.id())]);
            assert!(matches!(engine.reschedule(timer.id(), MS), Err(RescheduleError::Running)));
        })
        .unwrap();
    let id = engine.handle().schedule(MS, ()).unwrap();
    engine.advance(MS);
    assert_eq!(log.take(), [[Cancel::Running, Cancel::Running]]);
    assert_eq!(engine.handle().stats().total.panics, 0);
    assert_eq!(engine.handle().cancel(id), Cancel::Gone);
}

/// P17: A callback cancelled itself, or dropped its engine.
#[test]
fn a_handler_may_drop_the_engine() {
    within_patience(|| {
        let engine = Arc::new(Mutex::new(None::<Engine<u64>>));
        let (owner, (sender, done)) = (Arc::clone(&engine), mpsc::channel());
        let built = Engine::new(move |_| {
            drop(lock(&owner).take());
            sender.send(()).unwrap();
        });
        *lock(&engine) = Some(built.unwrap());
        let handle = lock(&engine).as_ref().unwrap().handle().clone();
        handle.schedule(MS, 0).unwrap();
        done.recv().unwrap();
        assert!(handle.is_shut_down());
    });
}

/// P18: A slot was reused, and a stale id cancelled a stranger.
#[test]
fn a_stale_id_never_reaches_the_timer_that_reuses_its_slot() {
    let (mut engine, log) = recording(Builder::new().capacity(1));
    let mut stale = Vec::new();
    for payload in 0..1_000 {
        let id = engine.handle().schedule(MS, payload).unwrap();
        for &old in stale.iter().rev().take(10) {
            assert_eq!(engine.handle().cancel(old), Cancel::Gone);
            assert_eq!(engine.handle().remaining(old), None);
            assert!(matches!(engine.handle().reschedule(old, HOUR), Err(RescheduleError::Gone)));
        }
        if payload % 2 == 0 {
            assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(payload));
            assert_eq!(engine.handle().cancel(id), Cancel::Gone);
        } else {
            engine.advance(MS);
            assert_eq!(payloads(&log.take()), [payload]);
        }
        stale.push(id);
    }
    assert!(stale.is_sorted());
}

/// P19: A panic in a callback ended the wheel's thread, or left the wheel locked.
/// R21: Panicking user code took the timer thread along; a drop inside a drop aborted.
#[test]
fn a_panicking_handler_costs_nobody_else_anything() {
    for builder in [Builder::new().workers(2), Builder::new().inline()] {
        let log = Log::new();
        let (sink, (sender, panics)) = (log.clone(), mpsc::channel());
        let engine = builder
            .on_panic(move |panic| sender.send(panic.is::<String>()).unwrap())
            .start(move |timer: Fired<'_, u64>| {
                assert!(!timer.payload.is_multiple_of(3), "payload {}", timer.payload);
                sink.push(timer.payload);
            })
            .unwrap();
        for payload in 0..99 {
            engine.handle().schedule(MS, payload).unwrap();
        }
        wait_until("all others have fired", || log.len() == 66);
        assert!((0..33).all(|_| panics.recv_timeout(PATIENCE) == Ok(true)));
        wait_until("all panics are counted", || engine.handle().stats().total.panics == 33);
        engine.handle().schedule(MS, 100).unwrap();
        wait_until("the engine goes on", || log.len() == 67);
    }
}

/// P20: Calls after a stop blocked.
#[test]
fn everything_answers_at_once_after_a_shutdown() {
    within_patience(|| {
        let engine = Builder::new().lane_capacity(64).start(|_: Fired<'_, u64>| {}).unwrap();
        let id = engine.handle().schedule(HOUR, 1).unwrap();
        assert_eq!(engine.handle().shutdown().len(), 1);
        // More often than the lane has room, and for deadlines that look like sentinels.
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

/// P21: Blocked callbacks started threads without bound.
#[test]
fn blocked_handlers_hold_the_workers_and_no_more() {
    // Ten chunks come due while both workers are blocked; the queue shows.
    let gate = Gate::new();
    let (at_gate, (running, most)) = (gate.clone(), (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0))));
    let peak = Arc::clone(&most);
    let engine = Builder::new()
        .shards(1)
        .workers(2)
        .start(move |_: Fired<'_, u64>| {
            peak.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            at_gate.pass();
            running.fetch_sub(1, Ordering::Relaxed);
        })
        .unwrap();
    engine.handle().schedule_batch((0..320).map(|n| (MS, n))).unwrap();
    gate.await_arrivals(2);
    wait_until("the queue shows", || engine.handle().stats().total.queued_chunks >= 8);
    gate.open();
    wait_until("all have fired", || engine.handle().stats().fired == 320);
    assert_eq!(most.load(Ordering::Relaxed), 2);
    assert_eq!(engine.handle().stats().total.queued_chunks, 0);
}

/// P21: Blocked callbacks started threads without bound.
#[test]
fn a_blocked_worker_is_not_sent_help_over_and_over() {
    // The only worker is blocked for many ticks: help that nobody begins must not pile up.
    let (gate, sent) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (at_gate, count) = (gate.clone(), Arc::clone(&sent));
    let (jobs, queue) = mpsc::channel::<Job>();
    let worker = thread::spawn(move || queue.into_iter().for_each(Job::run));
    let engine = Builder::new()
        .shards(1)
        .executor(move |job| {
            count.fetch_add(1, Ordering::Relaxed);
            jobs.send(job).unwrap();
        })
        .start(move |_: Fired<'_, u64>| at_gate.pass())
        .unwrap();
    engine.handle().schedule_batch((0..32).map(|n| (MS, n))).unwrap();
    gate.await_arrival();
    thread::sleep(60 * MS);
    let sent = sent.load(Ordering::Relaxed);
    gate.open();
    wait_until("all have fired", || engine.handle().stats().fired == 32);
    drop(engine);
    worker.join().unwrap();
    assert!(sent <= 3, "{sent} jobs for one worker");
}

/// P22: Timers that re-armed themselves kept their captured context for ever.
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

/// P24: A tick below the clock's resolution was accepted, and the thread spun.
#[test]
fn a_tick_that_cannot_be_honoured_is_refused() {
    for tick in [Duration::ZERO, Duration::from_nanos(999), HOUR + Duration::from_nanos(1)] {
        let error = Builder::new().tick(tick).start(|_: Fired<'_, ()>| {}).unwrap_err();
        assert!(matches!(error, BuildError::OutOfBounds { option: "tick", .. }), "{error}");
    }
}

/// P25: A deadline that was moved earlier by the lazy path fired late, or was lost.
#[test]
fn a_timer_moved_to_an_earlier_deadline_under_load_fires_there() {
    let log = Log::new();
    let sink = log.clone();
    let (engine, clock) = stepped(move |timer| sink.push(Shot::of(&timer)));
    let ids = engine.handle().schedule_batch((0..20_000).map(|n| (HOUR, n))).unwrap();
    clock.advance(MS);
    for n in 1..=50_u32 {
        engine.handle().reschedule(ids[n as usize * 100], n * MS).unwrap();
        clock.advance(n * MS);
        wait_until("it has fired", || log.len() == 1);
        let shot = log.take()[0];
        assert_eq!((shot.payload, shot.at), (u64::from(n) * 100, shot.deadline));
    }
    assert_eq!(engine.handle().len(), 20_000 - 50);
}

/// R1: A wheel's horizon wrapped, and a far timer hid near ones.
#[test]
fn a_far_timer_hides_no_near_one_after_years_of_uptime() {
    let (mut engine, log) = recording(Builder::new());
    let far = engine.handle().schedule(ticks((1 << 43) + 5, MS) - Timestamp::ZERO, u64::MAX).unwrap();
    for uptime in [77, 1 << 30, (1 << 31) + 77, 1 << 36, (1 << 36) + (1 << 25), 1 << 42] {
        engine.advance_to(ticks(uptime, MS));
        for delay in [1, 63, 64, 255, 256, 257, 4_336, 9_358, 65_536, 1 << 24] {
            engine.handle().schedule(ticks(delay, MS) - Timestamp::ZERO, delay).unwrap();
        }
        engine.advance(ticks(1 << 24, MS) - Timestamp::ZERO);
        let shots = log.take();
        assert_eq!(shots.len(), 10);
        assert!(shots.iter().all(|shot| shot.at == ticks(uptime + shot.payload, MS)), "{shots:?}");
    }
    assert_eq!(engine.handle().cancel(far), Cancel::Cancelled(u64::MAX));
}

/// R2: Long uptimes overflowed an index, or a deadline equalled a sentinel value of the state.
#[test]
fn deadlines_that_look_like_sentinels_are_deadlines() {
    let (engine, _clock) = stepped(|_| {});
    for (nanos, payload) in
        [u64::MAX, u64::MAX - 1, u64::MAX - 2, 1 << 63, u64::MAX / 1_000_000].into_iter().zip(0..)
    {
        let deadline = Timestamp::from_nanos(nanos);
        let id = engine.handle().schedule_at(deadline, payload).unwrap();
        assert_eq!(engine.handle().deadline(id), Some(deadline));
        let id = engine.handle().reschedule_at(id, deadline).unwrap();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(payload));
    }
    let (mut engine, log) = recording(Builder::new());
    for nanos in [0, 1, 2] {
        engine.handle().schedule_at(Timestamp::from_nanos(nanos), nanos).unwrap();
    }
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), [0, 1, 2]);
}

/// R3: The sum of an instant and a duration overflowed and panicked.
#[test]
fn no_delay_overflows() {
    let (mut engine, log) = recording(Builder::new());
    engine.advance(HOUR);
    let ids = [
        engine.handle().schedule(Duration::MAX, 0).unwrap(),
        engine.handle().try_schedule(Duration::from_secs(u64::MAX), 1).unwrap(),
        engine.handle().schedule_batch([(Duration::MAX, 2)]).unwrap()[0],
        engine.handle().schedule_at(Timestamp::MAX, 3).unwrap(),
    ];
    engine.advance(1_000_000 * HOUR);
    for (id, payload) in ids.into_iter().zip(0..) {
        assert_eq!(engine.handle().deadline(id), Some(Timestamp::MAX));
        let id = engine.handle().reschedule(id, Duration::MAX).unwrap();
        assert_eq!(engine.handle().remaining(id), Some(Timestamp::MAX - engine.handle().now()));
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(payload));
    }
    assert_eq!(log.len(), 0);
}

/// R3: The sum of an instant and a duration overflowed and panicked.
#[test]
fn a_thread_can_sleep_on_the_last_deadline() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Engine::new(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    let id = engine.handle().schedule(Duration::MAX, 0).unwrap();
    engine.handle().schedule(MS, 1).unwrap();
    wait_until("the other one has fired", || log.len() == 1);
    assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(0));
}

/// R4: A wake-up was lost when the next deadline was published.
#[test]
fn a_step_of_the_clock_is_never_slept_through() {
    // The step races with the shard's way to sleep, as a push does.
    let (sender, fired) = mpsc::channel();
    let (engine, clock) = stepped(move |timer| sender.send(timer.payload).unwrap());
    let mut rng = Rng::new(4);
    for round in 0..3_000 {
        engine.handle().schedule(MS, round).unwrap();
        for _ in 0..rng.below(400) {
            std::hint::spin_loop();
        }
        clock.advance(MS);
        assert_eq!(fired.recv_timeout(PATIENCE), Ok(round));
    }
}

/// R5: An early deadline was hidden by a coarser or a finer level.
#[test]
fn the_next_expiry_is_never_after_the_first_deadline_of_any_level() {
    let (mut engine, log) = recording(Builder::new());
    let mut rng = Rng::new(5);
    let mut pending = BTreeSet::new();
    for payload in 0..5_000 {
        let delay = MS * u32::try_from(1_u64 << rng.below(20)).unwrap() + rng.nanos_below(300 * MS);
        engine.handle().schedule(delay, payload).unwrap();
        pending.insert((engine.handle().now() + delay, payload));
        let due = engine.next_expiry().unwrap();
        let &(first, _) = pending.first().unwrap();
        assert!(due < first + MS, "{due} for {first}");
        engine.advance(rng.nanos_below(20 * MS));
        for shot in log.take() {
            assert!(pending.remove(&(shot.deadline, shot.payload)));
        }
        assert!(pending.first().is_none_or(|&(first, _)| first + MS > engine.handle().now()));
    }
}

/// R6: The next expiry was in the past, and the reactor spun.
#[test]
fn a_shard_with_nothing_due_does_not_turn() {
    let engine = Builder::new().tick(MICRO).shards(1).start(|_: Fired<'_, u64>| {}).unwrap();
    for n in 0..1_000 {
        engine.handle().schedule(HOUR, n).unwrap();
        engine.handle().schedule(10 * MICRO, n).unwrap();
    }
    wait_until("the short ones have fired", || engine.handle().stats().fired == 1_000);
    thread::sleep(20 * MS);
    let turns = engine.handle().stats().total.turns;
    thread::sleep(100 * MS);
    assert!(engine.handle().stats().total.turns - turns <= 1);
}

/// R10: The machine was suspended, and relative waits did not count the time.
#[cfg(target_os = "linux")]
#[test]
fn the_boot_clock_is_looked_at_each_second_since_sleeps_stop_in_suspend() {
    use tourbillon::BootClock;

    let clock = BootClock::new();
    let now = clock.now();
    assert!(clock.sleep_for(now, now + HOUR).unwrap() <= Duration::from_secs(1));
    assert_eq!(clock.sleep_for(now, now + MS), Some(MS));
    let (sender, fired) = mpsc::channel();
    let engine = Builder::new()
        .clock(clock)
        .start(move |timer: Fired<'_, u64>| sender.send(timer.engine().now() >= timer.deadline).unwrap())
        .unwrap();
    engine.handle().schedule(3 * MS, 0).unwrap();
    assert_eq!(fired.recv_timeout(PATIENCE), Ok(true));
}

/// R11: After a stall the wheel walked over each empty tick, or lost the time.
#[test]
fn a_long_stall_costs_no_walk_over_empty_ticks() {
    let (mut engine, log) = recording(Builder::new().tick(MICRO));
    engine.handle().schedule(HOUR, 0).unwrap();
    engine.handle().schedule(100_000 * HOUR, 1).unwrap();
    engine.clock().advance(87_660 * HOUR);
    engine.turn();
    engine.advance(20_000 * HOUR);
    assert_eq!(payloads(&log.take()), [0, 1]);
    assert!(engine.handle().stats().total.turns < 20, "{}", engine.handle().stats().total.turns);
}

/// R12: A cancel in the very millisecond of the firing panicked.
#[test]
fn a_cancel_at_the_moment_of_firing_has_one_winner() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new().tick(MICRO).shards(1).start(move |timer| sink.push(timer.payload)).unwrap();
    let mut rng = Rng::new(12);
    let mut cancelled = Vec::new();
    for payload in 0..2_000 {
        let deadline = engine.handle().now() + 40 * MICRO;
        let id = engine.handle().schedule_at(deadline, payload).unwrap();
        let moment = deadline + rng.nanos_below(30 * MICRO);
        while engine.handle().now() < moment {
            std::hint::spin_loop();
        }
        match engine.handle().cancel(id) {
            Cancel::Cancelled(back) => cancelled.push(back),
            outcome => assert!(matches!(outcome, Cancel::Running | Cancel::Gone)),
        }
    }
    let expected = 2_000 - cancelled.len();
    wait_until("the rest has fired", || log.len() == expected);
    assert!(engine.handle().shutdown().is_empty());
    let mut all = log.take();
    all.append(&mut cancelled);
    all.sort_unstable();
    assert_eq!(all, (0..2_000).collect::<Vec<u64>>());
    assert_settled(&engine.handle().stats());
}

/// R13: A cancel came before the insertion was processed: the cancelled entry was linked all the same, and could not be
/// found.
#[test]
fn a_timer_cancelled_before_its_shard_sees_it_leaves_nothing_behind() {
    let (mut engine, log) = recording(Builder::new());
    for n in 0..1_000 {
        let id = engine.handle().schedule(MS, n).unwrap();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(n));
    }
    engine.advance(10 * MS);
    assert_eq!(log.len(), 0);
    let stats = engine.handle().stats();
    assert_eq!((stats.total.tickets, stats.total.stale_tickets), (0, 1_000));
    assert_settled(&stats);
}

/// R15: A callback ran after its owner was gone.
#[test]
fn no_handler_runs_after_cancel_and_wait_has_returned() {
    within_patience(|| {
        // The owner frees what its handlers use once the call is back.
        let alive = Arc::new(AtomicBool::new(true));
        let seen = Arc::clone(&alive);
        let engine = Builder::new()
            .tick(MICRO)
            .shards(1)
            .start(move |timer: Fired<'_, Arc<AtomicBool>>| {
                for _ in 0..200 {
                    assert!(timer.payload.load(Ordering::Relaxed) && seen.load(Ordering::Relaxed));
                    std::hint::spin_loop();
                }
            })
            .unwrap();
        let mut rng = Rng::new(15);
        for _ in 0..2_000 {
            let owner = Arc::new(AtomicBool::new(true));
            let id = engine.handle().schedule(10 * MICRO, Arc::clone(&owner)).unwrap();
            let moment = engine.handle().now() + rng.nanos_below(60 * MICRO);
            while engine.handle().now() < moment {
                std::hint::spin_loop();
            }
            assert!(!matches!(engine.handle().cancel_and_wait(id), Cancel::Running));
            owner.store(false, Ordering::Relaxed);
        }
        assert!(engine.handle().shutdown().is_empty());
        assert_eq!(engine.handle().stats().total.panics, 0);
    });
}

/// R16: A node was used after it was freed, or reused under a stale reference.
#[test]
fn a_stale_id_in_another_thread_never_hits_a_stranger() {
    // One thread reuses few slots over and over; the other cancels ids that are stale by then.
    let engine = Builder::new().capacity(64).start(|_: Fired<'_, u64>| {}).unwrap();
    let (sender, stale) = mpsc::sync_channel(1_000);
    thread::scope(|scope| {
        scope.spawn(|| stale.into_iter().for_each(|id| assert_eq!(engine.handle().cancel(id), Cancel::Gone)));
        for n in 0..50_000 {
            let id = engine.handle().schedule(HOUR, n).unwrap();
            assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(n));
            sender.send(id).unwrap();
        }
        drop(sender);
    });
    assert_settled(&engine.handle().stats());
}

/// R18: The reset of an entry that had expired, or that was pending, went wrong.
#[test]
fn an_expired_timer_is_not_rescheduled_and_a_due_one_is() {
    let (mut engine, log) = recording(Builder::new());
    let expired = engine.handle().schedule(MS, 1).unwrap();
    engine.advance(MS);
    assert!(matches!(engine.handle().reschedule(expired, MS), Err(RescheduleError::Gone)));
    let due = engine.handle().schedule(MS, 2).unwrap();
    engine.turn();
    engine.clock().advance(5 * MS);
    assert_eq!(engine.handle().remaining(due), Some(Duration::ZERO));
    let moved = engine.handle().reschedule(due, 3 * MS).unwrap();
    assert_eq!(engine.handle().remaining(due), None);
    engine.advance(2 * MS);
    assert_eq!(payloads(&log.take()), [1]);
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), [2]);
    assert!(matches!(engine.handle().reschedule(moved, MS), Err(RescheduleError::Gone)));
}

/// R20: User code ran under a lock or a borrow.
#[test]
fn a_batch_may_use_the_engine_while_it_is_collected() {
    let (mut engine, log) = recording(Builder::new());
    let handle = Handle::clone(engine.handle());
    let ids = engine.handle().schedule_batch((0..10).map(|n| {
        let id = handle.schedule(MS, n + 100).unwrap();
        assert_eq!(handle.cancel(id), Cancel::Cancelled(n + 100));
        (MS, n)
    }));
    assert_eq!(ids.unwrap().len(), 10);
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), (0..10).collect::<Vec<u64>>());
}

/// R21: Panicking user code took the timer thread along; a drop inside a drop aborted.
#[test]
fn a_panic_in_a_payloads_drop_and_in_the_hook_end_where_they_began() {
    struct Grenade(bool);
    impl Drop for Grenade {
        fn drop(&mut self) {
            assert!(!self.0, "a payload's drop");
        }
    }
    let mut engine = Builder::new()
        .on_panic(|_| panic!("a hook"))
        .driven(|timer: Fired<'_, Grenade>| drop(timer.payload))
        .unwrap();
    for n in 0..10 {
        engine.handle().schedule(MS, Grenade(n % 2 == 0)).unwrap();
    }
    engine.advance(MS);
    let stats = engine.handle().stats();
    assert_eq!((stats.fired, stats.total.panics), (10, 5));
    engine.handle().schedule(MS, Grenade(true)).unwrap();
    engine.handle().schedule(MS, Grenade(false)).unwrap();
    drop(engine);
}

/// R22: Reference cycles kept timers and wakers alive after the shutdown.
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

/// R23: A call after the shutdown failed an assertion.
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

/// R25: Timers starved while the program's threads did not yield to the timer driver.
#[test]
fn timers_fire_though_the_thread_that_armed_them_never_yields() {
    let fired = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&fired);
    let engine = Engine::new(move |_: Fired<'_, ()>| flag.store(true, Ordering::Relaxed)).unwrap();
    engine.handle().schedule(MS, ()).unwrap();
    let start = Instant::now();
    while !fired.load(Ordering::Relaxed) {
        assert!(start.elapsed() < PATIENCE);
        std::hint::spin_loop();
    }
}

/// R26: After a reset or a migration a timer belonged to the wrong shard or runtime.
#[test]
fn a_timer_moved_to_another_shard_fires_once_and_there() {
    let (mut engine, log) = recording(Builder::new().shards(2));
    let id = engine.handle().schedule(10 * MS, 7).unwrap();
    engine.turn();
    engine.handle().use_shard(1);
    let id = engine.handle().reschedule_at(id, ticks(5, MS)).unwrap();
    engine.advance(20 * MS);
    assert_eq!(payloads(&log.take()), [7]);
    let stats = engine.handle().stats();
    assert_eq!([stats.shards[0].fired, stats.shards[1].fired], [0, 1]);
    assert_eq!(engine.handle().cancel(id), Cancel::Gone);
    assert_settled(&stats);
}

/// R27: The detector of stalls started a second driver.
#[test]
fn a_chunk_that_gets_help_fires_each_timer_once() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .shards(1)
        .workers(2)
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload.is_multiple_of(16) {
                thread::sleep(4 * MS);
            }
            sink.push(timer.payload);
        })
        .unwrap();
    engine.handle().schedule_batch((0..160).map(|n| (MS, n))).unwrap();
    wait_until("all have fired", || log.len() >= 160);
    assert!(engine.handle().shutdown().is_empty());
    assert_eq!(log.take_sorted(), (0..160).collect::<Vec<u64>>());
}

/// R28: A lock-free queue spun between threads of two priorities.
#[cfg(target_os = "linux")]
#[test]
fn waiting_for_room_sleeps_instead_of_spinning() {
    // A thread that spins or yields makes no voluntary context switch; a thread that sleeps makes one for each sleep.
    let switches_of = |thread: rustix::thread::Pid| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", thread.as_raw_nonzero()));
        let status = status.unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    let gate = Gate::new();
    let at_gate = gate.clone();
    let engine = Builder::new()
        .shards(1)
        .lane_capacity(64)
        .inline()
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload == 0 {
                at_gate.pass();
            }
        })
        .unwrap();
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    gate.await_arrival();
    while engine.handle().try_schedule(HOUR, 1).is_ok() {}
    let waiting = rustix::thread::gettid();
    thread::scope(|scope| {
        scope.spawn(|| {
            let before = switches_of(waiting);
            // The gate opens in any case, so that a failure ends.
            let start = Instant::now();
            while switches_of(waiting) < before + 50 && start.elapsed() < PATIENCE {
                thread::sleep(MS);
            }
            let sleeps = switches_of(waiting) - before;
            gate.open();
            assert!(sleeps >= 50, "{sleeps} sleeps");
        });
        engine.handle().schedule(HOUR, 2).unwrap();
    });
}

/// R30: A large wheel was built on the stack, which overflowed.
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

/// R32: Late or refused schedules were dropped without an error.
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

/// R32: Late or refused schedules were dropped without an error.
#[test]
fn slots_that_fired_timers_vacate_are_not_hoarded() {
    // What fired in one chunk must not end up as a stock in one thread's hands: the bound is 1/32 of the capacity.
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

/// The number of threads that have a timer each, at the same time.
fn threads_with_a_timer_each(engine: &tourbillon::DrivenEngine<u64>, threads: u64) -> u64 {
    let handle = engine.handle();
    thread::scope(|scope| {
        let one_each = || u64::from(handle.schedule(HOUR, 0).is_ok());
        let staying: Vec<_> = (0..threads).map(|_| on_a_thread_that_stays(scope, one_each)).collect();
        staying.iter().map(|(scheduled, _)| scheduled).sum()
    })
}

/// Of no row, but found in this engine: small capacities were refused though few timers were pending.
#[test]
fn hundreds_of_threads_have_a_timer_each_in_a_small_engine() {
    // What threads keep at hand must not use up an engine in which next to nothing is pending.
    for capacity in [4_096, 16_384] {
        for threads in [65, 300, 900] {
            let (engine, _) = recording(Builder::new().capacity(capacity));
            assert_eq!(threads_with_a_timer_each(&engine, threads), threads, "of {capacity}");
        }
    }
}

/// Of no row, but found in this engine: slots that one thread had vacated were out of reach for the others.
#[test]
fn hundreds_of_threads_share_what_fired_timers_vacated() {
    // The same when each slot has been used before: they come back in whole magazines then.
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

/// Of no row, but a risk of the remedy for the two above: slots that no thread takes, since the shares become small.
#[test]
fn one_thread_has_every_slot() {
    // However small the shares become towards the end.
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
