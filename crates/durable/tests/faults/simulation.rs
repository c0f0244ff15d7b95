//! Simulates months of timers on a manual clock, with processes that die at random changes of the store. Compares the
//! deliveries with a model.

use crate::stores::{Failing, Failures};
use crate::{Note, PATIENCE, START, number_of, secs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Hooked, MemoryStore, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Changed, Delivery, Durable, Spec, UtcMillis};

/// The expected state of a timer, in the test's own record of all timers.
#[derive(Debug)]
struct Modelled {
    due: UtcMillis,
    is_cancelled: bool,
    /// Whether the test does not know how the timer ended. An answer was lost with its process, or the timer was
    /// withdrawn during its delivery.
    is_unsure: bool,
}

/// A delivery: the timer's id, the scheduled moment, the due moment, and the number of the process whose handler was
/// called.
type Made = (TimerId, UtcMillis, UtcMillis, u32);

/// Makes a timer with a timeout that is longer than any step of the clock.
fn note(id: TimerId) -> Spec<Note> {
    Spec::new(Note(0)).id(id).timeout(secs(100 * 86_400))
}

fn simulate(seed: u64, days: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let clock = ManualClock::new();
    let begin = UtcMillis::from_millis(START);
    clock.set(tourbillon::Timestamp::from_nanos(begin.as_nanos()));
    let inner: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock.clone()));
    let made: Arc<Mutex<Vec<Made>>> = Arc::default();
    let mut model: BTreeMap<TimerId, Modelled> = BTreeMap::new();
    let series = TimerId::from_u128(u128::MAX);
    let (mut process, mut crashes, mut is_series_made) = (0, 0, false);
    let mut next_id = 1;
    let end = begin + secs(days * 86_400);
    let runtime = |process: u32| {
        let failing = Arc::new(Hooked::new(Arc::clone(&inner), Failures::new(StoreErrorKind::Closed)));
        let (made, clock, own) = (Arc::clone(&made), clock.clone(), clock.clone());
        let handler = move |_: Note, delivery: Delivery| {
            let now = UtcMillis::from_nanos(tourbillon::Clock::now(&clock).as_nanos());
            assert!(now >= delivery.due, "TOURBILLON_SEED={seed}: early");
            made.lock().unwrap().push((delivery.id, delivery.scheduled, delivery.due, process));
            async {}
        };
        let store: Arc<dyn TimerStore> = Arc::<Failing>::clone(&failing);
        let builder = Durable::builder_on(store).clock(own).catch_up_rate(None).workers(2);
        (builder.handler(handler).start().unwrap(), failing)
    };
    while inner.now() < end {
        process += 1;
        let (durable, failing) = runtime(process);
        let timers = durable.handle();
        if !is_series_made {
            let spec = note(series).at(begin + secs(3_600)).key("series");
            timers.schedule_blocking(spec.repeat(Plan::Every(3_600_000), MissedInstants::All)).unwrap();
            is_series_made = true;
        }
        for _ in 0..random.u32(0..60) {
            let due = inner.now() + Duration::from_millis(random.u64(0..20 * 86_400_000));
            let some = model.keys().nth(random.usize(0..model.len().max(1))).copied();
            match (random.u8(0..10), some) {
                (0, Some(id)) => {
                    let timer = model.get_mut(&id).unwrap();
                    match timers.cancel_blocking(id).unwrap() {
                        Cancelled::Cancelled(_) => timer.is_cancelled = true,
                        // The process that had claimed the timer may have died before it called the handler.
                        Cancelled::InFlight => timer.is_unsure = true,
                        _ => {}
                    }
                }
                (1, Some(id)) => {
                    if pollster::block_on(timers.move_to(id, due)).unwrap() == Changed::Changed {
                        model.get_mut(&id).unwrap().due = due;
                    }
                }
                (2..=6, _) => {
                    let id = TimerId::from_u128(next_id);
                    next_id += 1;
                    timers.schedule_blocking(note(id).at(due)).unwrap();
                    model.insert(id, Modelled { due, is_cancelled: false, is_unsure: false });
                }
                _ => {
                    clock.advance(Duration::from_millis(random.u64(0..8 * 3_600_000)));
                    assert!(timers.await_idle(PATIENCE), "TOURBILLON_SEED={seed}: {timers:?}");
                }
            }
        }
        if random.bool() {
            // The process dies at one of the next changes, with deliveries under way.
            crashes += 1;
            failing.hook().good.store(random.u64(0..12), Ordering::SeqCst);
            let id = TimerId::from_u128(next_id);
            next_id += 1;
            let spec = note(id).at(inner.now() + secs(5));
            let is_unsure = timers.schedule_blocking(spec).is_err();
            model.insert(id, Modelled { due: inner.now() + secs(5), is_cancelled: false, is_unsure });
            clock.advance(Duration::from_millis(random.u64(0..3 * 86_400_000)));
            std::thread::sleep(Duration::from_millis(random.u64(0..4)));
        }
        drop(durable);
        // The downtime is longer than the leases.
        clock.advance(Duration::from_millis(random.u64(31_000..2 * 86_400_000)));
    }
    let (durable, _failing) = runtime(process + 1);
    clock.advance(secs(30 * 86_400));
    assert!(durable.handle().await_idle(PATIENCE), "TOURBILLON_SEED={seed}: {:?}", durable.handle());
    let last = inner.now();
    drop(durable);
    let made = std::mem::take(&mut *made.lock().unwrap());
    let mut deliveries: BTreeMap<TimerId, Vec<(UtcMillis, u32)>> = BTreeMap::new();
    let mut instants: BTreeMap<UtcMillis, BTreeSet<TimerId>> = BTreeMap::new();
    for (id, scheduled, due, process) in made {
        deliveries.entry(id).or_default().push((due, process));
        if !model.contains_key(&id) {
            instants.entry(scheduled).or_default().insert(id);
        }
    }
    let mut doubled = 0;
    for (id, deliveries) in &deliveries {
        let mut processes: Vec<u32> = deliveries.iter().map(|(_, process)| *process).collect();
        doubled += processes.len() - 1;
        processes.dedup();
        assert_eq!(processes.len(), deliveries.len(), "TOURBILLON_SEED={seed}: {id} twice by one process");
    }
    for (id, Modelled { due, is_cancelled, is_unsure }) in &model {
        let delivered = deliveries.get(id).and_then(|deliveries| deliveries.last()).map(|(due, _)| *due);
        match (is_cancelled, is_unsure) {
            (true, _) => assert_eq!(delivered, None, "TOURBILLON_SEED={seed}: cancelled"),
            (false, true) => assert!(delivered.is_none_or(|at| at == *due)),
            (false, false) => {
                let stored = pollster::block_on(inner.get((*id).into())).unwrap();
                assert_eq!(delivered, Some(*due), "TOURBILLON_SEED={seed}: {id} is lost: {stored:?}");
            }
        }
    }
    let hours = |at: UtcMillis| (at - begin).as_secs() / 3_600;
    let wanted: BTreeSet<u64> = (1..=hours(last)).collect();
    let seen: BTreeSet<u64> = instants.keys().map(|instant| hours(*instant)).collect();
    assert_eq!(seen, wanted, "TOURBILLON_SEED={seed}: each hour has its occurrence");
    assert!(instants.values().all(|ids| ids.len() == 1), "TOURBILLON_SEED={seed}: each instant has one id");
    assert_eq!(pollster::block_on(inner.check()).unwrap(), []);
    assert_eq!(crate::phases(&*inner), [(Phase::Pending, 1)].into(), "the series");
    println!(
        "seed {seed}: {days} days, {process} processes, {crashes} crashes, {} timers, {} instants, lost 0, early 0, \
         delivered again {doubled}",
        model.len(),
        instants.len(),
    );
}

#[test]
fn months_of_schedules_survive_processes_that_die() {
    let seeds = number_of("TOURBILLON_SEEDS", 6);
    let first = number_of("TOURBILLON_SEED", 1);
    for seed in first..first + seeds {
        simulate(seed, 120);
    }
}
