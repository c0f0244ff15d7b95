//! Tests stores that fail for a while, lose answers, or are closed. A part of a store that is *away* does not answer to
//! ends of deliveries.

use crate::{Note, PATIENCE, eventually, secs};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon_durable::store::{
    Call, Hook, Hooked, MemoryStore, Op, RedbStore, StoreError, StoreErrorKind, StoreFuture, TimerStore,
};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Durable, Spec};

/// A store in memory that fails as a test orders. [`Failures`] has the orders.
pub(crate) type Failing = Hooked<Failures>;

/// The failures of a [`Failing`] store, as a test has set them.
pub(crate) struct Failures {
    /// The number of changes that still succeed before the store fails.
    pub(crate) good: AtomicU64,
    kind: StoreErrorKind,
    /// Whether a failed change has its effect, so that only its answer is lost.
    has_effect: bool,
    /// The number of changes that have failed so far.
    pub(crate) failed: AtomicU32,
    /// The number of parts of the store. `away` says which parts do not answer to ends of deliveries.
    parts: u32,
    away: Mutex<Away>,
}

/// The parts of a store that do not answer to ends of deliveries, and how they fail.
#[derive(Default)]
struct Away {
    parts: Vec<u32>,
    /// Whether ends of deliveries have their effect at once. If false, the ends have their effect when the part answers
    /// again.
    has_effect: bool,
    /// Whether the answer to the next end of a delivery is lost.
    loses: bool,
    wakers: Vec<Waker>,
}

/// Returns the timer whose delivery the operation ends. `None` if the operation ends no delivery.
fn id_of(op: &Op) -> Option<TimerId> {
    op.ended_delivery().map(|(id, _)| id)
}

impl Failures {
    pub(crate) fn new(kind: StoreErrorKind) -> Self {
        let (good, has_effect) = (AtomicU64::new(u64::MAX), kind == StoreErrorKind::Unknown);
        Self { good, kind, has_effect, failed: AtomicU32::new(0), parts: 0, away: Mutex::default() }
    }

    /// Makes a failing store in memory that has `parts` parts.
    pub(crate) fn with_parts(parts: u32) -> Failing {
        let failures = Self { parts, ..Self::new(StoreErrorKind::Unknown) };
        Hooked::new(Arc::new(MemoryStore::default()), failures)
    }

    /// Makes a part stop answering to ends of deliveries. `has_effect` decides whether the ends have their effect at
    /// once.
    pub(crate) fn leave(&self, part: u32, has_effect: bool) {
        let mut away = self.away.lock().unwrap();
        away.parts.push(part);
        away.has_effect = has_effect;
    }

