//! Several engines in one process: a thread that uses them in turn, and the cost of idle engines.

use super::LONG;
use crate::baselines::{LazyHeap, Locked, Tree};
use crate::case::Case;
use crate::common::{Chance, Payload, payload};
use crate::contestants::{Caller, Of, OneShots};
use crate::process::cpu_time;
use crate::results::{Column, Figures};
use crate::roster::entrants;
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Fired, Handle};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "engines",
    operation: "several engines in a process: a thread schedules and cancels on each in turn; a timer fires beside idle \
        ones; all are dropped",
    family: Family::Structures,
    about: "Our engines are on one set of shards. Each instance of the others has a thread of its own. The time of a \
        pair is the median of twenty turns, which the numbers of engines take one after the other. A firing is \
        a timer of 1 ms for which the caller waits; its processor time is that of the whole process. Checked: each \
        timer is cancelled, or fires.",
    reading: "An engine of ours that has nothing to do is not looked at, and has no thread. A firing of ours costs more \
        than one of a queue with a thread: a shard hands it to a worker.",
    cases,
    columns,
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || {
        let mut entrants = vec![Entrant::here("engine, several on one set", true, ours)];
        entrants.extend(entrants![theirs: Of<Locked<LazyHeap>>, Of<Locked<Tree>>]);
        entrants
    },
};

/// The number of different delays in the schedule + cancel pairs.
const DELAYS: usize = 1_024;
/// How often the workload goes through each set of engines.
const TURNS: usize = 20;

type Handler = Box<dyn Fn(Payload) + Send + Sync>;

/// Returns the cases. `sizes` has numbers of engines. The cases measure pairs, firings and drops of engines.
fn cases(scale: Scale) -> Vec<Case> {
    let operations = scale.pick(1_000_000, 50_000, 200);
    let (firings, idle, dropped) =
        (scale.pick(500, 50, 5), scale.pick(1_000, 100, 5), scale.pick(10_000, 500, 10));
    vec![
        Case { operations, sizes: vec![1, 2, 4, 8], ..Case::named("pairs in turn") },
        Case {
            timers: firings,
            sizes: vec![0, idle],
            ..Case::named(format!("beside {} idle ones", thousands(idle)))
        },
        Case { sizes: vec![dropped], ..Case::named(format!("{} dropped", thousands(dropped))) },
    ]
}

fn columns(case: &Case) -> Vec<Column> {
    let column = |&engines: &usize| {
        let s = if engines == 1 { "" } else { "s" };
        match (case.operations, case.timers, engines) {
            (0, 0, _) => Column::new("drop", "all dropped", "ms"),
            (0, _, 0) => Column::new(key(0), "CPU of a firing, alone", "ns"),
            (0, _, _) => Column::new(key(engines), "CPU of a firing, beside them", "ns"),
            _ => Column::new(key(engines), format!("a pair, {engines} engine{s}"), "ns"),
        }
    };
    case.sizes.iter().map(column).collect()
}

fn key(engines: usize) -> String {
    format!("e{engines}")
}

fn ours(case: &Case) -> Figures {
    let shards = Builder::new().start_shards().expect("the system gives us threads");
    run(case, |on_fire: Handler| {
        let engine = shards.engine().start(move |timer: Fired<'_, Payload>| on_fire(timer.payload));
        let engine = engine.expect("an engine");
        let caller = Handle::clone(engine.handle());
        (engine, caller)
    })
}

fn theirs<C: OneShots>(case: &Case) -> Figures {
    run(case, |on_fire: Handler| {
        let service = C::start(1, on_fire);
        let caller = service.caller();
        (service, caller)
    })
}

/// Runs a case. `start` makes an engine and a caller for that engine.
fn run<E, C: Caller>(case: &Case, start: impl Fn(Handler) -> (E, C)) -> Figures {
    let idle = || start(Box::new(|_| {}));
    match (case.operations, case.timers) {
        (0, 0) => dropped(case, idle),
        (0, _) => firings(case, start),
        _ => pairs(case, idle),
    }
}

fn pairs<E, C: Caller>(case: &Case, start: impl Fn() -> (E, C)) -> Figures {
    let mut chance = Chance::new(1);
    let delays: Vec<_> = (0..DELAYS).map(|_| Duration::from_nanos(chance.within(&LONG))).collect();
    let start = |&size: &usize| -> (Vec<E>, Vec<C>) { (0..size).map(|_| start()).unzip() };
    let mut sets: Vec<_> = case.sizes.iter().map(start).collect();
    let mut times = vec![Vec::new(); sets.len()];
    // The sets of engines take turns, so a busy machine disturbs all of them alike. The first turn is a warm-up.
    for turn in 0..=TURNS {
        for ((_engines, callers), times) in sets.iter_mut().zip(&mut times) {
            let (begin, mut next) = (Instant::now(), 0);
            for n in 0..case.operations / TURNS {
                let was_pending = callers[next].schedule_and_cancel(delays[n % DELAYS], payload(n as u64));
                assert!(was_pending, "a timer scheduled just now is not pending");
                next = if next + 1 == callers.len() { 0 } else { next + 1 };
            }
            if turn > 0 {
                times.push(begin.elapsed());
            }
        }
    }
    case.sizes.iter().zip(times).fold(Figures::default(), |figures, (&size, mut times)| {
        times.sort_unstable();
        let median = times[TURNS / 2].as_secs_f64();
        figures.number(key(size), median * 1e9 / (case.operations / TURNS) as f64)
    })
}

fn firings<E, C: Caller>(case: &Case, start: impl Fn(Handler) -> (E, C)) -> Figures {
    case.sizes.iter().fold(Figures::default(), |figures, &size| {
        let _idle: Vec<(E, C)> = (0..size).map(|_| start(Box::new(|_| {}))).collect();
        let (fires, fired) = mpsc::channel();
        let (_engine, mut caller) = start(Box::new(move |_| fires.send(()).expect("the caller waits")));
        let mut fire = |n: usize| {
            drop(caller.schedule(Duration::from_millis(1), payload(n as u64)));
            fired.recv_timeout(Duration::from_secs(10)).expect("the timer fires");
        };
        (0..10).for_each(&mut fire);
        let before = cpu_time();
        (0..case.timers).for_each(fire);
        let spent = before.zip(cpu_time()).map(|(before, after)| after - before);
        figures.number(key(size), spent.map(|spent| spent.as_secs_f64() * 1e9 / case.timers as f64))
    })
}

fn dropped<E, C: Caller>(case: &Case, start: impl Fn() -> (E, C)) -> Figures {
    let engines: Vec<(E, C)> = case.sizes.iter().flat_map(|&size| (0..size).map(|_| start())).collect();
    let begin = Instant::now();
    drop(engines);
    Figures::default().number("drop", begin.elapsed().as_secs_f64() * 1e3)
}
