//! Tests timers that are delivered at most once and that the store cannot remove for a while. Their deliveries are put
//! off, and hold up no others.

use crate::once::{Fate, Fates, LEASE, World, lock};
use crate::{Note, START, eventually, secs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::policy::{Misfire, Policy};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, Hooked, MemoryStore, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Durable, Spec, UtcMillis};

/// The store answers no removal, for longer than a lease. More timers wait for that than the runtime has places.
#[test]
fn removals_without_an_answer_hold_up_nothing_else() {
    const ONCE: u64 = 20;
    let world = World::new(Fate::Silent, |builder| builder.workers(4));
    for number in 1..=ONCE {
        world.schedule(number);
    }
    eventually(|| !lock(&world.store.hook().sizes).is_empty());
    let begin = Instant::now();
    let mut others = 0;
    while begin.elapsed() < 5 * LEASE {
        others += 1;
        let other = Instant::now();
        world.durable.handle().schedule_blocking(Spec::new(Note(1_000 + others))).unwrap();
        eventually(|| world.durable.handle().stats().done == others);
        // The first removals leave their places after a second.
        assert!(other.elapsed() < secs(2), "{:?}", other.elapsed());
    }
    assert!(others > 20, "{others}");
    let stats = world.durable.handle().stats();
    assert_eq!((stats.delivered, stats.leases_lost, stats.lost), (others, 0, 0));
    eventually(|| world.durable.handle().stats().running == 0);
    world.store.hook().open();
    eventually(|| world.durable.handle().stats().done == others + ONCE);
    world.is_idle();
    let mut once: Vec<u64> = lock(&world.calls).iter().map(|(number, _)| *number).collect();
    once.retain(|number| *number <= ONCE);
    once.sort_unstable();
    assert_eq!(once, (1..=ONCE).collect::<Vec<_>>());
    let stats = world.durable.handle().stats();
    assert_eq!((stats.leases_lost, stats.ends_lost, stats.lost), (0, 0, 0));
}

/// While a removal is held, other timers need the place of its handler.
#[test]
fn a_removal_that_is_held_leaves_its_place() {
    let world = World::new(Fate::Held(usize::MAX), |builder| builder.concurrency(1));
    world.schedule(1);
    eventually(|| !lock(&world.store.hook().sizes).is_empty());
    let other = Spec::new(Note(2)).id(TimerId::from_u128(2));
    world.durable.handle().schedule_blocking(other).unwrap();
    eventually(|| world.durable.handle().stats().done == 1);
    assert_eq!(lock(&world.calls)[0].0, 2);
    eventually(|| world.events().iter().any(|event| event == "given back: Pending"));
    *lock(&world.store.hook().fate) = Fate::Normal;
    eventually(|| world.durable.handle().stats().done == 2);
    world.is_idle();
    let stats = world.durable.handle().stats();
    assert_eq!((stats.leases_lost, stats.ends_lost, lock(&world.calls).len()), (0, 0, 2));
}

/// The store cannot remove timers for a while. However many wait, only one of them asks after each pause. Their
/// lateness is that of their own moments.
#[test]
fn a_store_that_cannot_remove_timers_is_asked_once_for_each_pause() {
    const ONCE: u64 = 600;
    let world = World::new(Fate::Unable, |builder| builder.lease(secs(60)).workers(4));
    for number in 1..=ONCE {
        world.schedule(number);
    }
    let begin = Instant::now();
    eventually(|| lock(&world.store.hook().sizes).len() >= 5);
    let first = pollster::block_on(world.store.get(TimerId::from_u128(1).into())).unwrap().unwrap();
    std::thread::sleep(secs(1).saturating_sub(begin.elapsed()));
    let before = world.durable.handle().stats();
    std::thread::sleep(secs(1));
    let stats = world.durable.handle().stats();
    let next_due = stats.next_due.expect("they are overdue");
    assert!(stats.delivered == 0 && next_due < first.due + secs(1), "{stats:?}");
    assert!(stats.released < 50 && stats.claims < before.claims + 50, "{stats:?}");
    let sizes = lock(&world.store.hook().sizes).clone();
    assert!(sizes[1..].iter().all(|size| *size == 1) && sizes.len() < 20, "{sizes:?}");
    *lock(&world.store.hook().fate) = Fate::Normal;
    eventually(|| world.durable.handle().stats().done == ONCE);
    world.is_idle();
    let stats = world.durable.handle().stats();
    assert_eq!((stats.delivered, stats.leases_lost, lock(&world.calls).len()), (ONCE, 0, 600));
    assert!(stats.lateness.max >= secs(2), "{:?}", stats.lateness);
}

