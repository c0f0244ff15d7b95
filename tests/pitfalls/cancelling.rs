//! Cancels and moves: the winner of a race, the tickets left behind, and stale ids.

use crate::support::{
    Gate, HOUR, Log, MS, Rng, Shot, assert_settled, payloads, recording, wait_until, within_patience,
};
use crate::{MICRO, stepped, ticks};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Cancel, Fired, ManualClock, RescheduleError, TimerId};

/// Guards against fault P1 of other engines: a cancel between the removal of a timer from its bucket and its expiry
/// decremented the pending count twice.
#[test]
fn a_cancel_storm_during_a_slow_handler_leaves_the_count_at_zero() {
    // A handler holds the tick's first chunk while two threads cancel every timer of that tick.
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

/// Guards against fault P3 of other engines: a cancel was lost that came while the owner moved the timer between
/// levels.
#[test]
fn a_timer_cancelled_while_its_slot_is_spread_never_fires() {
    // One coarse slot has 20,000 timers. It is spread over its ticks before it begins, and some timers are cancelled at
    // each step.
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

/// Guards against fault P4 of other engines: a reset or cancel on another core corrupted the owner's list.
#[test]
fn resets_and_cancels_from_other_threads_neither_lose_nor_double_a_timer() {
    // Three threads move and make the same 256 timers. In the end each payload exists once.
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
                    // Only the thread whose move succeeded has a new id to store.
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

/// Guards against fault P8 of other engines: cancelled timers held their memory until their deadline.
#[test]
fn cancelled_timers_do_not_pile_up_until_their_deadlines() {
    let (mut engine, _) = recording(Builder::new());
    for _ in 0..200 {
        let ids: Vec<TimerId> = (0..1_000).map(|n| engine.handle().schedule(HOUR, n).unwrap()).collect();
        // The timers go into the wheel first. A timer that is cancelled in its lane ends in the lane.
        engine.advance(10 * MS);
        assert!(ids.into_iter().all(|id| matches!(engine.handle().cancel(id), Cancel::Cancelled(_))));
        assert!(engine.handle().stats().total.tickets < 75_000, "{}", engine.handle().stats().total.tickets);
    }
    assert!(engine.handle().stats().total.stale_tickets > 100_000);
}

/// Guards against fault P8 of other engines: cancelled timers held their memory until their deadline.
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

/// Guards against fault P17 of other engines: a callback cancelled itself, or dropped its engine.
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

/// Guards against fault P18 of other engines: a slot was reused, and a stale id cancelled a stranger.
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

/// A ticket has a stamp of 15 bits. Here the wheel has stale tickets of one slot with every stamp, so some of them fit
/// the slot's present timer.
#[test]
fn a_stale_ticket_whose_stamp_fits_fires_nothing_early() {
    const SECOND: Duration = Duration::from_secs(1);
    const STAMPS: u64 = 1 << 15;
    let (mut engine, log) = recording(Builder::new().capacity(2));
    // This timer stands first in the wheel, so that no turn looks at the stale tickets.
    engine.handle().schedule(100 * MS, 0).unwrap();
    for payload in 0..2 * STAMPS {
        let id = engine.handle().schedule(SECOND, payload).unwrap();
        engine.turn();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(payload));
    }
    assert!(engine.handle().stats().total.tickets >= 2 * STAMPS, "the stale tickets are gone");
    let id = engine.handle().schedule(3 * SECOND, 1).unwrap();
    engine.advance(2 * SECOND);
    assert_eq!(payloads(&log.take()), [0]);
    assert_eq!(engine.handle().remaining(id), Some(SECOND));
    engine.advance(SECOND - MS);
    assert_eq!(log.len(), 0);
    engine.advance(2 * MS);
    assert_eq!(payloads(&log.take()), [1]);
    assert_eq!(engine.handle().stats().total.tickets, 0, "stale tickets are left");
}

/// Guards against fault P25 of other engines: a deadline that was moved earlier by the lazy path fired late, or was
/// lost.
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

/// Guards against fault R12 of other engines: a cancel in the very millisecond of the firing panicked.
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

/// Guards against fault R13 of other engines: a cancel came before the insertion was processed: the cancelled entry was
/// linked all the same, and could not be found.
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

/// Guards against fault R15 of other engines: a callback ran after its owner was gone.
#[test]
fn no_handler_runs_after_cancel_and_wait_has_returned() {
    within_patience(|| {
        // The owner frees the data of its handlers once the call has returned.
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

/// Guards against fault R16 of other engines: a node was used after it was freed, or reused under a stale reference.
#[test]
fn a_stale_id_in_another_thread_never_hits_a_stranger() {
    // A thread reuses a few slots over and over. The other thread cancels ids that are stale by then.
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

/// Guards against fault R18 of other engines: the reset of an entry that had expired, or that was pending, went wrong.
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

/// Guards against fault R26 of other engines: after a reset or a migration a timer belonged to the wrong shard or
/// runtime.
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
