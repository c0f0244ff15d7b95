//! Tests timers that are delivered at most once: what happens between their claim, the removal at which their delivery
//! begins, and the call of their handler.

use crate::{Note, eventually, secs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon_durable::state::{Phase, Refusal, State};
use tourbillon_durable::store::{
    Call, Durability, Hook, Hooked, IfPresent, MemoryStore, Op, Outcome, StoreError, StoreErrorKind,
    StoreFuture, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Builder, Durable, Ending, Event, Spec, UtcMillis, Verdict};

pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// The answer of the store to the first removal that it gets.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Normal,
    /// The store gets this operation just before the removal.
    After(Op),
    /// The store gets the end of the lease just before the removal, as if the lease had expired.
    WithoutLease,
    /// The removal takes effect, or does not, and its answer is lost.
    Unknown {
        has_effect: bool,
    },
    /// Each removal fails for good, until the runtime has given it up.
    Broken,
    /// No removal reaches the store, which may answer again later.
    Away,
    /// The store cannot have the first removal durable for now.
    Refused,
    /// The store cannot have any removal durable.
    Unable,
    /// A transaction of another program holds the timer for so many tries.
    Held(usize),
    /// The first removal does not reach the store before the gate opens. Then it has its effect, or fails.
    Late {
        fails: bool,
    },
    /// No removal reaches the store before the gate opens.
    Silent,
    /// Each removal takes this time, as on a server that syncs its disk once a second.
    Slow(Duration),
}

#[derive(Default)]
struct Gate {
    is_open: bool,
    wakers: Vec<Waker>,
}

