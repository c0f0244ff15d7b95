//! Tests the thread that writes: foreign code that panics on it, and the drop of the last reference to the store.

use pollster::block_on;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, IfPresent, Op, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Durable, Spec, UtcMillis};
use tourbillon_sqlite::rusqlite::Connection;
use tourbillon_sqlite::{SqliteStore, Transactional};

const PATIENCE: Duration = Duration::from_secs(20);

/// Opens the store as soon as the thread of its last owner has ended.
fn open(path: &std::path::Path) -> SqliteStore {
    let begun = Instant::now();
    loop {
        match SqliteStore::open(path) {
            Err(error) if error.kind() == StoreErrorKind::Locked && begun.elapsed() < PATIENCE => {
                std::thread::yield_now();
            }
            opened => return opened.unwrap(),
        }
    }
}

/// A function that the store calls on its thread drops the last reference to the store. The thread cannot wait for
/// itself. It ends all the same, and the next store has all timers.
#[test]
fn the_last_reference_may_be_dropped_on_the_thread_that_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    for round in 0..5 {
        let store = Arc::new(open(&path));
        assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), round);
        let last = Mutex::new(Some(Arc::clone(&store)));
        let (alone, is_alone) = mpsc::channel();
        let (dropped, was_dropped) = mpsc::channel();
        let is_alone = Mutex::new(is_alone);
        store.subscribe(Box::new(move || {
            let Some(store) = last.lock().unwrap().take() else { return };
            is_alone.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            dropped.send(catch_unwind(AssertUnwindSafe(|| drop(store))).is_ok()).unwrap();
        }));
        let timer = Timer::new(TimerId::fresh(), "job", UtcMillis::MAX);
        // The store makes the change although nobody waits for the answer.
        drop(store.apply(vec![Op::Place(Box::new(timer), IfPresent::Reject)], Durability::PowerLoss));
        drop(store);
        alone.send(()).unwrap();
        assert!(was_dropped.recv_timeout(PATIENCE).unwrap(), "the drop has panicked in round {round}");
    }
}

/// While another connection commits timers that are due ever earlier, the store's thread wakes the runtime again and
/// again. The runtime never drops the store on this thread, so the store is closed when the last drop has returned.
#[test]
fn a_store_is_closed_after_the_drop_of_its_runtime_beside_commits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    for round in 0..60_u64 {
        let store = SqliteStore::builder().look_every(Duration::from_millis(1)).open(&path).unwrap();
        let store_of_wakes = store.transactional();
        let durable = Durable::builder(store).bytes_handler("job", async |_, _| {}).start().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let connection = Connection::open(&path).unwrap();
                connection.busy_timeout(PATIENCE).unwrap();
                connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
                let mut due = 4_000_000_000_000 - round * 1_000_000_000;
                while !is_over.load(Ordering::SeqCst) {
                    due -= 1_000;
                    let spec = Spec::new(Vec::new()).at(UtcMillis::from_millis(due));
                    Transactional::default().schedule_bytes(&connection, "job", spec).unwrap();
                    store_of_wakes.wake();
                }
            });
            std::thread::sleep(Duration::from_micros(500 + 97 * round));
            let timers = durable.handle().clone();
            drop(durable);
            drop(timers);
            let opened = SqliteStore::open(&path).map(drop);
            is_over.store(true, Ordering::SeqCst);
            assert!(opened.is_ok(), "{opened:?} in round {round}");
        });
    }
}

/// The payload of a panic whose drop panics with another such payload.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(Self));
    }
}

/// A waker that panics.
struct Explodes;

impl Wake for Explodes {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new(Bomb));
    }
}

/// A subscriber of the store and the waker of a caller panic on the thread that writes. The thread goes on.
#[test]
fn a_panic_of_foreign_code_does_not_end_the_thread_that_writes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("shop.db"));
    store.subscribe(Box::new(|| std::panic::resume_unwind(Box::new(Bomb))));
    let place = || {
        let timer = Timer::new(TimerId::fresh(), "job", UtcMillis::MAX);
        vec![Op::Place(Box::new(timer), IfPresent::Reject)]
    };
    let waker = Waker::from(Arc::new(Explodes));
    let mut call = store.apply(place(), Durability::PowerLoss);
    let _pending = call.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(block_on(store.apply(place(), Durability::PowerLoss)).is_ok());
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), 2);
}
