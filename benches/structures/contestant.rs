//! What one structure does in a process of its own: one population, all phases.
//!
//! Time goes on while the timers come in, some ticks for all of them, so that timers of one duration do not all end in one
//! tick. Then a random half is cancelled and replaced, ticks pass in which nothing is due, and the rest expires: a tick
//! at a time, as a ticking thread would have it, and once more in steps in which one timer is due on average, as one that
//! sleeps in between would. What a phase reads is gathered beforehand, and calls that only let time pass are not in the
//! time of inserts.

use crate::baselines::for_each_structure;
use crate::common::{Chance, Fired, Limits, Payload, Timers};
use crate::process::resident;
use crate::workload::Workload;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A structure and its ways to be measured.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) limits: Limits,
    pub(crate) time: fn(&Run) -> Value,
    pub(crate) memory: fn(&Run) -> Value,
}

/// What a child is asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) workload: Workload,
    pub(crate) timers: usize,
    pub(crate) seed: u64,
    /// So often with a fresh structure, or so many structures at a time: small ones are too short to be measured alone.
    pub(crate) repeats: usize,
}

pub(crate) fn all() -> Vec<Contestant> {
    fn contestant<T: Timers>() -> Contestant {
        Contestant { name: T::NAME, limits: T::LIMITS, time: time::<T>, memory: memory::<T> }
    }
    let makers: &[fn() -> Contestant] = &for_each_structure!(contestant);
    makers.iter().map(|make| make()).collect()
}

/// Ticks that pass while the timers come in, at most: none of them is due yet, and as many again pass idle.
const FILL_TICKS: usize = 500;
/// Fewer timers than these are not worth a look at the clock.
const LEAST_BATCH: usize = 64;

/// Timers to come: deadline and number, and how many come in a tick.
struct Arrivals {
    timers: Vec<Payload>,
    batch: usize,
}

impl Arrivals {
    fn new(run: &Run, chance: &mut Chance) -> Self {
        let batch = run.timers.div_ceil(FILL_TICKS).max(LEAST_BATCH);
        let timer = |number| [(number / batch) as u64 + run.workload.delay(chance), number as u64];
        Self { timers: (0..run.timers).map(timer).collect(), batch }
    }

    /// The tick in which the last come in.
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

/// What the phases took, and how often they did what.
#[derive(Default)]
struct Totals {
    fill: Phase,
    cancel: Phase,
    insert: Phase,
    tick: Phase,
    expire: Phase,
    expire_in_steps: Phase,
    /// In ticks.
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

fn time<T: Timers>(run: &Run) -> Value {
    let mut chance = Chance::new(run.seed);
    let mut totals = Totals::default();
    let step = run.workload.longest() / run.timers as u64;
    for _ in 0..run.repeats {
        live::<T>(run, 1, &mut chance, &mut totals);
        if step > 1 {
            live::<T>(run, step, &mut chance, &mut totals);
        }
    }
    let most = (T::LIMITS.lateness)(run.workload.longest());
    assert!(totals.latest <= most, "{}: early, or more than {most} ticks late", T::NAME);
    let in_steps = if step > 1 { &totals.expire_in_steps } else { &totals.expire };
    json!({
        "fill": totals.fill.nanos_each(),
        "cancel": totals.cancel.nanos_each(),
        "insert": totals.insert.nanos_each(),
        "tick": totals.tick.nanos_each(),
        "expire": totals.expire.nanos_each(),
        "expire_in_steps": in_steps.nanos_each(),
        "latest": totals.latest,
    })
}

/// The life of one structure, at whose end time goes on in steps of so many ticks.
fn live<T: Timers>(run: &Run, step: u64, chance: &mut Chance, totals: &mut Totals) {
    let mut timers = T::new();
    let expected = arm_and_cancel(&mut timers, run, chance, totals);
    let (fired, latest, took) = expire(&mut timers, run, step);
    assert_eq!((fired, timers.len()), (expected, 0), "{}", T::NAME);
    if step == 1 {
        totals.expire.add(took, run.timers);
        totals.latest = totals.latest.max(latest);
    } else {
        totals.expire_in_steps.add(took, run.timers);
    }
}

/// Fills, cancels a random half, and replaces it; lets idle ticks pass. What is to be fired after that.
fn arm_and_cancel<T: Timers>(timers: &mut T, run: &Run, chance: &mut Chance, totals: &mut Totals) -> Fired {
    let arrivals = Arrivals::new(run, chance);
    let mut ids = Vec::with_capacity(run.timers);
    totals.fill.add(arrivals.fill(timers, |id| ids.push(id)), run.timers);

    let order = chance.order(run.timers);
    let (cancelled, kept) = order.split_at(run.timers / 2);
    let outgoing: Vec<(T::Id, Payload)> =
        cancelled.iter().map(|&n| (ids[n as usize], arrivals.timers[n as usize])).collect();
    let start = Instant::now();
    for &(id, timer) in &outgoing {
        assert_eq!(timers.cancel(id), Some(timer));
    }
    totals.cancel.add(start.elapsed(), outgoing.len());
    assert_eq!(timers.len(), kept.len());

    let replacement = |n| [arrivals.end() + run.workload.delay(chance), (run.timers + n) as u64];
    let incoming: Vec<Payload> = (0..outgoing.len()).map(replacement).collect();
    let start = Instant::now();
    for &timer in &incoming {
        black_box(timers.schedule(timer[0], timer));
    }
    totals.insert.add(start.elapsed(), incoming.len());

    let idle = arrivals.end() + 1..Workload::SHORTEST;
    let ticks = idle.clone().count();
    let start = Instant::now();
    let fired = idle.map(|tick| timers.advance(tick).count).sum::<u64>();
    totals.tick.add(start.elapsed(), ticks);
    assert_eq!((fired, timers.len()), (0, run.timers));

    let kept = kept.iter().map(|&n| arrivals.timers[n as usize]);
    kept.chain(incoming).collect()
}

/// Fires all: what that was, by how many ticks the latest was late, and the time that it took.
fn expire<T: Timers>(timers: &mut T, run: &Run, step: u64) -> (Fired, u64, Duration) {
    let longest = run.workload.longest();
    let last = FILL_TICKS as u64 + longest + (T::LIMITS.lateness)(longest);
    let mut fired = Fired::default();
    let mut latest = 0;
    let mut position = Workload::SHORTEST - 1;
    let start = Instant::now();
    while position < last {
        position += step;
        timers.expire(position, |timer| {
            fired.add(timer);
            // An early one wraps, and is found out by that.
            latest = latest.max(position.wrapping_sub(timer[0]));
        });
    }
    (fired, latest, start.elapsed())
}

/// Resident bytes for each timer, and what the structure takes by itself spread over them.
fn memory<T: Timers>(run: &Run) -> Value {
    let arrivals = Arrivals::new(run, &mut Chance::new(run.seed));
    let mut structures = Vec::with_capacity(run.repeats);
    let before = resident();
    for _ in 0..run.repeats {
        let mut timers = T::new();
        arrivals.fill(&mut timers, |_| ());
        structures.push(timers);
    }
    let after = resident();
    let timers: usize = structures.iter().map(Timers::len).sum();
    assert_eq!(timers, run.timers * run.repeats);
    let grown = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    json!({ "bytes": grown.map(|bytes| bytes as f64 / timers as f64) })
}
