//! The timing structures that textbooks compare in O-notation, measured: wheels, heaps, a tree and lists, on one
//! thread.
//!
//! While the timers come in, some ticks pass, so that timers of one duration do not all end in one tick. Then a random
//! half is cancelled and replaced. Ticks pass in which no timer is due, and the rest expires. It expires in two ways.
//! The first way is a tick at a time, as with a thread that ticks. The second way is in steps with one due timer on
//! average, as with a thread that sleeps in between. The input of a phase is gathered beforehand. Calls that only let
//! time pass do not count for the time of inserts.

use crate::baselines::for_each_structure;
use crate::case::Case;
use crate::common::{Chance, Demand, Fired, Payload, TICKS, Timers};
use crate::process::{cannot, resident};
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Turn, Workload};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "structures",
    operation: "one thread, ticks of 1 ms: half of the timers are cancelled in random order and replaced, all expire",
    family: Family::Structures,
    about: "Ours is \"wheel, radix 256\", the wheel of each shard; radix 64 is the same with smaller levels. \
        Checked: counts, checksums, and the precision that each structure states. The column \"latest\" is \
        by design: the Linux wheel fires up to an eighth of the delay late.",
    reading: "If ten thousand timers fit the cache, ours inserts faster than the others that fire on their tick, \
        cancels like the heap, and expires about as fast as a cascading wheel of linked lists. With a hundred \
        timers the others insert faster. With many timers, cascades of linked lists chase timers through cold \
        memory. Ours moves tickets in place of timers, ahead of time, so that a tick in which nothing is due may \
        take longer. Ours was built for shards that jump from one occupied tick to the next, and for cancels from \
        other threads, which no other structure here allows. For a loop on one thread with bounded deadlines, the \
        bounded wheel is a good choice.",
    cases,
    columns: |_| {
        vec![
            Column::new("insert", "insert", "ns"),
            Column::new("cancel", "cancel", "ns"),
            Column::new("replace", "insert in a cancelled one's place", "ns"),
            Column::new("tick", "a tick, nothing due", "ns"),
            Column::new("expire", "expiry, a tick at a time", "ns a timer"),
            Column::new("steps", "expiry, in steps of a timer or more", "ns a timer"),
            Column::new("bytes", "memory", "bytes a timer"),
            Column::new("latest", "latest", "ticks"),
        ]
    },
    rounds: |scale, case| scale.pick(if case.timers < HUGE { 2 } else { 1 }, 1, 1),
    entrants,
};

fn entrants() -> Vec<Entrant> {
    fn entrant<T: Timers>() -> Entrant {
        Entrant {
            name: T::NAME.to_owned(),
            clock: String::new(),
            is_ours: T::NAME.starts_with("wheel, radix"),
            turn: Turn::Here(turn::<T>),
        }
    }
    let entrants: &[fn() -> Entrant] = &for_each_structure!(entrant);
    entrants.iter().map(|make| make()).collect()
}

/// A number of timers for which a run takes minutes. Figures of such a run hardly differ between rounds.
const HUGE: usize = 10_000_000;

fn cases(scale: Scale) -> Vec<Case> {
    let uniform =
        |timers: usize| Case { timers, ..Case::named(format!("{} timers of 1 to 60 s", thousands(timers))) };
    let few = |timers: usize| Case {
        durations: TIMEOUTS.len(),
        ..Case { name: format!("{} timers of eight durations", thousands(timers)), ..uniform(timers) }
    };
    scale.pick(
        vec![uniform(100), uniform(10_000), uniform(1_000_000), uniform(HUGE), few(10_000), few(1_000_000)],
        vec![uniform(100), uniform(10_000), few(10_000)],
        vec![uniform(150), few(150)],
    )
}

/// Delays that are typical of servers, in ticks, for the cases that are not uniform.
const TIMEOUTS: [u64; 8] = [1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 45_000, 60_000];
const LONGEST: u64 = TICKS.end;

fn delay(case: &Case, chance: &mut Chance) -> u64 {
    if case.durations == 0 {
        return chance.within(&TICKS);
    }
    let choice = chance.within(&(0..TIMEOUTS.len() as u64));
    TIMEOUTS[usize::try_from(choice).expect("an index")]
}

