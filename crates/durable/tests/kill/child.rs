//! Runs the process that is killed, the *child*.

use crate::log::{Answer, Line, Log, micros, read};
use pollster::block_on;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::policy::Backoff;
use tourbillon_durable::store::{Durability, Filter, RedbStore, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Delivery, Durable, Kind, Placed, Spec, Timers, UtcMillis, Verdict};

#[derive(Debug, Serialize, Deserialize)]
struct Job(u64);

impl Kind for Job {
    const NAME: &'static str = "job";
}

/// The number of threads of the child that create and cancel timers.
const THREADS: u64 = 4;
/// The variable with the point at which the child dies, and a number. "Name 3" means the moment when the point `Name`
/// is reached for the third time. If the variable is set, timers are due sooner. The store is also compacted again and
/// again, for more checkpoints. Some deliveries are slow, for more leases.
pub(crate) const POINT: &str = "TOURBILLON_KILL_POINT";
/// The sum of this number and a job's number is the id of the job's timer.
pub(crate) const FIRST_ID: u128 = 0x7000_0000_0000_4000_8000_0000_0000_0000;
const MONTH: u64 = 30 * 86_400_000;

/// Creates, cancels and delivers timers until the process is killed. If `is_last` is true, only delivers the due timers
/// and lists the remaining timers.
pub(crate) fn run(folder: &Path, is_last: bool) {
    let delivered = Arc::new(Log::open(&folder.join("deliveries.log")));
    #[cfg(feature = "failpoints")]
    crate::points::arm(folder);
    let store = Arc::new(RedbStore::open(folder.join("timers.redb")).unwrap());
    let shared: Arc<dyn TimerStore> = Arc::<RedbStore>::clone(&store);
    let dies_at_a_point = std::env::var_os(POINT).is_some();
    let handler = move |Job(job): Job, delivery: Delivery| {
        let begin = micros();
        // The first delivery of each sixteenth job fails.
        let is_done = job % 16 != 0 || delivery.attempt > 1;
        let (id, attempt) = (delivery.id.as_u128(), delivery.attempt);
        delivered.write(&Line::Delivered { job, id, attempt, begin, is_done });
        if job % 5 == 0 && dies_at_a_point {
            std::thread::sleep(Duration::from_millis(100));
        }
        if is_done { Verdict::Done } else { Verdict::Retry { error: "once more".into(), after: None } }
    };
    let durable = Durable::builder_on(shared).blocking_handler(handler).catch_up_rate(None).start().unwrap();
    let timers = durable.handle();
    if is_last {
        list(folder, timers);
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || create(folder, timers, thread));
        }
        if std::env::var_os(POINT).is_some() {
            loop {
                std::thread::sleep(Duration::from_millis(15));
                block_on(store.compact()).unwrap();
            }
        }
    });
}

/// Creates and cancels timers until the process is killed. Each of several threads runs this function.
fn create(folder: &Path, timers: &Timers, thread: u64) {
    let path = folder.join(format!("creations-{thread}.log"));
    let before = read(&path);
    let last = before.iter().rev().find_map(|line| match line {
        Line::Intent { job, due } => Some((*job, *due)),
        _ => None,
    });
    let log = Log::open(&path);
    let latest = if std::env::var_os(POINT).is_some() { 300 } else { 1_500 };
    let mut random = fastrand::Rng::new();
    let mut next = thread;
    // The job that was not acknowledged before the kill is created again, under the same id.
    if let Some((job, due)) = last {
        next = job + THREADS;
        place(&log, timers, job, due, &mut random);
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
        log.write(&Line::Intent { job, due });
        place(&log, timers, job, due, &mut random);
        lately.push(job);
        if random.u8(0..3) == 0 {
            let job = lately.swap_remove(random.usize(0..lately.len()));
            log.write(&Line::CancelIntent { job });
            let answer = match timers.cancel_blocking(id_of(job)).unwrap() {
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

fn place(log: &Log, timers: &Timers, job: u64, due: u64, random: &mut fastrand::Rng) {
    let durability = if random.bool() { Durability::PowerLoss } else { Durability::ProcessCrash };
    let spec = Spec::new(Job(job)).id(id_of(job)).at(UtcMillis::from_millis(due)).durability(durability);
    let spec = spec.backoff(Backoff::Fixed(Duration::from_millis(20))).label("all");
    let placed = timers.schedule_blocking(spec).unwrap();
    assert!(matches!(placed, Placed::Created(_) | Placed::Repeated(_)), "{placed:?}");
    log.write(&Line::Created { job });
}

/// Waits until all timers that are due within a minute were delivered. Then logs the timers that are still stored.
fn list(folder: &Path, timers: &Timers) {
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
    let begin = micros();
    while left().iter().any(|timer| timer.due < soon) && micros() - begin < 30_000_000 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let log = Log::open(&folder.join("left.log"));
    for timer in left() {
        log.write_later(&Line::Left { id: timer.id.as_u128() });
    }
    for fault in block_on(timers.check()).unwrap() {
        log.write_later(&Line::Fault { fault: fault.to_string() });
    }
}
