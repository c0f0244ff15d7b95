//! Tests changes and decisions of a process while another process changes the same schedule.

use super::{MINUTE, NOON, PATIENCE, Seen, World, at, clock, each_minute, template};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::plan::Plan;
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::schedule::{
    Schedule, ScheduleEvent, ScheduleFault, ScheduleKey, Schedules, Template,
};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Call, Claimant, Durability, Filter, Hook, Hooked, IfPresent, Limit, MemoryStore, Op, StoreFuture,
    TimerStore,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_durable::{Durable, Kind, UtcMillis};
use tourbillon_sqlite::SqliteStore;

/// A hook that acts as another, quicker process. The store calls `first` before the next batch of operations.
#[derive(Default)]
struct Raced {
    first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Whether the store has no transactions.
    has_none: bool,
}

impl Hook for Raced {
    type Seen = ();

    fn see(&self, call: Call<'_>) {
        // `first` must not run under the lock, since it sends operations, too.
        let first = matches!(call, Call::Apply(_)).then(|| self.first.lock().unwrap().take());
        if let Some(first) = first.flatten() {
            first();
        }
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        (): (),
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        pass_on()
    }

    fn is_transactional(&self, _: &dyn TimerStore) -> bool {
        !self.has_none
    }
}

#[test]
fn a_change_of_a_schedule_undoes_no_change_of_another_process() {
    let clock = clock();
    let store = Arc::new(Hooked::new(Arc::new(MemoryStore::new(clock.clone())), Raced::default()));
    let one = Schedules::new(Arc::clone(&store) as Arc<dyn TimerStore>);
    // These schedules play another process, with locks of its own.
    let other = Schedules::new(Arc::clone(&store) as Arc<dyn TimerStore>);
    let name = at();
    let interpose = |change: Box<dyn FnOnce() + Send>| *store.hook().first.lock().unwrap() = Some(change);
    let in_other = |change: fn(&Schedules, &ScheduleKey)| {
        let (other, at) = (other.clone(), name.clone());
        interpose(Box::new(move || change(&other, &at)));
    };

    one.put(&name, each_minute(), template()).unwrap();
    in_other(|other, at| drop(other.pause(at).unwrap()));
    let (is_new, view) = one.put(&name, Schedule::new(Plan::Every(2 * MINUTE)), template()).unwrap();
    assert!(!is_new && view.progress.paused.is_some(), "the pause of the other process is kept");
    assert_eq!(view.schedule.plan, Plan::Every(2 * MINUTE));

    in_other(|other, at| {
        let _view = other.trigger(at).unwrap();
    });
    let resumed = one.resume(&name).unwrap();
    assert_eq!((resumed.progress.paused, resumed.progress.asked), (None, 1));

    in_other(|other, at| {
        let _view = other.trigger(at).unwrap();
    });
    one.trigger(&name).unwrap();
    assert_eq!(one.get(&name).unwrap().progress.asked, 3);
    let occurrences = Filter { namespace: Some("shop".into()), ..Filter::default() };
    let listed = pollster::block_on(store.list(occurrences, None, 100)).unwrap();
    assert_eq!(listed.timers.len(), 3, "a trigger that begins anew makes one occurrence");

    in_other(|other, at| assert!(other.remove(at).unwrap()));
    assert!(
        matches!(one.pause(&name), Err(ScheduleFault::NotFound)),
        "a schedule that was removed stays removed"
    );
    assert!(matches!(one.get(&name), Err(ScheduleFault::NotFound)));

    in_other(|other, at| drop(other.put(at, each_minute(), template()).unwrap()));
    let (is_new, _) = one.put(&name, each_minute(), template()).unwrap();
    assert!(!is_new, "the other process was quicker");
}

