//! The wheel against a heap and a tree, from one thread: insert, cancel, expiry.

use crate::baselines::{LazyHeap, Tree};
use crate::common::{Chance, Fired, TICKS, Timers, Wheel64, Wheel256, payload};
use crate::report::{Report, Samples};
use crate::sizes::Sizes;
use std::time::{Duration, Instant};

const COLUMNS: [&str; 4] = [
    "insert, from none to all (ns)",
    "insert, all others pending (ns)",
    "cancel half in random order (ns)",
    "expiry of the rest (ns a timer)",
];
const FILL: usize = 0;
const INSERT: usize = 1;
const CANCEL: usize = 2;
const EXPIRE: usize = 3;

type Figures = [f64; COLUMNS.len()];
type Measure = fn(count: usize, seed: u64) -> Figures;

const CONTESTANTS: [(&str, Measure); 4] = [
    (Wheel256::NAME, measure::<Wheel256>),
    (Wheel64::NAME, measure::<Wheel64>),
    (LazyHeap::NAME, measure::<LazyHeap>),
    (Tree::NAME, measure::<Tree>),
];

pub(crate) fn run(sizes: &Sizes) -> Report {
    let mut figures: [[Samples; COLUMNS.len()]; CONTESTANTS.len()] = Default::default();
    for round in 0..sizes.rounds {
        eprintln!("wheel: round {} of {}", round + 1, sizes.rounds);
        for turn in 0..CONTESTANTS.len() {
            let contestant = (turn + round) % CONTESTANTS.len();
            let measured = CONTESTANTS[contestant].1(sizes.many, round as u64);
            for (samples, figure) in figures[contestant].iter_mut().zip(measured) {
                samples.push(figure);
            }
        }
    }
    let mut report = Report::new(format!("The wheel alone, {} timers, a tick of 1 ms", sizes.many), &COLUMNS);
    for ((name, _), samples) in CONTESTANTS.iter().zip(figures) {
        report.row(*name, samples.into());
    }
    for column in [FILL, INSERT] {
        report.want_ratio(COLUMNS[column], column, Wheel256::NAME, LazyHeap::NAME, 1.0);
    }
    report.want_ratio("cancel", CANCEL, Wheel256::NAME, LazyHeap::NAME, 2.0);
    report.want_ratio("cancel", CANCEL, Wheel256::NAME, Tree::NAME, 40.0);
    report.want_ratio("expiry", EXPIRE, Wheel256::NAME, LazyHeap::NAME, 8.0);
    report
}

fn measure<T: Timers>(count: usize, seed: u64) -> Figures {
    let mut chance = Chance::new(seed);
    let mut figures = Figures::default();
    let input: Vec<(u64, u64)> = (0..count as u64).map(|n| (chance.within(&TICKS), n)).collect();

    let (mut timers, ids, took) = filled::<T>(&input);
    figures[FILL] = nanos_each(took, count);

    // In a random order that is gathered beforehand, so that what is timed reads its input in sequence.
    let order = chance.order(count);
    let (cancelled, kept) = order.split_at(count / 2);
    let outgoing: Vec<(T::Id, u64)> = cancelled.iter().map(|&n| (ids[n as usize], u64::from(n))).collect();
    let start = Instant::now();
    for &(id, n) in &outgoing {
        assert_eq!(timers.cancel(id), Some(payload(n)));
    }
    figures[CANCEL] = nanos_each(start.elapsed(), outgoing.len());
    assert_eq!(timers.len(), kept.len());

    let mut fired = Fired::default();
    let start = Instant::now();
    for tick in 1..=TICKS.end {
        fired.join(timers.advance(tick));
    }
    figures[EXPIRE] = nanos_each(start.elapsed(), kept.len());
    assert_eq!(fired, kept.iter().map(|&n| payload(u64::from(n))).collect());
    drop(timers);

    let (mut timers, _, _) = filled::<T>(&input);
    let (_, took) = insert(&mut timers, &input[..count / 10]);
    figures[INSERT] = nanos_each(took, count / 10);
    assert_eq!(timers.len(), count + count / 10);
    figures
}

fn filled<T: Timers>(input: &[(u64, u64)]) -> (T, Vec<T::Id>, Duration) {
    let mut timers = T::new();
    let (ids, took) = insert(&mut timers, input);
    (timers, ids, took)
}

fn insert<T: Timers>(timers: &mut T, input: &[(u64, u64)]) -> (Vec<T::Id>, Duration) {
    let mut ids = Vec::with_capacity(input.len());
    let start = Instant::now();
    ids.extend(input.iter().map(|&(tick, n)| timers.schedule(tick, payload(n))));
    (ids, start.elapsed())
}

fn nanos_each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / count as f64
}