#[test]
fn a_timer_that_is_too_late_after_a_removal_was_refused_is_skipped() {
    let world = World::new(Fate::Unable, |builder| builder);
    let policy = Policy { misfire: Misfire::Within(Duration::from_millis(200)), ..Default::default() };
    let spec = Spec::new(Note(1)).policy(policy).at_most_once();
    world.durable.handle().schedule_blocking(spec).unwrap();
    eventually(|| !lock(&world.store.hook().sizes).is_empty());
    std::thread::sleep(secs(1));
    *lock(&world.store.hook().fate) = Fate::Normal;
    eventually(|| world.durable.handle().stats().skipped == 1);
    world.is_idle();
    world.assert_called(&[]);
}

/// The program demands for all ends the durability that the store does not give for now. The skip of a late timer waits
/// for it, and keeps its lease.
#[test]
fn a_late_timer_whose_skip_is_refused_for_now_is_skipped_once() {
    for is_once in [true, false] {
        let world = World::new(Fate::Unable, |builder| builder.end_durability(Durability::PowerLoss));
        let policy = Policy { misfire: Misfire::Within(Duration::ZERO), ..Default::default() };
        let late = Spec::new(Note(1)).id(TimerId::from_u128(1)).at(UtcMillis::ZERO).policy(policy);
        let late = if is_once { late.at_most_once() } else { late };
        world.durable.handle().schedule_blocking(late).unwrap();
        eventually(|| lock(&world.store.hook().sizes).len() >= 2);
        std::thread::sleep(2 * LEASE);
        world.durable.handle().schedule_blocking(Spec::new(Note(2))).unwrap();
        eventually(|| world.durable.handle().stats().done == 1);
        let stored = pollster::block_on(world.store.get(TimerId::from_u128(1).into())).unwrap().unwrap();
        assert_eq!((stored.state.phase(), stored.deliveries), (Phase::Leased, 1));
        *lock(&world.store.hook().fate) = Fate::Normal;
        world.is_idle();
        assert!(pollster::block_on(world.store.get(TimerId::from_u128(1).into())).unwrap().is_none());
        let stats = world.durable.handle().stats();
        assert_eq!((stats.skipped, stats.leases_lost, stats.ends_lost), (1, 0, 0));
        assert!(lock(&world.calls).iter().all(|(number, _)| *number == 2));
    }
}

/// The removal uses up most of the time of the handler. The handler then has its whole time again.
#[test]
fn the_time_of_a_handler_begins_with_its_delivery() {
    let fates = Fates::new(Fate::Late { fails: false });
    let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), fates));
    let is_over = Arc::<Mutex<Option<bool>>>::default();
    let noted = Arc::clone(&is_over);
    let durable = Durable::builder_on(Arc::<Hooked<Fates>>::clone(&store))
        .bytes_handler("print", move |_, delivery| {
            let noted = Arc::clone(&noted);
            async move {
                assert!(delivery.begin().await);
                std::thread::sleep(Duration::from_millis(600));
                *lock(&noted) = Some(delivery.is_over());
            }
        })
        .begins_itself("print")
        .start()
        .unwrap();
    let policy = Policy { timeout: Duration::from_millis(900), ..Default::default() };
    let spec = Spec::new(Vec::new()).policy(policy).at_most_once();
    durable.handle().schedule_bytes_blocking("print", spec).unwrap();
    eventually(|| !lock(&store.hook().sizes).is_empty());
    std::thread::sleep(Duration::from_millis(500));
    store.hook().open();
    eventually(|| lock(&is_over).is_some());
    assert_eq!(*lock(&is_over), Some(false));
    eventually(|| durable.handle().stats().done == 1);
}