/// In a store of one process, two values of `Schedules` do not wait for each other. So the decision may still store its
/// occurrence, and neither the schedule nor a later occurrence.
#[test]
fn a_schedule_that_is_removed_during_its_decision_does_not_come_back() {
    let clock = clock();
    let store = Arc::new(Hooked::new(Arc::new(MemoryStore::new(clock.clone())), Raced::default()));
    let world = World::on(clock, Arc::clone(&store) as Arc<dyn TimerStore>, Seen::default());
    let other = Schedules::new(Arc::clone(&store) as Arc<dyn TimerStore>);
    world.schedules.put(&at(), each_minute(), template()).unwrap();
    world.settle();
    let name = at();
    *store.hook().first.lock().unwrap() = Some(Box::new(move || assert!(other.remove(&name).unwrap())));
    // The other process removes the schedule after the decision has begun.
    world.advance(1);
    assert!(matches!(world.schedules.get(&at()), Err(ScheduleFault::NotFound)), "it does not come back");
    world.advance(5);
    assert!(world.seen.lock().unwrap().len() <= 1, "no later instant is followed: {:?}", world.seen);
}

/// The trigger has stored its occurrence when it finds that another process has removed or triggered the schedule.
#[test]
fn a_trigger_beside_another_process_answers_with_its_one_occurrence() {
    let store = Arc::new(Hooked::new(Arc::new(MemoryStore::new(clock())), Raced::default()));
    let one = Schedules::new(Arc::clone(&store) as Arc<dyn TimerStore>);
    let other = Schedules::new(Arc::clone(&store) as Arc<dyn TimerStore>);
    for removes in [false, true] {
        one.put(&at(), each_minute(), template()).unwrap();
        let before = occurrences(&*store, &Seen::default());
        let other = other.clone();
        *store.hook().first.lock().unwrap() = Some(Box::new(move || {
            if removes {
                assert!(other.remove(&at()).unwrap());
            } else {
                let _id = other.trigger(&at()).unwrap();
            }
        }));
        let id = one.trigger(&at()).unwrap();
        let after = occurrences(&*store, &Seen::default());
        assert!(after.contains(&id), "the answer names the occurrence");
        assert_eq!(after.len() - before.len(), if removes { 1 } else { 2 });
    }
}

/// Returns the ids of all occurrences that are stored or have been delivered.
fn occurrences(store: &dyn TimerStore, seen: &Seen) -> BTreeSet<TimerId> {
    let filter = Filter { namespace: Some("shop".into()), ..Filter::default() };
    let stored = pollster::block_on(store.list(filter, None, 100)).unwrap().timers;
    let delivered = seen.lock().unwrap().iter().map(|(.., id)| *id).collect::<Vec<_>>();
    stored.iter().map(|timer| timer.id).chain(delivered).collect()
}

/// A decision has begun when another process changes the schedule in a store that both share. Each way to change the
/// schedule waits for the end of the decision, so that no occurrence by the former rule is stored after the change has
/// returned.
#[test]
fn a_change_returns_after_a_decision_under_way_in_another_process() {
    let changes: [fn(&Schedules); 3] = [
        |schedules| assert!(schedules.remove(&at()).unwrap()),
        |schedules| assert!(schedules.pause(&at()).unwrap().progress.paused.is_some()),
        |schedules| {
            assert!(!schedules.put(&at(), Schedule::new(Plan::Every(60 * MINUTE)), template()).unwrap().0)
        },
    ];
    for change in changes {
        let clock = clock();
        let shared: Arc<dyn TimerStore> =
            Arc::new(SqliteStore::builder().clock(clock.clone()).in_memory().unwrap());
        let store = Arc::new(Hooked::new(Arc::clone(&shared), Raced::default()));
        let world = World::on(clock, Arc::clone(&store) as Arc<dyn TimerStore>, Seen::default());
        let other = Schedules::new(Arc::clone(&shared));
        world.schedules.put(&at(), each_minute(), template()).unwrap();
        world.settle();

        // The first change of the runtime at the next instant is the decision's.
        let (changed, has_changed) = mpsc::channel();
        let before = world.view();
        *store.hook().first.lock().unwrap() = Some(Box::new({
            let (shared, seen) = (Arc::clone(&shared), Arc::clone(&world.seen));
            move || {
                let changer = other.clone();
                drop(thread::spawn(move || {
                    change(&changer);
                    changed.send(occurrences(&*shared, &seen)).unwrap();
                }));
                // The decision goes on once the change is stored.
                while other.get(&at()).is_ok_and(|view| view == before) {
                    thread::yield_now();
                }
            }
        }));
        world.clock.advance(Duration::from_millis(MINUTE));
        let at_return = has_changed.recv_timeout(PATIENCE).unwrap();
        world.settle();
        assert_eq!(at_return, occurrences(&*store, &world.seen), "an occurrence was stored after the change");
    }
}

