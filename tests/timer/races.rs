//! Threads that use the same timers at the same time, and threads that end in between.

use crate::support::{HOUR, Log, MS, Rng, Shot, wait_until};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Disarm, Engine, Fired, Timestamp};

#[test]
fn threads_that_arm_one_timer_fire_it_for_deadlines_of_theirs_and_never_early() {
    let log = Log::new();
    let (sink, busy) = (log.clone(), AtomicBool::new(false));
    let engine = Builder::new()
        .tick(Duration::from_micros(100))
        .shards(2)
        .workers(2)
        .start(move |fired: Fired<'_, u64>| {
            assert!(!busy.swap(true, Ordering::SeqCst), "two handlers of the timer run at the same time");
            sink.push(Shot::of(&fired));
            busy.store(false, Ordering::SeqCst);
        })
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    let armed: HashSet<Timestamp> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (engine, timer) = (&engine, &timer);
                scope.spawn(move || {
                    let mut rng = Rng::new(number);
                    let mut armed = Vec::new();
                    for n in 0..30_000 {
                        let deadline = engine.handle().now() + rng.nanos_below(2 * MS);
                        armed.push(deadline);
                        timer.arm_at(deadline).unwrap();
                        match n % 1_000 {
                            // Sometimes the thread sleeps, so that the timer comes due.
                            0 => thread::sleep(MS),
                            1..50 => drop(timer.disarm()),
                            _ => {}
                        }
                    }
                    armed
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    wait_until("it is at rest", || !timer.is_armed());
    assert_ne!(timer.disarm_and_wait(), Disarm::Running, "it returned without waiting for the handler");
    let last = engine.handle().now() + MS;
    timer.arm_at(last).unwrap();
    wait_until("it has fired", || !timer.is_armed());
    assert_eq!(timer.disarm_and_wait(), Disarm::Idle, "it is armed after its last firing");
    let shots = log.take();
    assert_eq!(engine.handle().stats().total.panics, 0, "an assertion inside the handler failed");
    assert!(shots.len() > 1, "nothing fired during the race, so that nothing was shown");
    assert_eq!(shots.last().unwrap().deadline, last, "the last arming did not fire, or not last");
    for shot in &shots {
        assert!(shot.at >= shot.deadline, "early: {shot:?}");
        assert!(
            shot.deadline == last || armed.contains(&shot.deadline),
            "fired for a deadline that no thread gave: {shot:?}"
        );
    }
}

#[test]
fn an_arming_fires_once_though_its_deadline_has_come_when_it_is_told_to_the_handler() {
    // A timer is armed for now, repeatedly, while its handler begins for the deadline before. All deadlines differ, so
    // no deadline may fire twice.
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .tick(Duration::from_micros(10))
        .shards(1)
        .inline()
        .start(move |fired: Fired<'_, u64>| sink.push(fired.deadline))
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    let (mut rng, mut last) = (Rng::new(2), engine.handle().now());
    for _ in 0..20_000 {
        for _ in 0..20 {
            let deadline = (engine.handle().now() + rng.nanos_below(Duration::from_micros(30)))
                .max(last + Duration::from_nanos(1));
            last = deadline;
            timer.arm_at(deadline).unwrap();
        }
        // Sometimes the timer comes to rest, so that the next arming takes a ticket.
        if rng.chance(10) {
            wait_until("it is at rest", || !timer.is_armed());
        }
    }
    wait_until("it is at rest", || !timer.is_armed());
    assert_ne!(timer.disarm_and_wait(), Disarm::Running, "it returned without waiting for the handler");
    let fired = log.take();
    let distinct: HashSet<Timestamp> = fired.iter().copied().collect();
    assert_eq!(distinct.len(), fired.len(), "fired twice for one arming");
    assert!(fired.len() > 100, "too few firings to show anything: {}", fired.len());
}

#[test]
fn handlers_of_one_timer_never_overlap() {
    // The handlers of ten timers arm their own timers again at once, on four workers. Another thread arms the timers,
    // too.
    let inside: Arc<Vec<AtomicBool>> = Arc::new((0..10).map(|_| AtomicBool::new(false)).collect());
    let (in_handler, overlaps) = (Arc::clone(&inside), Arc::new(AtomicUsize::new(0)));
    let (count, stop) = (Arc::clone(&overlaps), Arc::new(AtomicBool::new(false)));
    let is_over = Arc::clone(&stop);
    let engine = Builder::new()
        .tick(Duration::from_micros(100))
        .shards(2)
        .workers(4)
        .start(move |fired: Fired<'_, usize>| {
            if in_handler[fired.payload].swap(true, Ordering::SeqCst) {
                count.fetch_add(1, Ordering::SeqCst);
            }
            if !is_over.load(Ordering::SeqCst) {
                fired.timer().unwrap().arm(Duration::ZERO).unwrap();
            }
            thread::yield_now();
            in_handler[fired.payload].store(false, Ordering::SeqCst);
        })
        .unwrap();
    let timers: Vec<_> = (0..10).map(|n| engine.handle().timer(n).unwrap()).collect();
    wait_until("they have fired often", || {
        let mut rng = Rng::new(engine.handle().stats().owned.fired);
        for timer in &timers {
            timer.arm(rng.nanos_below(MS / 4)).unwrap();
        }
        engine.handle().stats().owned.fired > 5_000
    });
    stop.store(true, Ordering::SeqCst);
    wait_until("they are at rest", || timers.iter().all(|timer| timer.disarm() == Disarm::Idle));
    assert_eq!(
        (overlaps.load(Ordering::SeqCst), engine.handle().stats().total.panics),
        (0, 0),
        "two handlers of one timer ran at the same time, or a handler panicked"
    );
}

#[test]
fn a_timer_may_be_made_armed_and_dropped_by_different_threads() {
    // Each thread ends after its step. Its lanes and slots go to other threads.
    let log = Log::new();
    let sink = log.clone();
    let engine = Engine::new(move |fired: Fired<'_, u64>| sink.push(fired.payload)).unwrap();
    for n in 0..50 {
        let timer = thread::scope(|scope| scope.spawn(|| engine.handle().timer(n).unwrap()).join().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| timer.arm(HOUR).unwrap());
        });
        thread::scope(|scope| {
            scope.spawn(|| timer.arm(MS).unwrap());
        });
        wait_until("it has fired", || log.len() as u64 == n + 1);
        assert_eq!(timer.disarm_and_wait(), Disarm::Idle, "the timer is not at rest after its firing");
        thread::spawn(move || drop(timer)).join().unwrap();
        assert_eq!(
            engine.handle().stats().owned.alive,
            0,
            "a timer that another thread dropped is counted as alive"
        );
    }
    assert_eq!(log.take(), (0..50).collect::<Vec<u64>>(), "a timer did not fire once, in its turn");
}
