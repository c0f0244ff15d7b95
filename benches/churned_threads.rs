//! The cost that ended threads leave behind. The program measures the processor time of a process that fires a timer in
//! each millisecond. It compares a fresh engine with an engine that thousands of threads had used at the same time.
//!
//! Rounds on both engines alternate, and the least time of each engine counts. As a bench, the program fails if the
//! used engine takes a tenth more than the fresh engine. As a test, it only runs.

#![expect(clippy::print_stdout, reason = "the program prints its figures")]

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Engine};

/// The stack size, in bytes, of a thread that only schedules one timer.
const STACK: usize = 64 << 10;

struct Sizes {
    threads: usize,
    rounds: usize,
    round: Duration,
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let sizes = if is_bench {
        Sizes { threads: 4_000, rounds: 5, round: Duration::from_secs(2) }
    } else {
        Sizes { threads: 100, rounds: 1, round: Duration::from_millis(20) }
    };
    let (fresh, used) = (engine(), engine());
    come_and_go(&used, sizes.threads);
    let mut least = [Duration::MAX; 2];
    for _ in 0..sizes.rounds {
        for (least, engine) in least.iter_mut().zip([&fresh, &used]) {
            *least = (*least).min(processor_time_of(|| a_timer_a_millisecond(engine, sizes.round)));
        }
    }
    let [fresh, used] = least;
    println!("a timer a millisecond for {:?}, processor time:", sizes.round);
    println!("  fresh engine            {fresh:.1?}");
    println!("  after {:>5} threads     {used:.1?}", sizes.threads);
    assert!(!is_bench || used <= fresh.mul_f64(1.1), "threads that have gone still cost");
}

fn engine() -> Engine<()> {
    Builder::new().shards(1).inline().start(|_| {}).expect("an engine")
}

/// Starts `threads` threads that use the engine at the same time, and waits for their ends.
fn come_and_go(engine: &Engine<()>, threads: usize) {
    let all_have_scheduled = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            let come_and_go = || {
                engine.handle().schedule(Duration::from_millis(1), ()).expect("room");
                all_have_scheduled.wait();
            };
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, come_and_go).expect("a thread");
        }
    });
    thread::sleep(Duration::from_millis(10));
    assert_eq!(engine.handle().stats().fired, threads as u64);
}

fn a_timer_a_millisecond(engine: &Engine<()>, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        engine.handle().schedule(Duration::from_millis(1), ()).expect("room");
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(target_os = "linux")]
fn processor_time_of(work: impl FnOnce()) -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let so_far = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("not negative");
    let before = so_far();
    work();
    so_far() - before
}

/// Returns the elapsed time of `work`, because this system lacks a clock of processor time. No check uses the returned
/// value on such a system.
#[cfg(not(target_os = "linux"))]
fn processor_time_of(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