/// A decision has begun when two other processes change the schedule, one after the other. The second change replaces
/// only the timer of the first change, but waits for the end of the decision, too.
#[test]
fn a_change_after_another_change_waits_for_the_decision_as_well() {
    let firsts: [fn(&Schedules); 3] = [
        |schedules| drop(schedules.pause(&at()).unwrap()),
        |schedules| drop(schedules.put(&at(), each_minute(), template()).unwrap()),
        |schedules| {
            let _id = schedules.trigger(&at()).unwrap();
        },
    ];
    let seconds: [fn(&Schedules); 2] = [
        |schedules| assert!(schedules.remove(&at()).unwrap()),
        |schedules| {
            assert!(!schedules.put(&at(), Schedule::new(Plan::Every(60 * MINUTE)), template()).unwrap().0)
        },
    ];
    for (first, second) in firsts.into_iter().flat_map(|first| seconds.map(|second| (first, second))) {
        let clock = clock();
        let shared: Arc<dyn TimerStore> =
            Arc::new(SqliteStore::builder().clock(clock.clone()).in_memory().unwrap());
        let store = Arc::new(Hooked::new(Arc::clone(&shared), Raced::default()));
        let world = World::on(clock, Arc::clone(&store) as Arc<dyn TimerStore>, Seen::default());
        world.schedules.put(&at(), each_minute(), template()).unwrap();
        world.settle();

        let (changed, has_changed) = mpsc::channel();
        // The first change of the runtime at the next instant is the decision's.
        *store.hook().first.lock().unwrap() = Some(Box::new({
            let (shared, seen) = (Arc::clone(&shared), Arc::clone(&world.seen));
            let timer = {
                let shared = Arc::clone(&shared);
                let filter = Filter { namespace: Some(Schedules::namespace_of("shop")), ..Filter::default() };
                let filter = Filter { key_prefix: Some("".into()), ..filter };
                move || {
                    let listed = pollster::block_on(shared.list(filter.clone(), None, 1)).unwrap().timers;
                    listed.first().map(|timer| timer.id)
                }
            };
            move || {
                for (change, returned) in [(first, None), (second, Some(changed))] {
                    let before = timer();
                    let (shared, seen) = (Arc::clone(&shared), Arc::clone(&seen));
                    drop(thread::spawn(move || {
                        change(&Schedules::new(Arc::clone(&shared)));
                        if let Some(returned) = returned {
                            returned.send(occurrences(&*shared, &seen)).unwrap();
                        }
                    }));
                    // The next step comes once the change is stored.
                    while timer() == before {
                        thread::yield_now();
                    }
                }
                // A change that does not wait returns within this time.
                thread::sleep(Duration::from_millis(100));
            }
        }));
        world.clock.advance(Duration::from_millis(MINUTE));
        let at_return = has_changed.recv_timeout(PATIENCE).unwrap();
        world.settle();
        assert_eq!(at_return, occurrences(&*store, &world.seen), "an occurrence was stored after the change");
    }
}

