//! Compares the structures of the benches, ours among them, with a `BTreeMap` that does the same. A baseline that loses
//! timers would be a bad opponent.
//!
//! Each structure must keep its own stated limits: no timer is early, no timer is later than stated, and none fires
//! twice. If nothing is rounded, and a timer was scheduled in time, the same timers must fire at the same step.

#[path = "../benches/baselines/mod.rs"]
mod baselines;
#[path = "../benches/common/mod.rs"]
mod common;

use baselines::{IndexHeap, LazyHeap, Locked, Queue, ShardedWheel, Tree, for_each_structure};
use common::{Caller, Chance, Demand, Fired, Limits, Payload, Service, TICKS, Timers, payload};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Schedules a timer. For a structure that takes only a few delays, `number` chooses the delay.
    Schedule {
        ahead: u64,
        number: u64,
    },
    ScheduleLate {
        ago: u64,
    },
    ScheduleMany {
        ahead: u64,
        span: u64,
        count: u64,
    },
    /// Cancels a timer by one of the ids that were made so far. Most of these ids are stale.
    Cancel {
        choice: u64,
    },
    CancelTwice {
        choice: u64,
    },
    CancelMany {
        choice: u64,
        count: u64,
    },
    Advance {
        by: u64,
    },
    AdvanceToNext,
    AdvanceBack {
        by: u64,
    },
}

/// A timer that is pending in the model, a `BTreeMap`.
#[derive(Clone, Copy, Debug)]
struct Pending {
    tick: u64,
    /// The number of the step of time by which the timer must have fired.
    latest: u64,
}

struct Model<T: Timers> {
    timers: T,
    position: u64,
    /// The model's pending timers. The key is the number in a timer's payload.
    pending: BTreeMap<u64, Pending>,
    by_latest: BTreeSet<(u64, u64)>,
    ids: Vec<T::Id>,
    latest_fire: u64,
}

/// The delays for structures that take only a few delays, in ticks.
const DURATIONS: [u64; 12] = [1, 2, 3, 10, 64, 100, 1_000, 4_095, 4_096, 5_000, 70_000, 1 << 33];

impl<T: Timers> Model<T> {
    fn new() -> Self {
        Self {
            timers: T::new(),
            position: 0,
            pending: BTreeMap::new(),
            by_latest: BTreeSet::new(),
            ids: Vec::new(),
            latest_fire: 0,
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Schedule { ahead, number } => self.schedule_ahead(ahead, number),
            Op::ScheduleLate { ago } => self.schedule(self.position.saturating_sub(ago)),
            Op::ScheduleMany { ahead, span, count } => {
                for n in 0..count {
                    self.schedule_ahead(ahead + n % span.max(1), ahead.wrapping_add(n));
                }
            }
            Op::Cancel { choice } => self.cancel(choice),
            Op::CancelTwice { choice } => {
                self.cancel(choice);
                self.cancel(choice);
            }
            Op::CancelMany { choice, count } => {
                for n in 0..count {
                    self.cancel(choice.wrapping_add(n));
                }
            }
            Op::Advance { by } => self.advance(self.position.saturating_add(by)),
            Op::AdvanceToNext => {
                if let Some(&(latest, _)) = self.by_latest.first() {
                    self.advance(self.position.max(latest));
                }
            }
            Op::AdvanceBack { by } => self.advance(self.position.saturating_sub(by)),
        }
        assert_eq!(self.timers.len(), self.pending.len());
    }

    fn schedule_ahead(&mut self, ahead: u64, number: u64) {
        let Limits { span, durations, timers, .. } = T::LIMITS;
        if self.pending.len() >= timers {
            return;
        }
        let ahead = if durations < usize::MAX {
            DURATIONS[usize::try_from(number % 12).unwrap()]
        } else {
            ahead.min(span)
        };
        self.schedule(self.position + ahead);
    }

    fn schedule(&mut self, tick: u64) {
        let number = self.ids.len() as u64;
        self.ids.push(self.timers.schedule(tick, payload(number)));
        let ahead = tick.saturating_sub(self.position);
        let latest = tick.max(self.position + 1) + (T::LIMITS.lateness)(ahead);
        self.pending.insert(number, Pending { tick, latest });
        self.by_latest.insert((latest, number));
    }