fn demand(case: &Case) -> Demand {
    match case.durations {
        0 => Demand::uniform(case.timers, &TICKS),
        durations => Demand { span: LONGEST, durations, timers: case.timers },
    }
}

fn turn<T: Timers>(case: &Case) -> Figures {
    if let Some(why) = T::LIMITS.refuses(&demand(case)) {
        cannot(&why);
    }
    // A small structure takes too little time to be measured alone.
    let repeats = (ENOUGH / case.timers).clamp(1, 100);
    // The memory is measured first. Later, freed memory would be used again.
    let bytes = bytes_each::<T>(case, repeats);
    time::<T>(case, repeats).number("bytes", bytes)
}

/// The number of timers that the structures of a case should have together. A case with few timers uses several
/// structures.
const ENOUGH: usize = 100_000;

/// The largest number of ticks in which a structure is filled. As many idle ticks follow. No timer is due during these
/// ticks.
const FILL_TICKS: usize = 500;
/// The smallest number of timers that are scheduled between two readings of the clock. With fewer timers, the readings
/// would be too large a part of the measured cost.
const LEAST_BATCH: usize = 64;

/// The timers to schedule, each with deadline and number. `batch` is the number of timers that come in a tick.
struct Arrivals {
    timers: Vec<Payload>,
    batch: usize,
}

impl Arrivals {
    fn new(case: &Case, chance: &mut Chance) -> Self {
        let batch = case.timers.div_ceil(FILL_TICKS).max(LEAST_BATCH);
        let timer = |number| [(number / batch) as u64 + delay(case, chance), number as u64];
        Self { timers: (0..case.timers).map(timer).collect(), batch }
    }

    /// Returns the tick in which the last batch of timers is scheduled.
    fn end(&self) -> u64 {
        ((self.timers.len() - 1) / self.batch) as u64
    }

    fn fill<T: Timers>(&self, timers: &mut T, mut keep: impl FnMut(T::Id)) -> Duration {
        let mut took = Duration::ZERO;
        for (position, batch) in (0..).zip(self.timers.chunks(self.batch)) {
            assert_eq!(timers.advance(position), Fired::default());
            let start = Instant::now();
            for &timer in batch {
                keep(timers.schedule(timer[0], timer));
            }
            took += start.elapsed();
        }
        assert_eq!(timers.len(), self.timers.len());
        took
    }
}

/// The total time of each phase, and the number of operations in each phase.
#[derive(Default)]
struct Totals {
    fill: Phase,
    cancel: Phase,
    insert: Phase,
    tick: Phase,
    expire: Phase,
    expire_in_steps: Phase,
    /// The largest lateness of a timer, in ticks.
    latest: u64,
}

#[derive(Default)]
struct Phase {
    took: Duration,
    count: u64,
}

impl Phase {
    fn add(&mut self, took: Duration, count: usize) {
        self.took += took;
        self.count += count as u64;
    }

    fn nanos_each(&self) -> f64 {
        self.took.as_secs_f64() * 1e9 / self.count as f64
    }
}

fn time<T: Timers>(case: &Case, repeats: usize) -> Figures {
    let mut chance = Chance::new(case.timers as u64);
    let mut totals = Totals::default();
    let step = LONGEST / case.timers as u64;
    for _ in 0..repeats {
        live::<T>(case, 1, &mut chance, &mut totals);
        if step > 1 {
            live::<T>(case, step, &mut chance, &mut totals);
        }
    }
    let most = (T::LIMITS.lateness)(LONGEST);
    assert!(totals.latest <= most, "{}: early, or more than {most} ticks late", T::NAME);
    let in_steps = if step > 1 { &totals.expire_in_steps } else { &totals.expire };
    Figures::default()
        .number("insert", totals.fill.nanos_each())
        .number("cancel", totals.cancel.nanos_each())
        .number("replace", totals.insert.nanos_each())
        .number("tick", totals.tick.nanos_each())
        .number("expire", totals.expire.nanos_each())
        .number("steps", in_steps.nanos_each())
        .number("latest", totals.latest as f64)
}

