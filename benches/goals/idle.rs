//! Timers pending an hour ahead and none due: who wakes, and what it costs.

use crate::baselines::{LazyHeap, Locked, Tree};
use crate::common::{FireCount, NANOS, Service, ThroughHandle, fill};
use crate::process::{cpu_time, measure_apart, number, sleeps_of_other_threads};
use crate::report::{Report, Samples};
use crate::sizes::Sizes;
use crate::{Contestant, Section};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

pub(crate) const CONTESTANTS: &[Contestant] = &[
    (ThroughHandle::NAME, measure::<ThroughHandle>),
    (<Locked<LazyHeap> as Service>::NAME, measure::<Locked<LazyHeap>>),
    (<Locked<Tree> as Service>::NAME, measure::<Locked<Tree>>),
];

const HOUR: u64 = 3_600_000_000_000;

pub(crate) fn run(sizes: &Sizes) -> Report {
    let title = format!("{} timers an hour ahead, for {:?}", sizes.idle_timers, sizes.idle_time);
    let mut report =
        Report::new(title, &["wakes counted by the engine", "threads gone to sleep", "CPU time (ms)"]);
    for (name, _) in CONTESTANTS {
        eprintln!("idle: {name}");
        let found = measure_apart(Section::Idle, name, sizes);
        let figure = |key| found[key].as_f64().into_iter().collect::<Samples>();
        report.row(*name, vec![figure("wakes"), figure("sleeps"), figure("cpu_ms")]);
        if *name == ThroughHandle::NAME {
            let (wakes, sleeps) = (number(&found, "wakes"), number(&found, "sleeps"));
            report.verdict("engine: no wake-up", format!("{wakes} wakes, {sleeps} sleeps"), wakes == 0.0);
        }
    }
    report
}

fn measure<S: Service>(sizes: &Sizes) -> Value {
    let fired = FireCount::default();
    let service = S::start(fired.on_fire());
    let delays = HOUR + NANOS.start..HOUR + NANOS.end;
    fill(&service, sizes.idle_timers, &delays, sizes.idle_time / 10);
    let look = || (service.wakes(), sleeps_of_other_threads(), cpu_time());
    let (wakes, sleeps, cpu) = look();
    thread::sleep(sizes.idle_time);
    let (wakes_then, sleeps_then, cpu_then) = look();
    fired.check(&service, sizes.idle_timers);
    let since = |before: Option<u64>, after: Option<u64>| Some(after? - before?);
    let cpu_spent: Option<Duration> = cpu.zip(cpu_then).map(|(before, after)| after - before);
    json!({
        "wakes": since(wakes, wakes_then),
        "sleeps": since(sleeps, sleeps_then),
        "cpu_ms": cpu_spent.map(|spent| spent.as_secs_f64() * 1e3),
    })
}