    fn cancel(&mut self, choice: u64) {
        let Some(number) = choice.checked_rem(self.ids.len() as u64) else { return };
        let is_pending = self.take(number).is_some();
        let id = self.ids[usize::try_from(number).unwrap()];
        assert_eq!(self.timers.cancel(id), is_pending.then(|| payload(number)), "timer {number}");
    }

    fn take(&mut self, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&number)?;
        assert!(self.by_latest.remove(&(pending.latest, number)));
        Some(pending)
    }

    fn advance(&mut self, to: u64) {
        let mut fired = Vec::new();
        self.timers.expire(to, |payload| fired.push(payload));
        self.position = self.position.max(to);
        for found in fired {
            assert_eq!(found, payload(found[0]));
            let timer = self.take(found[0]).unwrap_or_else(|| panic!("{found:?} was not pending"));
            assert!(timer.tick <= self.position, "{timer:?} was early, at {}", self.position);
            self.latest_fire = self.latest_fire.max(self.position - timer.tick);
        }
        let overdue = self.by_latest.first().filter(|(latest, _)| *latest <= self.position);
        assert_eq!(overdue, None, "late, at {}", self.position);
    }

    /// Lets the remaining timers fire. Then checks that the structure is empty, and that it still works.
    fn finish(&mut self) {
        while !self.pending.is_empty() {
            self.apply(Op::AdvanceToNext);
        }
        self.apply(Op::Schedule { ahead: 5, number: 3 });
        self.apply(Op::Advance { by: 1 << 34 });
        assert_eq!(self.timers.len(), 0);
        for number in 0..self.ids.len() as u64 {
            self.cancel(number);
        }
    }
}

/// Distances in ticks at which a wheel could fail: around the edges of slots, levels and rings.
const EDGES: [u64; 14] = [0, 1, 8, 63, 64, 504, 512, 4_032, 4_096, 32_256, 65_536, 1 << 18, 1 << 30, 1 << 40];

fn distance() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..300_u64,
        4 => (prop::sample::select(&EDGES[..]), 0..3_u64)
            .prop_map(|(edge, offset)| (edge + offset).saturating_sub(1)),
        2 => (0..1_u64 << 44, 0..44_u32).prop_map(|(bits, shift)| bits >> shift),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (distance(), any::<u64>()).prop_map(|(ahead, number)| Op::Schedule { ahead, number }),
        1 => distance().prop_map(|ago| Op::ScheduleLate { ago: ago % 100 }),
        1 => (distance(), distance(), 1..100_u64)
            .prop_map(|(ahead, span, count)| Op::ScheduleMany { ahead, span, count }),
        3 => any::<u64>().prop_map(|choice| Op::Cancel { choice }),
        1 => any::<u64>().prop_map(|choice| Op::CancelTwice { choice }),
        1 => (any::<u64>(), 1..100_u64).prop_map(|(choice, count)| Op::CancelMany { choice, count }),
        4 => prop_oneof![Just(0), Just(1), 2..100_u64, distance()].prop_map(|by| Op::Advance { by }),
        3 => Just(Op::AdvanceToNext),
        1 => distance().prop_map(|by| Op::AdvanceBack { by }),
    ]
}

fn run<T: Timers>(ops: &[Op]) {
    // The output of a failing test shows the name of the structure.
    eprintln!("{}", T::NAME);
    let mut model = Model::<T>::new();
    ops.iter().for_each(|&op| model.apply(op));
    model.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn each_does_what_a_tree_does(ops in prop::collection::vec(op(), 1..80)) {
        let runs: &[fn(&[Op])] = &for_each_structure!(run);
        runs.iter().for_each(|run| run(&ops));
    }
}

