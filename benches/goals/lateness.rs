//! Many timers due over two seconds, inserted three before: how late they fire, and at what cost in CPU time.
//!
//! An open loop: the deadlines are fixed beforehand, so nothing is left out when a contestant falls behind. Handlers
//! note what they see and do nothing else; each contestant runs in a fresh process.
//!
//! Lateness is what a clock shows that the handler reads itself, less the deadline that was asked for. It has no part
//! in what the contestant believes; what the engine reports by itself is shown beside it.

mod shots;

use crate::baselines::{LazyHeap, Locked, Queue, Tree};
use crate::common::{Chance, Payload, Service};
use crate::process::{cpu_time, measure_apart};
use crate::report::{Report, Samples};
use crate::sizes::Sizes;
use crate::{Contestant, Section};
use serde_json::{Value, json};
use shots::Log;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Clock, Handle, MonotonicClock, Timestamp};

const WORKERS: &str = "engine, own workers";
const INLINE: &str = "engine, inline";
const FAR: &str = "engine, own workers, across tick 65,536";

pub(crate) const CONTESTANTS: &[Contestant] = &[
    (WORKERS, |sizes| engine(sizes, Builder::new())),
    (INLINE, |sizes| engine(sizes, Builder::new().inline())),
    (FAR, |sizes| {
        // The window's middle falls on the boundary of the third level.
        let start = Duration::from_millis(65_536) - sizes.lead - sizes.window / 2;
        engine(sizes, Builder::new().clock(Ahead { clock: MonotonicClock::new(), start }))
    }),
    (<Locked<LazyHeap> as Service>::NAME, locked::<LazyHeap>),
    (<Locked<Tree> as Service>::NAME, locked::<Tree>),
];

/// A column's heading, and its key in what a child found.
const COLUMNS: [(&str, &str); 10] = [
    ("early", "early"),
    ("p50 (ms)", "p50"),
    ("p99 (ms)", "p99"),
    ("p99.9 (ms)", "p999"),
    ("max (ms)", "max"),
    ("p99.9 as the engine reports (ms)", "reported_p999"),
    ("CPU (s)", "cpu"),
    ("worst of 64 ms (max, ms)", "worst_bucket"),
    ("worst of 64 ms after a boundary", "worst_boundary"),
    ("median of 64 ms", "median_bucket"),
];
const EARLY: usize = 0;
const P999: usize = 3;
const CPU: usize = 6;
const BOUNDARY: usize = 8;
const MEDIAN: usize = 9;

const MOST_P999_MS: f64 = 1.5;
const MOST_CPU_S: f64 = 0.3;
/// How much later than those of the median 64 ms the timers after a level boundary may be at worst.
const MOST_OF_A_SPIKE: f64 = 2.0;

pub(crate) fn run(sizes: &Sizes) -> Report {
    let mut figures = vec![vec![Samples::default(); COLUMNS.len()]; CONTESTANTS.len()];
    let mut details = json!({});
    for round in 0..sizes.rounds {
        eprintln!("lateness: round {} of {}", round + 1, sizes.rounds);
        for turn in 0..CONTESTANTS.len() {
            let contestant = (turn + round) % CONTESTANTS.len();
            let name = CONTESTANTS[contestant].0;
            let found = measure_apart(Section::Lateness, name, sizes);
            for (samples, (_, key)) in figures[contestant].iter_mut().zip(COLUMNS) {
                if let Some(figure) = found[key].as_f64() {
                    samples.push(figure);
                }
            }
            details[name] = found;
        }
    }
    let title =
        format!("{} timers due over {:?}, inserted {:?} before", sizes.many, sizes.window, sizes.lead);
    let mut report = Report::new(title, &COLUMNS.map(|column| column.0));
    for ((name, _), samples) in CONTESTANTS.iter().zip(figures) {
        report.row(*name, samples);
    }
    report.details(details);
    for ours in [WORKERS, INLINE, FAR] {
        judge(&mut report, ours);
    }
    report
}

fn judge(report: &mut Report, ours: &str) {
    let early = report.samples(ours, EARLY).max();
    report.verdict(format!("{ours}: nothing early in any round"), format!("{early}"), early == 0.0);
    let p999 = report.median(ours, P999);
    report.verdict(
        format!("{ours}: p99.9 below {MOST_P999_MS} ms"),
        format!("{p999:.3}"),
        p999 < MOST_P999_MS,
    );
    let cpu = report.median(ours, CPU);
    report.verdict(format!("{ours}: below {MOST_CPU_S} CPU seconds"), format!("{cpu:.3}"), cpu < MOST_CPU_S);
    let spike = report.median(ours, BOUNDARY) / report.median(ours, MEDIAN);
    report.verdict(
        format!("{ours}: no spike after a level boundary (at most {MOST_OF_A_SPIKE} times the median 64 ms)"),
        format!("{spike:.2}"),
        spike <= MOST_OF_A_SPIKE,
    );
}