/// The time of a handler that waits to begin has passed, and the thread that ends its delivery stands still. Meanwhile
/// the delivery begins, with a time of its own.
#[test]
fn a_timeout_from_before_the_beginning_does_not_end_a_delivery() {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos(UtcMillis::from_millis(START).as_nanos()));
    let fates = Fates::new(Fate::Late { fails: false });
    let store = Arc::new(Hooked::new(Arc::new(MemoryStore::new(clock.clone())), fates));
    let (has_begun, goes_on) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let is_over = Arc::<Mutex<Option<bool>>>::default();
    let (begun, permitted, noted) = (Arc::clone(&has_begun), Arc::clone(&goes_on), Arc::clone(&is_over));
    let durable = Durable::builder_on(Arc::<Hooked<Fates>>::clone(&store))
        .clock(clock.clone())
        .lease(secs(60))
        .bytes_handler("print", move |_, delivery| {
            let (begun, permitted, noted) = (Arc::clone(&begun), Arc::clone(&permitted), Arc::clone(&noted));
            async move {
                assert!(delivery.begin().await);
                begun.store(true, Ordering::SeqCst);
                eventually(|| permitted.load(Ordering::SeqCst));
                *lock(&noted) = Some(delivery.is_over());
            }
        })
        .begins_itself("print")
        .start()
        .unwrap();
    let policy = Policy { timeout: secs(10), ..Default::default() };
    let spec = Spec::new(Vec::new()).policy(policy).at_most_once();
    durable.handle().schedule_bytes_blocking("print", spec).unwrap();
    // The timer is due at the next millisecond.
    clock.advance(Duration::from_millis(2));
    eventually(|| !lock(&store.hook().sizes).is_empty());
    store.hook().stalls.store(true, Ordering::SeqCst);
    clock.advance(secs(10) + Duration::from_millis(1));
    eventually(|| store.hook().has_stalled.load(Ordering::SeqCst));
    store.hook().open();
    eventually(|| has_begun.load(Ordering::SeqCst));
    store.hook().stalls.store(false, Ordering::SeqCst);
    // The thread goes on.
    std::thread::sleep(Duration::from_millis(100));
    goes_on.store(true, Ordering::SeqCst);
    eventually(|| lock(&is_over).is_some());
    assert_eq!(*lock(&is_over), Some(false));
    eventually(|| durable.handle().stats().done == 1);
    let stats = durable.handle().stats();
    assert_eq!((stats.delivered, stats.lost, stats.released), (1, 0, 0));
}

/// A server that syncs its disk once a second answers each removal after more than a second. The deliveries that wait
/// for the next call are not put off.
#[test]
fn removals_that_always_take_long_put_no_delivery_off() {
    let world = World::new(Fate::Slow(Duration::from_millis(1_300)), |builder| builder.lease(secs(60)));
    world.schedule(1);
    eventually(|| world.durable.handle().stats().done == 1);
    world.schedule(2);
    eventually(|| lock(&world.store.hook().sizes).len() == 2);
    for number in 3..=10 {
        world.schedule(number);
    }
    eventually(|| world.durable.handle().stats().done == 10);
    world.is_idle();
    let stats = world.durable.handle().stats();
    assert_eq!((stats.delivered, stats.released, stats.lost), (10, 0, 0));
    let sizes = lock(&world.store.hook().sizes).clone();
    assert!(sizes.len() <= 4, "{sizes:?}");
}