/// A handler changes a schedule, whose decision waits for the only thread on which schedules decide. The decision has
/// not begun, and will find the change, so the call does not wait for it.
#[test]
fn a_handler_changes_a_schedule_whose_decision_waits_for_a_thread() {
    let clock = clock();
    let store: Arc<dyn TimerStore> =
        Arc::new(SqliteStore::builder().clock(clock.clone()).in_memory().unwrap());
    // The first decision holds the thread until the change is made.
    let (first, is_first) = mpsc::channel();
    let (changed, has_changed) = mpsc::channel::<()>();
    let ends = Mutex::new(Some((first, has_changed)));
    let schedules = Schedules::observed(Arc::clone(&store), move |at, event| {
        if matches!(event, ScheduleEvent::Fired { .. })
            && let Some((first, has_changed)) = ends.lock().unwrap().take()
        {
            first.send(at.clone()).unwrap();
            let _changed = has_changed.recv_timeout(PATIENCE);
        }
    });
    let both = [at(), ScheduleKey::new("shop", "another report")];
    both.iter().for_each(|at| drop(schedules.put(at, each_minute(), template()).unwrap()));
    let due = UtcMillis::from_millis(NOON + MINUTE - 1);
    let changer = Timer::new(TimerId::fresh(), "changer", due);
    let place = vec![Op::Place(Box::new(changer), IfPresent::Reject)];
    drop(pollster::block_on(store.apply(place, Durability::Volatile)).unwrap());
    let (answer, answered) = mpsc::channel();
    let (to_change, counted) = (schedules.clone(), Arc::clone(&store));
    let (ends, both) = (Mutex::new((is_first, changed)), both.to_vec());
    let builder = Durable::builder_on(Arc::clone(&store)).clock(clock.clone()).workers(1);
    let builder = builder.executor(|work| drop(thread::spawn(|| pollster::block_on(work))));
    let builder = builder.bytes_handler("changer", move |_, _| {
        let (is_first, changed) = &*ends.lock().unwrap();
        let first = is_first.recv_timeout(PATIENCE).unwrap();
        let leased = || pollster::block_on(counted.counts()).unwrap().of(Phase::Leased);
        while leased() < 3 {
            thread::yield_now();
        }
        let second = both.iter().find(|at| **at != first).unwrap();
        answer.send(to_change.pause(second)).unwrap();
        changed.send(()).unwrap();
        async {}
    });
    let durable = schedules.add_to(builder).start().unwrap();
    clock.advance(Duration::from_millis(MINUTE));
    let paused = answered.recv_timeout(PATIENCE).unwrap();
    let paused = paused.unwrap();
    assert!(paused.progress.paused.is_some());
    assert!(durable.handle().await_idle(PATIENCE));
    assert_eq!(schedules.get(&paused.at).unwrap().progress.fired, 0, "the decision has found the change");
}

/// An executor gives the runtime more places than workers. Blocking handlers hold the only worker and wait for it, and
/// a schedule decides all the same.
#[test]
fn a_decision_does_not_wait_behind_blocking_handlers() {
    let clock = clock();
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock.clone()));
    let schedules = Schedules::new(Arc::clone(&store));
    schedules.put(&at(), each_minute(), template()).unwrap();
    let due = UtcMillis::from_millis(NOON + MINUTE - 1);
    let slow = |_| {
        let payload = Payload((*b"null").into());
        let timer = Timer { payload, ..Timer::new(TimerId::fresh(), Slow::NAME, due) };
        Op::Place(Box::new(timer), IfPresent::Reject)
    };
    drop(pollster::block_on(store.apply((0..4).map(slow).collect(), Durability::Volatile)).unwrap());
    let (open, opens) = mpsc::channel::<()>();
    let opens = Mutex::new(opens);
    let builder = Durable::builder_on(Arc::clone(&store)).clock(clock.clone()).workers(1).concurrency(8);
    let builder = builder
        .executor(|work| drop(thread::spawn(|| pollster::block_on(work))))
        .blocking_handler(move |_: Slow, _| {
            let _opened = opens.lock().unwrap().recv();
        })
        .bytes_handler("mail", async |_, _| {});
    let durable = schedules.add_to(builder).start().unwrap();
    clock.advance(Duration::from_millis(MINUTE));
    let begun = Instant::now();
    while schedules.get(&at()).unwrap().progress.fired == 0 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", durable.handle());
        thread::yield_now();
    }
    let left = pollster::block_on(store.list(Filter::default(), None, 100)).unwrap().timers;
    assert_eq!(left.iter().filter(|timer| *timer.kind == *Slow::NAME).count(), 4, "the handlers still wait");
    drop(open);
    assert!(durable.handle().await_idle(PATIENCE));
}

