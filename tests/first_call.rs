//! The cost of the first call in a process for its caller: no calibration, and no registration of a barrier on its
//! thread.
//!
//! Some fresh processes, which are this program again, have other threads that rest or that burn their cores. Each
//! process times its first engine with its first timer, and the first timeout of a future. Wall times vary with the
//! machine. The test asserts only that the median at rest is far below 10 to 25 ms, which it once was. Read the figures
//! with `--nocapture`; the aim is a millisecond.
#![cfg(feature = "async")]

use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Engine, Fired};

const CHILD: &str = "TOURBILLON_FIRST_CALL_CHILD";
const PROCESSES: usize = 20;
/// An engine and its first timer, and the first timeout of a future.
const FIGURES: usize = 2;

fn timed(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

/// Until `over`, threads beside the caller: some that rest, or more than there are cores that do not.
fn beside_others<R>(are_busy: bool, f: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..if are_busy { 8 } else { 4 } {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if !are_busy {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
        thread::sleep(Duration::from_millis(5));
        let result = f();
        over.store(true, Ordering::Relaxed);
        result
    })
}

fn first_engine_and_timer() -> Engine<()> {
    let engine = Builder::new().start(|_: Fired<'_, ()>| {}).unwrap();
    engine.handle().schedule(Duration::from_secs(1), ()).unwrap();
    engine
}

fn first_timeout() {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    let timeout = tourbillon::future::timeout(Duration::from_secs(1), std::future::pending::<()>());
    assert_eq!(pin!(timeout).poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
}

/// The figures of a child, in microseconds.
fn figures_of_a_child(kind: &str) -> [u128; FIGURES] {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_child", "--nocapture"])
        .env(CHILD, kind)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line =
        text.lines().find_map(|line| line.split_once("figures: ")).unwrap_or_else(|| panic!("{text}")).1;
    let mut figures = line.split(' ').map(|figure| figure.parse().unwrap());
    [figures.next().unwrap(), figures.next().unwrap()]
}

/// The median and the maximum of each figure.
fn medians_and_maxima(kind: &str) -> [(u128, u128); FIGURES] {
    let children: Vec<_> = (0..PROCESSES).map(|_| figures_of_a_child(kind)).collect();
    std::array::from_fn(|figure| {
        let mut figures: Vec<u128> = children.iter().map(|figures| figures[figure]).collect();
        figures.sort_unstable();
        (figures[PROCESSES / 2], figures[PROCESSES - 1])
    })
}

#[test]
fn a_child() {
    let Ok(kind) = env::var(CHILD) else { return };
    let [engine, timeout] = beside_others(kind.contains("busy"), || {
        // The earlier of the two calls is the first to read the clock and to need the barrier.
        let timeout = if kind.contains("future") { timed(first_timeout) } else { Duration::ZERO };
        let mut kept = None;
        let engine = timed(|| kept = Some(first_engine_and_timer()));
        drop(kept);
        [engine, timeout]
    });
    eprintln!("\nfigures: {} {}", engine.as_micros(), timeout.as_micros());
}

#[test]
fn the_first_call_of_a_process_is_short() {
    if env::var(CHILD).is_ok() {
        return;
    }
    for others in ["rest", "busy"] {
        let [engine, _] = medians_and_maxima(others);
        let [_, timeout] = medians_and_maxima(&format!("{others} future"));
        for (kind, (median, maximum)) in [("engine and timer", engine), ("timeout", timeout)] {
            eprintln!("first {kind}, others {others}: median {median} µs, maximum {maximum} µs");
            assert!(others == "busy" || median < 5_000, "the first {kind} takes {median} µs");
        }
    }
}