fn random_op(chance: &mut Chance, hasty: u64) -> Op {
    let distance = |chance: &mut Chance| match chance.next() % 8 {
        0..5 => chance.next() % 3_000,
        5 | 6 => chance.next() % 100_000,
        _ => (chance.next() >> 24) >> (chance.next() % 40),
    };
    let by = if chance.next() % 1_000 < hasty { distance(chance) } else { chance.next() % 40 };
    let number = chance.next();
    match chance.next() % 1_000 {
        0..450 => Op::Schedule { ahead: distance(chance), number },
        450..460 => Op::ScheduleLate { ago: number % 50 },
        460..463 => {
            let span = 1 << (chance.next() % 12);
            Op::ScheduleMany { ahead: number % 60_000, span, count: chance.next() % 4_000 }
        }
        463..750 => Op::Cancel { choice: number },
        750..755 => Op::CancelMany { choice: number, count: chance.next() % 4_000 },
        755..900 => Op::Advance { by },
        900..990 => Op::AdvanceToNext,
        _ => Op::AdvanceBack { by: distance(chance) },
    }
}

/// Each structure lives long, with thousands of timers at a time, and agrees with a `BTreeMap`.
#[test]
fn a_long_life_is_the_same_for_each_and_the_tree() {
    fn check<T: Timers>(seed: u64, hasty: u64) {
        eprintln!("{}, seed {seed}", T::NAME);
        let mut chance = Chance::new(seed);
        let mut model = Model::<T>::new();
        for _ in 0..4_000 {
            model.apply(random_op(&mut chance, hasty));
        }
        model.finish();
    }
    let checks: &[fn(u64, u64)] = &for_each_structure!(check);
    for (seed, hasty) in [(1, 0), (2, 5), (3, 100)] {
        checks.iter().for_each(|check| check(seed, hasty));
    }
}

/// Each structure is used as in the benches: many timers within a minute, half of them cancelled, and steps of a tick.
#[test]
fn each_fires_a_minute_of_timers_with_the_same_checksum() {
    fn check<T: Timers>() {
        const COUNT: usize = 5_000;
        if T::LIMITS.refuses(&Demand::uniform(COUNT, &TICKS)).is_some() {
            return;
        }
        let mut chance = Chance::new(1);
        let mut timers = T::new();
        let mut expected = BTreeMap::<u64, Fired>::new();
        let mut total = Fired::default();
        for n in 0..COUNT as u64 {
            let tick = chance.within(&TICKS);
            let id = timers.schedule(tick, payload(n));
            if n % 2 == 0 {
                assert_eq!(timers.cancel(id), Some(payload(n)));
            } else {
                expected.entry(tick).or_default().add(payload(n));
                total.add(payload(n));
            }
        }
        let lateness = (T::LIMITS.lateness)(TICKS.end);
        let mut fired = Fired::default();
        for tick in 1..=TICKS.end + lateness {
            let now = timers.advance(tick);
            fired.join(now);
            if lateness == 0 {
                assert_eq!(now, expected.remove(&tick).unwrap_or_default(), "{} at {tick}", T::NAME);
            }
        }
        assert_eq!((fired, timers.len()), (total, 0), "{}", T::NAME);
    }
    let checks: &[fn()] = &for_each_structure!(check);
    checks.iter().for_each(|check| check());
}

#[test]
fn limits_are_what_they_say() {
    use baselines::{BoundedWheel, DurationFifos, LinuxWheel, SortedList};

    let demand = |span, durations, timers| Demand { span, durations, timers };
    assert!(Limits::NONE.refuses(&demand(u64::MAX, usize::MAX, usize::MAX)).is_none());
    let uniform = Demand::uniform(1_000, &TICKS);
    assert_eq!((uniform.span, uniform.durations), (59_999, 59_000));
    assert!(<BoundedWheel>::LIMITS.refuses(&uniform).is_none());
    assert!(<BoundedWheel>::LIMITS.refuses(&demand(65_537, 1, 1)).is_some());
    assert!(DurationFifos::LIMITS.refuses(&demand(1 << 40, 256, 1)).is_none());
    assert!(DurationFifos::LIMITS.refuses(&uniform).is_some());
    assert!(SortedList::LIMITS.refuses(&demand(1, 1, 10_001)).is_some());

    // The stated lateness occurs, and is at most 8/63 of the delay.
    let mut chance = Chance::new(1);
    let mut model = Model::<LinuxWheel>::new();
    for _ in 0..20_000 {
        model.schedule_ahead(chance.within(&TICKS), 0);
    }
    while !model.pending.is_empty() {
        model.apply(Op::Advance { by: 1 });
    }
    assert_eq!(model.latest_fire, (LinuxWheel::LIMITS.lateness)(59_999));
    for ahead in 1..100_000 {
        assert!((LinuxWheel::LIMITS.lateness)(ahead) * 63 <= ahead * 8);
    }
    let mut wheel = LinuxWheel::new();
    wheel.schedule(LinuxWheel::LIMITS.span, payload(0));
    assert_eq!(wheel.advance(LinuxWheel::LIMITS.span - 1).count, 0);
}

