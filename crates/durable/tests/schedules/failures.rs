//! Tests schedules whose decisions fail, because the store refuses changes.

use super::{MINUTE, NOON, Seen, World, at, clock, each_minute};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tourbillon_durable::schedule::{Overlap, Schedule, ScheduleFault};
use tourbillon_durable::store::{
    Call, Hook, Hooked, IfPresent, MemoryStore, Op, StoreError, StoreErrorKind, StoreFuture, TimerStore,
};
use tourbillon_durable::{UtcMillis, Verdict};

/// The changes that the store refuses.
#[derive(Clone, Copy, PartialEq)]
enum Refused {
    Nothing,
    /// The occurrences of instants. An occurrence of a trigger is stored.
    Occurrences,
    /// The occurrences of instants, and the new states of schedules.
    Decisions,
}

/// A hook that refuses the changes of decisions.
struct Refusing {
    refused: AtomicU8,
    is_transactional: bool,
}

impl Refusing {
    fn refuse(&self, refused: Refused) {
        self.refused.store(refused as u8, Ordering::Relaxed);
    }
}

impl Hook for Refusing {
    type Seen = bool;

    fn see(&self, call: Call<'_>) -> bool {
        let refused = self.refused.load(Ordering::Relaxed);
        let Call::Apply(ops) = call else { return false };
        ops.iter().any(|op| match op {
            Op::Place(_, IfPresent::ReplaceOnly(_)) => refused == Refused::Decisions as u8,
            Op::Place(timer, _) => {
                let is_of_instant = timer.scheduled.as_millis().is_multiple_of(MINUTE);
                *timer.namespace == *"shop" && is_of_instant && refused != Refused::Nothing as u8
            }
            _ => false,
        })
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        is_refused: bool,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        if is_refused {
            return Box::pin(async { Err(StoreError::new(StoreErrorKind::Full, "no room")) });
        }
        pass_on()
    }

    fn is_transactional(&self, _: &dyn TimerStore) -> bool {
        self.is_transactional
    }
}

fn start(is_transactional: bool) -> (World, Arc<Hooked<Refusing>>) {
    let clock = clock();
    let hook = Refusing { refused: AtomicU8::new(Refused::Nothing as u8), is_transactional };
    let store = Arc::new(Hooked::new(Arc::new(MemoryStore::new(clock.clone())), hook));
    (World::on(clock, Arc::clone(&store) as Arc<dyn TimerStore>, Seen::default()), store)
}

/// The lateness counts from the instant, and not from the attempt that comes next.
#[test]
fn a_schedule_whose_decisions_fail_is_late() {
    for is_transactional in [false, true] {
        let (world, store) = start(is_transactional);
        world.put(each_minute());
        store.hook().refuse(Refused::Occurrences);
        for minute in 1..=5 {
            world.advance(1);
            let late = Duration::from_millis((minute - 1) * MINUTE);
            assert_eq!(world.view().overdue, late);
            let listed = world.schedules.list("shop", "", None, 10).unwrap().schedules;
            assert_eq!(listed[0].overdue, late);
        }
        assert_eq!((world.minutes(), world.view().progress.fired), (vec![], 0));
        store.hook().refuse(Refused::Nothing);
        world.advance(1);
        assert_eq!(world.view().overdue, Duration::ZERO);
        assert!(world.view().progress.fired > 0);
    }
}

/// A trigger stores the schedule again, and does not hide that its decisions fail.
#[test]
fn a_schedule_whose_decisions_fail_stays_late_after_a_trigger() {
    let (world, store) = start(false);
    world.put(each_minute());
    store.hook().refuse(Refused::Occurrences);
    world.advance(1);
    world.advance(1);
    world.clock.advance(Duration::from_millis(7));
    let _id = world.schedules.trigger(&at()).unwrap();
    world.settle();
    assert_eq!((world.view().progress.asked, world.view().progress.fired), (1, 0));
    assert_eq!(world.view().overdue, Duration::from_millis(MINUTE + 7));
}

/// A schedule that waits for the end of its last occurrence is not late, even if a decision has failed meanwhile.
#[test]
fn a_schedule_that_waits_is_late_only_while_its_decisions_fail() {
    let (world, store) = start(false);
    *world.verdict.lock().unwrap() = Some(Verdict::Snooze(UtcMillis::from_millis(NOON + 20 * MINUTE)));
    world.put(Schedule { overlap: Overlap::QueueOne, ..each_minute() });
    for _ in 0..4 {
        world.advance(1);
    }
    assert_eq!((world.view().overdue, world.view().progress.queued.is_some()), (Duration::ZERO, true));
    store.hook().refuse(Refused::Decisions);
    world.advance(1);
    world.advance(1);
    assert!(world.view().overdue >= Duration::from_millis(MINUTE), "{:?}", world.view().overdue);
    store.hook().refuse(Refused::Nothing);
    world.advance(1);
    world.settle();
    assert_eq!(world.view().overdue, Duration::ZERO);
}

/// A store without transactions applies a part of a batch. So the outcome would not be known.
#[test]
fn a_trigger_for_which_there_is_no_room_has_surely_no_effect() {
    for is_transactional in [false, true] {
        let (world, store) = start(is_transactional);
        world.put(each_minute());
        // The test's clock stands at a full minute, so the occurrence of the trigger is refused as that of an instant.
        store.hook().refuse(Refused::Occurrences);
        let error = world.schedules.trigger(&at()).unwrap_err();
        assert!(matches!(&error, ScheduleFault::Store(error) if error.kind() == StoreErrorKind::Full));
        assert_eq!(world.view().progress.asked, 0);
    }
}
