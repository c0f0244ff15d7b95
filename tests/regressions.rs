//! Regression tests. Each shows the repair of a fault that an adversarial review of this engine found.

mod support;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use support::{Gate, HOUR, Log, MS, PATIENCE, lock, wait_until, within_patience};
use tourbillon::{
    Builder, Cancel, Clock, Disarm, Fired, Handle, Job, ManualClock, RescheduleError, Timer, TimerId,
    Timestamp,
};

fn counting(count: &Arc<AtomicU64>) -> impl Fn() + Send + Sync + 'static {
    let count = Arc::clone(count);
    move || {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_driven_turn_ends_however_many_timers_rearm_for_now() {
    let mut engine =
        Builder::new().driven(|timer| drop(timer.engine().schedule(Duration::ZERO, timer.payload))).unwrap();
    for timer in 0..40_000 {
        engine.handle().schedule(Duration::ZERO, timer).unwrap();
    }
    engine.turn();
    assert_eq!(engine.handle().stats().fired, 40_000);
    engine.turn();
    assert_eq!(engine.handle().stats().fired, 80_000);
}

/// Timers are cancelled in two waves, and their tickets (entries in the wheel) must go. The second wave comes while the
/// first is swept, or later.
#[test]
fn tickets_of_cancelled_timers_go_though_their_deadlines_are_far() {
    let engine = Builder::new().shards(1).inline().start(|_: Fired<'_, u64>| {}).unwrap();
    let ids: Vec<_> = (0..400_000).map(|timer| engine.handle().schedule(HOUR, timer).unwrap()).collect();
    // While the shard sleeps, the last tickets stay in their lane.
    wait_until("the shard has most of the tickets", || engine.handle().stats().total.tickets > 300_000);
    for wave in ids.chunks(220_000) {
        for &id in wave {
            assert!(matches!(engine.handle().cancel(id), Cancel::Cancelled(_)));
        }
        thread::sleep(2 * MS);
    }
    assert!(engine.handle().is_empty());
    // The last check is up to 4,096 cancels before the end. It permits two tickets for each of the timers that were
    // pending then, and 65,536 more.
    wait_until("the sweep", || engine.handle().stats().total.tickets <= 65_536 + 2 * 4_096);
}

#[test]
fn a_full_lane_refuses_to_move_a_timer_and_leaves_it_as_it_was() {
    let mut engine = Builder::new().lane_capacity(64).driven(|_: Fired<'_, ()>| {}).unwrap();
    let mut id = engine.handle().schedule(MS, ()).unwrap();
    let mut moves = 0;
    let error = loop {
        match engine.handle().reschedule(id, 2 * MS) {
            Ok(moved) => id = moved,
            Err(error) => break error,
        }
        moves += 1;
        assert!(moves < 1_000, "the lane takes 64 tickets");
    };
    assert!(matches!(error, RescheduleError::LaneFull));
    engine.advance(2 * MS);
    assert_eq!(engine.handle().stats().fired, 1);
}

#[test]
fn a_clock_at_its_end_does_not_keep_a_shard_awake() {
    let clock = ManualClock::new();
    let engine = Builder::new().shards(1).clock(clock.clone()).start(|_: Fired<'_, ()>| {}).unwrap();
    engine.handle().schedule(Duration::MAX, ()).unwrap();
    clock.set(Timestamp::MAX);
    thread::sleep(20 * MS);
    let before = engine.handle().stats().total.turns;
    thread::sleep(50 * MS);
    assert!(engine.handle().stats().total.turns - before < 5, "the shard spins");
}

#[test]
fn handlers_that_take_their_time_get_all_workers() {
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&threads);
    let fired = Arc::new(AtomicU64::new(0));
    let fire = counting(&fired);
    let engine = Builder::new()
        .shards(1)
        .workers(8)
        .start(move |_| {
            seen.lock().unwrap().insert(thread::current().id());
            thread::sleep(MS / 2);
            fire();
        })
        .unwrap();
    let deadline = engine.handle().now() + 5 * MS;
    for _ in 0..400 {
        engine.handle().schedule_at(deadline, ()).unwrap();
    }
    wait_until("all have fired", || fired.load(Ordering::Relaxed) == 400);
    assert!(threads.lock().unwrap().len() > 4, "one batch stayed with few workers");
}

#[test]
fn a_second_shutdown_waits_for_the_first_and_gets_nothing_more() {
    let engine = Builder::new().start(|_: Fired<'_, u64>| {}).unwrap();
    for timer in 0..100 {
        engine.handle().schedule(HOUR, timer).unwrap();
    }
    let returned: usize = thread::scope(|scope| {
        let calls = [0; 2].map(|_| scope.spawn(|| engine.handle().shutdown().len()));
        calls.into_iter().map(|call| call.join().unwrap()).sum()
    });
    assert_eq!(returned, 100);
}

#[test]
fn a_large_payload_takes_memory_for_few() {
    let mut engine = Builder::new().capacity(4).driven(|_| {}).unwrap();
    let id = engine.handle().schedule(MS, [7_u8; 1 << 16]).unwrap();
    assert!(matches!(engine.handle().cancel(id), Cancel::Cancelled(payload) if payload[65_535] == 7));
    engine.handle().schedule(MS, [0; 1 << 16]).unwrap();
    engine.advance(2 * MS);
    assert_eq!(engine.handle().stats().fired, 1);
}

/// An arming waited for room in its lane (a thread's queue), and was already in force. The old ticket fired the timer,
/// and then the new ticket fired it again.
#[test]
fn an_arming_that_waits_for_room_fires_once() {
    let stall = Gate::new();
    let (at_the_gate, fired) = (stall.clone(), Log::new());
    let log = fired.clone();
    let stalls = Arc::new(AtomicBool::new(false));
    let stalled = Arc::clone(&stalls);
    let engine = Builder::new()
        .shards(1)
        .unpinned()
        .lane_capacity(64)
        .executor(move |job: Job| {
            if stalled.load(Ordering::SeqCst) {
                at_the_gate.pass();
            }
            job.run();
        })
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload == 7 {
                log.push(timer.deadline);
            }
        })
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    timer.arm(20 * MS).unwrap();
    thread::sleep(5 * MS);
    assert_eq!(timer.disarm(), Disarm::Disarmed);
    stalls.store(true, Ordering::SeqCst);
    engine.handle().schedule(MS, 0).unwrap();
    stall.await_arrival();
    // The timer's ticket is due now, and its shard is held up while the lane fills.
    thread::sleep(30 * MS);
    while engine.handle().try_schedule(HOUR, 1).is_ok() {}
    let releaser = thread::spawn(move || {
        thread::sleep(20 * MS);
        stalls.store(false, Ordering::SeqCst);
        stall.open();
    });
    timer.arm_at(Timestamp::ZERO).unwrap();
    releaser.join().unwrap();
    wait_until("it has fired", || fired.len() > 0);
    thread::sleep(50 * MS);
    assert_eq!(fired.len(), 1);
}

/// A dropped handle had left its payload to a worker. The shutdown dropped that payload while it held its own lock.
#[test]
fn a_payload_that_was_left_to_a_worker_may_shut_down_when_the_shutdown_drops_it() {
    struct ShutsDown(Option<Handle<ShutsDown>>);
    impl Clone for ShutsDown {
        fn clone(&self) -> Self {
            Self(None)
        }
    }
    impl Drop for ShutsDown {
        fn drop(&mut self) {
            drop(self.0.take().map(|handle| handle.shutdown()));
        }
    }
    within_patience(|| {
        let jobs = Arc::new(Mutex::new(Vec::<Job>::new()));
        let queue = Arc::clone(&jobs);
        let engine = Builder::new()
            .shards(1)
            .executor(move |job: Job| lock(&queue).push(job))
            .start(|_: Fired<'_, ShutsDown>| {})
            .unwrap();
        let timer = engine.handle().timer(ShutsDown(Some(engine.handle().clone()))).unwrap();
        timer.arm(MS).unwrap();
        wait_until("a worker is to fire it", || !lock(&jobs).is_empty());
        drop(timer);
        drop(engine.handle().shutdown());
        // The job refers to the engine, whose executor has the job.
        let job = std::mem::take(&mut *lock(&jobs));
        drop(job);
    });
}

/// A shard reads the time, and then the clock steps back. The old reading must not decide about a deadline that was set
/// afterwards.
#[test]
fn a_timer_armed_after_the_clock_stepped_back_is_not_early() {
    let second = Arc::new(Mutex::new(None::<Timer<u64>>));
    let neighbour = Arc::clone(&second);
    let clock = ManualClock::new();
    let (stepped, early) = (clock.clone(), Log::new());
    let log = early.clone();
    let (rearmed, is_rearmed) = mpsc::channel();
    let engine = Builder::new()
        .clock(clock.clone())
        .shards(1)
        .inline()
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload == 1 {
                stepped.set(Timestamp::ZERO + 500 * MS);
                lock(&neighbour).as_ref().expect("it is there").arm(100 * MS).unwrap();
                rearmed.send(()).expect("the test waits");
            } else if stepped.now() < timer.deadline {
                log.push(timer.deadline);
            }
        })
        .unwrap();
    let first = engine.handle().timer(1).unwrap();
    *lock(&second) = Some(engine.handle().timer(2).unwrap());
    first.arm(1_000 * MS).unwrap();
    lock(&second).as_ref().expect("it is there").arm(1_000 * MS).unwrap();
    clock.advance(1_000 * MS);
    // The test does not wait for the count of fired timers, which rises before the handler runs.
    is_rearmed.recv_timeout(PATIENCE).expect("the first fires");
    clock.set(Timestamp::ZERO + 2_000 * MS);
    wait_until("the second has fired", || engine.handle().stats().owned.fired > 1);
    assert_eq!(early.len(), 0);
    lock(&second).take();
}

/// The handler of the first timer cancels the second, sets the clock back, and uses the second's slot until a new timer
/// in it has the stamp of the second's ticket. The worker still holds that ticket.
#[test]
fn a_stale_ticket_fires_nothing_early_after_the_clock_stepped_back() {
    /// The distance of two generations of a slot whose one-shots have one stamp.
    const USES: u32 = 48_265;
    let second = Arc::new(Mutex::new(None::<(TimerId, ManualClock)>));
    let (victim, fired) = (Arc::clone(&second), Log::new());
    let log = fired.clone();
    let mut engine = Builder::new()
        .capacity(2)
        .driven(move |timer: Fired<'_, u64>| {
            log.push((timer.payload, timer.deadline <= timer.engine().now()));
            if timer.payload != 1 {
                return;
            }
            let (engine, (id, clock)) = (timer.engine(), lock(&victim).take().expect("they are there"));
            assert_eq!(engine.cancel(id), Cancel::Cancelled(2));
            clock.set(Timestamp::ZERO + 500 * MS);
            for _ in 1..USES {
                let id = engine.schedule(HOUR, 3).unwrap();
                assert_eq!(engine.cancel(id), Cancel::Cancelled(3));
            }
            engine.schedule(100 * MS, 4).unwrap();
        })
        .unwrap();
    engine.handle().schedule(1_000 * MS, 1).unwrap();
    let id = engine.handle().schedule(1_000 * MS, 2).unwrap();
    *lock(&second) = Some((id, engine.clock().clone()));
    engine.advance(1_000 * MS);
    engine.advance(1_500 * MS);
    assert_eq!(fired.take_sorted(), [(1, true), (4, true)]);
}

/// One-shots are cancelled and owned timers are dropped after their tickets have reached the wheel. These timers cost
/// the shard hardly a turn, a pass of its loop.
#[test]
fn timers_that_end_in_the_wheel_cost_hardly_a_turn() {
    let mut engine = Builder::new().driven(|_| panic!("nothing is armed")).unwrap();
    let ids: Vec<_> = (1..=500).map(|n| engine.handle().schedule(n * MS, ()).unwrap()).collect();
    let timers: Vec<_> = (1..=500).map(|_| engine.handle().timer(()).unwrap()).collect();
    for (timer, n) in timers.iter().zip(1..) {
        timer.arm(n * MS).unwrap();
    }
    engine.turn();
    ids.into_iter().for_each(|id| drop(engine.handle().cancel(id)));
    drop(timers);
    let before = engine.handle().stats().total.turns;
    engine.advance(Duration::from_secs(10));
    let turns = engine.handle().stats().total.turns - before;
    assert!(turns <= 8, "{turns} turns");
}
