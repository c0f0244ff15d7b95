//! Tests answers of a store that come from other threads: the runtime's loop misses no wake-up.
//!
//! The leases are long, so no renewal wakes a loop that has missed an answer. Such a loop would wait for ten minutes.

use crate::{Note, PATIENCE, eventually, secs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::store::{Call, Hook, Hooked, MemoryStore, Op, StoreFuture, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Durable, Incident, Spec, Verdict};

const LEASE: Duration = Duration::from_secs(1_800);

/// The way in which a call to the store gets its answer and wakes the caller.
#[derive(Clone, Copy, Debug)]
enum Wake {
    /// The call wakes the caller on the caller's own thread, during the poll.
    DuringThePoll,
    /// Another thread wakes the caller at once.
    AtOnce,
    /// Another thread wakes the caller after a time, in microseconds.
    After(u64),
    /// Another thread wakes the caller twice. At the first wake, the call has no answer yet.
    Twice,
}

/// A hook that answers a call to the store only after the caller was woken. In most cases, another thread wakes the
/// caller.
struct Slow {
    rng: Mutex<fastrand::Rng>,
    waking: Mutex<Sender<(Wake, Waker, Arc<AtomicBool>)>>,
    parts: u32,
}

impl Slow {
    fn new(seed: u64, parts: u32) -> Self {
        let (waking, calls) = channel();
        thread::spawn(move || wake(&calls));
        Self { rng: Mutex::new(fastrand::Rng::with_seed(seed)), waking: Mutex::new(waking), parts }
    }
}

/// Answers calls to the store and wakes their callers, in the order of the calls, until the store is dropped.
fn wake(calls: &Receiver<(Wake, Waker, Arc<AtomicBool>)>) {
    for (wake, waker, is_answered) in calls {
        match wake {
            Wake::DuringThePoll | Wake::AtOnce => {}
            Wake::After(micros) => thread::sleep(Duration::from_micros(micros)),
            Wake::Twice => {
                waker.wake_by_ref();
                thread::yield_now();
            }
        }
        is_answered.store(true, Ordering::SeqCst);
        waker.wake();
    }
}

impl Hook for Slow {
    type Seen = Wake;

    fn see(&self, _: Call<'_>) -> Wake {
        let mut rng = self.rng.lock().unwrap();
        match rng.u8(0..4) {
            0 => Wake::DuringThePoll,
            1 => Wake::AtOnce,
            2 => Wake::Twice,
            _ => Wake::After(rng.u64(0..300)),
        }
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        wake: Wake,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let answer = pass_on().await;
            let is_answered = Arc::new(AtomicBool::new(false));
            let mut is_asked = false;
            std::future::poll_fn(|context| {
                if is_answered.load(Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                // Only the waker of the first poll is kept. Later polls have the same waker.
                if !core::mem::replace(&mut is_asked, true) {
                    let waker = context.waker().clone();
                    match wake {
                        Wake::DuringThePoll => {
                            is_answered.store(true, Ordering::SeqCst);
                            waker.wake();
                        }
                        _ => {
                            let call = (wake, waker, Arc::clone(&is_answered));
                            self.waking.lock().unwrap().send(call).unwrap();
                        }
                    }
                }
                Poll::Pending
            })
            .await;
            answer
        })
    }

    fn parts(&self, _: &dyn TimerStore) -> u32 {
        self.parts
    }

    fn part_of(&self, _: &dyn TimerStore, id: TimerId) -> u32 {
        u32::try_from(id.as_u128() % u128::from(self.parts.max(1))).unwrap()
    }
}

/// Runs a runtime for each seed, on a store that answers from other threads. The runtime gets timers one by one and in
/// crowds, fetches parked timers, and is then stopped.
fn lives(parts: u32) {
    for seed in 0..crate::number_of("TOURBILLON_SEEDS", 6) {
        let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), Slow::new(seed, parts)));
        let seen = Mutex::new(BTreeSet::new());
        let durable = Durable::builder_on(Arc::<Hooked<Slow>>::clone(&store))
            .lease(LEASE)
            .workers(4)
            .catch_up_rate(None)
            .handler(move |Note(number), delivery| {
                let is_first = seen.lock().unwrap().insert(number);
                async move {
                    match number % 3 {
                        0 if delivery.attempt == 1 => {
                            Verdict::Retry { error: "once more".into(), after: Some(Duration::ZERO) }
                        }
                        1 if is_first => Verdict::Park("busy".into()),
                        _ => Verdict::Done,
                    }
                }
            })
            .start()
            .unwrap();
        let timers = durable.handle();
        let (mut rng, mut placed) = (fastrand::Rng::with_seed(seed), 0);
        for _ in 0..40 {
            for _ in 0..rng.u64(1..4) {
                timers.schedule_blocking(Spec::new(Note(placed))).unwrap();
                placed += 1;
            }
            if rng.bool() {
                // Fetched timers compete with those that are due.
                let _some = pollster::block_on(timers.fetch("busy", 1, 2)).unwrap();
            }
            if rng.bool() {
                let settled = timers.await_idle(PATIENCE);
                assert!(settled, "seed {seed}: the loop sleeps: {timers:?}");
            }
        }
        let begin = Instant::now();
        while timers.stats().done < placed {
            let left = crate::phases(&**store.inner());
            let is_late = begin.elapsed() > PATIENCE;
            assert!(!is_late, "seed {seed}: of {placed} timers are left {left:?}: {:?}", timers.stats());
            assert!(timers.await_idle(PATIENCE), "seed {seed}: the loop sleeps: {timers:?}");
            let _some = timers.unpark_blocking("busy", 100).unwrap();
        }
        assert_eq!(crate::phases(&**store.inner()), BTreeMap::new(), "seed {seed}");
        let stats = durable.shutdown(PATIENCE);
        assert_eq!((stats.ends_lost, stats.leases_lost), (0, 0), "seed {seed}");
        assert_eq!(pollster::block_on(store.inner().check()).unwrap(), [], "seed {seed}");
    }
}

