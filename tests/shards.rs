//! Several engines on one set of shards: their threads, their ends, and a set that is driven by hand.

mod support;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use support::{Gate, HOUR, Log, MS, PATIENCE, assert_settled, lock, wait_until, within_patience};
use tourbillon::{
    BuildError, Builder, Cancel, Clock, Condition, DrivenShards, Engine, Entered, Fired, Job, Refusal, Shards,
};

fn small() -> Builder {
    Builder::new().shards(2).workers(2)
}

fn driven() -> DrivenShards {
    Builder::new().driven_shards().expect("a driven set")
}

/// An engine that logs what it fires.
fn logging(shards: &Shards) -> (Engine<u64>, Log<u64>) {
    let log = Log::new();
    let sink = log.clone();
    let engine = shards.engine().start(move |timer: Fired<'_, u64>| sink.push(timer.payload));
    (engine.expect("an engine"), log)
}

/// A value of which the test sees whether the engine still has it.
fn witness() -> (Arc<()>, impl Fn() -> usize) {
    let witness = Arc::new(());
    let count = Arc::downgrade(&witness);
    (witness, move || count.strong_count())
}

#[test]
fn engines_of_different_payloads_fire_on_one_set() {
    let shards = small().start_shards().expect("shards");
    let (numbers, log) = logging(&shards);
    let (fired, words) = mpsc::channel();
    let engine =
        shards.engine().start(move |timer: Fired<'_, &str>| fired.send(timer.payload).expect("heard"));
    let engine = engine.expect("an engine");
    numbers.handle().schedule(MS, 7).expect("room");
    engine.handle().schedule(2 * MS, "seven").expect("room");
    assert_eq!(words.recv_timeout(PATIENCE), Ok("seven"));
    wait_until("the other engine has fired", || log.len() == 1);
    assert_eq!(log.take(), [7]);
}

#[test]
fn an_id_of_one_engine_does_not_reach_another_engines_timer() {
    let shards = driven();
    let [(one, _), (other, _)] = [logging(shards.shards()), logging(shards.shards())];
    let id = one.handle().schedule(HOUR, 1).expect("room");
    other.handle().schedule(HOUR, 2).expect("room");
    assert_eq!(one.handle().cancel(id), Cancel::Cancelled(1));
    assert_eq!((one.handle().len(), other.handle().len()), (0, 1), "the engines share a slot");
}

#[test]
fn a_shutdown_returns_its_own_timers_and_leaves_the_others_running() {
    let shards = small().start_shards().expect("shards");
    let [(ended, _), (other, log)] = [logging(&shards), logging(&shards)];
    for n in 0..1_000 {
        ended.handle().schedule(HOUR, n).expect("room");
        other.handle().schedule(20 * MS, n).expect("room");
    }
    let mut returned: Vec<u64> = ended.handle().shutdown().into_iter().map(|timer| timer.payload).collect();
    returned.sort_unstable();
    assert!(returned.into_iter().eq(0..1_000), "the shutdown returned other timers than its own");
    let refused = ended.handle().schedule(MS, 5).expect_err("it was shut down");
    assert_eq!((refused.kind, refused.payload), (Refusal::ShutDown, 5));
    wait_until("the other engine has fired", || log.len() == 1_000);
    other.handle().schedule(MS, 0).expect("the other engine goes on");
    wait_until("the other engine has fired again", || log.len() == 1_001);
    assert_settled(&other.handle().stats());
}

#[test]
fn an_engine_that_ended_leaves_nothing_on_the_set() {
    let shards = small().start_shards().expect("shards");
    for round in 0..200 {
        let (witness, count) = witness();
        let engine = shards.engine().start(move |_: Fired<'_, u64>| drop(Arc::clone(&witness)));
        let engine = engine.expect("an engine");
        engine.handle().schedule(if round % 2 == 0 { HOUR } else { Duration::ZERO }, round).expect("room");
        drop(engine);
        wait_until("the handler was dropped", || count() == 0);
    }
}

/// The witness is gone when the drop returns: no job was on its way that could have kept the engine.
#[test]
fn an_idle_engine_is_freed_when_its_drop_returns() {
    let shards = small().start_shards().expect("shards");
    for _ in 0..200 {
        let (witness, count) = witness();
        let engine = shards.engine().start(move |_: Fired<'_, u64>| drop(Arc::clone(&witness)));
        drop(engine.expect("an engine"));
        assert_eq!(count(), 0, "a shard kept the engine after its end");
    }
}

#[test]
fn engines_come_and_go_while_others_fire_and_no_timer_is_lost() {
    within_patience(|| {
        let shards = small().start_shards().expect("shards");
        let (steady, log) = logging(&shards);
        let stop = Instant::now() + 300 * MS;
        let scheduled = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while Instant::now() < stop {
                        let (passing, seen) = logging(&shards);
                        let ids =
                            (0..100).map(|n| passing.handle().schedule(MS, n)).filter(Result::is_ok).count();
                        let returned = passing.handle().shutdown().len();
                        assert_eq!(seen.len() + returned, ids, "a timer of a passing engine was lost");
                    }
                });
            }
            let mut scheduled = 0;
            while Instant::now() < stop {
                steady.handle().schedule(MS, 0).expect("room");
                scheduled += 1;
                thread::yield_now();
            }
            scheduled
        });
        wait_until("all timers of the steady engine have fired", || log.len() == scheduled);
    });
}

