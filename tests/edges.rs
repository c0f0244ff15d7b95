//! Errors and edges: what the engine does at its bounds, in odd places and at the wrong time.

mod support;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use support::{
    Gate, HOUR, Log, MS, PATIENCE, Rng, Shot, assert_settled, lock, payloads, recording, wait_until,
    within_patience,
};
use tourbillon::{
    BuildError, Builder, Cancel, Clock, Engine, Fired, Handle, Job, ManualClock, RescheduleError,
    ScheduleErrorKind, SystemClock, Timestamp, Unfired,
};

const SECOND: Duration = Duration::from_secs(1);

fn at(nanos: Duration) -> Timestamp {
    Timestamp::ZERO + nanos
}

/// A payload that does something when it is dropped.
struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl OnDrop {
    fn new(f: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(f)))
    }

    fn nothing() -> Self {
        Self(None)
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

// --- Deadlines ---

#[test]
fn zero_and_past_deadlines_fire_on_the_next_turn() {
    let (mut engine, log) = recording(Builder::new());
    engine.advance(5 * SECOND);
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    engine.handle().schedule_at(engine.handle().now(), 1).unwrap();
    engine.handle().schedule_at(at(SECOND), 2).unwrap();
    engine.handle().schedule_at(Timestamp::ZERO, 3).unwrap();
    engine.turn();
    let shots = log.take();
    assert_eq!(payloads(&shots), [0, 1, 2, 3]);
    assert!(shots.iter().all(|shot| shot.at == at(5 * SECOND)));
    assert!(engine.handle().stats().total.lateness.max >= 5 * SECOND);
}

#[test]
fn a_deadline_inside_the_present_tick_fires_with_the_next_one() {
    // Rounded up as every deadline is, though it has passed.
    let (mut engine, log) = recording(Builder::new());
    engine.advance(MS / 2);
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    engine.handle().schedule_at(at(MS / 4), 1).unwrap();
    engine.turn();
    assert_eq!(log.len(), 0);
    engine.advance(MS / 2);
    assert_eq!(payloads(&log.take()), [0, 1]);
}

#[test]
fn a_turn_ends_though_every_timer_rearms_itself_at_once() {
    // More of them than one slice of work takes.
    let fired = within_patience(|| {
        let mut engine = Builder::new()
            .build_driven(|timer: Fired<'_, u64>| {
                timer.engine().schedule(Duration::ZERO, timer.payload).unwrap();
            })
            .unwrap();
        for n in 0..20_000 {
            engine.handle().schedule(Duration::ZERO, n).unwrap();
        }
        engine.turn();
        engine.handle().stats().fired
    });
    assert_eq!(fired, 20_000);
}

#[test]
fn zero_and_past_deadlines_fire_in_a_threaded_engine() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Engine::new(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    engine.handle().schedule_at(Timestamp::ZERO, 1).unwrap();
    wait_until("both have fired", || log.len() == 2);
}

#[test]
fn the_longest_delay_saturates_and_stays_cancellable() {
    let (mut engine, log) = recording(Builder::new().tick(Duration::from_micros(1)));
    let longest = engine.handle().schedule(Duration::MAX, 0).unwrap();
    let last = engine.handle().schedule_at(Timestamp::MAX, 1).unwrap();
    assert_eq!(engine.handle().deadline(longest), Some(Timestamp::MAX));
    engine.advance(100_000 * HOUR);
    let last = engine.handle().reschedule(last, Duration::MAX).unwrap();
    assert_eq!(engine.handle().cancel(longest), Cancel::Cancelled(0));
    assert_eq!(engine.handle().cancel(last), Cancel::Cancelled(1));
    assert_eq!(log.len(), 0);
}

// --- Building ---