/// The default clock, begun earlier than it was.
struct Ahead {
    clock: MonotonicClock,
    start: Duration,
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.clock.now() + self.start
    }
}

pub(crate) fn engine(sizes: &Sizes, builder: Builder) -> Value {
    let log = Log::new(sizes.many);
    let in_handlers = log.clone();
    // A clock of the handlers' own; what the engine's shows more is known once there is an engine.
    let clock = MonotonicClock::new();
    let own_clock = clock.clone();
    let difference = Arc::new(OnceLock::new());
    let known_difference = Arc::clone(&difference);
    let handler = move |timer: tourbillon::Fired<'_, Payload>| {
        let now = own_clock.now().as_nanos().wrapping_add(*known_difference.get().unwrap_or(&0));
        in_handlers.note(timer.payload, now, Some(timer.lateness));
    };
    let engine = builder.build(handler).expect("the system gives us threads");
    difference.set(clock_difference(&engine, &clock)).expect("set once");

    let schedule = |at, payload| {
        engine.schedule_at(Timestamp::from_nanos(at), payload).expect("there is room");
    };
    let mut found = observe(sizes, &log, || engine.now().as_nanos(), schedule);
    let stats = engine.stats();
    assert_eq!((stats.fired, stats.pending), (sizes.many as u64, 0));
    found["wakes"] = stats.total.wakes.into();
    found["unparks"] = stats.total.unparks.into();
    found["turns"] = stats.total.turns.into();
    found
}

/// How far the engine's clock is ahead of `clock`, which runs at the same rate: at least the true value, by no more
/// than the time between two readings.
fn clock_difference(engine: &Handle<Payload>, clock: &MonotonicClock) -> u64 {
    let difference = || {
        let earlier = clock.now().as_nanos();
        engine.now().as_nanos().wrapping_sub(earlier)
    };
    // Signed: which of the origins is the earlier one depends on the builder.
    (0..1_000).map(|_| difference()).min_by_key(|difference| difference.cast_signed()).unwrap_or(0)
}

fn locked<Q: Queue>(sizes: &Sizes) -> Value {
    let log = Log::new(sizes.many);
    let in_handlers = log.clone();
    let origin = Instant::now();
    let clock = move || u64::try_from(origin.elapsed().as_nanos()).expect("584 years");
    let service = Locked::<Q>::start_from(origin, move |payload| in_handlers.note(payload, clock(), None));
    let schedule = |at, payload| {
        service.schedule_at(at, payload);
    };
    let found = observe(sizes, &log, clock, schedule);
    assert_eq!(service.pending(), 0);
    found
}

/// Schedules, waits until all has fired, and looks at the log. Payloads hold deadline and number.
fn observe(sizes: &Sizes, log: &Log, now: impl Fn() -> u64, schedule: impl Fn(u64, Payload)) -> Value {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).expect("some seconds");
    let begin = (now(), Instant::now());
    let first = begin.0 + nanos(sizes.lead);
    let window = first..first + nanos(sizes.window);
    let mut chance = Chance::new(1);
    for number in 0..sizes.many as u64 {
        let deadline = chance.within(&window);
        schedule(deadline, [deadline, number]);
    }
    let inserted = now();
    assert!(inserted < window.start, "inserting took so long that timers were due");
    let cpu = cpu_time();

    thread::sleep(Duration::from_nanos(window.end - inserted));
    while log.len() < sizes.many {
        assert!(now() < window.end + 60_000_000_000, "{} of {} fired", log.len(), sizes.many);
        thread::sleep(Duration::from_millis(1));
    }
    let cpu_spent = cpu.zip(cpu_time()).map(|(before, after)| after - before);
    let elapsed = (nanos(begin.1.elapsed()) as f64, (now() - begin.0) as f64);

    let mut found = shots::analyse(log.take(), sizes.many);
    found["cpu"] = cpu_spent.map(|time| time.as_secs_f64()).into();
    found["insert_ms"] = ((inserted - begin.0) as f64 * 1e-6).into();
    found["clock_drift_ppm"] = ((elapsed.1 / elapsed.0 - 1.0) * 1e6).into();
    found
}