/// A hook that decides the fate of removals, and keeps their durabilities and the sizes of their calls.
pub(crate) struct Fates {
    pub(crate) fate: Mutex<Fate>,
    durabilities: Mutex<Vec<Durability>>,
    pub(crate) sizes: Mutex<Vec<usize>>,
    gate: Mutex<Gate>,
    /// While true, the thread of the runtime's engine stands still when it reads the store's clock.
    pub(crate) stalls: AtomicBool,
    pub(crate) has_stalled: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fates {
    pub(crate) fn new(fate: Fate) -> Self {
        Self {
            fate: Mutex::new(fate),
            durabilities: Mutex::default(),
            sizes: Mutex::default(),
            gate: Mutex::default(),
            stalls: AtomicBool::new(false),
            has_stalled: AtomicBool::new(false),
        }
    }

    pub(crate) fn open(&self) {
        let mut gate = lock(&self.gate);
        gate.is_open = true;
        gate.wakers.drain(..).for_each(Waker::wake);
    }

    async fn wait(&self) {
        std::future::poll_fn(|context| {
            let mut gate = lock(&self.gate);
            if gate.is_open {
                return Poll::Ready(());
            }
            gate.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Waits for this time. The waker is called by a thread.
async fn wait_for(time: Duration) {
    let until = Instant::now() + time;
    std::future::poll_fn(|context| {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        std::thread::spawn(move || {
            std::thread::sleep(rest);
            waker.wake();
        });
        Poll::Pending
    })
    .await;
}

impl Hook for Fates {
    type Seen = ();

    fn see(&self, _: Call<'_>) {}

    fn now(&self, store: &dyn TimerStore) -> UtcMillis {
        let is_engine = std::thread::current().name().is_some_and(|name| name.starts_with("tb-shard"));
        while is_engine && self.stalls.load(Ordering::SeqCst) {
            self.has_stalled.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        store.now()
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        (): (),
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        pass_on()
    }

    fn apply<'a>(
        &'a self,
        store: &'a dyn TimerStore,
        ops: Vec<Op>,
        durability: Durability,
    ) -> StoreFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let removal = ops.iter().find_map(|op| match op {
                Op::Skip(id, token) => Some((*id, *token)),
                _ => None,
            });
            let Some((id, token)) = removal else { return store.apply(ops, durability).await };
            lock(&self.durabilities).push(durability);
            lock(&self.sizes).push(ops.len());
            let fate = {
                let mut fate = lock(&self.fate);
                let next = match &*fate {
                    Fate::Held(tries @ 1..) => Fate::Held(tries - 1),
                    Fate::Broken => Fate::Broken,
                    Fate::Away => Fate::Away,
                    Fate::Unable => Fate::Unable,
                    Fate::Silent => Fate::Silent,
                    Fate::Slow(time) => Fate::Slow(*time),
                    _ => Fate::Normal,
                };
                std::mem::replace(&mut *fate, next)
            };
            match fate {
                Fate::Normal | Fate::Held(0) => {}
                Fate::After(op) => drop(store.apply(vec![op], durability).await?),
                Fate::WithoutLease => drop(store.apply(vec![Op::Release(id, token)], durability).await?),
                Fate::Unknown { has_effect } => {
                    if has_effect {
                        store.apply(ops, durability).await?;
                    }
                    return Err(StoreError::new(StoreErrorKind::Unknown, "the answer is lost"));
                }
                Fate::Away => return Err(StoreError::new(StoreErrorKind::Io, "it is away")),
                Fate::Refused | Fate::Unable => {
                    return Ok(vec![Outcome::Refused(Refusal::State(Phase::Leased)); ops.len()]);
                }
                Fate::Broken => return Err(StoreError::new(StoreErrorKind::Corrupt, "it is broken")),
                Fate::Held(_) => return Ok(vec![Outcome::Held; ops.len()]),
                Fate::Late { fails: false } | Fate::Silent => self.wait().await,
                Fate::Slow(time) => wait_for(time).await,
                Fate::Late { fails: true } => {
                    self.wait().await;
                    return Err(StoreError::new(StoreErrorKind::Io, "it is away"));
                }
            }
            store.apply(ops, durability).await
        })
    }
}

/// The numbers of the timers whose handlers were called, each with the stored timer at the call.
pub(crate) type Calls = Arc<Mutex<Vec<(u64, Option<Timer>)>>>;

/// A runtime whose handler notes its calls.
pub(crate) struct World {
    pub(crate) store: Arc<Hooked<Fates>>,
    pub(crate) durable: Durable,
    pub(crate) calls: Calls,
    events: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub(crate) fn new(fate: Fate, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), Fates::new(fate)));
        let (calls, events) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (called, observed, read) = (Arc::clone(&calls), Arc::clone(&events), Arc::clone(&store));
        let builder = Durable::builder_on(Arc::<Hooked<Fates>>::clone(&store))
            .lease(LEASE)
            .observe(move |event| {
                let word = match event {
                    Event::Began { .. } => "began".to_owned(),
                    Event::Ended { ending: Ending::GivenBack, phase, .. } => format!("given back: {phase:?}"),
                    Event::Ended { ending: Ending::Answered(_), phase, .. } => format!("answered: {phase:?}"),
                    Event::LeaseLost { may_be_removed: true, .. } => "lost its lease perhaps".to_owned(),
                    Event::LeaseLost { .. } => "lost its lease".to_owned(),
                    Event::EndLost { may_be_removed: true, .. } => "lost its end perhaps".to_owned(),
                    Event::EndLost { .. } => "lost its end".to_owned(),
                    _ => return,
                };
                lock(&observed).push(word);
            })
            .handler(move |Note(number), delivery| {
                let stored = pollster::block_on(read.get(delivery.id.into())).unwrap();
                lock(&called).push((number, stored));
                async {}
            });
        let durable = settings(builder).start().unwrap();
        Self { store, durable, calls, events }
    }

    pub(crate) fn schedule(&self, number: u64) -> TimerId {
        let spec = Spec::new(Note(number)).id(TimerId::from_u128(number.into())).key(format!("key {number}"));
        self.durable.handle().schedule_blocking(spec.at_most_once()).unwrap().id()
    }