/// Runs the whole life of one structure, from the first timer to the last firing. At the end, time goes on in steps of
/// `step` ticks.
fn live<T: Timers>(case: &Case, step: u64, chance: &mut Chance, totals: &mut Totals) {
    let mut timers = T::new();
    let expected = arm_and_cancel(&mut timers, case, chance, totals);
    let (fired, latest, took) = expire(&mut timers, step);
    assert_eq!((fired, timers.len()), (expected, 0), "{}", T::NAME);
    if step == 1 {
        totals.expire.add(took, case.timers);
        totals.latest = totals.latest.max(latest);
    } else {
        totals.expire_in_steps.add(took, case.timers);
    }
}

/// Fills a structure, cancels and replaces a random half of its timers, and lets idle ticks pass. Returns a checksum of
/// the timers that must fire afterwards.
fn arm_and_cancel<T: Timers>(timers: &mut T, case: &Case, chance: &mut Chance, totals: &mut Totals) -> Fired {
    let arrivals = Arrivals::new(case, chance);
    let mut ids = Vec::with_capacity(case.timers);
    totals.fill.add(arrivals.fill(timers, |id| ids.push(id)), case.timers);

    let order = chance.order(case.timers);
    let (cancelled, kept) = order.split_at(case.timers / 2);
    let outgoing: Vec<(T::Id, Payload)> =
        cancelled.iter().map(|&n| (ids[n as usize], arrivals.timers[n as usize])).collect();
    let start = Instant::now();
    for &(id, timer) in &outgoing {
        assert_eq!(timers.cancel(id), Some(timer));
    }
    totals.cancel.add(start.elapsed(), outgoing.len());
    assert_eq!(timers.len(), kept.len());

    let replacement = |n| [arrivals.end() + delay(case, chance), (case.timers + n) as u64];
    let incoming: Vec<Payload> = (0..outgoing.len()).map(replacement).collect();
    let start = Instant::now();
    for &timer in &incoming {
        black_box(timers.schedule(timer[0], timer));
    }
    totals.insert.add(start.elapsed(), incoming.len());

    let idle = arrivals.end() + 1..TICKS.start;
    let ticks = idle.clone().count();
    let start = Instant::now();
    let fired = idle.map(|tick| timers.advance(tick).count).sum::<u64>();
    totals.tick.add(start.elapsed(), ticks);
    assert_eq!((fired, timers.len()), (0, case.timers));

    let kept = kept.iter().map(|&n| arrivals.timers[n as usize]);
    kept.chain(incoming).collect()
}

/// Fires all timers of a structure. Returns the fired timers' checksum, the largest lateness in ticks, and the time
/// that the firing took.
fn expire<T: Timers>(timers: &mut T, step: u64) -> (Fired, u64, Duration) {
    let longest = LONGEST;
    let last = FILL_TICKS as u64 + longest + (T::LIMITS.lateness)(longest);
    let mut fired = Fired::default();
    let mut latest = 0;
    let mut position = TICKS.start - 1;
    let start = Instant::now();
    while position < last {
        position += step;
        timers.expire(position, |timer| {
            fired.add(timer);
            // If a timer is early, the difference wraps around, and a check fails.
            latest = latest.max(position.wrapping_sub(timer[0]));
        });
    }
    (fired, latest, start.elapsed())
}

/// Returns the structure's resident bytes, divided by its number of timers.
fn bytes_each<T: Timers>(case: &Case, repeats: usize) -> Option<f64> {
    let arrivals = Arrivals::new(case, &mut Chance::new(case.timers as u64));
    let mut structures = Vec::with_capacity(repeats);
    let before = resident();
    for _ in 0..repeats {
        let mut timers = T::new();
        arrivals.fill(&mut timers, |_| ());
        structures.push(timers);
    }
    let after = resident();
    let timers: usize = structures.iter().map(Timers::len).sum();
    assert_eq!(timers, case.timers * repeats);
    Some((after?.saturating_sub(before?)) as f64 / timers as f64)
}