#[test]
fn answers_from_other_threads_wake_the_loop() {
    lives(0);
}

#[test]
fn answers_of_parts_from_other_threads_wake_the_loop() {
    lives(4);
}

/// A hook that panics once, in a call whose kind a test has chosen.
#[derive(Default)]
struct Panicking {
    kind: Mutex<Option<&'static str>>,
    panics: AtomicU64,
    renewals: AtomicU64,
}

impl Hook for Panicking {
    type Seen = bool;

    fn see(&self, call: Call<'_>) -> bool {
        let name = match call {
            Call::Apply(ops) if ops.iter().any(|op| matches!(op, Op::Ack(..))) => "end",
            Call::Claim => "claim",
            Call::Renew => "renew",
            Call::Reap => "reap",
            _ => "other",
        };
        self.renewals.fetch_add(u64::from(name == "renew"), Ordering::SeqCst);
        self.kind.lock().unwrap().take_if(|kind| *kind == name).is_some()
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        panics: bool,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            if panics {
                self.panics.fetch_add(1, Ordering::SeqCst);
                std::panic::resume_unwind(Box::new("on command"));
            }
            pass_on().await
        })
    }
}

/// Tests that the leases of running handlers are still renewed after a panic of the store in any call. So no timer is
/// delivered a second time while its handler runs.
#[test]
fn a_panic_of_the_store_ends_no_renewals() {
    for kind in ["renew", "reap", "claim", "end"] {
        let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), Panicking::default()));
        let goes_on = Arc::new(AtomicBool::new(true));
        let runs = Arc::clone(&goes_on);
        let durable = Durable::builder_on(Arc::<Hooked<Panicking>>::clone(&store))
            .lease(secs(1))
            .workers(2)
            .blocking_handler(move |Note(number), _| {
                while number == 0 && runs.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
            })
            .start()
            .unwrap();
        let timers = durable.handle();
        timers.schedule_blocking(Spec::new(Note(0))).unwrap();
        eventually(|| timers.stats().running == 1);
        let hook = store.hook();
        *hook.kind.lock().unwrap() = Some(kind);
        // This timer brings a claim and an end, since some kinds wait for them.
        timers.schedule_blocking(Spec::new(Note(1))).unwrap();
        eventually(|| hook.panics.load(Ordering::SeqCst) == 1);
        let before = hook.renewals.load(Ordering::SeqCst);
        thread::sleep(secs(3));
        let renewals = hook.renewals.load(Ordering::SeqCst) - before;
        assert!(renewals >= 3, "{kind}: {renewals} renewals in three lengths of a lease");
        assert_eq!(timers.stats().leases_lost, 0, "{kind}");
        goes_on.store(false, Ordering::SeqCst);
        *hook.kind.lock().unwrap() = None;
        eventually(|| crate::phases(&*store).is_empty());
        let stats = durable.shutdown(PATIENCE);
        assert_eq!(stats.leases_lost, 0, "{kind}");
    }
}

/// Tests that a stop of the runtime wakes the delivery loop, the loop that claims due timers. The loop sleeps until a
/// far moment.
#[test]
fn a_stop_wakes_a_loop_that_waits_for_a_far_timer() {
    let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), Slow::new(1, 0)));
    let incidents = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&incidents);
    let durable = Durable::builder_on(store)
        .lease(LEASE)
        .on_incident(move |_: &Incident| {
            seen.fetch_add(1, Ordering::SeqCst);
        })
        .handler(async |_: Note, _| {})
        .start()
        .unwrap();
    durable.handle().schedule_blocking(Spec::new(Note(1)).after(secs(3_600))).unwrap();
    assert!(durable.handle().await_idle(PATIENCE));
    let begin = Instant::now();
    assert_eq!(durable.shutdown(PATIENCE).released, 0);
    assert!(begin.elapsed() < secs(20), "{:?}", begin.elapsed());
    assert_eq!(incidents.load(Ordering::SeqCst), 0);
}