    pub(crate) fn events(&self) -> Vec<String> {
        lock(&self.events).clone()
    }

    pub(crate) fn is_idle(&self) {
        assert!(self.durable.handle().await_idle(secs(20)), "{:?}", self.durable.handle());
    }

    /// Asserts the numbers of the timers whose handlers were called. None of these timers was stored at the call.
    #[track_caller]
    pub(crate) fn assert_called(&self, numbers: &[u64]) {
        let calls = lock(&self.calls);
        assert_eq!(calls.iter().map(|(number, _)| *number).collect::<Vec<_>>(), numbers);
        assert!(calls.iter().all(|(_, stored)| stored.is_none()), "{calls:?}");
    }

    fn phase(&self, number: u64) -> Option<Phase> {
        let id = TimerId::from_u128(number.into());
        pollster::block_on(self.store.get(id.into())).unwrap().map(|timer| timer.state.phase())
    }
}

#[test]
fn the_store_has_removed_a_timer_durably_before_its_handler_is_called() {
    let world = World::new(Fate::Normal, |builder| builder);
    for number in 1..=20 {
        world.schedule(number);
    }
    eventually(|| world.durable.handle().stats().done == 20);
    world.is_idle();
    lock(&world.calls).sort_by_key(|(number, _)| *number);
    world.assert_called(&(1..=20).collect::<Vec<_>>());
    let durabilities = lock(&world.store.hook().durabilities).clone();
    assert!(!durabilities.is_empty());
    assert!(durabilities.iter().all(|durability| *durability == Durability::PowerLoss), "{durabilities:?}");
    assert_eq!(world.events().iter().filter(|event| **event == "answered: Done").count(), 20);
}

#[test]
fn a_timer_that_is_withdrawn_before_its_removal_is_not_delivered() {
    let id = TimerId::from_u128(1);
    let new = Timer {
        key: Some("key 1".into()),
        payload: tourbillon_durable::timer::Payload(b"2".to_vec().into()),
        ..Timer::new(TimerId::from_u128(2), "note", UtcMillis::ZERO)
    };
    let cancel = Op::Cancel(id.into(), None);
    let replace = Op::Place(Box::new(new), IfPresent::Replace);
    for (op, is_replaced) in [(cancel, false), (replace, true)] {
        let world = World::new(Fate::After(op), |builder| builder);
        world.schedule(1);
        eventually(|| !world.events().is_empty());
        world.is_idle();
        assert_eq!(world.events()[0], "given back: Withdrawn");
        let called: Vec<u64> = lock(&world.calls).iter().map(|(number, _)| *number).collect();
        assert_eq!(called, if is_replaced { vec![2] } else { vec![] });
        assert_eq!((world.phase(1), world.durable.handle().stats().running), (None, 0));
    }
}

#[test]
fn a_timer_whose_lease_is_lost_before_its_removal_is_delivered_once_by_its_next_holder() {
    let world = World::new(Fate::WithoutLease, |builder| builder);
    world.schedule(1);
    eventually(|| world.durable.handle().stats().done == 1);
    world.is_idle();
    world.assert_called(&[1]);
    assert_eq!(world.events(), ["lost its lease", "began", "answered: Done"]);
    assert_eq!(world.durable.handle().stats().leases_lost, 1);
}

#[test]
fn a_removal_whose_answer_is_lost_makes_no_second_delivery() {
    // Without effect, the removal is sent again, and the delivery begins.
    let world = World::new(Fate::Unknown { has_effect: false }, |builder| builder);
    world.schedule(1);
    eventually(|| world.durable.handle().stats().done == 1);
    world.is_idle();
    world.assert_called(&[1]);
    // With effect, nobody knows that the delivery may begin. The timer is lost.
    let world = World::new(Fate::Unknown { has_effect: true }, |builder| builder);
    world.schedule(1);
    eventually(|| !world.events().is_empty());
    world.is_idle();
    world.assert_called(&[]);
    assert_eq!((world.events(), world.phase(1)), (vec!["lost its lease perhaps".to_owned()], None));
}

