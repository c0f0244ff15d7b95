//! Slow handlers, blocked workers, executors that drop jobs, and shards that were held up: no timer is lost.

use crate::support::{Log, MS, PATIENCE, Rng, Shot, assert_settled, lock, payloads, wait_until};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{
    Builder, Cancel, Clock, DrivenEngine, Engine, Fired, Job, ManualClock, SystemClock, Timestamp,
};

#[test]
fn one_slow_handler_does_not_hold_back_the_rest_of_its_chunk() {
    // 30 timers are due in one tick. The handler of the first timer waits until the other 29 have fired.
    let (fired, first) = (AtomicU64::new(0), AtomicBool::new(true));
    let engine = Builder::new()
        .shards(1)
        .workers(2)
        .start(move |_: Fired<'_, u64>| {
            if first.swap(false, Ordering::SeqCst) {
                wait_until("the others have fired", || fired.load(Ordering::SeqCst) == 29);
            } else {
                fired.fetch_add(1, Ordering::SeqCst);
            }
        })
        .unwrap();
    engine.handle().schedule_batch((0..30).map(|n| (MS, n))).unwrap();
    wait_until("all have fired", || engine.handle().stats().fired == 30);
    assert!(engine.handle().shutdown().is_empty());
    assert_eq!(engine.handle().stats().total.panics, 0);
}

