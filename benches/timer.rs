//! The cost of an owned timer. It is made and dropped for each request, or it stays and is armed and disarmed for each
//! request.
//!
//! The figures are from one thread and from two threads at once, as the mean time in a thread. No clock is read.

mod common;
#[path = "common/sampling.rs"]
mod sampling;

use common::at_least_some;
use criterion::{BenchmarkId, Criterion};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Disarm, Handle, Timestamp};

fn main() {
    let mut criterion = sampling::criterion();
    for threads in [1, 2] {
        from_threads(&mut criterion, "make and drop", threads, |handle, times| {
            let start = Instant::now();
            for n in 0..times {
                drop(handle.timer(n).expect("there is room"));
            }
            start.elapsed()
        });
        from_threads(&mut criterion, "make, arm and drop", threads, |handle, times| {
            let deadline = far(handle);
            let start = Instant::now();
            for n in 0..times {
                let timer = handle.timer(n).expect("there is room");
                timer.arm_at(deadline).expect("the engine runs");
            }
            start.elapsed()
        });
        from_threads(&mut criterion, "arm and disarm", threads, |handle, times| {
            let deadline = far(handle);
            let timer = handle.timer(0).expect("there is room");
            let start = Instant::now();
            for n in 0..times {
                timer.arm_at(deadline + Duration::from_millis(n)).expect("the engine runs");
                assert_eq!(timer.disarm(), Disarm::Disarmed);
            }
            start.elapsed()
        });
    }
    criterion.final_summary();
}

fn far(handle: &Handle<u64>) -> Timestamp {
    handle.now() + Duration::from_secs(60)
}

/// Measures `work` from several threads. `work` runs an operation the given number of times, and returns the time.
fn from_threads(
    criterion: &mut Criterion,
    name: &str,
    threads: u64,
    work: fn(&Handle<u64>, u64) -> Duration,
) {
    let engine = Builder::new().start(|_| ()).expect("the system gives us threads");
    let mut group = criterion.benchmark_group("timer");
    group.bench_function(BenchmarkId::new(name, format!("threads: {threads}")), |bencher| {
        bencher.iter_custom(|iterations| {
            let times = at_least_some(iterations);
            let barrier = Barrier::new(usize::try_from(threads).expect("a count"));
            let time: Duration = thread::scope(|scope| {
                let runs: Vec<_> = (0..threads)
                    .map(|_| {
                        scope.spawn(|| {
                            work(engine.handle(), 1_024);
                            barrier.wait();
                            work(engine.handle(), times)
                        })
                    })
                    .collect();
                runs.into_iter().map(|run| run.join().expect("it checks what it does")).sum()
            });
            time.div_f64(threads as f64 * times as f64 / iterations as f64)
        });
    });
    group.finish();
    assert!(engine.handle().is_empty());
}
