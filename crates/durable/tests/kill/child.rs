//! Runs the process that is killed, the *child*.

use crate::log::{Answer, Line, Log, micros, read};
use crate::{FOLDER, LAST, PATIENCE, dies_at_a_point};
use pollster::block_on;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tourbillon_durable::policy::Backoff;
use tourbillon_durable::store::{Durability, Filter, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Delivery, Durable, Kind, Placed, Spec, Timers, UtcMillis, Verdict};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job(u64);

impl Kind for Job {
    const NAME: &'static str = "job";
}

/// The number of threads of the child that create and cancel timers.
pub(crate) const THREADS: u64 = 4;
/// The sum of this number and a job's number is the id of the job's timer.
pub(crate) const FIRST_ID: u128 = 0x7000_0000_0000_4000_8000_0000_0000_0000;
const MONTH: u64 = 30 * 86_400_000;

/// The store of a child, and what the child does with it.
pub(crate) trait Subject: Send + Sync + Sized + 'static {
    /// The name of the test that runs as the child.
    const CHILD: &'static str;

    /// Opens the store in a folder.
    fn open(folder: &Path) -> Self;

    fn store(&self) -> Arc<dyn TimerStore>;

    fn schedule(&self, timers: &Timers, spec: Spec<Job>) -> Placed {
        timers.schedule_blocking(spec).unwrap()
    }

    fn cancel(&self, timers: &Timers, id: TimerId) -> Cancelled {
        timers.cancel_blocking(id).unwrap()
    }

    /// Works on the store while other threads create and cancel timers.
    fn maintain(&self) {}

    /// Returns whether a delivery of the job writes an effect, in the transaction of the delivery's end.
    fn has_effect(_job: u64) -> bool {
        false
    }

    /// Ends a successful delivery of the job.
    fn end(&self, _job: u64, _delivery: &Delivery) -> Verdict {
        Verdict::Done
    }

    /// Returns the jobs of all effects.
    fn effects(&self) -> Vec<u64> {
        Vec::new()
    }
}

/// Runs as the child. Does nothing unless the parent has set [`FOLDER`].
///
/// Creates, cancels and delivers timers until the process is killed. The last child only delivers the due timers, and
/// lists the remaining timers and the effects.
pub(crate) fn run<S: Subject>() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let delivered = Arc::new(Log::open(&folder.join("deliveries.log")));
    #[cfg(feature = "failpoints")]
    crate::points::arm(folder);
    let subject = Arc::new(S::open(folder));
    let ending = Arc::clone(&subject);
    let handler = move |Job(job): Job, delivery: Delivery| {
        let begin = micros();
        // The first delivery of each sixteenth job fails.
        let is_done = job % 16 != 0 || delivery.attempt > 1;
        let (id, attempt) = (delivery.id.as_u128(), delivery.attempt);
        delivered.write(&Line::Delivered { job, id, attempt, begin, is_done });
        if job % 5 == 0 && dies_at_a_point() {
            std::thread::sleep(Duration::from_millis(100));
        }
        if is_done {
            ending.end(job, &delivery)
        } else {
            Verdict::Retry { error: "once more".into(), after: None }
        }
    };
    let durable = Durable::builder_on(subject.store());
    let durable = durable.blocking_handler(handler).catch_up_rate(None).start().unwrap();
    let timers = durable.handle();
    if std::env::var_os(LAST).is_some() {
        list(folder, &*subject, timers);
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let subject = &*subject;
            scope.spawn(move || create(folder, subject, timers, thread));
        }
        subject.maintain();
    });
}

/// Creates and cancels timers until the process is killed. Each of several threads runs this function.
fn create<S: Subject>(folder: &Path, subject: &S, timers: &Timers, thread: u64) {
    let path = folder.join(format!("creations-{thread}.log"));
    let before = read(&path);
    let last = before.iter().rev().find_map(|line| match line {
        Line::Intent { job, due, .. } => Some((*job, *due)),
        _ => None,
    });
    let log = Log::open(&path);
    let latest = if dies_at_a_point() { 300 } else { 1_500 };
    let mut random = fastrand::Rng::new();
    let mut next = thread;
    // The job that was not acknowledged before the kill is created again, under the same id. A job with an effect is
    // not: its timer may have been delivered, and a second timer would write the effect once more.
    if let Some((job, due)) = last {
        next = job + THREADS;
        if !S::has_effect(job) {
            place(&log, subject, timers, job, due);
        }
    }
    let mut lately: Vec<u64> = Vec::new();
    loop {
        let job = next;
        next += THREADS;
        let due = match random.u8(0..10) {
            0 => MONTH + random.u64(0..MONTH),
            1 => 0,
            _ => random.u64(1..latest),
        };
        let due = micros() / 1_000 + due;
        log.write(&Line::Intent { job, due, has_effect: S::has_effect(job) });
        place(&log, subject, timers, job, due);
        lately.push(job);
        if random.u8(0..3) == 0 {
            let job = lately.swap_remove(random.usize(0..lately.len()));
            log.write(&Line::CancelIntent { job });
            let answer = match subject.cancel(timers, id_of(job)) {
                Cancelled::Cancelled(_) => Answer::Cancelled,
                Cancelled::InFlight => Answer::InFlight,
                Cancelled::NotFound => Answer::NotFound,
                other => panic!("{other:?}"),
            };
            log.write(&Line::Cancelled { job, answer, at: micros() });
        }
    }
}

fn id_of(job: u64) -> TimerId {
    TimerId::from_u128(FIRST_ID + u128::from(job))
}

fn place<S: Subject>(log: &Log, subject: &S, timers: &Timers, job: u64, due: u64) {
    let durability = if fastrand::bool() { Durability::PowerLoss } else { Durability::ProcessCrash };
    let spec = Spec::new(Job(job)).id(id_of(job)).at(UtcMillis::from_millis(due)).durability(durability);
    let spec = spec.backoff(Backoff::Fixed(Duration::from_millis(20))).label("all");
    let placed = subject.schedule(timers, spec);
    assert!(matches!(placed, Placed::Created(_) | Placed::Repeated(_)), "{placed:?}");
    log.write(&Line::Created { job });
}

/// Waits until all timers that are due within a minute were delivered. Then logs the timers that are still stored, and
/// the effects.
fn list<S: Subject>(folder: &Path, subject: &S, timers: &Timers) {
    let soon = UtcMillis::from_millis(micros() / 1_000 + 60_000);
    let left = || {
        let (mut left, mut cursor) = (Vec::new(), None);
        loop {
            let page = block_on(timers.list(Filter::default(), cursor, 1_000)).unwrap();
            left.extend(page.timers);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return left,
            }
        }
    };
    let until = Instant::now() + PATIENCE;
    while left().iter().any(|timer| timer.due < soon) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    let log = Log::open(&folder.join("left.log"));
    for timer in left() {
        log.write_later(&Line::Left { id: timer.id.as_u128() });
    }
    for job in subject.effects() {
        log.write_later(&Line::Effect { job });
    }
    for fault in block_on(timers.check()).unwrap() {
        log.write_later(&Line::Fault { fault: fault.to_string() });
    }
}
