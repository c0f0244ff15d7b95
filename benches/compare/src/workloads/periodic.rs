//! Tasks that repeat. The figures are their lateness and their processor time.

use crate::case::Case;
use crate::process::cpu_time;
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::Builder;
use tourbillon_book::figure::thousands;
use tourbillon_tasks::{First, Repeat, TaskEngine};

use super::shots::Sorted;

pub(super) const WORKLOAD: Workload = Workload {
    name: "periodic",
    operation: "tasks with a period, their phases spread evenly over it: how late they run",
    family: Family::Tasks,
    about: "Checked: no task has a run too many or too few.",
    reading: "A repeating task of ours is an owned timer, and its lateness is that of the tick and of the \
        threads that run handlers; each run takes the locks of its task and of its closure. tokio's is a task \
        that awaits. Our own interval on tokio wakes a task from another thread at each tick.",
    cases,
    columns: |_| {
        vec![
            Column::new("runs", "runs", ""),
            Column::new("p50", "p50", "ms"),
            Column::new("p99", "p99", "ms"),
            Column::new("p999", "p99.9", "ms"),
            Column::new("max", "max", "ms"),
            Column::new("cpu", "CPU for each second", "ms"),
        ]
    },
    rounds: |scale, _| scale.pick(3, 1, 1),
    entrants,
};

fn entrants() -> Vec<Entrant> {
    vec![
        Entrant::here("Tasks::repeat, own workers", true, |case| ours(case, Builder::new())),
        Entrant::here("Tasks::repeat, inline", true, |case| ours(case, Builder::new().inline())),
        Entrant::here("tokio, interval, a task each", false, tokio_intervals),
        Entrant::here("engine, future::interval on tokio, a task each", true, our_intervals),
    ]
}

/// The number of recorded runs for each periodic task.
const NOTED: usize = 8;

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(100_000, 2_000, 50);
    let (period_ms, periods) = scale.pick((1_000, 5), (200, 2), (20, 3));
    let name = format!("{} tasks, every {} s", thousands(timers), period_ms as f64 / 1e3);
    vec![Case { timers, lead_ms: period_ms, time_ms: period_ms * periods, ..Case::named(name) }]
}

/// The lateness of each recorded run, for each periodic task.
#[derive(Clone)]
struct Notes(Arc<Shared>);

struct Shared {
    counts: Vec<AtomicUsize>,
    /// For each run, its lateness in units of 100 ns, plus one. Zero if the run has not come.
    lateness: Vec<AtomicU32>,
}

impl Notes {
    fn new(case: &Case) -> Self {
        let counts = (0..case.timers).map(|_| AtomicUsize::new(0)).collect();
        let lateness = (0..case.timers * NOTED).map(|_| AtomicU32::new(0)).collect();
        Self(Arc::new(Shared { counts, lateness }))
    }

    fn note(&self, task: usize, lateness: Duration) {
        let run = self.0.counts[task].fetch_add(1, Ordering::Relaxed);
        if run < NOTED {
            let late = u32::try_from(lateness.as_nanos() / 100).expect("some minutes");
            self.0.lateness[task * NOTED + run].store(late + 1, Ordering::Relaxed);
        }
    }

    /// Returns the phase of periodic task number `task`. The phases are spread evenly over the period.
    fn phase(case: &Case, task: usize) -> Duration {
        case.lead() * u32::try_from(task).expect("fewer than 2^32")
            / u32::try_from(case.timers).expect("fewer than 2^32")
    }

    /// Waits for a period until all tasks have started, and then for the measured time. Returns the figures of the
    /// runs.
    fn figures(&self, case: &Case, begun: Instant) -> Figures {
        thread::sleep((case.lead() * 2).saturating_sub(begun.elapsed()));
        let (cpu, start) = (cpu_time(), begun.elapsed());
        thread::sleep(case.time());
        let (cpu_then, end) = (cpu_time(), begun.elapsed());
        let cpu = cpu.zip(cpu_then).map(|(before, after)| (after - before).as_secs_f64() * 1e3);
        let seconds = (end - start).as_secs_f64();
        let runs: usize = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        self.check(case, begun.elapsed());
        let noted = self.0.lateness.iter().map(|late| late.load(Ordering::Relaxed));
        let noted = noted.filter(|&late| late > 0).map(|late| u64::from(late - 1) * 100);
        let noted = Sorted::new(noted.collect());
        Figures::default()
            .number("runs", runs as f64)
            .number("p50", noted.millis(0.5))
            .number("p99", noted.millis(0.99))
            .number("p999", noted.millis(0.999))
            .number("max", noted.millis(1.0))
            .number("cpu", cpu.map(|cpu| cpu / seconds))
    }

    /// Checks that each periodic task had as many runs as `elapsed` has periods, or a run more or less.
    fn check(&self, case: &Case, elapsed: Duration) {
        for (task, count) in self.0.counts.iter().enumerate() {
            let due = (elapsed.saturating_sub(Self::phase(case, task))).as_nanos() / case.lead().as_nanos();
            let runs = count.load(Ordering::Relaxed) as u128;
            // At the moment of the check, one run may be in progress, or late.
            assert!(runs <= due + 1 && runs + 2 >= due, "task {task} ran {runs} times of {due}");
        }
    }
}

fn ours(case: &Case, builder: Builder) -> Figures {
    let tasks: TaskEngine = TaskEngine::start(builder).expect("the system gives us threads");
    let notes = Notes::new(case);
    let begun = Instant::now();
    let start = tasks.handle().now();
    for task in 0..case.timers {
        let notes = notes.clone();
        let first = First::After((start + case.lead() + Notes::phase(case, task)) - tasks.handle().now());
        let clock = Clone::clone(tasks.handle());
        let run = move |run: &tourbillon_tasks::Run| notes.note(task, clock.now() - run.scheduled);
        tasks.handle().repeat(Repeat::every(case.lead()).first(first), run).expect("there is room");
    }
    notes.figures(case, begun)
}

fn tokio_intervals(case: &Case) -> Figures {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_time().build().expect("the system gives us threads");
    let notes = Notes::new(case);
    let begun = Instant::now();
    let start = tokio::time::Instant::now();
    for task in 0..case.timers {
        let (notes, period) = (notes.clone(), case.lead());
        let first = start + case.lead() + Notes::phase(case, task);
        drop(runtime.spawn(async move {
            let mut interval = tokio::time::interval_at(first, period);
            loop {
                let scheduled = interval.tick().await;
                notes.note(task, scheduled.elapsed());
            }
        }));
    }
    let figures = notes.figures(case, begun);
    runtime.shutdown_background();
    figures
}

fn our_intervals(case: &Case) -> Figures {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).build().expect("the system gives us threads");
    let engine = Builder::new().start_futures().expect("the system gives us threads");
    let notes = Notes::new(case);
    let begun = Instant::now();
    let start = engine.handle().now();
    for task in 0..case.timers {
        let (notes, handle) = (notes.clone(), Clone::clone(engine.handle()));
        let first = start + case.lead() + Notes::phase(case, task);
        let mut interval = handle.interval_at(first, case.lead()).expect("a period");
        drop(runtime.spawn(async move {
            loop {
                let scheduled = interval.tick().await;
                notes.note(task, handle.now() - scheduled);
            }
        }));
    }
    let figures = notes.figures(case, begun);
    runtime.shutdown_background();
    figures
}