#[test]
fn a_removal_that_fails_for_good_calls_no_handler_and_its_timer_comes_again() {
    let world = World::new(Fate::Broken, |builder| builder);
    world.schedule(1);
    eventually(|| !world.events().is_empty());
    world.assert_called(&[]);
    assert_eq!(world.events(), ["lost its end perhaps"]);
    *lock(&world.store.hook().fate) = Fate::Normal;
    // The lease expires.
    eventually(|| world.durable.handle().stats().done == 1);
    world.is_idle();
    world.assert_called(&[1]);
}

#[test]
fn a_held_removal_is_sent_again() {
    let world = World::new(Fate::Held(5), |builder| builder);
    world.schedule(1);
    eventually(|| world.durable.handle().stats().done == 1);
    world.is_idle();
    world.assert_called(&[1]);
    let stats = world.durable.handle().stats();
    assert_eq!((stats.leases_lost, stats.ends_lost, stats.delivered), (0, 0, 1));
    let put_off = vec!["given back: Pending"; 5];
    assert_eq!(world.events(), [put_off, vec!["began", "answered: Done"]].concat());
    // A stop gives a held removal up. The handler is not called, and the timer is not lost.
    let world = World::new(Fate::Held(usize::MAX), |builder| builder);
    world.schedule(1);
    eventually(|| lock(&world.store.hook().durabilities).len() > 2);
    let (store, events, calls) = (Arc::clone(&world.store), Arc::clone(&world.events), world.calls);
    let stats = world.durable.shutdown(Duration::from_millis(100));
    assert_eq!((stats.delivered, stats.done, lock(&calls).len()), (0, 0, 0));
    let stored = pollster::block_on(store.get(TimerId::from_u128(1).into())).unwrap().unwrap();
    assert_eq!((stored.state, stored.deliveries, stored.failures), (State::Pending, 0, 0));
    assert!(lock(&events).iter().all(|event| event == "given back: Pending"), "{events:?}");
}

#[test]
fn a_removal_that_cannot_be_durable_puts_its_timer_off() {
    let world = World::new(Fate::Refused, |builder| builder);
    world.schedule(1);
    eventually(|| world.durable.handle().stats().done == 1);
    world.is_idle();
    world.assert_called(&[1]);
    assert_eq!(world.events(), ["given back: Pending", "began", "answered: Done"]);
    let stats = world.durable.handle().stats();
    assert_eq!((stats.leases_lost, stats.released), (0, 1));
}

/// The removal is at the store when the patience of the stop ends.
#[test]
fn a_stop_calls_no_handler_after_its_patience() {
    let world = World::new(Fate::Late { fails: false }, |builder| builder);
    world.schedule(1);
    eventually(|| lock(&world.store.hook().durabilities).len() == 1);
    let (store, events, calls) = (Arc::clone(&world.store), Arc::clone(&world.events), world.calls);
    let timers = world.durable.handle().clone();
    let opened = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(400));
        store.hook().open();
        store
    });
    let stats = world.durable.shutdown(Duration::from_millis(100));
    let store = opened.join().unwrap();
    assert_eq!((stats.done, stats.lost, lock(&calls).len(), timers.stats().running), (0, 1, 0, 0));
    assert_eq!(*lock(&events), ["given back: Done"], "it was asked to begin, and is lost");
    assert!(pollster::block_on(store.get(TimerId::from_u128(1).into())).unwrap().is_none());
}