#[derive(Debug, Serialize, Deserialize)]
struct Slow;

impl Kind for Slow {
    const NAME: &'static str = "slow";
}

/// A process has died while it decided about a schedule. A change of the schedule does not wait for it once its lease
/// has expired, although nobody has reaped the lease yet.
#[test]
fn a_change_does_not_wait_for_a_decision_whose_lease_has_expired() {
    let clock = clock();
    let store: Arc<dyn TimerStore> =
        Arc::new(SqliteStore::builder().clock(clock.clone()).in_memory().unwrap());
    let schedules = Schedules::new(Arc::clone(&store));
    schedules.put(&at(), each_minute(), template()).unwrap();
    clock.advance(Duration::from_millis(MINUTE));
    let dead = Claimant { incarnation: 7, lease: Duration::from_secs(30) };
    let claimed =
        pollster::block_on(store.claim(dead, 1, Limit { timers: 9, bytes: 1 << 20 }, None)).unwrap();
    assert_eq!(claimed.leased.len(), 1);
    clock.advance(Duration::from_secs(30));
    assert!(schedules.pause(&at()).unwrap().progress.paused.is_some());
    assert!(schedules.resume(&at()).unwrap().progress.paused.is_none());
    assert!(schedules.remove(&at()).unwrap());
}

