//! Sessions, the time in which a worker fires due timers: what they count, and clocks that panic within them.

use crate::support::{MS, PATIENCE, wait_until};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Clock, Fired, Job, ManualClock, SystemClock, Timer, Timestamp};

/// A clock that counts its readings by the thread `job`, and panics in one of them if the trap is set.
struct Watched {
    clock: SystemClock,
    readings: Arc<AtomicU64>,
    trap: Arc<AtomicBool>,
}

impl Clock for Watched {
    fn now(&self) -> Timestamp {
        if thread::current().name() == Some("job") {
            self.readings.fetch_add(1, Ordering::SeqCst);
            assert!(!self.trap.swap(false, Ordering::SeqCst), "the trap");
        }
        self.clock.now()
    }
}

/// Starts an engine on a watched clock, and runs `jobs` of its jobs on a thread named `job`. A timer is due at once.
/// Returns the engine, its count of fired timers, and the count of readings.
fn on_a_watched_clock(
    is_trapped: bool,
    jobs: usize,
) -> (tourbillon::Engine<()>, Arc<AtomicUsize>, Arc<AtomicU64>) {
    let (readings, fired) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let clock = Watched {
        clock: SystemClock::new(),
        readings: Arc::clone(&readings),
        trap: Arc::new(AtomicBool::new(is_trapped)),
    };
    let (sender, queue) = mpsc::channel::<Job>();
    let (sender, count) = (Mutex::new(sender), Arc::clone(&fired));
    let engine = Builder::new()
        .clock(clock)
        .shards(1)
        .executor(move |job| sender.lock().unwrap().send(job).unwrap())
        .start(move |_: Fired<'_, ()>| {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    engine.handle().schedule(MS, ()).unwrap();
    let run = move || {
        for job in queue.into_iter().take(jobs) {
            let _panicked = catch_unwind(AssertUnwindSafe(|| job.run()));
        }
    };
    thread::Builder::new().name("job".into()).spawn(run).unwrap().join().unwrap();
    (engine, fired, readings)
}

#[test]
fn a_clock_that_panics_as_a_session_begins_holds_up_neither_the_timer_nor_the_shutdown() {
    let (engine, fired, _) = on_a_watched_clock(true, 2);
    assert_eq!(fired.load(Ordering::SeqCst), 1, "the shard has sent the batch again");
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        drop(engine.handle().shutdown());
        done.send(()).unwrap();
    });
    is_done.recv_timeout(PATIENCE).expect("the shutdown returns");
}

#[test]
fn a_lone_timer_costs_three_readings_of_the_clock() {
    let (_engine, fired, readings) = on_a_watched_clock(false, 1);
    assert_eq!(fired.load(Ordering::SeqCst), 1);
    assert!(readings.load(Ordering::SeqCst) <= 3, "{readings:?}");
}

#[test]
fn the_last_handler_of_a_session_counts_as_handler_time() {
    const SLOW: Duration = Duration::from_millis(100);
    let calls = AtomicUsize::new(0);
    let engine = Builder::new()
        .shards(1)
        .inline()
        .start(move |_: Fired<'_, ()>| {
            if calls.fetch_add(1, Ordering::SeqCst) == 1 {
                thread::sleep(SLOW);
            }
        })
        .unwrap();
    let due = Timestamp::from(Instant::now() + 20 * MS);
    for _ in 0..2 {
        engine.handle().schedule_at(due, ()).unwrap();
    }
    wait_until("the time of the second handler is counted", || {
        engine.handle().stats().total.handler_time >= SLOW
    });
}

/// A payload whose drop takes a second.
#[derive(Clone)]
struct Slow(Option<ManualClock>);

impl Drop for Slow {
    fn drop(&mut self) {
        if let Some(clock) = &self.0 {
            clock.advance(Duration::from_secs(1));
        }
    }
}

/// The handler of the first timer drops the second timer. The drop of its payload delays the third timer.
#[test]
fn the_drop_of_a_payload_between_two_handlers_hides_no_delay() {
    let victim: Arc<Mutex<Option<Timer<Slow>>>> = Arc::default();
    let (inside, latest) = (Arc::clone(&victim), Arc::new(Mutex::new(Duration::ZERO)));
    let seen = Arc::clone(&latest);
    let mut engine = Builder::new()
        .driven(move |fired: Fired<'_, Slow>| {
            let mut latest = seen.lock().unwrap();
            *latest = fired.lateness().max(*latest);
            drop(inside.lock().unwrap().take());
        })
        .unwrap();
    let payloads = [None, Some(engine.clock().clone()), None];
    let mut timers = payloads.map(|clock| {
        let timer = engine.handle().timer(Slow(clock)).unwrap();
        timer.arm(MS).unwrap();
        Some(timer)
    });
    *victim.lock().unwrap() = timers[1].take();
    engine.advance(5 * MS);
    let latest = *latest.lock().unwrap();
    assert!(latest >= Duration::from_secs(1), "{latest:?}");
    assert!(engine.handle().stats().total.lateness.max >= latest);
}

/// The last of 900 handlers blocks. The histogram has the timers before it but for those of the worker's last rows,
/// which the worker has counted for itself.
#[test]
fn the_histogram_has_nearly_all_timers_while_a_handler_blocks() {
    const TIMERS: usize = 900;
    /// A chunk, and a row of handlers that share a reading of the clock.
    const KEPT: u64 = 31 + 8;
    let (go_on, gate) = mpsc::channel::<()>();
    let (called, gate) = (Arc::new(AtomicUsize::new(0)), Mutex::new(gate));
    let count = Arc::clone(&called);
    let engine = Builder::new()
        .shards(1)
        .inline()
        .start(move |_: Fired<'_, ()>| {
            if count.fetch_add(1, Ordering::SeqCst) == TIMERS - 1 {
                let _ = gate.lock().unwrap().recv();
            }
        })
        .unwrap();
    let due = Timestamp::from(Instant::now() + 50 * MS);
    for _ in 0..TIMERS {
        engine.handle().schedule_at(due, ()).unwrap();
    }
    wait_until("the last handler blocks", || called.load(Ordering::SeqCst) == TIMERS);
    let counted = engine.handle().stats().total.lateness.count;
    assert!((TIMERS as u64 - KEPT..=TIMERS as u64).contains(&counted), "{counted}");
    drop(go_on);
}