    /// Makes all parts answer to ends of deliveries again. With `loses` the first answer is lost.
    pub(crate) fn come_back(&self, loses: bool) {
        let wakers = {
            let mut away = self.away.lock().unwrap();
            away.parts.clear();
            away.loses = loses;
            core::mem::take(&mut away.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until a part answers to ends of deliveries.
    async fn answers(&self, part: u32) {
        std::future::poll_fn(|context| {
            let mut away = self.away.lock().unwrap();
            if !away.parts.contains(&part) {
                return Poll::Ready(());
            }
            away.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Makes the change that `act` calls, or fails. A failed change may still have its effect.
    fn change<'a, T: Send + 'a>(&self, act: impl FnOnce() -> StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        let spend = |good: u64| if good == u64::MAX { Some(good) } else { good.checked_sub(1) };
        if self.good.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend).is_ok() {
            return act();
        }
        self.failed.fetch_add(1, Ordering::SeqCst);
        if self.has_effect {
            // A store in memory has made the change when it returns the future.
            drop(act());
        }
        Box::pin(std::future::ready(Err(self.lost())))
    }

    fn lost(&self) -> StoreError {
        StoreError::new(self.kind, "on command")
    }
}

/// The kind of a call to the store. The kind decides how the call can fail.
pub(crate) enum Kind {
    /// The call ends deliveries of timers that are in this part of the store.
    Ends(u32),
    Change,
    Read,
}

impl Hook for Failures {
    type Seen = Kind;

    fn see(&self, call: Call<'_>) -> Kind {
        let part = |id: &TimerId| u32::try_from(id.as_u128() % u128::from(self.parts)).unwrap();
        match call {
            Call::Apply(ops) if self.parts > 0 => {
                let parts: Vec<u32> = ops.iter().filter_map(id_of).map(|id| part(&id)).collect();
                let Some(part) = parts.first().copied() else { return Kind::Change };
                assert!(parts.iter().all(|other| *other == part), "the ends of one call are of one part");
                Kind::Ends(part)
            }
            Call::Apply(_) | Call::Claim | Call::Renew | Call::Reap | Call::PutBack => Kind::Change,
            _ => Kind::Read,
        }
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        kind: Kind,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let part = match kind {
            Kind::Read => return pass_on(),
            Kind::Change => return self.change(pass_on),
            Kind::Ends(part) => part,
        };
        Box::pin(async move {
            let has_effect_first = {
                let away = self.away.lock().unwrap();
                away.parts.contains(&part) && away.has_effect
            };
            if !has_effect_first {
                self.answers(part).await;
                return pass_on().await;
            }
            let answer = pass_on().await?;
            self.answers(part).await;
            if core::mem::take(&mut self.away.lock().unwrap().loses) {
                self.failed.fetch_add(1, Ordering::SeqCst);
                return Err(self.lost());
            }
            Ok(answer)
        })
    }

    fn parts(&self, _: &dyn TimerStore) -> u32 {
        self.parts
    }

    fn part_of(&self, _: &dyn TimerStore, id: TimerId) -> u32 {
        u32::try_from(id.as_u128() % u128::from(self.parts.max(1))).unwrap()
    }
}

/// Makes a store fail again and again under load, with errors of the kind `kind`. Asserts that each timer is still
/// delivered, and always under its own id.
fn outages(kind: StoreErrorKind) {
    let inner: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
    let failing = Arc::new(Hooked::new(Arc::clone(&inner), Failures::new(kind)));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let store: Arc<dyn TimerStore> = Arc::<Failing>::clone(&failing);
    let durable = Durable::builder_on(store)
        .lease(secs(2))
        .handler(move |Note(number), delivery| {
            noted.lock().unwrap().push((number, delivery.id));
            async {}
        })
        .start()
        .unwrap();
    let timers = durable.handle();
    let end = Instant::now() + secs(3);
    let mut placed = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                failing.hook().good.store(20, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(60));
                failing.hook().good.store(u64::MAX, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(120));
            }
        });
        while Instant::now() < end {
            let id = TimerId::from_u128(1 + u128::from(placed));
            // With its chosen id the call can be repeated, whether or not the first call had an effect.
            while timers.schedule_blocking(Spec::new(Note(placed)).id(id)).is_err() {
                std::thread::sleep(Duration::from_millis(5));
            }
            placed += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(failing.hook().failed.load(Ordering::SeqCst) > 5, "the store has failed");
    eventually(|| crate::phases(&*inner).is_empty());
    let stats = durable.shutdown(PATIENCE);
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.sort_unstable();
    seen.dedup();
    let all: Vec<_> =
        (0..placed).map(|number| (number, TimerId::from_u128(1 + u128::from(number)))).collect();
    assert_eq!(seen, all, "each timer, and under its id");
    assert!(stats.store_errors > 0);
    assert_eq!(pollster::block_on(inner.check()).unwrap(), []);
}

#[test]
fn a_store_that_fails_for_a_while_loses_nothing() {
    outages(StoreErrorKind::Io);
}

#[test]
fn answers_that_are_lost_lose_nothing() {
    outages(StoreErrorKind::Unknown);
}

/// Tests a runtime on a closed store. The runtime calls the store only now and then, and the health of the runtime
/// reports the failure.
#[test]
fn a_store_that_has_closed_is_asked_now_and_then() {
    let failing =
        Arc::new(Hooked::new(Arc::new(MemoryStore::default()), Failures::new(StoreErrorKind::Closed)));
    let store: Arc<dyn TimerStore> = Arc::<Failing>::clone(&failing);
    let durable = Durable::builder_on(store).handler(async |_: Note, _| {}).start().unwrap();
    durable.handle().schedule_blocking(Spec::new(Note(1)).after(secs(3_600))).unwrap();
    failing.hook().good.store(0, Ordering::SeqCst);
    for _ in 0..50 {
        durable.handle().look();
        std::thread::sleep(Duration::from_millis(10));
    }
    let failed = failing.hook().failed.load(Ordering::SeqCst);
    assert!((1..20).contains(&failed), "{failed} calls in half a second");
    assert!(matches!(durable.handle().health(), tourbillon_durable::Health::StoreFails { .. }));
}

/// Tests that handlers keep their deliveries while the store fails for a shorter time than a lease.
#[test]
fn a_store_that_is_back_before_the_leases_end_finds_them_renewed() {
    let inner: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
    let failing = Arc::new(Hooked::new(inner, Failures::new(StoreErrorKind::Io)));
    let store: Arc<dyn TimerStore> = Arc::<Failing>::clone(&failing);
    let builder = Durable::builder_on(store).lease(secs(4));
    let durable = builder.blocking_handler(|_: Note, _| std::thread::sleep(secs(8))).start().unwrap();
    durable.handle().schedule_blocking(Spec::new(Note(1))).unwrap();
    eventually(|| durable.handle().stats().running == 1);
    failing.hook().good.store(0, Ordering::SeqCst);
    std::thread::sleep(secs(2));
    failing.hook().good.store(u64::MAX, Ordering::SeqCst);
    eventually(|| durable.handle().stats().done == 1);
    let stats = durable.shutdown(secs(1));
    assert_eq!((stats.delivered, stats.leases_lost), (1, 0));
}

#[test]
fn a_stop_under_load_frees_all_leases_at_once() {
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
    let builder = Durable::builder_on(Arc::clone(&store)).workers(64);
    let durable = builder
        .handler(|Note(number), _| async move {
            if number % 2 == 0 {
                std::future::pending::<()>().await;
            }
        })
        .start()
        .unwrap();
    let place = durable.handle().clone();
    let placing = std::thread::spawn(move || {
        let mut placed = 0;
        while place.schedule_blocking(Spec::new(Note(placed))).is_ok() {
            placed += 1;
        }
        placed
    });
    eventually(|| durable.handle().stats().running == 64);
    std::thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    let stats = durable.shutdown(Duration::ZERO);
    let took = begin.elapsed();
    println!("all leases were free after {took:?}");
    // On an idle machine this takes milliseconds.
    assert!(took < secs(10), "{took:?}");
    let placed = placing.join().unwrap();
    let left = crate::phases(&*store);
    let pending = left.get(&tourbillon_durable::state::Phase::Pending).copied().unwrap_or(0);
    assert_eq!(left.len(), 1, "no lease is left: {left:?}");
    assert_eq!(pending + stats.done, placed, "{stats:?}");
}

/// Tests that the end of a runtime closes its store. The next runtime can open the file.
#[test]
fn a_file_can_be_opened_again_after_the_end_of_a_runtime() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=30 {
        // Another test of this process may be starting a program. The child shares the lock until its exec.
        let deadline = Instant::now() + secs(5);
        let store = loop {
            match RedbStore::open(folder.path().join("timers.redb")) {
                Ok(store) => break store,
                Err(error) if error.kind() == StoreErrorKind::Locked && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{round}: {error}"),
            }
        };
        let durable = Durable::builder(store).handler(async |_: Note, _| {}).start().unwrap();
        durable.handle().schedule_blocking(Spec::new(Note(round))).unwrap();
        eventually(|| durable.handle().stats().done == 1);
        drop(durable);
    }
}

/// Tests a process that ends directly after its runtime, with the store still open.
#[test]
fn a_stop_keeps_the_ends_of_the_last_deliveries() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("timers.redb"), folder.path().join("copy.redb"));
    let durable =
        Durable::builder(RedbStore::open(&file).unwrap()).handler(async |_: Note, _| {}).start().unwrap();
    let store_stays_open = durable.handle().clone();
    for number in 0..20 {
        store_stays_open.schedule_blocking(Spec::new(Note(number))).unwrap();
    }
    eventually(|| durable.handle().stats().delivered == 20);
    let stats = durable.shutdown(secs(20));
    assert_eq!((stats.done, stats.released), (20, 0));
    // A process that ended here would leave these files.
    for file in [file, folder.path().join("timers.redb.ops")] {
        std::fs::copy(&file, file.to_str().unwrap().replace("timers", "copy")).unwrap();
    }
    drop(store_stays_open);
    let left = crate::phases(&RedbStore::open(copy).unwrap());
    assert!(left.is_empty(), "delivered again: {left:?}");
}