#[test]
fn a_job_that_its_executor_drops_is_sent_again() {
    for count in [1, 2, 100] {
        let log = Log::new();
        let sink = log.clone();
        let jobs = AtomicUsize::new(0);
        let engine = Builder::new()
            .shards(1)
            .executor(move |job: Job| {
                if jobs.fetch_add(1, Ordering::Relaxed) >= 3 {
                    job.run();
                }
            })
            .start(move |timer: Fired<'_, u64>| sink.push(timer.payload))
            .unwrap();
        engine.handle().schedule_batch((0..count).map(|n| (MS, n))).unwrap();
        wait_until("all have fired", || log.len() as u64 == count);
        assert_eq!(log.take_sorted(), (0..count).collect::<Vec<u64>>());
    }
}

#[test]
fn a_job_that_is_dropped_later_is_sent_again() {
    // Nothing else wakes the shard, which would otherwise sleep on.
    let (jobs, queue) = mpsc::channel::<Job>();
    let executor = thread::spawn(move || {
        for (number, job) in queue.into_iter().enumerate() {
            if number < 3 {
                thread::sleep(5 * MS);
                drop(job);
            } else {
                job.run();
            }
        }
    });
    let (sender, fired) = mpsc::channel();
    let engine = Builder::new()
        .shards(1)
        .executor(move |job| jobs.send(job).unwrap())
        .start(move |timer| sender.send(timer.payload).unwrap())
        .unwrap();
    engine.handle().schedule(MS, 7).unwrap();
    assert_eq!(fired.recv_timeout(PATIENCE), Ok(7));
    drop(engine);
    executor.join().unwrap();
}

type Jobs = Arc<Mutex<Vec<Job>>>;

/// Makes a driven engine whose executor puts its jobs into a list. Also returns the list, and a log of the timers that
/// fired.
fn driven_with_jobs_kept() -> (DrivenEngine<u64>, Jobs, Log<u64>) {
    let (jobs, log) = (Jobs::default(), Log::new());
    let (kept, sink) = (Arc::clone(&jobs), log.clone());
    let builder = Builder::new().executor(move |job| lock(&kept).push(job));
    (builder.driven(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap(), jobs, log)
}

#[test]
fn a_job_that_is_run_in_parts_fires_each_timer_once() {
    let (mut engine, jobs, log) = driven_with_jobs_kept();
    // 80 timers fill three chunks.
    let ids: Vec<_> = (0..80).map(|n| engine.handle().schedule(MS, n).unwrap()).collect();
    engine.advance(2 * MS);
    assert_eq!(log.len(), 0);
    let mut job = lock(&jobs).pop().expect("80 timers are due");
    assert_eq!((job.run_some(0), job.is_done()), (0, false));
    assert_eq!((job.run_some(50), job.is_done()), (50, false));
    // A timer whose job waits is pending.
    assert_eq!(engine.handle().cancel(ids[79]), Cancel::Cancelled(79));
    let moved = engine.handle().reschedule(ids[78], 10 * MS).unwrap();
    assert_eq!(engine.handle().len(), 29);
    assert_eq!((job.run_some(20), job.is_done()), (20, false));
    assert_eq!((job.run_some(20), job.is_done()), (8, true));
    assert_eq!(job.run_some(20), 0);
    assert_eq!(log.take_sorted(), (0..78).collect::<Vec<_>>());
    engine.advance(20 * MS);
    std::mem::take(&mut *lock(&jobs)).into_iter().for_each(Job::run);
    assert_eq!(log.take_sorted(), [78]);
    assert_eq!(engine.handle().cancel(moved), Cancel::Gone);
    assert_settled(&engine.handle().stats());
}

#[test]
fn what_is_left_of_a_job_that_is_dropped_is_sent_again() {
    let (mut engine, jobs, log) = driven_with_jobs_kept();
    engine.handle().schedule_batch((0..80).map(|n| (MS, n))).unwrap();
    engine.advance(2 * MS);
    let mut job = lock(&jobs).pop().expect("80 timers are due");
    assert_eq!(job.run_some(33), 33);
    // The job waits for its next run, and no other job is sent.
    engine.advance(10 * MS);
    engine.turn();
    assert_eq!(lock(&jobs).len(), 0);
    drop(job);
    engine.advance(10 * MS);
    let again = lock(&jobs).pop().expect("another job");
    again.run();
    assert_eq!(log.take_sorted(), (0..80).collect::<Vec<_>>());
}

thread_local! {
    /// Whether a reading of the clock on this thread panics.
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

struct PanickingClock(SystemClock);

impl Clock for PanickingClock {
    fn now(&self) -> Timestamp {
        assert!(!PANICS.get(), "the clock panics");
        self.0.now()
    }
}

#[test]
fn a_timer_whose_job_unwinds_before_its_handler_is_called_is_sent_again() {
    let (jobs, queue) = mpsc::channel::<Job>();
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .shards(1)
        .clock(PanickingClock(SystemClock::new()))
        .executor(move |job| jobs.send(job).unwrap())
        .start(move |timer: Fired<'_, u64>| sink.push(timer.payload))
        .unwrap();
    engine.handle().schedule(MS, 7).unwrap();
    let mut job = queue.recv_timeout(PATIENCE).unwrap();
    PANICS.set(true);
    let run = catch_unwind(AssertUnwindSafe(|| job.run_some(1)));
    PANICS.set(false);
    assert!(run.is_err() && !job.is_done());
    // After this time the shard is asleep. Only the drop of the job wakes it.
    thread::sleep(20 * MS);
    drop(job);
    queue.recv_timeout(PATIENCE).unwrap().run();
    assert_eq!(log.take_sorted(), [7]);
}

#[test]
fn a_shutdown_returns_what_a_job_has_not_run() {
    let (mut engine, jobs, log) = driven_with_jobs_kept();
    engine.handle().schedule_batch((0..80).map(|n| (MS, n))).unwrap();
    engine.advance(2 * MS);
    let mut job = lock(&jobs).pop().expect("80 timers are due");
    assert_eq!(job.run_some(33), 33);
    let mut all: Vec<_> = engine.handle().shutdown().iter().map(|unfired| unfired.payload).collect();
    assert_eq!(all.len(), 47);
    assert_eq!((job.run_some(1), job.is_done()), (0, true));
    all.extend(log.take_sorted());
    all.sort_unstable();
    assert_eq!(all, (0..80).collect::<Vec<_>>());
}

/// Makes an engine on a manual clock, whose executor puts its jobs into a list. While the returned flag is set, the
/// executor runs new jobs at once.
fn with_jobs_kept() -> (Engine<u64>, ManualClock, Jobs, Arc<AtomicBool>, Log<u64>) {
    let (clock, log) = (ManualClock::new(), Log::new());
    let (jobs, runs) = (Arc::new(Mutex::new(Vec::<Job>::new())), Arc::new(AtomicBool::new(false)));
    let (kept, runs_now, sink) = (Arc::clone(&jobs), Arc::clone(&runs), log.clone());
    let engine = Builder::new()
        .shards(1)
        .clock(clock.clone())
        .executor(
            move |job: Job| {
                if runs_now.load(Ordering::SeqCst) { job.run() } else { lock(&kept).push(job) }
            },
        )
        .start(move |timer: Fired<'_, u64>| sink.push(timer.payload))
        .unwrap();
    (engine, clock, jobs, runs, log)
}

#[test]
fn tickets_do_not_pile_up_while_nobody_fires_them() {
    // Timers come due and are cancelled, and others come. This happens when all workers are blocked and users give up.
    let (engine, clock, jobs, runs, log) = with_jobs_kept();
    let (rounds, each) = (1_500_u64, 20_u64);
    for round in 1..=rounds {
        let ids = engine.handle().schedule_batch((0..each).map(|n| (MS, n))).unwrap();
        clock.advance(MS);
        // The shard has found the timers due. It has passed them on, or keeps them for later.
        let seen = || engine.handle().stats().total;
        wait_until("they are due", || seen().queued_timers + seen().stale_tickets >= round * each);
        assert!(ids.into_iter().all(|id| engine.handle().cancel(id).payload().is_some()));
    }
    let (queued, handed_over) = (engine.handle().stats().total.queued_timers, lock(&jobs).len());
    assert!(handed_over <= 300, "{handed_over} jobs wait of {rounds} rounds");
    assert!(queued <= 300 * each, "{queued} tickets wait of {}", rounds * each);

    // The timers that are not cancelled fire after all others, once there is a worker.
    engine.handle().schedule_batch((0..1_000).map(|n| (MS, n))).unwrap();
    clock.advance(MS);
    runs.store(true, Ordering::SeqCst);
    std::mem::take(&mut *lock(&jobs)).into_iter().for_each(Job::run);
    wait_until("all have fired", || log.len() == 1_000);
    assert_eq!(log.take_sorted(), (0..1_000).collect::<Vec<u64>>());
    wait_until("nothing waits", || engine.handle().stats().total.queued_timers == 0);
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_job_that_is_dropped_behind_many_others_is_sent_again() {
    let (engine, clock, jobs, runs, log) = with_jobs_kept();
    // Each of these timers gets its own job.
    for n in 0..700 {
        engine.handle().schedule(MS, n).unwrap();
        clock.advance(MS);
        wait_until("it is due", || engine.handle().stats().total.queued_timers == n + 1);
    }
    let last = lock(&jobs).pop();
    let before = lock(&jobs).len();
    drop(last);
    clock.advance(MS);
    wait_until("another job comes", || {
        clock.advance(MS);
        lock(&jobs).len() > before
    });
    runs.store(true, Ordering::SeqCst);
    std::mem::take(&mut *lock(&jobs)).into_iter().for_each(Job::run);
    wait_until("all have fired", || {
        clock.advance(MS);
        log.len() == 700
    });
}

#[test]
fn an_executor_that_panics_loses_no_timer() {
    let (sender, fired) = mpsc::channel();
    let jobs = AtomicUsize::new(0);
    let engine = Builder::new()
        .shards(1)
        .executor(move |job: Job| {
            assert!(jobs.fetch_add(1, Ordering::Relaxed) >= 2, "an executor");
            job.run();
        })
        .start(move |timer| sender.send(timer.payload).unwrap())
        .unwrap();
    engine.handle().schedule(MS, 7).unwrap();
    assert_eq!(fired.recv_timeout(PATIENCE), Ok(7));
    engine.handle().schedule(MS, 8).unwrap();
    assert_eq!(fired.recv_timeout(PATIENCE), Ok(8));
}

#[test]
fn a_job_that_is_run_after_the_shutdown_fires_nothing() {
    let jobs = Arc::new(Mutex::new(Vec::<Job>::new()));
    let queue = Arc::clone(&jobs);
    let engine = Builder::new()
        .shards(1)
        .executor(move |job| lock(&queue).push(job))
        .start(|_: Fired<'_, u64>| panic!("it was returned"))
        .unwrap();
    engine.handle().schedule(MS, 7).unwrap();
    wait_until("it is handed over", || lock(&jobs).len() == 1);
    let unfired = engine.handle().shutdown();
    assert_eq!(unfired.iter().map(|timer| timer.payload).collect::<Vec<_>>(), [7]);
    for job in lock(&jobs).drain(..) {
        job.run();
    }
    assert_eq!((engine.handle().stats().fired, engine.handle().stats().total.panics), (0, 0));
    drop(engine);
}

#[test]
fn a_stalled_shard_catches_up_and_fires_each_timer_once() {
    // The timer is 3 s away, and a tick is 1 µs. That is more than ten thousand revolutions of the finest level.
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .tick(Duration::from_micros(1))
        .shards(1)
        .inline()
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload == 0 {
                thread::sleep(3_000 * MS);
            }
            sink.push(Shot::of(&timer));
        })
        .unwrap();
    let mut rng = Rng::new(300);
    let count = 40_000;
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    engine.handle().schedule_batch((1..count).map(|n| (MS + rng.nanos_below(2_500 * MS), n))).unwrap();
    wait_until("all have fired", || log.len() as u64 == count);
    let shots = log.take();
    assert!(shots.iter().all(|shot| shot.at >= shot.deadline));
    assert_eq!(payloads(&shots), (0..count).collect::<Vec<u64>>());
    assert!(engine.handle().stats().total.turns > 3, "caught up in one slice");
    assert!(engine.handle().stats().total.lateness.max >= 400 * MS);
    assert_settled(&engine.handle().stats());
}