#[test]
fn an_option_out_of_bounds_is_named_with_its_value_and_its_bound() {
    let between = "between 1µs and 3600s";
    let cases = [
        (Builder::new().tick(Duration::ZERO), "tick", "0ns", between),
        (Builder::new().tick(Duration::from_nanos(999)), "tick", "999ns", between),
        (Builder::new().tick(3_601 * SECOND), "tick", "3601s", between),
        (Builder::new().shards(0), "shards", "0", "between 1 and 1024"),
        (Builder::new().shards(1_025), "shards", "1025", "between 1 and 1024"),
        (Builder::new().workers(0), "workers", "0", "between 1 and 1024"),
        (Builder::new().workers(1_025), "workers", "1025", "between 1 and 1024"),
        (Builder::new().capacity(0), "capacity", "0", "between 1 and 4294967295"),
        (Builder::new().lane_capacity(63), "lane_capacity", "63", "between 64 and 4294967296"),
        (Builder::new().cores([]), "cores", "an empty list", "at least one core"),
    ];
    for (builder, expected_option, expected_value, expected_bound) in cases {
        let error = builder.build(|_: Fired<'_, ()>| {}).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{expected_option} is {expected_value}, but must be {expected_bound}")
        );
        let BuildError::OutOfBounds { option, value, bound } = error else { panic!("{error}") };
        assert_eq!((option, &*value, &*bound), (expected_option, expected_value, expected_bound));
    }
    let error = Builder::new().tick(Duration::ZERO).build_driven(|_: Fired<'_, ()>| {}).unwrap_err();
    assert!(matches!(error, BuildError::OutOfBounds { option: "tick", .. }));
}

#[test]
fn a_refused_pin_is_counted_and_nothing_else() {
    let (sender, fired) = mpsc::channel();
    let engine = Builder::new()
        .shards(2)
        .cores([usize::MAX, 1_023])
        .build(move |timer| sender.send(timer.payload).unwrap())
        .unwrap();
    for shard in 0..2 {
        engine.handle().producer_on(shard).schedule(MS, shard).unwrap();
    }
    let mut order = [fired.recv_timeout(PATIENCE).unwrap(), fired.recv_timeout(PATIENCE).unwrap()];
    order.sort_unstable();
    assert_eq!(order, [0, 1]);
    let stats = engine.handle().stats();
    assert_eq!(stats.total.pins_refused, 2);
    assert!(stats.shards.iter().all(|shard| shard.pins_refused == 1));
    let engine = Builder::new().shards(1).unpinned().build(|_: Fired<'_, ()>| {}).unwrap();
    wait_until("it has begun", || engine.handle().stats().total.turns > 0);
    assert_eq!(engine.handle().stats().total.pins_refused, 0);
}

// --- Full ---

#[test]
fn a_full_engine_hands_the_payload_back_until_there_is_room() {
    let (mut engine, log) = recording(Builder::new().capacity(2));
    let id = engine.handle().schedule(MS, 0).unwrap();
    engine.handle().schedule(MS, 1).unwrap();
    let error = engine.handle().schedule(MS, 2).unwrap_err();
    assert_eq!((error.kind, error.payload), (ScheduleErrorKind::EngineFull, 2));
    assert_eq!(error.to_string(), "the engine's capacity of pending timers is used up");
    assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(0));
    let error = engine.handle().schedule_batch([(MS, 3), (MS, 4), (MS, 5)]).unwrap_err();
    assert_eq!((error.kind, error.scheduled.len()), (ScheduleErrorKind::EngineFull, 1));
    assert_eq!(error.refused, [(at(MS), 4), (at(MS), 5)]);
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), [1, 3]);
    engine.handle().schedule_batch([(MS, 6), (MS, 7)]).unwrap();
    assert_eq!(engine.handle().len(), 2);
}

#[test]
fn a_full_lane_of_a_driven_engine_hands_the_payload_back_until_the_next_turn() {
    let (mut engine, log) = recording(Builder::new().lane_capacity(64));
    let mut accepted = 0;
    let error = loop {
        match engine.handle().schedule(MS, accepted) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!((64..=128).contains(&accepted), "{accepted}");
    assert_eq!((error.kind, error.payload), (ScheduleErrorKind::LaneFull, accepted));
    assert_eq!(error.to_string(), "the lane to the shard is full");
    let error = engine.handle().schedule_batch([(MS, 1_000)]).unwrap_err();
    assert_eq!((error.kind, error.refused.len()), (ScheduleErrorKind::LaneFull, 1));
    engine.turn();
    engine.handle().schedule(MS, accepted).unwrap();
    engine.advance(MS);
    assert_eq!(payloads(&log.take()), (0..=accepted).collect::<Vec<u64>>());
}

/// An engine whose one shard is held up by the handler of timer 0 until the gate opens, and whose lane from this thread
/// is full; how many timers wait.
fn with_full_lane() -> (Engine<u64>, Gate, Log<u64>, u64) {
    let (gate, log) = (Gate::new(), Log::new());
    let (at_gate, sink) = (gate.clone(), log.clone());
    let engine = Builder::new()
        .shards(1)
        .lane_capacity(64)
        .inline()
        .build(move |timer: Fired<'_, u64>| {
            if timer.payload == 0 {
                at_gate.pass();
            }
            sink.push(timer.payload);
        })
        .unwrap();
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    gate.await_arrival();
    let mut accepted = 0;
    let error = loop {
        match engine.handle().try_schedule(MS, accepted + 1) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!((63..=128).contains(&accepted), "{accepted}");
    assert_eq!((error.kind, error.payload), (ScheduleErrorKind::LaneFull, accepted + 1));
    (engine, gate, log, accepted)
}

#[test]
fn schedule_waits_for_a_shard_that_is_behind() {
    within_patience(|| {
        let (engine, gate, log, accepted) = with_full_lane();
        let opened = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(20 * MS);
                opened.store(true, Ordering::SeqCst);
                gate.open();
            });
            engine.handle().schedule(MS, accepted + 1).unwrap();
            assert!(opened.load(Ordering::SeqCst), "it did not wait");
            engine.handle().schedule_batch([(MS, accepted + 2), (MS, accepted + 3)]).unwrap();
        });
        wait_until("all have fired", || log.len() as u64 == accepted + 4);
        assert_eq!(log.take_sorted(), (0..accepted + 4).collect::<Vec<u64>>());
    });
}

#[test]
fn waiting_for_room_leaves_the_callers_park_token() {
    within_patience(|| {
        let (engine, gate, _log, accepted) = with_full_lane();
        thread::current().unpark();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(20 * MS);
                gate.open();
            });
            engine.handle().schedule(MS, accepted + 1).unwrap();
            // Before the end of the scope, which parks as well.
            let begin = std::time::Instant::now();
            thread::park_timeout(PATIENCE / 3);
            assert!(begin.elapsed() < PATIENCE / 3, "the wait for room took the token");
        });
    });
}