#[test]
fn what_is_beyond_the_limits_is_refused() {
    use baselines::{BoundedWheel, DurationFifos, LinuxWheel};

    fn refuses<T: Timers>(ticks: impl IntoIterator<Item = u64>) -> bool {
        let mut timers = T::new();
        let schedule_all = || {
            for tick in ticks {
                timers.schedule(tick, payload(tick));
            }
        };
        catch_unwind(AssertUnwindSafe(schedule_all)).is_err()
    }
    let ends = [BoundedWheel::<65_536>::LIMITS.span, LinuxWheel::LIMITS.span];
    assert!(!refuses::<BoundedWheel>([ends[0]]) && refuses::<BoundedWheel>([ends[0] + 1]));
    assert!(!refuses::<LinuxWheel>([ends[1]]) && refuses::<LinuxWheel>([ends[1] + 1]));
    assert!(!refuses::<DurationFifos>(1..=256) && refuses::<DurationFifos>(1..=257));
}

/// Tests the calls that a service's timer thread makes and that other tests leave out.
#[test]
fn a_queue_knows_its_first_timer() {
    fn check<Q: Queue>() {
        let mut queue = Q::empty();
        let mut chance = Chance::new(7);
        let mut pending = BTreeMap::new();
        for n in 0..2_000_u64 {
            let at = chance.within(&(0..10_000)) << 20 | n;
            pending.insert(at, (queue.insert(at, payload(n)), n));
            if n % 3 == 0 {
                let place = usize::try_from(chance.within(&(0..pending.len() as u64))).unwrap();
                let (&at, &(id, n)) = pending.iter().nth(place).unwrap();
                pending.remove(&at);
                assert_eq!((queue.remove(id), queue.remove(id)), (Some(payload(n)), None));
            }
            assert_eq!(queue.first(), pending.first_key_value().map(|(&at, _)| at), "{}", Q::LOCKED_NAME);
            assert_eq!(queue.live(), pending.len());
        }
        for (at, (_, n)) in pending {
            assert_eq!((queue.first(), queue.pop_due(at - 1)), (Some(at), None));
            assert_eq!(queue.pop_due(at), Some(payload(n)), "{}", Q::LOCKED_NAME);
        }
        assert_eq!((queue.first(), queue.pop_due(u64::MAX), queue.live()), (None, None, 0));
    }
    check::<LazyHeap>();
    check::<IndexHeap<2>>();
    check::<IndexHeap<4>>();
    check::<Tree>();
}

const THREADS: u64 = 4;
const PER_THREAD: u64 = 1_500;
const HOUR: Duration = Duration::from_secs(3_600);

/// The timers that a thread scheduled, each with its number and its earliest deadline. `None` for a cancelled timer.
type Scheduled = Vec<(u64, Option<Instant>)>;

/// Threads schedule timers of up to 60 ms and timers of an hour, and cancel some. Checks that all other timers fire
/// once, in time.
fn check_service<S: Service>(service: &S, fires: &Mutex<Vec<(Payload, Instant)>>) {
    let scheduled: Scheduled = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || schedule_some(service, thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let expected: BTreeMap<u64, Instant> =
        scheduled.iter().filter_map(|&(n, deadline)| Some((n, deadline?))).collect();
    let begin = Instant::now();
    while fires.lock().unwrap().len() < expected.len() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{}: timers are missing", S::NAME);
        thread::sleep(Duration::from_millis(2));
    }
    thread::sleep(Duration::from_millis(80));
    let fires = fires.lock().unwrap();
    assert_eq!((fires.len(), service.pending()), (expected.len(), 0), "{}", S::NAME);
    let mut seen = BTreeSet::new();
    for &(found, at) in fires.iter() {
        assert_eq!(found, payload(found[0]));
        assert!(seen.insert(found[0]), "{}: {found:?} fired twice", S::NAME);
        assert!(at >= expected[&found[0]], "{}: {found:?} was early", S::NAME);
    }
}