/// The store answers again in the moment of a stop without patience. No handler can be called any more.
#[test]
fn a_stop_sends_no_removal_of_a_delivery_that_it_gives_back() {
    let world = World::new(Fate::Away, |builder| builder.lease(secs(60)));
    for number in 1..=20 {
        world.schedule(number);
    }
    // By now the pause after an error is long.
    eventually(|| lock(&world.store.hook().durabilities).len() >= 5);
    let (store, events, calls) = (Arc::clone(&world.store), Arc::clone(&world.events), world.calls);
    *lock(&store.hook().fate) = Fate::Normal;
    let stats = world.durable.shutdown(Duration::ZERO);
    for number in 1..=20 {
        let stored = pollster::block_on(store.get(TimerId::from_u128(number).into())).unwrap();
        let stored = stored.expect("it is not lost");
        assert_eq!((stored.state, stored.deliveries), (State::Pending, 0));
    }
    assert!(stats.released > 0);
    assert_eq!((stats.done, lock(&calls).len()), (0, 0));
    assert!(lock(&events).iter().all(|event| event == "given back: Pending"), "{events:?}");
}

/// A handler that does not wait for the beginning of its delivery answers while the removal is at the store.
#[test]
fn an_answer_before_the_beginning_counts_if_the_timer_is_still_stored() {
    for (verdict, expected) in [
        (Verdict::Park("full".into()), Some((Phase::Parked, 0))),
        (Verdict::Retry { error: "no".into(), after: Some(secs(1_000)) }, Some((Phase::Pending, 1))),
        (Verdict::Dead("never".into()), Some((Phase::Dead, 1))),
        (Verdict::Done, None),
    ] {
        let fates = Fates::new(Fate::Late { fails: true });
        let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), fates));
        let (read, answer) = (Arc::clone(&store), verdict.clone());
        let durable = Durable::builder_on(Arc::<Hooked<Fates>>::clone(&store))
            .bytes_handler("print", move |_, delivery| {
                let (answer, read) = (answer.clone(), Arc::clone(&read));
                async move {
                    let mut begin = Box::pin(delivery.begin());
                    let is_asked = std::future::poll_fn(|context| {
                        Poll::Ready(begin.as_mut().poll(context).is_pending())
                    });
                    assert!(is_asked.await);
                    // The thread of the handler may wait.
                    eventually(|| !lock(&read.hook().durabilities).is_empty());
                    answer
                }
            })
            .begins_itself("print")
            .start()
            .unwrap();
        let spec = Spec::new(Vec::new()).at_most_once();
        let id = durable.handle().schedule_bytes_blocking("print", spec).unwrap().id();
        let stats = || durable.handle().stats();
        eventually(|| !lock(&store.hook().durabilities).is_empty() && stats().running == 0);
        store.hook().open();
        let stored = || pollster::block_on(store.get(id.into())).unwrap();
        let found = || stored().map(|timer| (timer.state.phase(), timer.failures));
        eventually(|| found() == expected);
        assert!(durable.handle().await_idle(secs(20)));
        assert_eq!(found(), expected, "{verdict:?}");
        assert_eq!((stats().delivered, stats().lost), (0, 0), "{verdict:?}");
    }
}

/// An executor that drops its work would get the timer again at once, without the pause.
#[test]
fn a_delivery_that_is_dropped_before_its_beginning_comes_again_after_a_pause() {
    let world = World::new(Fate::Away, |builder| {
        builder.executor(|mut work: tourbillon_durable::Work| {
            // The first poll asks for the removal.
            let _waits = work.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()));
        })
    });
    let begin = Instant::now();
    world.schedule(1);
    eventually(|| world.durable.handle().stats().released == 1);
    assert!(begin.elapsed() >= Duration::from_millis(500), "{:?}", begin.elapsed());
    let stored = pollster::block_on(world.store.get(TimerId::from_u128(1).into())).unwrap().unwrap();
    assert_eq!((stored.failures, stored.due), (0, stored.scheduled));
}

