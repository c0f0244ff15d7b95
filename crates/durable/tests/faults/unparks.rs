//! Tests the start of a runtime whose handlers know a kind for which timers are parked, on a store that does not unpark
//! them at once.

use crate::{Note, PATIENCE, eventually};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon_durable::store::{
    Call, Durability, Hook, Hooked, IfPresent, MemoryStore, Op, StoreError, StoreErrorKind, StoreFuture,
    TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Delivery, Durable, Spec, UtcMillis, Verdict};

/// What becomes of a call that unparks timers.
enum Fate {
    /// It is answered once the test says so.
    Waits,
    Fails,
    /// The store refuses the call, as it would refuse each repetition.
    Refuses,
    Panics,
}

/// The fates of the next calls that unpark timers. Later calls reach the store.
#[derive(Default)]
struct Fates {
    fates: Mutex<VecDeque<Fate>>,
    /// Whether the calls that wait may go on, and their wakers.
    gate: Mutex<(bool, Vec<Waker>)>,
}

impl Fates {
    fn open(&self) {
        let wakers = {
            let mut gate = self.gate.lock().unwrap();
            gate.0 = true;
            core::mem::take(&mut gate.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn is_open(&self) {
        std::future::poll_fn(|context| {
            let mut gate = self.gate.lock().unwrap();
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Hook for Fates {
    type Seen = Option<Fate>;

    fn see(&self, call: Call<'_>) -> Option<Fate> {
        let unparks = matches!(call, Call::Apply(ops) if matches!(ops, [Op::Unpark(..)]));
        unparks.then(|| self.fates.lock().unwrap().pop_front()).flatten()
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        fate: Option<Fate>,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        match fate {
            None => pass_on(),
            Some(Fate::Waits) => Box::pin(async move {
                self.is_open().await;
                pass_on().await
            }),
            Some(Fate::Fails) => {
                Box::pin(std::future::ready(Err(StoreError::new(StoreErrorKind::Io, "on command"))))
            }
            Some(Fate::Refuses) => {
                Box::pin(std::future::ready(Err(StoreError::new(StoreErrorKind::Limit, "on command"))))
            }
            Some(Fate::Panics) => panic!("on command"),
        }
    }
}

/// A runtime on a store that has a timer of the kind `other`, which was parked for want of a handler.
struct Started {
    store: Arc<Hooked<Fates>>,
    durable: Durable,
    seen: Arc<Mutex<Vec<&'static str>>>,
}

fn start(fates: impl IntoIterator<Item = Fate>) -> Started {
    let inner: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
    let other = Timer::new(TimerId::fresh(), "other", UtcMillis::ZERO);
    let place = vec![Op::Place(Box::new(other), IfPresent::Reject)];
    pollster::block_on(inner.apply(place, Durability::PowerLoss)).unwrap();
    let without = Durable::builder_on(Arc::clone(&inner)).handler(async |_: Note, _| {}).start().unwrap();
    eventually(|| without.handle().stats().unknown_kind == 1);
    drop(without);
    let hook = Fates { fates: Mutex::new(fates.into_iter().collect()), gate: Mutex::default() };
    let store = Arc::new(Hooked::new(inner, hook));
    let seen = Arc::<Mutex<Vec<&'static str>>>::default();
    let (notes, others) = (Arc::clone(&seen), Arc::clone(&seen));
    let durable = Durable::builder_on(Arc::<Hooked<Fates>>::clone(&store))
        .handler(move |_: Note, _| {
            notes.lock().unwrap().push("note");
            async {}
        })
        .bytes_handler("other", move |_: Box<[u8]>, _: Delivery| {
            others.lock().unwrap().push("other");
            async { Verdict::Done }
        })
        .start()
        .unwrap();
    Started { store, durable, seen }
}

impl Started {
    fn has_seen(&self, kind: &str) -> bool {
        self.seen.lock().unwrap().contains(&kind)
    }
}

#[test]
fn timers_of_other_kinds_are_delivered_while_an_unpark_waits() {
    let started = start([Fate::Waits, Fate::Waits]);
    started.durable.handle().schedule_blocking(Spec::new(Note(1))).unwrap();
    eventually(|| started.has_seen("note"));
    assert!(!started.has_seen("other"));
    assert!(
        !started.durable.handle().await_idle(Duration::from_millis(50)),
        "a timer is still to be unparked"
    );
    started.store.hook().open();
    eventually(|| started.has_seen("other"));
    assert!(started.durable.handle().await_idle(PATIENCE));
}

#[test]
fn a_stop_waits_for_no_unpark() {
    let started = start([Fate::Waits, Fate::Waits]);
    let begin = Instant::now();
    drop(started.durable);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn unparks_that_fail_are_repeated_until_the_timers_are_pending() {
    let started = start([Fate::Fails, Fate::Panics, Fate::Fails, Fate::Fails, Fate::Panics]);
    started.durable.handle().schedule_blocking(Spec::new(Note(1))).unwrap();
    eventually(|| started.has_seen("note") && started.has_seen("other"));
    assert!(started.durable.handle().await_idle(PATIENCE));
    assert_eq!(started.durable.handle().stats().store_errors, 5);
}

#[test]
fn an_unpark_that_the_store_refuses_is_not_repeated() {
    let started = start([Fate::Refuses, Fate::Refuses]);
    assert!(started.durable.handle().await_idle(PATIENCE));
    assert_eq!(started.durable.handle().stats().store_errors, 2);
}
