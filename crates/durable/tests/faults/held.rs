//! Tests ends of deliveries whose timers a transaction of another program holds.

use crate::{Note, eventually, secs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon_durable::store::{
    Call, Durability, Hook, Hooked, MemoryStore, Op, Outcome, StoreFuture, TimerStore,
};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Durable, Event, Spec};

const LEASE: Duration = Duration::from_millis(500);

fn held_id() -> TimerId {
    TimerId::from_u128(7)
}

/// A hook that answers each end of a delivery of the timer [`held_id`] with [`Outcome::Held`], while `is_held`.
#[derive(Default)]
struct Holder {
    is_held: AtomicBool,
    tries: AtomicU64,
    parts: u32,
}

impl Hook for Holder {
    type Seen = ();

    fn see(&self, _: Call<'_>) {}

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
            let mut outcomes = Vec::new();
            for op in ops {
                let is_its_end = op.ended_delivery().is_some_and(|(id, _)| id == held_id());
                if is_its_end && self.is_held.load(Ordering::SeqCst) {
                    self.tries.fetch_add(1, Ordering::SeqCst);
                    outcomes.push(Outcome::Held);
                } else {
                    outcomes.extend(store.apply(vec![op], durability).await?);
                }
            }
            Ok(outcomes)
        })
    }

    fn parts(&self, _: &dyn TimerStore) -> u32 {
        self.parts
    }
}

/// A runtime on a store that holds the timer [`held_id`], whose handler has returned.
struct Held {
    store: Arc<Hooked<Holder>>,
    durable: Durable,
    events: Arc<Mutex<Vec<String>>>,
}

impl Held {
    fn start(parts: u32) -> Self {
        let holder = Holder { is_held: true.into(), parts, ..Holder::default() };
        let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), holder));
        let events = Arc::<Mutex<Vec<String>>>::default();
        let observed = Arc::clone(&events);
        let durable = Durable::builder_on(Arc::<Hooked<Holder>>::clone(&store))
            .lease(LEASE)
            .observe(move |event| {
                let (attempt, word) = match event {
                    Event::Began { attempt, .. } => (attempt, "began"),
                    Event::Ended { attempt, .. } => (attempt, "ended"),
                    Event::LeaseLost { attempt, .. } => (attempt, "lost its lease"),
                    Event::EndLost { attempt, .. } => (attempt, "lost its end"),
                    _ => return,
                };
                if attempt.id == held_id() {
                    observed.lock().unwrap().push(word.to_owned());
                }
            })
            .handler(async |_: Note, _| {})
            .start()
            .unwrap();
        durable.handle().schedule_blocking(Spec::new(Note(0)).id(held_id())).unwrap();
        let held = Self { store, durable, events };
        eventually(|| held.store.hook().tries.load(Ordering::SeqCst) > 0);
        held
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }
}

#[test]
fn an_end_whose_timer_is_held_is_tried_again_and_delays_nothing_else() {
    for parts in [0, 3] {
        let held = Held::start(parts);
        let begin = Instant::now();
        let mut others = 0;
        // The lease is renewed meanwhile.
        while begin.elapsed() < 4 * LEASE {
            others += 1;
            let other = Instant::now();
            held.durable.handle().schedule_blocking(Spec::new(Note(others))).unwrap();
            eventually(|| held.durable.handle().stats().done == others);
            assert!(other.elapsed() < secs(2), "{parts} parts: another delivery took {:?}", other.elapsed());
        }
        assert_eq!(held.events(), ["began"], "{parts} parts: it is held");
        let tries = held.store.hook().tries.load(Ordering::SeqCst);
        assert!((5..100).contains(&tries), "{parts} parts: {tries} tries in {:?}", begin.elapsed());
        held.store.hook().is_held.store(false, Ordering::SeqCst);
        eventually(|| held.events().len() == 2);
        assert_eq!(held.events(), ["began", "ended"], "{parts} parts");
        let stats = held.durable.shutdown(secs(10));
        assert_eq!((stats.done, stats.leases_lost, stats.ends_lost), (others + 1, 0, 0), "{parts} parts");
    }
}

#[test]
fn a_stop_waits_for_a_held_end_as_long_as_for_a_delivery() {
    let held = Held::start(0);
    let store = Arc::clone(&held.store);
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        store.hook().is_held.store(false, Ordering::SeqCst);
    });
    let stats = held.durable.shutdown(secs(30));
    release.join().unwrap();
    assert_eq!((stats.done, stats.ends_lost), (1, 0));

    let held = Held::start(0);
    let begin = Instant::now();
    let stats = held.durable.shutdown(Duration::from_millis(200));
    assert!(begin.elapsed() < secs(5), "{:?}", begin.elapsed());
    assert_eq!((stats.done, stats.ends_lost), (0, 1));
    assert_eq!(*held.events.lock().unwrap(), ["began", "lost its end"]);
}