#[test]
fn a_handler_may_end_its_own_engine_and_another_one() {
    within_patience(|| {
        let shards = small().start_shards().expect("shards");
        let (victim, _) = logging(&shards);
        victim.handle().schedule(HOUR, 1).expect("room");
        let (sender, returned) = mpsc::channel();
        let other = Mutex::new(Some(victim));
        let engine = shards.engine().start(move |timer: Fired<'_, u64>| {
            let victim = lock(&other).take();
            let theirs = victim.map_or(0, |victim| victim.handle().shutdown().len());
            sender.send((theirs, timer.engine().shutdown().len())).expect("heard");
        });
        let engine = engine.expect("an engine");
        engine.handle().schedule(HOUR, 2).expect("room");
        engine.handle().schedule(MS, 3).expect("room");
        assert_eq!(
            returned.recv_timeout(PATIENCE),
            Ok((1, 1)),
            "timers returned by the other engine, and by its own"
        );
        drop(engine);
        let (next, log) = logging(&shards);
        next.handle().schedule(MS, 4).expect("the set goes on");
        wait_until("an engine made later has fired", || log.len() == 1);
    });
}

#[test]
fn a_handler_may_make_an_engine_on_its_own_set() {
    for inline in [false, true] {
        within_patience(move || {
            let shards = small().start_shards().expect("shards");
            let (sender, made) = mpsc::channel();
            let (own, builder) = (shards.clone(), shards.engine());
            let builder = if inline { builder.inline() } else { builder };
            let engine = builder.start(move |_: Fired<'_, u64>| sender.send(logging(&own)).expect("heard"));
            let engine = engine.expect("an engine");
            engine.handle().schedule(MS, 0).expect("room");
            let (made, log) = made.recv_timeout(PATIENCE).expect("the handler makes an engine");
            made.handle().schedule(MS, 1).expect("room");
            wait_until("the new engine has fired", || log.len() == 1);
        });
    }
}

#[test]
fn an_engine_on_shards_takes_options_of_an_engine_and_refuses_those_of_shards() {
    let shards = driven();
    let handler = |_: Fired<'_, u64>| {};
    let tiny = shards.shards().engine().capacity(1).start(handler).expect("an engine");
    tiny.handle().schedule(HOUR, 1).expect("room");
    assert_eq!(tiny.handle().schedule(HOUR, 2).expect_err("no room").kind, Refusal::EngineFull);
    for (option, builder) in [
        ("tick", shards.shards().engine().tick(MS)),
        ("shards", shards.shards().engine().shards(3)),
        ("workers", Builder::new().workers(3).on(shards.shards())),
    ] {
        let error = builder.start(handler).expect_err("the shards are started");
        assert!(
            matches!(error, BuildError::NotOfAnEngine { option: refused } if refused == option),
            "{error}"
        );
    }
    let error = shards.shards().engine().start_shards().expect_err("they are started");
    assert!(matches!(error, BuildError::NotOfAnEngine { .. }), "{error}");
}

/// As many handlers as there are workers block, on one engine; another engine's timers, which run inline, go on.
#[test]
fn blocked_workers_do_not_hold_up_an_inline_engine() {
    let shards = small().start_shards().expect("shards");
    let gate = Gate::new();
    let at_gate = gate.clone();
    let blocking = shards.engine().start(move |_: Fired<'_, ()>| at_gate.pass()).expect("an engine");
    for _ in 0..2 {
        blocking.handle().schedule(MS, ()).expect("room");
    }
    gate.await_arrivals(2);
    let (sender, fired) = mpsc::channel();
    let waking = shards
        .engine()
        .inline()
        .start(move |timer: Fired<'_, u64>| sender.send(timer.payload).expect("heard"));
    let waking = waking.expect("an engine");
    for n in 0..100 {
        waking.handle().schedule(MS, n).expect("room");
        assert_eq!(
            fired.recv_timeout(PATIENCE),
            Ok(n),
            "a blocked worker holds up a handler that runs inline"
        );
    }
    gate.open();
}

/// A handler that runs inline leads a shard: a full lane of another engine on the set is refused, and not awaited.
#[test]
fn an_inline_handler_does_not_wait_for_room_on_its_own_set() {
    within_patience(|| {
        let shards = Builder::new().shards(1).workers(1).start_shards().expect("shards");
        let (full, _) = {
            let log = Log::<u64>::new();
            (shards.engine().lane_capacity(64).start(|_: Fired<'_, u64>| {}).expect("an engine"), log)
        };
        let (sender, refused) = mpsc::channel();
        let handle = full.handle().clone();
        let filling = shards.engine().inline().start(move |_: Fired<'_, u64>| {
            let refused = (0..1_000).find_map(|n| handle.schedule(HOUR, n).err());
            sender.send(refused.map(|error| error.kind)).expect("heard");
        });
        let filling = filling.expect("an engine");
        filling.handle().schedule(MS, 0).expect("room");
        assert_eq!(refused.recv_timeout(PATIENCE), Ok(Some(Refusal::LaneFull)));
    });
}

#[cfg(all(target_os = "linux", feature = "async"))]
fn engine_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.expect("an entry").path().join("comm")).unwrap_or_default()
    };
    tasks.map(name).filter(|name| name.starts_with("tb-shard") || name.starts_with("tb-worker")).count()
}

/// In a process of its own, since the harness runs other tests beside this one.
#[test]
#[cfg(all(target_os = "linux", feature = "async"))]
fn engines_and_futures_share_the_threads_of_a_set_and_the_last_one_ends_them() {
    support::alone("engines_and_futures_share_the_threads_of_a_set_and_the_last_one_ends_them", || {
        use std::future::Future;
        use std::pin::pin;
        use std::task::{Context, Waker};

        let shards = Builder::new().shards(2).workers(3).start_shards().expect("shards");
        let scope = shards.enter();
        let numbers = Engine::new(|_: Fired<'_, u64>| {}).expect("an engine");
        let words = Engine::new(|_: Fired<'_, &str>| {}).expect("an engine");
        numbers.handle().schedule(HOUR, 1).expect("room");
        words.handle().schedule(HOUR, "one").expect("room");
        {
            let mut sleep = pin!(tourbillon::future::sleep(HOUR));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        wait_until("the threads have their names", || engine_threads() == 5);
        thread::sleep(20 * MS);
        assert_eq!(engine_threads(), 5, "three engines on two shards and three workers");
        drop((scope, numbers));
        assert_eq!(engine_threads(), 5, "an engine that ends takes no thread with it");
        drop(words);
        assert_eq!(engine_threads(), 5, "a handle to the set keeps the threads");
        drop(shards);
        // The system lists a thread for a moment after it was joined.
        wait_until("no thread is left without an engine and a handle", || engine_threads() == 0);
    });
}

/// In a process of its own, whose shards no other test starts.
#[test]
fn the_process_shards_are_configured_before_their_first_use_or_not_at_all() {
    support::alone("the_process_shards_are_configured_before_their_first_use_or_not_at_all", || {
        let tick = Duration::from_micros(200);
        Builder::new().shards(1).tick(tick).set_global().expect("no shards are started yet");
        assert_eq!(Shards::current().expect("they are started").tick(), tick);
        let engine = Engine::new(|_: Fired<'_, ()>| {}).expect("an engine");
        assert_eq!((engine.handle().tick(), engine.handle().shards()), (tick, 1));
        let error = Builder::new().set_global().expect_err("they are started");
        assert_eq!(error.to_string(), "the process's shards were started before");
        assert_eq!(Shards::current().expect("they are started").tick(), tick);
    });
}

#[test]
fn a_scope_ends_with_its_guard_and_scopes_nest() {
    let [outer, inner] = [2, 3].map(|ms| Builder::new().tick(ms * MS).driven_shards().expect("a driven set"));
    let current = || Shards::current().expect("entered").tick();
    let scope = outer.shards().enter();
    assert_eq!(current(), 2 * MS);
    {
        let _inner = inner.shards().enter();
        assert_eq!(current(), 3 * MS);
        assert_ne!(
            thread::spawn(|| Shards::current().expect("the process's own").tick()).join().expect("it ends"),
            3 * MS,
            "a scope is its thread's own"
        );
    }
    assert_eq!(current(), 2 * MS);
    drop(scope);
    assert_eq!(current(), MS);
}

#[test]
fn driven_engines_fire_in_step_on_one_clock() {
    let mut shards = driven();
    let log = Log::new();
    let engines: Vec<Engine<u64>> = (0..3)
        .map(|number| {
            let log = log.clone();
            let handler = move |timer: Fired<'_, u64>| log.push((timer.deadline, number, timer.payload));
            shards.shards().engine().start(handler).expect("an engine")
        })
        .collect();
    for n in (0..30).rev() {
        engines[n as usize % 3].handle().schedule(MS * (1 + n), u64::from(n)).expect("room");
    }
    shards.advance(HOUR);
    let fired = log.take();
    assert!(fired.is_sorted() && fired.len() == 30, "the engines fired out of step: {fired:?}");
}

#[test]
fn a_driven_set_forgets_an_engine_that_was_dropped() {
    let mut shards = driven();
    let (witness, count) = witness();
    let engine = shards.shards().engine().start(move |_: Fired<'_, u64>| drop(Arc::clone(&witness)));
    let engine = engine.expect("an engine");
    engine.handle().schedule(HOUR, 1).expect("room");
    shards.advance(MS);
    assert_eq!(count(), 1);
    drop(engine);
    assert_eq!(count(), 0, "the set keeps an engine that was dropped");
    assert_eq!(shards.next_expiry(), None);
}

/// The engine goes on without its driver, as one whose time stands still.
#[test]
fn an_engine_outlives_the_driver_of_its_set() {
    let shards = driven();
    let (engine, log) = logging(shards.shards());
    engine.handle().schedule(MS, 1).expect("room");
    drop(shards);
    engine.handle().schedule(MS, 2).expect("room");
    assert_eq!((engine.handle().shutdown().len(), log.len()), (2, 0));
}

#[test]
#[cfg(feature = "async")]
fn a_future_on_a_driven_set_sleeps_for_a_year_at_once() {
    use tourbillon::{Clock, Timestamp, future};

    let year = 365 * 24 * HOUR;
    let start = Instant::now();
    let mut shards = driven();
    let ticks = shards.block_on(async {
        future::sleep(year).await;
        let mut interval = future::interval(HOUR).expect("not zero");
        let mut ticks = 0;
        let forever = async {
            loop {
                interval.tick().await;
                ticks += 1;
            }
        };
        let ended: Result<(), _> = future::timeout(24 * HOUR, forever).await;
        assert!(ended.is_err());
        ticks
    });
    let ticks = ticks.expect("timers wake it");
    assert!((24..=25).contains(&ticks), "{ticks} ticks in a day");
    assert_eq!(shards.clock().now() - Timestamp::ZERO, year + 24 * HOUR);
    assert!(start.elapsed() < Duration::from_secs(60), "a year passed by the wall clock");
}

/// No timer is pending, so that time stands still until another thread wakes the future.
#[test]
#[cfg(feature = "async")]
fn a_future_that_another_thread_completes_is_awaited_in_real_time() {
    use std::future::poll_fn;
    use std::task::Poll;

    let calls = AtomicU64::new(0);
    driven()
        .block_on(poll_fn(|cx| {
            if calls.fetch_add(1, Ordering::Relaxed) > 0 {
                return Poll::Ready(());
            }
            let waker = cx.waker().clone();
            thread::spawn(move || {
                thread::sleep(5 * MS);
                waker.wake();
            });
            Poll::Pending
        }))
        .expect("a thread wakes it");
    assert_eq!(calls.into_inner(), 2);
}

/// An executor that runs its jobs at once, on the thread that leads the shard.
fn on_the_spot(job: Job) {
    job.run();
}

/// Nothing makes room in a lane while its shard's own thread waits in an executor.
#[test]
fn a_handler_of_an_executor_on_the_shards_thread_does_not_wait_for_room() {
    within_patience(|| {
        let (sender, refused) = mpsc::channel();
        let engine = Builder::new().shards(1).lane_capacity(64).executor(on_the_spot);
        let engine = engine.start(move |timer: Fired<'_, u64>| {
            let refused = (0..1_000).find_map(|n| timer.engine().schedule(HOUR, n).err());
            sender.send(refused.map(|error| error.kind)).expect("heard");
        });
        let engine = engine.expect("an engine");
        engine.handle().schedule(MS, 0).expect("room");
        assert_eq!(refused.recv_timeout(PATIENCE), Ok(Some(Refusal::LaneFull)));
    });
}

#[test]
fn a_handler_of_an_executor_on_the_shards_thread_may_end_another_engine() {
    within_patience(|| {
        let shards = Builder::new().shards(1).workers(1).start_shards().expect("shards");
        let (victim, _) = logging(&shards);
        victim.handle().schedule(HOUR, 1).expect("room");
        let (sender, returned) = mpsc::channel();
        let engine = shards.engine().executor(on_the_spot).start(move |_: Fired<'_, u64>| {
            sender.send(victim.handle().shutdown().len()).expect("heard");
        });
        let engine = engine.expect("an engine");
        engine.handle().schedule(MS, 0).expect("room");
        assert_eq!(returned.recv_timeout(PATIENCE), Ok(1));
    });
}

/// A thread-local that takes its time to end, and counts the ends.
struct SlowEnd(Arc<AtomicU64>);

impl Drop for SlowEnd {
    fn drop(&mut self) {
        thread::sleep(100 * MS);
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local! {
    static SLOW_END: RefCell<Option<SlowEnd>> = const { RefCell::new(None) };
}

/// The threads' code may be unloaded when the drop has returned.
#[test]
fn a_drop_waits_for_threads_that_a_shutdown_inside_a_handler_ended() {
    let ends = Arc::new(AtomicU64::new(0));
    let (sender, ended) = mpsc::channel();
    let noted = Arc::clone(&ends);
    let engine = Builder::new().shards(1).workers(1).start(move |timer: Fired<'_, ()>| {
        SLOW_END.set(Some(SlowEnd(Arc::clone(&noted))));
        sender.send(timer.engine().shutdown().len()).expect("heard");
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule(MS, ()).expect("room");
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(0));
    drop(engine);
    assert_eq!(ends.load(Ordering::SeqCst), 1, "a thread of the engine outlives the drop");
}

#[test]
fn of_two_shutdowns_both_wait_for_the_threads() {
    let ends = Arc::new(AtomicU64::new(0));
    let log = Log::new();
    let (noted, fired) = (Arc::clone(&ends), log.clone());
    let engine = Builder::new().shards(1).workers(1).start(move |_: Fired<'_, ()>| {
        SLOW_END.set(Some(SlowEnd(Arc::clone(&noted))));
        fired.push(());
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule(MS, ()).expect("room");
    wait_until("the handler has run", || log.len() == 1);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                assert!(engine.handle().shutdown().is_empty());
                assert_eq!(ends.load(Ordering::SeqCst), 1, "a thread outlives a shutdown");
            });
        }
    });
}

#[test]
fn a_driven_timer_sees_its_own_time_while_other_threads_end_engines() {
    let mut driven = driven();
    let log = Log::new();
    let (sink, clock) = (log.clone(), driven.clock().clone());
    let engine = driven.shards().engine().start(move |timer: Fired<'_, u64>| {
        sink.push(clock.now() == timer.deadline);
        timer.engine().schedule(MS, 0).expect("room");
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule(MS, 0).expect("room");
    let is_over = AtomicBool::new(false);
    let shards = driven.shards().clone();
    let mut ticks = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1_000 {
                drop(logging(&shards));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            driven.advance(100 * MS);
            ticks += 100;
        }
    });
    let on_time = log.take();
    assert_eq!(
        (on_time.len(), on_time.iter().filter(|&&on_time| !on_time).count()),
        (ticks, 0),
        "firings in all, and firings at another time than the timer's own"
    );
}

/// The handler ends its own engine, which is the last one that the set knows of, and leaves a newcomer behind.
#[test]
fn a_driven_set_keeps_nothing_of_engines_that_ended_in_a_handler() {
    let mut driven = driven();
    let shards = driven.shards().clone();
    let (witness, count) = witness();
    let own: Arc<Mutex<Option<Engine<u64>>>> = Arc::default();
    let slot = Arc::clone(&own);
    let engine = driven.shards().engine().start(move |_: Fired<'_, u64>| {
        let witness = Arc::clone(&witness);
        drop(shards.engine().start(move |_: Fired<'_, u64>| drop(Arc::clone(&witness))));
        drop(lock(&slot).take());
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule(MS, 0).expect("room");
    *lock(&own) = Some(engine);
    driven.clock().advance(MS);
    driven.turn();
    assert!(lock(&own).is_none(), "the handler has not run");
    drop(driven);
    assert_eq!(count(), 0, "an engine is kept");
}

#[test]
fn scopes_that_end_in_another_order_leave_the_other_scope() {
    let [one, other] = [2, 3].map(|ms| Builder::new().tick(ms * MS).driven_shards().expect("a driven set"));
    let [one, other] = [one.shards().enter(), other.shards().enter()];
    drop(one);
    assert_eq!(Shards::current().expect("entered").tick(), 3 * MS, "the wrong scope ended");
    drop(other);
    assert_eq!(Shards::current().expect("the process's own").tick(), MS);
}

/// In a process of its own: a panic in the destructor of a thread-local ends the process.
#[test]
fn a_thread_that_ends_inside_a_scope_may_ask_for_the_current_shards() {
    support::alone("a_thread_that_ends_inside_a_scope_may_ask_for_the_current_shards", || {
        struct Late(Cell<Option<Entered>>);

        impl Drop for Late {
            fn drop(&mut self) {
                let shards = Shards::current().expect("they start");
                drop((self.0.take(), shards.enter()));
            }
        }

        thread_local! {
            static LATE: Late = const { Late(Cell::new(None)) };
        }

        thread::spawn(|| {
            LATE.with(|_| {});
            let scope = driven().shards().enter();
            LATE.with(|late| late.0.set(Some(scope)));
        })
        .join()
        .expect("the thread ends");
        thread::spawn(|| {
            let scope = driven().shards().enter();
            LATE.with(|late| late.0.set(Some(scope)));
        })
        .join()
        .expect("the thread ends");
    });
}

#[test]
fn the_health_of_an_engine_names_another_engines_handler_as_a_cause() {
    let shards = Builder::new().shards(1).workers(1).stall_after(MS).start_shards().expect("shards");
    let gate = Gate::new();
    let at_gate = gate.clone();
    let (engine, _) = logging(&shards);
    let inline = shards.engine().inline().start(move |_: Fired<'_, ()>| at_gate.pass()).expect("an engine");
    inline.handle().schedule(MS, ()).expect("room");
    gate.await_arrival();
    wait_until("the shard is late", || engine.handle().health().condition == Condition::Late);
    let why = engine.handle().health().why;
    gate.open();
    assert!(why.contains("a handler holds it up"), "{why}");
}

/// The future waits for a timer whose moment has come: nothing is left to wait for.
#[test]
#[cfg(feature = "async")]
fn a_timer_that_is_due_already_moves_no_time() {
    use std::task::{Poll, Waker};
    use tourbillon::Timestamp;

    let mut driven = driven();
    driven.advance(HOUR);
    let (waker, log) = (Arc::new(Mutex::new(None::<Waker>)), Log::new());
    let (woken, fired) = (Arc::clone(&waker), log.clone());
    let engine = driven.shards().engine().start(move |_: Fired<'_, ()>| {
        fired.push(());
        lock(&woken).take().expect("the future waits").wake();
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule_at(Timestamp::ZERO, ()).expect("room");
    driven
        .block_on(std::future::poll_fn(|cx| {
            *lock(&waker) = Some(cx.waker().clone());
            if log.len() > 0 { Poll::Ready(()) } else { Poll::Pending }
        }))
        .expect("a handler wakes it");
    assert_eq!(driven.clock().now() - Timestamp::ZERO, HOUR);
}

/// The timer is armed while the future waits: by a thread that has no part in the clock.
#[test]
#[cfg(feature = "async")]
fn a_timer_that_another_thread_arms_moves_the_time_of_a_future_that_waits() {
    within_patience(|| {
        let mut driven = driven();
        let waker = Arc::new(Mutex::new(None::<std::task::Waker>));
        let (fired, woken) = (Arc::new(AtomicBool::new(false)), Arc::clone(&waker));
        let has_fired = Arc::clone(&fired);
        let engine = driven.shards().engine().start(move |_: Fired<'_, ()>| {
            has_fired.store(true, Ordering::SeqCst);
            lock(&woken).take().expect("the future waits").wake();
        });
        let handle = engine.as_ref().expect("an engine").handle().clone();
        let mut is_begun = false;
        driven
            .block_on(std::future::poll_fn(|cx| {
                if fired.load(Ordering::SeqCst) {
                    return std::task::Poll::Ready(());
                }
                *lock(&waker) = Some(cx.waker().clone());
                if !std::mem::replace(&mut is_begun, true) {
                    let handle = handle.clone();
                    thread::spawn(move || {
                        thread::sleep(20 * MS);
                        handle.schedule(HOUR, ()).expect("room");
                    });
                }
                std::task::Poll::Pending
            }))
            .expect("a handler wakes it");
    });
}

/// No waker is left, whether or not timers are pending.
#[test]
#[cfg(feature = "async")]
fn a_future_that_nothing_can_wake_is_an_error() {
    within_patience(|| {
        let mut driven = driven();
        let stuck = driven.block_on(std::future::pending::<()>()).unwrap_err();
        assert_eq!(stuck.to_string(), "the future waits, and nothing is left that could wake it");
        let engine = driven.shards().engine().start(|_: Fired<'_, ()>| {}).expect("an engine");
        engine.handle().schedule(HOUR, ()).expect("room");
        assert_eq!(driven.block_on(std::future::pending::<()>()), Err(stuck));
        assert_eq!(engine.handle().len(), 1, "time stands still");
        // A waker that is dropped without a wake, on another thread.
        let outcome = driven.block_on(std::future::poll_fn(|cx| {
            let waker = cx.waker().clone();
            thread::spawn(move || {
                thread::sleep(5 * MS);
                drop(waker);
            });
            std::task::Poll::<()>::Pending
        }));
        assert_eq!(outcome, Err(stuck));
        assert_eq!(driven.block_on(async { 7 }), Ok(7));
    });
}

#[test]
fn an_engine_that_a_handler_makes_inside_a_turn_is_on_the_driven_shards() {
    let mut shards = driven();
    let made = Arc::new(Mutex::new(None));
    let engine = shards.shards().engine().start({
        let place = Arc::clone(&made);
        move |_: Fired<'_, u64>| *lock(&place) = Some(Engine::new(|_: Fired<'_, u64>| {}).expect("an engine"))
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule(MS, 0).expect("room");
    shards.advance(2 * MS);
    let made = lock(&made).take().expect("the handler made an engine");
    made.handle().schedule(MS, 1).expect("room");
    shards.advance(2 * MS);
    assert_eq!(made.handle().stats().fired, 1, "the engine is on other shards");
}
