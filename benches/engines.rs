//! The cost of many engines, for a thread that uses several in turn, and for a set on which most engines are idle.
//!
//! `cargo bench --bench engines` prints, each as the median and the range of its rounds:
//! - the time of a pair (a timer that is scheduled and cancelled at once) on engines in turn, by the caller's moment;
//! - the processor time of a firing beside idle engines, with a firing in each tick;
//! - the time to drop engines, one after the other.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "the figures are the output")]

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Engine, Fired, Shards};

const MINUTE: Duration = Duration::from_secs(60);

fn set() -> Shards {
    Builder::new().shards(1).workers(1).start_shards().expect("the system gives us threads")
}

fn idle(shards: &Shards, number: usize) -> Vec<Engine<u64>> {
    (0..number).map(|_| shards.engine().start(|_: Fired<'_, u64>| {}).expect("an engine")).collect()
}

fn median(unit: &str, name: &str, mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let (first, last, median) = (figures[0], figures[figures.len() - 1], figures[figures.len() / 2]);
    println!("{name:44} {median:9.1} {unit} ({first:.1}..{last:.1})");
    median
}

/// Prints the nanoseconds of a schedule + cancel pair. The pairs go through the engines in turn.
fn pairs_in_turn(rounds: usize, engines: usize, pairs: u64) {
    let shards = set();
    let engines = idle(&shards, engines);
    let handles: Vec<_> = engines.iter().map(Engine::handle).collect();
    let round = || {
        let at = handles[0].now() + MINUTE;
        let (begin, mut next) = (Instant::now(), 0);
        for n in 0..pairs {
            let handle = handles[next];
            next = if next + 1 == handles.len() { 0 } else { next + 1 };
            let id = handle.schedule_at(at, n).expect("room");
            black_box(handle.cancel(id).payload());
        }
        begin.elapsed().as_nanos() as f64 / pairs as f64
    };
    round();
    let figures = (0..rounds).map(|_| round()).collect();
    median("ns", &format!("pair, {} engines in turn", handles.len()), figures);
}

fn processor_nanos() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns the nanoseconds of processor time for a firing while `others` idle engines exist.
fn firing_beside(rounds: usize, others: usize, firings: u64) -> f64 {
    let shards = set();
    let others = idle(&shards, others);
    let (fired, firing) = mpsc::channel();
    let engine = shards
        .engine()
        .start(move |timer: Fired<'_, u64>| {
            if timer.payload == 0 {
                fired.send(()).expect("main waits");
            } else {
                let _ = timer.engine().schedule(Duration::from_millis(1), timer.payload - 1).expect("room");
            }
        })
        .expect("an engine");
    let round = || {
        let before = processor_nanos();
        let _ = engine.handle().schedule(Duration::from_millis(1), firings).expect("room");
        firing.recv().expect("the chain ends");
        (processor_nanos() - before) / firings as f64
    };
    round();
    let figures = (0..rounds).map(|_| round()).collect();
    median("ns", &format!("firing, {} idle engines beside", others.len()), figures)
}

fn main() {
    // Under `cargo test --benches` the sizes are tiny.
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let (rounds, pairs, firings) = if is_measured { (9, 1_000_000, 500) } else { (1, 3_000, 20) };
    let (many, dropped) = if is_measured { (1_000, 10_000) } else { (20, 50) };
    for engines in [1, 2, 4, 8, 32, many] {
        pairs_in_turn(rounds, engines, pairs);
    }
    let alone = firing_beside(rounds, 0, firings);
    let beside = firing_beside(rounds, many, firings);
    println!("{:44} {:9.2}", "beside, in units of alone", beside / alone);
    let shards = set();
    let engines = idle(&shards, dropped);
    let begin = Instant::now();
    drop(engines);
    println!("{:44} {:9.3} s", format!("{dropped} engines dropped"), begin.elapsed().as_secs_f64());
}