#[test]
fn a_shutdown_releases_those_who_wait_for_room() {
    within_patience(|| {
        let (engine, gate, log, accepted) = with_full_lane();
        thread::scope(|scope| {
            let shutdown = scope.spawn(|| {
                thread::sleep(10 * MS);
                engine.handle().shutdown()
            });
            let error = engine.handle().schedule(MS, 1_000).unwrap_err();
            assert_eq!((error.kind, error.payload), (ScheduleErrorKind::ShutDown, 1_000));
            let error = engine.handle().schedule_batch([(MS, 1_000)]).unwrap_err();
            assert_eq!((error.kind, error.refused.len()), (ScheduleErrorKind::ShutDown, 1));
            gate.open();
            assert_eq!(shutdown.join().unwrap().len() as u64, accepted);
        });
        assert_eq!(log.take(), [0]);
        assert_settled(&engine.handle().stats());
    });
}

#[test]
fn an_inline_handler_does_not_wait_for_its_own_shard() {
    within_patience(|| {
        let (sender, outcome) = mpsc::channel();
        let engine = Builder::new()
            .shards(1)
            .lane_capacity(64)
            .inline()
            .build(move |timer: Fired<'_, u64>| {
                let refused = (0..1_000).find_map(|n| timer.engine().schedule(HOUR, n).err());
                let batch = timer.engine().schedule_batch([(HOUR, 0)]);
                sender.send((refused.map(|error| error.kind), batch.map_err(|error| error.kind))).unwrap();
            })
            .unwrap();
        engine.handle().schedule(MS, 0).unwrap();
        let full = ScheduleErrorKind::LaneFull;
        assert_eq!(outcome.recv().unwrap(), (Some(full), Err(full)));
    });
}

#[test]
fn a_handler_on_a_worker_may_wait_for_room() {
    within_patience(|| {
        let (sender, outcome) = mpsc::channel();
        let engine = Builder::new()
            .shards(1)
            .workers(1)
            .lane_capacity(64)
            .build(move |timer: Fired<'_, u64>| {
                sender.send((0..10_000).all(|n| timer.engine().schedule(HOUR, n).is_ok())).unwrap();
            })
            .unwrap();
        engine.handle().schedule(MS, 0).unwrap();
        assert_eq!(outcome.recv(), Ok(true));
        assert_eq!(engine.handle().shutdown().len(), 10_000);
    });
}

// --- From inside ---

/// Every way to run handlers, each on two threads or fewer.
fn every_dispatch() -> Vec<Builder> {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || queue.into_iter().for_each(Job::run));
    let ways = vec![
        Builder::new().workers(2),
        Builder::new().inline(),
        #[cfg(feature = "rayon")]
        Builder::new().rayon_pool(Arc::new(rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap())),
        Builder::new().executor(move |job| jobs.send(job).unwrap()),
    ];
    ways.into_iter().map(|builder| builder.shards(2)).collect()
}

#[test]
fn handlers_run_where_the_builder_says() {
    let named = |builder: Builder| {
        let (sender, name) = mpsc::channel();
        let engine = builder
            .shards(1)
            .build(move |_: Fired<'_, ()>| sender.send(thread::current().name().map(String::from)).unwrap())
            .unwrap();
        engine.handle().schedule(MS, ()).unwrap();
        name.recv_timeout(PATIENCE).unwrap().unwrap()
    };
    assert_eq!(named(Builder::new().inline()), "tb-shard-0");
    // The shard's leader runs what is due itself; a worker follows it.
    assert_eq!(named(Builder::new().workers(1)), "tb-shard-0");
    #[cfg(feature = "rayon")]
    {
        let pool =
            rayon::ThreadPoolBuilder::new().num_threads(1).thread_name(|_| String::from("callers pool"));
        let pool = Arc::new(pool.build().unwrap());
        assert_eq!(named(Builder::new().rayon_pool(Arc::clone(&pool))), "callers pool");
        assert_eq!(pool.install(|| 1 + 1), 2);
    }
    let (jobs, queue) = mpsc::channel::<Job>();
    let executor = thread::Builder::new().name(String::from("callers executor"));
    let executor = executor.spawn(move || queue.into_iter().for_each(Job::run)).unwrap();
    assert_eq!(named(Builder::new().executor(move |job| jobs.send(job).unwrap())), "callers executor");
    executor.join().unwrap();
}

#[test]
fn a_handler_schedules_and_cancels() {
    for builder in every_dispatch() {
        within_patience(move || {
            let (sender, done) = mpsc::channel();
            let engine = builder
                .build(move |timer: Fired<'_, u64>| {
                    let engine = timer.engine();
                    if timer.payload > 0 {
                        engine.schedule(Duration::ZERO, timer.payload - 1).unwrap();
                        let id = engine.schedule(HOUR, 7).unwrap();
                        let id = engine.reschedule(id, 2 * HOUR).unwrap();
                        assert_eq!(engine.cancel(id), Cancel::Cancelled(7));
                    } else {
                        sender.send(()).unwrap();
                    }
                })
                .unwrap();
            engine.handle().schedule(MS, 20).unwrap();
            done.recv().unwrap();
            assert!(engine.handle().shutdown().is_empty());
            let stats = engine.handle().stats();
            assert_eq!((stats.fired, stats.cancelled, stats.total.panics), (21, 40, 0));
            assert_settled(&stats);
        });
    }
}

