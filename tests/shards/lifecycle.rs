//! The ends of engines, sets and scopes, and the threads that wait for these ends.

use crate::driven;
use crate::support::{HOUR, Log, MS, PATIENCE, alone, wait_until};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Engine, Entered, Fired, Shards};

#[cfg(all(target_os = "linux", feature = "async"))]
fn engine_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.expect("an entry").path().join("comm")).unwrap_or_default()
    };
    tasks.map(name).filter(|name| name.starts_with("tb-shard") || name.starts_with("tb-worker")).count()
}

/// A set's engines and futures share its threads. The test has its own process, because the harness runs other tests at
/// the same time.
#[test]
#[cfg(all(target_os = "linux", feature = "async"))]
fn engines_and_futures_share_the_threads_of_a_set_and_the_last_one_ends_them() {
    alone("lifecycle::engines_and_futures_share_the_threads_of_a_set_and_the_last_one_ends_them", || {
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
        // The system still lists a thread for a moment after it was joined.
        wait_until("no thread is left without an engine and a handle", || engine_threads() == 0);
    });
}

/// The process's shards are configured before their first use or not at all. The test has its own process, whose shards
/// no other test starts.
#[test]
fn the_process_shards_are_configured_before_their_first_use_or_not_at_all() {
    alone("lifecycle::the_process_shards_are_configured_before_their_first_use_or_not_at_all", || {
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

/// A thread-local value with a slow drop. The number counts the drops.
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

/// A shutdown inside a handler has ended the threads of a set. The set's drop waits for the threads, because the
/// program may then unload their code.
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
fn scopes_that_end_in_another_order_leave_the_other_scope() {
    let [one, other] = [2, 3].map(|ms| Builder::new().tick(ms * MS).driven_shards().expect("a driven set"));
    let [one, other] = [one.shards().enter(), other.shards().enter()];
    drop(one);
    assert_eq!(Shards::current().expect("entered").tick(), 3 * MS, "the wrong scope ended");
    drop(other);
    assert_eq!(Shards::current().expect("the process's own").tick(), MS);
}

/// A thread ends inside a scope of shards, and may still ask for the current shards. The test has its own process,
/// because a panic in the destructor of a thread-local ends the process.
#[test]
fn a_thread_that_ends_inside_a_scope_may_ask_for_the_current_shards() {
    alone("lifecycle::a_thread_that_ends_inside_a_scope_may_ask_for_the_current_shards", || {
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