fn schedule_some<S: Service>(service: &S, thread: u64) -> Scheduled {
    let mut caller = service.caller();
    let mut chance = Chance::new(thread);
    let mut scheduled = Scheduled::new();
    for number in thread * PER_THREAD..(thread + 1) * PER_THREAD {
        let delay = Duration::from_micros(chance.within(&(0..60_000)));
        match number % 4 {
            0 => {
                let far = caller.schedule(HOUR + delay, payload(number));
                assert_eq!((caller.cancel(far), caller.cancel(far)), (Some(payload(number)), None));
                scheduled.push((number, None));
            }
            1 => {
                let deadline = Instant::now() + delay;
                let near = caller.schedule(delay, payload(number));
                if number % 8 == 0 {
                    thread::sleep(Duration::from_micros(200));
                }
                // The cancel races with the timer's firing. Exactly one of them ends the timer.
                let cancelled = caller.cancel(near);
                assert!(cancelled.is_none_or(|found| found == payload(number)));
                scheduled.push((number, cancelled.is_none().then_some(deadline)));
            }
            2 => {
                let far = caller.schedule(HOUR + delay, payload(number));
                let deadline = Instant::now() + delay;
                let near = caller.reschedule(far, delay, payload(number));
                assert_eq!(caller.cancel(far), None, "the old id is stale");
                let cancelled = number % 8 == 2 && caller.cancel(near).is_some();
                scheduled.push((number, (!cancelled).then_some(deadline)));
            }
            _ => {
                let deadline = Instant::now() + delay;
                caller.schedule(delay, payload(number));
                scheduled.push((number, Some(deadline)));
            }
        }
    }
    scheduled
}

#[test]
fn services_fire_everything_once_and_nothing_early() {
    type Fires = Arc<Mutex<Vec<(Payload, Instant)>>>;

    fn on_fire(fires: &Fires) -> impl Fn(Payload) + Send + Sync + 'static + use<> {
        let fires = Arc::clone(fires);
        move |payload| fires.lock().unwrap().push((payload, Instant::now()))
    }
    fn check<S: Service>() {
        let fires = Fires::default();
        check_service(&S::start(on_fire(&fires)), &fires);
    }
    check::<Locked<LazyHeap>>();
    check::<Locked<IndexHeap<4>>>();
    check::<Locked<Tree>>();
    check::<ShardedWheel>();
    for shards in [1, 3, 8] {
        let fires = Fires::default();
        check_service(&ShardedWheel::start_from(Instant::now(), shards, on_fire(&fires)), &fires);
    }
}

/// The wheel moves a coarse slot with many timers in parts. Other calls run between the parts.
#[test]
fn a_sharded_wheel_moves_a_large_slot() {
    let count = Arc::new(Mutex::new(0_u64));
    let counted = Arc::clone(&count);
    let service = ShardedWheel::start_from(Instant::now(), 1, move |_| *counted.lock().unwrap() += 1);
    let mut caller = service.caller();
    let ids: Vec<_> =
        (0..20_000_u64).map(|n| caller.schedule(Duration::from_micros(200_000 + n), payload(n))).collect();
    let mut cancelled = 0;
    for (n, id) in (0..).zip(ids) {
        if n % 2 == 0 {
            thread::yield_now();
            cancelled += u64::from(caller.cancel(id).is_some());
        }
    }
    let begin = Instant::now();
    while *count.lock().unwrap() + cancelled < 20_000 {
        assert!(begin.elapsed() < Duration::from_secs(30), "timers are missing");
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(service.pending(), 0);
    assert!(service.wakes().is_some_and(|wakes| wakes > 0));
}