/// In a store without transactions, a decision has stored the new state of the schedule, and not its occurrences. A
/// change of the new state waits for the decision, too, and has its result then.
#[test]
fn a_change_waits_for_occurrences_that_a_decision_stores_after_its_new_state() {
    for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
        let clock = clock();
        let shared: Arc<dyn TimerStore> =
            Arc::new(SqliteStore::builder().clock(clock.clone()).in_memory().unwrap());
        let store = without_transactions(&shared);
        let world = World::on(clock, Arc::clone(&store) as Arc<dyn TimerStore>, Seen::default());
        world.schedules.put(&at(), each_minute(), template_of(guarantee)).unwrap();
        world.settle();

        let (other, changed, is_early) = (
            Schedules::new(Arc::clone(&shared)),
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let change = {
            let (changed, is_early) = (Arc::clone(&changed), Arc::clone(&is_early));
            move || {
                let (changer, returned) = (other.clone(), Arc::clone(&changed));
                drop(thread::spawn(move || {
                    assert!(changer.pause(&at()).unwrap().progress.paused.is_some());
                    returned.store(true, Ordering::SeqCst);
                }));
                while other.get(&at()).unwrap().progress.paused.is_none() {
                    thread::yield_now();
                }
                // A change that does not wait returns within this time.
                thread::sleep(Duration::from_millis(100));
                is_early.store(changed.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        };
        before_occurrences(&store, change);
        world.clock.advance(Duration::from_millis(MINUTE));
        let begin = Instant::now();
        while !changed.load(Ordering::SeqCst) {
            assert!(begin.elapsed() < PATIENCE, "the change does not return");
            thread::yield_now();
        }
        let progress = world.view().progress;
        assert_eq!((&progress.storing[..], progress.fired), (&[][..], 1), "{guarantee:?}");
        world.settle();
        assert!(!is_early.load(Ordering::SeqCst), "the change has returned before the occurrence was stored");
        assert_eq!((world.minutes(), world.told.lock().unwrap().len()), (vec![1], 1), "{guarantee:?}");
        // By then the store has forgotten the id of the occurrence.
        world.advance(120);
        assert!(world.schedules.resume(&at()).unwrap().progress.paused.is_none());
        world.settle();
        assert_eq!((world.minutes(), world.counts()), (vec![1], (1, 0, 0)), "{guarantee:?}");
    }
}

/// Returns a store that has the content of `shared`, and no transactions.
fn without_transactions(shared: &Arc<dyn TimerStore>) -> Arc<Hooked<Raced>> {
    Arc::new(Hooked::new(Arc::clone(shared), Raced { has_none: true, ..Raced::default() }))
}

fn template_of(guarantee: Guarantee) -> Template {
    Template { policy: Policy { guarantee, ..template().policy }, ..template() }
}

/// Lets the store call `act` after the next decision has noted its instants, and before it stores their occurrences.
fn before_occurrences(store: &Arc<Hooked<Raced>>, act: impl FnOnce() + Send + 'static) {
    // The first change of the runtime at the next instant stores the new state, and the second stores the occurrence.
    let again = Arc::clone(store);
    *store.hook().first.lock().unwrap() =
        Some(Box::new(move || *again.hook().first.lock().unwrap() = Some(Box::new(act))));
}

/// Another process gets the schedule while a decision stores its occurrences: after a trigger, or because the decision
/// takes longer than usual. It leaves them to the decision. By chance, the first process may get the changed schedule
/// instead. Its delivery waits for the decision, and the test then shows less.
#[test]
fn no_other_process_completes_a_decision_that_still_stores_its_occurrences() {
    for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
        for is_triggered in [true, false] {
            let case = format!("{guarantee:?} {is_triggered}");
            let clock = clock();
            let shared: Arc<dyn TimerStore> =
                Arc::new(SqliteStore::builder().clock(clock.clone()).in_memory().unwrap());
            let store = without_transactions(&shared);
            let world = World::on(clock, Arc::clone(&store) as Arc<dyn TimerStore>, Seen::default());
            world.schedules.put(&at(), each_minute(), template_of(guarantee)).unwrap();
            world.settle();

            let (other, is_begun) = mpsc::channel();
            let (clock, seen) = (world.clock.clone(), Arc::clone(&world.seen));
            before_occurrences(&store, move || {
                let process = World::on(clock, without_transactions(&shared), seen);
                if is_triggered {
                    let _id = process.schedules.trigger(&at()).unwrap();
                } else {
                    process.clock.advance(Duration::from_secs(6));
                }
                // The other process tries to decide within this time.
                let begin = Instant::now();
                while process.view().failure.is_none() && begin.elapsed() < Duration::from_secs(2) {
                    thread::yield_now();
                }
                let progress = process.view().progress;
                other.send((process, progress)).unwrap();
            });
            world.clock.advance(Duration::from_millis(MINUTE));
            let (process, during) = is_begun.recv_timeout(PATIENCE).unwrap();
            assert_eq!((during.storing.len(), during.fired, during.missed), (1, 0, 0), "{case}");
            for _ in 0..5 {
                for world in [&world, &process] {
                    world.settle();
                }
                world.clock.advance(Duration::from_secs(1));
            }
            world.settle();
            let asked = usize::from(is_triggered);
            assert_eq!((world.counts(), world.view().progress.asked), ((1, 0, 0), asked as u64), "{case}");
            assert_eq!(world.seen.lock().unwrap().len(), 1 + asked, "{case}");
            assert_eq!((world.events(), process.events()), (vec![], vec![]), "{case}");
            let told = [&world, &process].map(|world| world.told.lock().unwrap().len());
            assert_eq!(told, [1, asked], "{case}");
        }
    }
}
