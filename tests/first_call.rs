//! The time that the first call in a process takes. It must include no calibration of the clock, and no registration of
//! a barrier.
//!
//! Each measurement is made in a fresh process, which is this program again. In some of these processes other threads
//! rest, in others they use all cores. Each process times its first engine with a first timer, and the first timeout of
//! a future. Wall times vary with the machine, so the test only asserts that the median at rest is far below 10 ms. It
//! once was 10 to 25 ms. Read the figures with `--nocapture`; the aim is a millisecond.
#![cfg(feature = "async")]

use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Engine, Fired};

const CHILD: &str = "TOURBILLON_FIRST_CALL_CHILD";
const PROCESSES: usize = 20;
/// The number of figures from a child: for an engine with its first timer, and for the first timeout of a future.
const FIGURES: usize = 2;

fn timed(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

/// Calls `f` while other threads run. If `are_busy`, the other threads compute, and they outnumber the cores. Otherwise
/// the other threads sleep.
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

/// Runs a child process, and returns its figures in microseconds.
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

/// Runs several child processes. Returns the median and the maximum of each figure.
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
        // The earlier call of the two reads the clock first, and needs the barrier first.
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