#[test]
fn scheduling_and_cancelling_while_a_handler_unwinds_works() {
    // From a guard on the handler's stack, from the payload's drop, and from the panic hook.
    let (sender, log) = mpsc::channel();
    let hooked: Arc<Mutex<Option<Handle<Option<OnDrop>>>>> = Arc::new(Mutex::new(None));
    let in_hook = Arc::clone(&hooked);
    let engine = Builder::new()
        .workers(2)
        .on_panic(move |panic| {
            assert_eq!(panic.downcast_ref(), Some(&"out"));
            lock(&in_hook).take().unwrap().schedule(MS, None).unwrap();
        })
        .build(move |timer: Fired<'_, Option<OnDrop>>| {
            if timer.payload.is_none() {
                return sender.send(()).unwrap();
            }
            let engine = timer.engine();
            let _guard = OnDrop::new(move || {
                assert!(thread::panicking());
                let id = engine.schedule(HOUR, None).unwrap();
                assert!(matches!(engine.cancel(id), Cancel::Cancelled(None)));
                engine.schedule(MS, None).unwrap();
            });
            std::panic::panic_any("out");
        })
        .unwrap();
    let handle = Handle::clone(engine.handle());
    *lock(&hooked) = Some(Handle::clone(engine.handle()));
    let payload = OnDrop::new(move || assert!(handle.schedule(MS, None).is_ok()));
    engine.handle().schedule(MS, Some(payload)).unwrap();
    for _ in 0..3 {
        assert_eq!(log.recv_timeout(PATIENCE), Ok(()));
    }
    assert!(engine.handle().shutdown().is_empty());
    assert_eq!(engine.handle().stats().total.panics, 1);
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_hook_is_called_with_the_panic_and_survived_when_it_panics() {
    let (sender, log) = mpsc::channel();
    let engine = Builder::new()
        .inline()
        .on_panic(move |panic| {
            sender.send(panic.downcast_ref::<u64>().copied()).unwrap();
            panic!("a hook");
        })
        .build(|timer: Fired<'_, u64>| std::panic::panic_any(timer.payload))
        .unwrap();
    for payload in 0..3 {
        engine.handle().schedule(MS, payload).unwrap();
        assert_eq!(log.recv_timeout(PATIENCE), Ok(Some(payload)));
    }
    wait_until("all are counted", || engine.handle().stats().total.panics == 3);
}

#[test]
fn a_payloads_drop_may_use_the_engine_wherever_it_happens() {
    for builder in every_dispatch() {
        within_patience(move || {
            let engine = builder.build(|timer: Fired<'_, OnDrop>| drop(timer.payload)).unwrap();
            let (sender, log) = mpsc::channel();
            let armed = |place: &'static str| {
                let (handle, sender) = (Handle::clone(engine.handle()), sender.clone());
                OnDrop::new(move || {
                    let outcome = match handle.schedule(HOUR, OnDrop::nothing()) {
                        Ok(id) => matches!(handle.cancel(id), Cancel::Cancelled(_)).then_some(place),
                        Err(error) => (error.kind == ScheduleErrorKind::ShutDown).then_some("shut down"),
                    };
                    sender.send(outcome).unwrap();
                })
            };
            engine.handle().schedule(MS, armed("fired")).unwrap();
            assert_eq!(log.recv(), Ok(Some("fired")));
            let id = engine.handle().schedule(HOUR, armed("cancelled")).unwrap();
            drop(engine.handle().cancel(id));
            assert_eq!(log.recv(), Ok(Some("cancelled")));
            engine.handle().schedule(HOUR, armed("returned")).unwrap();
            drop(engine.handle().shutdown());
            assert_eq!(log.recv(), Ok(Some("shut down")));
            drop(engine.handle().schedule(HOUR, armed("refused")));
            assert_eq!(log.recv(), Ok(Some("shut down")));
            assert_settled(&engine.handle().stats());
        });
    }
}

#[test]
fn payloads_dropped_with_the_engine_may_use_it_and_may_panic() {
    within_patience(|| {
        let panics = Arc::new(AtomicUsize::new(0));
        let (count, (sender, log)) = (Arc::clone(&panics), mpsc::channel());
        let engine = Builder::new()
            .on_panic(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .build(|_: Fired<'_, OnDrop>| {})
            .unwrap();
        for n in 0..6 {
            let (handle, sender) = (Handle::clone(engine.handle()), sender.clone());
            let payload = OnDrop::new(move || {
                let refused = handle.schedule(MS, OnDrop::nothing()).is_err();
                let nothing = handle.shutdown().is_empty();
                sender.send((handle.is_shut_down(), refused, nothing)).unwrap();
                assert!(n % 2 == 0, "a payload's drop");
            });
            engine.handle().schedule(HOUR, payload).unwrap();
        }
        drop(engine);
        drop(sender);
        assert_eq!(log.into_iter().collect::<Vec<_>>(), [(true, true, true); 6]);
        assert_eq!(panics.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn a_thread_that_ends_may_use_the_engine_from_its_thread_locals() {
    thread_local! {
        static LAST_WORDS: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
    }
    // The engine's own thread-local part may go before ours or after it: both orders.
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
    // A thread keeps a part of each engine; those of engines that are gone make way.
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

// --- Slow handlers, lost jobs ---

#[test]
fn one_slow_handler_does_not_hold_back_the_rest_of_its_chunk() {
    // The first of 30 timers due in one tick ends only when the other 29 have fired.
    let (fired, first) = (AtomicU64::new(0), AtomicBool::new(true));
    let engine = Builder::new()
        .shards(1)
        .workers(2)
        .build(move |_: Fired<'_, u64>| {
            if first.swap(false, Ordering::SeqCst) {
                wait_until("the others have fired", || fired.load(Ordering::SeqCst) == 29);
            } else {
                fired.fetch_add(1, Ordering::SeqCst);
            }
        })
        .unwrap();
    engine.handle().schedule_batch((0..30).map(|n| (MS, n))).unwrap();
    wait_until("all have fired", || engine.handle().stats().fired == 30);
    assert!(engine.handle().shutdown().is_empty());
    assert_eq!(engine.handle().stats().total.panics, 0);
}

#[test]
fn a_job_that_its_executor_drops_is_sent_again() {
    for count in [1, 2, 100] {
        let log = Log::new();
        let sink = log.clone();
        let jobs = AtomicUsize::new(0);
        let engine = Builder::new()
            .shards(1)
            .executor(move |job: Job| {
                if jobs.fetch_add(1, Ordering::Relaxed) >= 3 {
                    job.run();
                }
            })
            .build(move |timer: Fired<'_, u64>| sink.push(timer.payload))
            .unwrap();
        engine.handle().schedule_batch((0..count).map(|n| (MS, n))).unwrap();
        wait_until("all have fired", || log.len() as u64 == count);
        assert_eq!(log.take_sorted(), (0..count).collect::<Vec<u64>>());
    }
}

#[test]
fn a_job_that_is_dropped_later_is_sent_again() {
    // Nothing else wakes the shard then.
    let (jobs, queue) = mpsc::channel::<Job>();
    let executor = thread::spawn(move || {
        for (number, job) in queue.into_iter().enumerate() {
            if number < 3 {
                thread::sleep(5 * MS);
                drop(job);
            } else {
                job.run();
            }
        }
    });
    let (sender, fired) = mpsc::channel();
    let engine = Builder::new()
        .shards(1)
        .executor(move |job| jobs.send(job).unwrap())
        .build(move |timer| sender.send(timer.payload).unwrap())
        .unwrap();
    engine.handle().schedule(MS, 7).unwrap();
    assert_eq!(fired.recv_timeout(PATIENCE), Ok(7));
    drop(engine);
    executor.join().unwrap();
}

type Jobs = Arc<Mutex<Vec<Job>>>;

/// An engine on a manual clock whose executor keeps its jobs, until it is said to run them.
fn with_jobs_kept() -> (Engine<u64>, ManualClock, Jobs, Arc<AtomicBool>, Log<u64>) {
    let (clock, log) = (ManualClock::new(), Log::new());
    let (jobs, runs) = (Arc::new(Mutex::new(Vec::<Job>::new())), Arc::new(AtomicBool::new(false)));
    let (kept, runs_now, sink) = (Arc::clone(&jobs), Arc::clone(&runs), log.clone());
    let engine = Builder::new()
        .shards(1)
        .clock(clock.clone())
        .executor(
            move |job: Job| {
                if runs_now.load(Ordering::SeqCst) { job.run() } else { lock(&kept).push(job) }
            },
        )
        .build(move |timer: Fired<'_, u64>| sink.push(timer.payload))
        .unwrap();
    (engine, clock, jobs, runs, log)
}

#[test]
fn tickets_do_not_pile_up_while_nobody_fires_them() {
    // Timers come due, are cancelled, and others come, as where each worker is blocked and users give up.
    let (engine, clock, jobs, runs, log) = with_jobs_kept();
    let (rounds, each) = (1_500_u64, 20_u64);
    for round in 1..=rounds {
        let ids = engine.handle().schedule_batch((0..each).map(|n| (MS, n))).unwrap();
        clock.advance(MS);
        // The shard has found them due, and has handed them over or holds them back.
        let seen = || engine.handle().stats().total;
        wait_until("they are due", || seen().queued_timers + seen().stale_tickets >= round * each);
        assert!(ids.into_iter().all(|id| engine.handle().cancel(id).payload().is_some()));
    }
    let (queued, handed_over) = (engine.handle().stats().total.queued_timers, lock(&jobs).len());
    assert!(handed_over <= 300, "{handed_over} jobs wait of {rounds} rounds");
    assert!(queued <= 300 * each, "{queued} tickets wait of {}", rounds * each);

    // Those that are not cancelled fire behind all that, once there is a worker.
    engine.handle().schedule_batch((0..1_000).map(|n| (MS, n))).unwrap();
    clock.advance(MS);
    runs.store(true, Ordering::SeqCst);
    std::mem::take(&mut *lock(&jobs)).into_iter().for_each(Job::run);
    wait_until("all have fired", || log.len() == 1_000);
    assert_eq!(log.take_sorted(), (0..1_000).collect::<Vec<u64>>());
    wait_until("nothing waits", || engine.handle().stats().total.queued_timers == 0);
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_job_that_is_dropped_behind_many_others_is_sent_again() {
    let (engine, clock, jobs, runs, log) = with_jobs_kept();
    // A job for each.
    for n in 0..700 {
        engine.handle().schedule(MS, n).unwrap();
        clock.advance(MS);
        wait_until("it is due", || engine.handle().stats().total.queued_timers == n + 1);
    }
    let last = lock(&jobs).pop();
    let before = lock(&jobs).len();
    drop(last);
    clock.advance(MS);
    wait_until("another job comes", || {
        clock.advance(MS);
        lock(&jobs).len() > before
    });
    runs.store(true, Ordering::SeqCst);
    std::mem::take(&mut *lock(&jobs)).into_iter().for_each(Job::run);
    wait_until("all have fired", || {
        clock.advance(MS);
        log.len() == 700
    });
}

#[test]
fn an_executor_that_panics_loses_no_timer() {
    let (sender, fired) = mpsc::channel();
    let jobs = AtomicUsize::new(0);
    let engine = Builder::new()
        .shards(1)
        .executor(move |job: Job| {
            assert!(jobs.fetch_add(1, Ordering::Relaxed) >= 2, "an executor");
            job.run();
        })
        .build(move |timer| sender.send(timer.payload).unwrap())
        .unwrap();
    engine.handle().schedule(MS, 7).unwrap();
    assert_eq!(fired.recv_timeout(PATIENCE), Ok(7));
    engine.handle().schedule(MS, 8).unwrap();
    assert_eq!(fired.recv_timeout(PATIENCE), Ok(8));
}

#[test]
fn a_job_that_is_run_after_the_shutdown_fires_nothing() {
    let jobs = Arc::new(Mutex::new(Vec::<Job>::new()));
    let queue = Arc::clone(&jobs);
    let engine = Builder::new()
        .shards(1)
        .executor(move |job| lock(&queue).push(job))
        .build(|_: Fired<'_, u64>| panic!("it was returned"))
        .unwrap();
    engine.handle().schedule(MS, 7).unwrap();
    wait_until("it is handed over", || lock(&jobs).len() == 1);
    let unfired = engine.handle().shutdown();
    assert_eq!(unfired.iter().map(|timer| timer.payload).collect::<Vec<_>>(), [7]);
    for job in lock(&jobs).drain(..) {
        job.run();
    }
    assert_eq!((engine.handle().stats().fired, engine.handle().stats().total.panics), (0, 0));
    drop(engine);
}

#[test]
fn a_stalled_shard_catches_up_and_fires_each_timer_once() {
    // 3 s at a tick of 1 µs: more than ten thousand revolutions of the finest level.
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .tick(Duration::from_micros(1))
        .shards(1)
        .inline()
        .build(move |timer: Fired<'_, u64>| {
            if timer.payload == 0 {
                thread::sleep(3_000 * MS);
            }
            sink.push(Shot::of(&timer));
        })
        .unwrap();
    let mut rng = Rng::new(300);
    let count = 40_000;
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    engine.handle().schedule_batch((1..count).map(|n| (MS + rng.nanos_below(2_500 * MS), n))).unwrap();
    wait_until("all have fired", || log.len() as u64 == count);
    let shots = log.take();
    assert!(shots.iter().all(|shot| shot.at >= shot.deadline));
    assert_eq!(payloads(&shots), (0..count).collect::<Vec<u64>>());
    assert!(engine.handle().stats().total.turns > 3, "caught up in one slice");
    assert!(engine.handle().stats().total.lateness.max >= 400 * MS);
    assert_settled(&engine.handle().stats());
}

// --- Waiting for a handler ---

#[test]
fn cancel_and_wait_returns_when_the_handler_has_ended() {
    within_patience(|| {
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, flag) = (gate.clone(), Arc::clone(&ended));
        let engine = Engine::new(move |_: Fired<'_, ()>| {
            at_gate.pass();
            flag.store(true, Ordering::Relaxed);
        })
        .unwrap();
        let id = engine.handle().schedule(MS, ()).unwrap();
        gate.await_arrival();
        assert_eq!(engine.handle().cancel(id), Cancel::Running);
        assert_eq!(engine.handle().remaining(id), None);
        assert!(matches!(engine.handle().reschedule(id, MS), Err(RescheduleError::Running)));
        thread::scope(|scope| {
            let waits = || {
                let outcome = engine.handle().cancel_and_wait(id);
                (outcome, ended.load(Ordering::Relaxed))
            };
            let waiters = [scope.spawn(waits), scope.spawn(waits)];
            thread::sleep(20 * MS);
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            gate.open();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), (Cancel::Gone, true));
            }
        });
        let id = engine.handle().schedule(HOUR, ()).unwrap();
        assert_eq!(engine.handle().cancel_and_wait(id), Cancel::Cancelled(()));
        assert_eq!(engine.handle().cancel_and_wait(id), Cancel::Gone);
    });
}

#[test]
fn handlers_that_cancel_and_wait_for_each_other_do_not_deadlock() {
    within_patience(|| {
        let ids = Arc::new(Mutex::new(Vec::new()));
        let (both, (sender, outcomes)) = (Arc::clone(&ids), mpsc::channel());
        let meeting = std::sync::Barrier::new(2);
        let engine = Builder::new()
            .workers(2)
            .build(move |timer: Fired<'_, usize>| {
                meeting.wait();
                let other = lock(&both)[1 - timer.payload];
                sender.send(timer.engine().cancel_and_wait(other)).unwrap();
                meeting.wait();
            })
            .unwrap();
        // A shard each, so that each has a worker.
        let mut producers = [engine.handle().producer_on(0), engine.handle().producer_on(1)];
        {
            let mut ids = lock(&ids);
            for (payload, producer) in producers.iter_mut().enumerate() {
                ids.push(producer.schedule(MS, payload).unwrap());
            }
        }
        assert_eq!(outcomes.into_iter().take(2).collect::<Vec<_>>(), [Cancel::Running, Cancel::Running]);
    });
}

// --- Clocks that step back ---

#[test]
fn a_manual_clock_set_back_fires_nothing_early() {
    let (clock, log) = (ManualClock::new(), Log::new());
    let sink = log.clone();
    let engine = Builder::new()
        .clock(clock.clone())
        .shards(1)
        .inline()
        .build(move |timer| sink.push(Shot::of(&timer)))
        .unwrap();
    engine.handle().schedule_at(at(10 * SECOND), 10).unwrap();
    engine.handle().schedule_at(at(12 * SECOND), 12).unwrap();
    clock.set(at(10 * SECOND));
    wait_until("the first has fired", || log.len() == 1);
    clock.set(at(5 * SECOND));
    engine.handle().schedule(SECOND, 6).unwrap();
    engine.handle().schedule(4 * SECOND, 9).unwrap();
    engine.handle().schedule(6 * SECOND, 11).unwrap();
    // Nothing is due at 5 s; whatever else the engine does at its catching up, it is never early.
    thread::sleep(20 * MS);
    assert_eq!(log.len(), 1);
    for second in 6..=12 {
        clock.set(at(second * SECOND));
        thread::sleep(2 * MS);
    }
    wait_until("all have fired", || log.len() == 5);
    let shots = log.take();
    assert_eq!(payloads(&shots), [6, 9, 10, 11, 12]);
    assert!(shots.iter().all(|shot| shot.at >= shot.deadline), "{shots:?}");
    assert_eq!(engine.handle().stats().total.panics, 0);
}

#[test]
fn a_clock_of_ones_own_that_steps_back_fires_nothing_early() {
    /// Runs, is set back at times, and remembers the latest moment that it has shown.
    struct Jumpy {
        source: SystemClock,
        back: Arc<AtomicU64>,
        shown: Arc<AtomicU64>,
    }

    impl Clock for Jumpy {
        fn now(&self) -> Timestamp {
            let back = self.back.load(Ordering::SeqCst);
            let now = self.source.now().as_nanos().saturating_sub(back);
            self.shown.fetch_max(now, Ordering::SeqCst);
            Timestamp::from_nanos(now)
        }
    }

    let (back, shown, log) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Log::new());
    let clock = Jumpy { source: SystemClock::new(), back: Arc::clone(&back), shown: Arc::clone(&shown) };
    let sink = log.clone();
    let engine = Builder::new()
        .clock(clock)
        .tick(Duration::from_micros(10))
        .shards(2)
        .workers(1)
        .build(move |timer: Fired<'_, u64>| {
            assert!(shown.load(Ordering::SeqCst) >= timer.deadline.as_nanos(), "early");
            sink.push(timer.payload);
        })
        .unwrap();
    let mut rng = Rng::new(17);
    for payload in 0..3_000 {
        engine.handle().schedule(rng.nanos_below(10 * MS), payload).unwrap();
        if payload % 100 == 0 {
            back.fetch_add(2_000_000, Ordering::SeqCst);
            thread::sleep(MS);
        }
    }
    wait_until("all have fired", || log.len() == 3_000);
    assert_eq!(engine.handle().stats().total.panics, 0);
    assert_settled(&engine.handle().stats());
}

// --- Shutdown ---

#[test]
fn a_shutdown_returns_what_had_not_fired() {
    let (mut engine, log) = recording(Builder::new().shards(2));
    engine.handle().schedule(MS, 1).unwrap();
    engine.advance(MS);
    let in_wheel = engine.handle().schedule(HOUR, 2).unwrap();
    engine.turn();
    let in_lane = engine.handle().producer_on(1).schedule_at(Timestamp::MAX, 3).unwrap();
    let mut unfired = engine.handle().shutdown();
    unfired.sort_unstable_by_key(|timer| timer.payload);
    assert_eq!(
        unfired,
        [
            Unfired { id: in_wheel, deadline: at(HOUR + MS), payload: 2 },
            Unfired { id: in_lane, deadline: Timestamp::MAX, payload: 3 }
        ]
    );
    assert!(engine.handle().is_shut_down());
    engine.advance(2 * HOUR);
    assert_eq!(payloads(&log.take()), [1]);
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_shutdown_waits_for_running_handlers() {
    within_patience(|| {
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, flag) = (gate.clone(), Arc::clone(&ended));
        let engine = Engine::new(move |timer: Fired<'_, ()>| {
            at_gate.pass();
            let error = timer.engine().schedule(MS, ()).unwrap_err();
            assert_eq!(error.kind, ScheduleErrorKind::ShutDown);
            assert_eq!(timer.engine().cancel(timer.id), Cancel::Running);
            flag.store(true, Ordering::SeqCst);
        })
        .unwrap();
        engine.handle().schedule(MS, ()).unwrap();
        gate.await_arrival();
        thread::scope(|scope| {
            let shutdowns =
                [scope.spawn(|| engine.handle().shutdown()), scope.spawn(|| engine.handle().shutdown())];
            wait_until("it has begun", || engine.handle().is_shut_down());
            thread::sleep(20 * MS);
            assert!(shutdowns.iter().all(|shutdown| !shutdown.is_finished()));
            gate.open();
            assert!(shutdowns.into_iter().all(|shutdown| shutdown.join().unwrap().is_empty()));
            assert!(ended.load(Ordering::SeqCst));
        });
        assert_eq!(engine.handle().stats().total.panics, 0);
    });
}

#[test]
fn shutdowns_that_race_return_each_timer_once() {
    let engine = Builder::new().shards(2).build(|_: Fired<'_, u64>| {}).unwrap();
    engine.handle().schedule_batch((0..10_000).map(|n| (HOUR, n))).unwrap();
    let mut unfired: Vec<u64> = thread::scope(|scope| {
        let shutdowns: Vec<_> = (0..3).map(|_| scope.spawn(|| engine.handle().shutdown())).collect();
        shutdowns
            .into_iter()
            .flat_map(|shutdown| shutdown.join().unwrap())
            .map(|timer| timer.payload)
            .collect()
    });
    unfired.sort_unstable();
    assert_eq!(unfired, (0..10_000).collect::<Vec<u64>>());
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_shutdown_from_inside_a_handler_neither_waits_nor_panics() {
    for builder in every_dispatch() {
        within_patience(move || {
            let (sender, unfired) = mpsc::channel();
            let engine = builder
                .build(move |timer: Fired<'_, u64>| {
                    let engine = timer.engine();
                    let unfired = engine.shutdown().len();
                    let refused = engine.schedule(MS, 1).is_err();
                    sender.send((unfired, refused, engine.shutdown().len())).unwrap();
                })
                .unwrap();
            engine.handle().schedule_batch((0..100).map(|n| (HOUR, n))).unwrap();
            engine.handle().schedule(MS, 0).unwrap();
            assert_eq!(unfired.recv().unwrap(), (100, true, 0));
            assert!(engine.handle().shutdown().is_empty());
            let stats = engine.handle().stats();
            assert_eq!((stats.fired, stats.returned, stats.total.panics), (1, 100, 0));
            assert_settled(&stats);
        });
    }
}

#[test]
fn a_driven_engine_may_be_shut_down_by_its_handler() {
    let mut engine = Builder::new()
        .shards(2)
        .build_driven(|timer: Fired<'_, u64>| assert_eq!(timer.engine().shutdown().len(), 99))
        .unwrap();
    for n in 0..100 {
        engine.handle().schedule(MS, n).unwrap();
    }
    engine.advance(HOUR);
    let stats = engine.handle().stats();
    assert_eq!((stats.fired, stats.returned, stats.total.panics), (1, 99, 0));
    assert_settled(&stats);
}

#[test]
fn dropping_the_engine_inside_a_handler_ends_it() {
    for builder in every_dispatch() {
        within_patience(move || {
            let engine = Arc::new(Mutex::new(None::<Engine<Arc<()>>>));
            let (owner, (sender, done)) = (Arc::clone(&engine), mpsc::channel());
            let built = builder.build(move |_: Fired<'_, Arc<()>>| {
                let engine = lock(&owner).take();
                let had_it = engine.is_some();
                drop(engine);
                sender.send(had_it).unwrap();
            });
            let payload = Arc::new(());
            {
                let mut engine = lock(&engine);
                let engine = engine.insert(built.unwrap());
                engine.handle().schedule(HOUR, Arc::clone(&payload)).unwrap();
                engine.handle().schedule(MS, Arc::clone(&payload)).unwrap();
            }
            assert_eq!(done.recv(), Ok(true));
            wait_until("all payloads are dropped", || Arc::strong_count(&payload) == 1);
            assert!(lock(&engine).is_none());
        });
    }
}

#[test]
fn dropping_the_engine_leaves_handles_that_refuse() {
    let engine = Engine::new(|_: Fired<'_, u64>| {}).unwrap();
    let handle = Handle::clone(engine.handle());
    let mut producer = engine.handle().producer();
    let id = engine.handle().schedule(HOUR, 1).unwrap();
    drop(engine);
    assert!(handle.is_shut_down());
    assert_eq!(handle.schedule(MS, 2).unwrap_err().payload, 2);
    assert_eq!(producer.schedule(MS, 3).unwrap_err().payload, 3);
    assert_eq!(producer.cancel(id), Cancel::Gone);
    assert_settled(&handle.stats());
}
