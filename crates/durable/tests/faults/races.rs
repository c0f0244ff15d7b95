//! Tests callers that change timers while the runtime claims them.

use crate::{Note, PATIENCE, World, eventually, number_of, secs};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{IfPresent, MemoryStore, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Changed, Delivery, Durable, Placed, Spec, UtcMillis};

/// The due moments of all deliveries of each timer.
type Deliveries = Arc<Mutex<BTreeMap<TimerId, Vec<UtcMillis>>>>;

/// Makes a runtime on the system's clock, and its store. The handler adds each delivery to the returned deliveries.
fn runtime() -> (Durable, Arc<dyn TimerStore>, Deliveries) {
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
    let deliveries = Deliveries::default();
    let (noted, clock) = (Arc::clone(&deliveries), Arc::clone(&store));
    let handler = move |_: Note, delivery: Delivery| {
        assert!(clock.now() >= delivery.due, "early");
        noted.lock().unwrap().entry(delivery.id).or_default().push(delivery.due);
    };
    let durable =
        Durable::builder_on(Arc::clone(&store)).workers(4).blocking_handler(handler).start().unwrap();
    (durable, store, deliveries)
}

/// Waits until the store has no timers, and ends the runtime. Returns the due moments of all deliveries of each timer.
fn finish(
    durable: Durable,
    store: &dyn TimerStore,
    deliveries: &Deliveries,
) -> BTreeMap<TimerId, Vec<UtcMillis>> {
    eventually(|| crate::phases(store).is_empty());
    let _stats = durable.shutdown(PATIENCE);
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
    std::mem::take(&mut *deliveries.lock().unwrap())
}

#[test]
fn a_cancel_at_the_due_moment_is_right_about_the_delivery() {
    let (durable, store, deliveries) = runtime();
    let timers = durable.handle();
    let rounds = number_of("TOURBILLON_RACES", 10_000) / 50;
    let mut answers: Vec<(TimerId, Cancelled)> = Vec::new();
    let mut seen = [false; 3];
    let mut random = fastrand::Rng::with_seed(31);
    // On a busy machine one thread may win each race for a while. So there may be more rounds until all outcomes were
    // seen.
    for round in 0..10 * rounds {
        if round >= rounds && seen == [true; 3] {
            break;
        }
        let due = store.now() + Duration::from_millis(8);
        let spec = |number| Spec::new(Note(number)).at(due);
        let ids: Vec<TimerId> =
            (0..50).map(|number| timers.schedule_blocking(spec(number)).unwrap().id()).collect();
        while store.now() < due {
            std::hint::spin_loop();
        }
        if random.bool() {
            std::thread::sleep(Duration::from_micros(random.u64(0..1_000)));
        } else {
            (0..random.u32(0..20_000)).for_each(|_| std::hint::spin_loop());
        }
        for id in ids.into_iter().rev() {
            let answer = timers.cancel_blocking(id).unwrap();
            match answer {
                Cancelled::Cancelled(_) => seen[0] = true,
                Cancelled::InFlight => seen[1] = true,
                _ => seen[2] = true,
            }
            answers.push((id, answer));
        }
    }
    let deliveries = finish(durable, &*store, &deliveries);
    let mut counts = [0; 3];
    for (id, answer) in answers {
        let delivered = deliveries.get(&id).map_or(0, Vec::len);
        let kind = match answer {
            Cancelled::Cancelled(_) => {
                assert_eq!(delivered, 0, "a cancelled timer was delivered");
                0
            }
            Cancelled::InFlight => {
                assert!(delivered <= 1, "{delivered} deliveries");
                1
            }
            Cancelled::NotFound => {
                assert_eq!(delivered, 1, "a timer is neither cancelled nor delivered");
                2
            }
            other => panic!("{other:?}"),
        };
        counts[kind] += 1;
    }
    println!("cancelled {}, in flight {}, delivered before {}", counts[0], counts[1], counts[2]);
    assert!(counts.iter().all(|count| *count > 0), "no race: {counts:?}");
}

#[test]
fn of_a_storm_of_replacements_one_timer_is_left() {
    let world = World::done();
    std::thread::scope(|scope| {
        for key in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for number in 0..1_000 {
                    let spec =
                        Spec::new(Note(key * 1_000 + number)).after(secs(60)).key(format!("key {key}"));
                    world.schedule(spec.if_present(IfPresent::Replace).label("storm"));
                }
            });
        }
    });
    world.assert_whole(&[(Phase::Pending, 4)]);
    world.advance(secs(61));
    assert_eq!(world.numbers(), [999, 1_999, 2_999, 3_999], "the last of each key");
    world.assert_whole(&[]);
}