/// A handler that begins its deliveries by itself decides until then whether the timer is put aside, put off, or fails.
/// Afterwards none of its verdicts brings the timer back.
#[test]
fn a_handler_that_begins_itself_decides_until_then() {
    for verdict in [
        Verdict::Park("full".into()),
        Verdict::Snooze(UtcMillis::MAX),
        Verdict::Retry { error: "no".into(), after: Some(secs(1_000)) },
        Verdict::Dead("never".into()),
        Verdict::Done,
    ] {
        for begins in [false, true] {
            let fates = Fates::new(Fate::Normal);
            let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), fates));
            let (answer, begun) = (verdict.clone(), Arc::new(AtomicUsize::new(0)));
            let (counted, calls) = (Arc::clone(&begun), Arc::new(AtomicUsize::new(0)));
            let called = Arc::clone(&calls);
            let durable = Durable::builder_on(Arc::<Hooked<Fates>>::clone(&store))
                .bytes_handler("print", move |_, delivery| {
                    let (answer, counted) = (answer.clone(), Arc::clone(&counted));
                    called.fetch_add(1, Ordering::Relaxed);
                    async move {
                        assert!(delivery.is_once() && !delivery.is_removed());
                        if begins {
                            // The second call finds the delivery begun.
                            assert!(delivery.begin().await && delivery.begin().await);
                            assert!(delivery.is_removed());
                            counted.fetch_add(1, Ordering::Relaxed);
                        }
                        answer
                    }
                })
                .begins_itself("print")
                .start()
                .unwrap();
            let spec = Spec::new(Vec::new()).at_most_once();
            let id = durable.handle().schedule_bytes_blocking("print", spec).unwrap().id();
            eventually(|| calls.load(Ordering::Relaxed) == 1);
            assert!(durable.handle().await_idle(secs(20)));
            assert_eq!(durable.handle().stats().delivered, u64::from(begins));
            let phase = pollster::block_on(store.get(id.into())).unwrap().map(|timer| timer.state.phase());
            let expected = match (&verdict, begins) {
                (Verdict::Park(_), false) => Some(Phase::Parked),
                (Verdict::Snooze(_) | Verdict::Retry { .. }, false) => Some(Phase::Pending),
                (Verdict::Dead(_), false) => Some(Phase::Dead),
                _ => None,
            };
            assert_eq!(phase, expected, "{verdict:?}, {begins}");
            assert_eq!(begun.load(Ordering::Relaxed), usize::from(begins));
        }
    }
}

/// The time of the handler passes while it waits to begin, and before it has asked.
#[test]
fn a_handler_whose_time_passes_before_it_begins_loses_no_timer() {
    for asks in [false, true] {
        let fates = Fates::new(Fate::Held(usize::MAX));
        let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), fates));
        let durable = Durable::builder_on(Arc::<Hooked<Fates>>::clone(&store))
            .lease(LEASE)
            .bytes_handler("print", move |_, delivery| async move {
                if asks {
                    // The handler's future is dropped before the answer.
                    let _over = delivery.begin().await;
                }
                std::future::pending::<()>().await;
            })
            .begins_itself("print")
            .start()
            .unwrap();
        let policy =
            tourbillon_durable::policy::Policy { timeout: Duration::from_millis(100), ..Default::default() };
        let spec = Spec::new(Vec::new()).policy(policy).at_most_once();
        let id = durable.handle().schedule_bytes_blocking("print", spec).unwrap().id();
        let stored = || pollster::block_on(store.get(id.into())).unwrap().expect("it is not lost");
        eventually(|| {
            let stats = durable.handle().stats();
            if asks { stats.released > 0 } else { stats.retried > 0 }
        });
        assert_eq!(stored().failures, u32::from(!asks), "a delivery that was asked to begin is no failure");
    }
}

#[test]
fn a_kind_that_begins_itself_needs_a_handler() {
    let started = Durable::builder(MemoryStore::default()).begins_itself("print").start();
    assert!(matches!(started, Err(tourbillon_durable::StartError::NoHandler("print"))));
}