/// The expected end of a timer. It follows from the answers to the calls that changed the timer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Delivered,
    Withdrawn,
    Either,
}

#[test]
fn callers_that_change_timers_beside_claims_are_answered_truly() {
    let (durable, store, deliveries) = runtime();
    let timers = durable.handle();
    let seed = number_of("TOURBILLON_SEED", 8);
    // By timer: its fate, the due moment that was asked for last, and the moment of that answer. If the due moment had
    // passed by then, the timer is due at once.
    let model: Mutex<BTreeMap<TimerId, (Fate, UtcMillis, UtcMillis)>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (model, store) = (&model, &store);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 4 + thread);
                let mut fates: BTreeMap<TimerId, (Fate, UtcMillis, UtcMillis)> = BTreeMap::new();
                for _ in 0..number_of("TOURBILLON_CHANGES", 5_000) {
                    let key = format!("{thread} {}", random.u8(0..8));
                    let due = store.now() + Duration::from_millis(random.u64(0..6));
                    match random.u8(0..4) {
                        0 | 1 => {
                            let mode = if random.bool() { IfPresent::Replace } else { IfPresent::Keep };
                            let spec = Spec::new(Note(0)).at(due).key(key).if_present(mode);
                            let fate = match timers.schedule_blocking(spec).unwrap() {
                                Placed::Created(new) => Some((new, None)),
                                Placed::Replaced { new, old, was: Phase::Pending } => {
                                    Some((new, Some((old, Fate::Withdrawn))))
                                }
                                Placed::Replaced { new, old, .. } => Some((new, Some((old, Fate::Either)))),
                                _ => None,
                            };
                            if let Some((new, old)) = fate {
                                fates.insert(new, (Fate::Delivered, due, store.now()));
                                if let Some((old, fate)) = old {
                                    fates.get_mut(&old).unwrap().0 = fate;
                                }
                            }
                        }
                        2 => {
                            let Some(timer) = pollster::block_on(timers.get(&*key)).unwrap() else {
                                continue;
                            };
                            match timers.cancel_blocking(timer.id).unwrap() {
                                Cancelled::Cancelled(_) => {
                                    fates.get_mut(&timer.id).unwrap().0 = Fate::Withdrawn
                                }
                                // The delivery had begun before the cancel, and goes on.
                                _ => fates.get_mut(&timer.id).unwrap().0 = Fate::Either,
                            }
                        }
                        _ => {
                            let Some(timer) = pollster::block_on(timers.get(&*key)).unwrap() else {
                                continue;
                            };
                            if pollster::block_on(timers.move_to(timer.id, due)).unwrap() == Changed::Changed
                            {
                                let fate = fates.get_mut(&timer.id).unwrap();
                                (fate.1, fate.2) = (due, store.now());
                            }
                        }
                    }
                }
                model.lock().unwrap().append(&mut fates);
            });
        }
    });
    let deliveries = finish(durable, &*store, &deliveries);
    let model = model.into_inner().unwrap();
    for (id, (fate, due, answered)) in &model {
        let delivered = deliveries.get(id).map_or(&[][..], |deliveries| deliveries);
        match fate {
            Fate::Delivered => {
                let is_meant = |at: UtcMillis| at == *due || (*due..=*answered).contains(&at);
                assert!(
                    matches!(delivered, [at] if is_meant(*at)),
                    "TOURBILLON_SEED={seed}: once, at the last due moment {due:?}, or at once: {delivered:?}"
                )
            }
            Fate::Withdrawn => assert_eq!(delivered, [], "TOURBILLON_SEED={seed}: withdrawn"),
            Fate::Either => assert!(delivered.len() <= 1, "TOURBILLON_SEED={seed}: {delivered:?}"),
        }
    }
    assert!(deliveries.keys().all(|id| model.contains_key(id)));
    let count = |wanted| model.values().filter(|(fate, ..)| *fate == wanted).count();
    println!(
        "delivered {}, withdrawn {}, in flight {}",
        count(Fate::Delivered),
        count(Fate::Withdrawn),
        count(Fate::Either)
    );
    assert!(count(Fate::Delivered) > 0 && count(Fate::Withdrawn) > 0);
}
