//! The cost of arming on a loop's own thread. The figure is nanoseconds for an operation, and the caller knows the
//! moment. The loop turns after each 64 operations, as after a poll, and its moment then goes on by 10 µs.
//!
//! `cargo bench --bench loops` prints the median and the range of nine rounds. `--rounds N` makes N rounds.
//! `--only NAME` measures only that row, for example for `valgrind --tool=callgrind`.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

#[allow(dead_code, reason = "each bench takes what it needs")]
#[path = "common/chance.rs"]
mod chance;

use chance::Chance;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Engine, Fired, LoopShard, Timer, TimerId, Timestamp};

const SECOND: Duration = Duration::from_secs(1);
const OPERATIONS_PER_TURN: u64 = 64;
const BUDGET: usize = 1_024;

/// An event loop with an engine, and the loop's present moment.
struct Loop {
    shard: LoopShard,
    engine: Engine<u64>,
    now: Timestamp,
}

impl Loop {
    fn new() -> Self {
        let (shards, mut loops) = Builder::new().loops(1).expect("a loop");
        let engine = shards.engine().start(|_: Fired<'_, u64>| {}).expect("an engine");
        let mut this = Self { shard: loops.remove(0), engine, now: Instant::now().into() };
        this.turn();
        this
    }

    fn turn(&mut self) {
        self.now = self.now + Duration::from_micros(10);
        let _ = black_box(self.shard.turn(self.now, BUDGET));
        black_box(self.shard.timeout(self.now));
    }

    /// Runs `operation` `operations` times, and turns the loop after each group of operations. Returns the nanoseconds
    /// for one operation.
    fn time(&mut self, operations: u64, mut operation: impl FnMut(&Self, u64)) -> f64 {
        let begin = Instant::now();
        for n in 0..operations / OPERATIONS_PER_TURN {
            for m in 0..OPERATIONS_PER_TURN {
                operation(self, n * OPERATIONS_PER_TURN + m);
            }
            self.turn();
        }
        begin.elapsed().as_nanos() as f64 / operations as f64
    }
}

/// Measures a connection's timeout: a request arms the timer, and the answer disarms it.
fn arm_and_disarm(operations: u64) -> impl FnMut() -> f64 {
    let mut this = Loop::new();
    let timer = this.engine.handle().timer(0).expect("room");
    move || {
        this.time(operations, |this, _| {
            let _ = black_box(timer.arm_at(this.now + 5 * SECOND));
            black_box(timer.disarm());
        })
    }
}

fn far(n: u64) -> Duration {
    100 * SECOND + Duration::from_nanos(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 100_000_000_000)
}

/// Measures scheduling and cancelling a one-shot while `pending` other timers are pending.
fn schedule_and_cancel(pending: u64, operations: u64) -> impl FnMut() -> f64 {
    let mut this = Loop::new();
    let _ids: Vec<TimerId> =
        (0..pending).map(|n| this.engine.handle().schedule_at(this.now + far(n), n).expect("room")).collect();
    this.turn();
    move || {
        this.time(operations, |this, n| {
            let id = this.engine.handle().schedule_at(this.now + 5 * SECOND, n).expect("room");
            let _ = black_box(this.engine.handle().cancel(black_box(id)));
        })
    }
}

/// Measures giving a random owned timer a later deadline while `pending` timers are pending.
fn refresh(pending: u64, operations: u64) -> impl FnMut() -> f64 {
    let mut this = Loop::new();
    let timers: Vec<Timer<u64>> =
        (0..pending).map(|n| this.engine.handle().timer(n).expect("room")).collect();
    for timer in &timers {
        timer.arm_at(this.now + 100 * SECOND).expect("open");
    }
    this.turn();
    let mut chance = Chance::new(1);
    move || {
        this.time(operations, |this, _| {
            // The index is computed without a division, whose time would count.
            let timer = &timers[usize::try_from(chance.within(&(0..pending))).expect("an index")];
            let _ = black_box(timer.arm_at(this.now + 101 * SECOND));
        })
    }
}

/// A function that measures a row of the table once. The function returns the nanoseconds for one operation.
type Row = Box<dyn FnMut() -> f64>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    // Under `cargo test --benches` the sizes are tiny.
    let is_measured = arguments.iter().any(|argument| argument == "--bench");
    let (pending, operations) = if is_measured { (1_000_000, 5_000_000) } else { (1_000, 10_000) };
    let rounds =
        after("--rounds").map_or(if is_measured { 9 } else { 1 }, |rounds| rounds.parse().expect("a number"));
    let only = after("--only");
    let is_wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let mut rows: Vec<(&str, Row)> = Vec::new();
    if is_wanted("arm_disarm") {
        rows.push(("arm_disarm", Box::new(arm_and_disarm(operations))));
    }
    if is_wanted("schedule_cancel") {
        rows.push(("schedule_cancel", Box::new(schedule_and_cancel(pending, operations))));
    }
    if is_wanted("refresh") {
        rows.push(("refresh", Box::new(refresh(pending, operations))));
    }
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..rounds {
        for ((_, row), times) in rows.iter_mut().zip(&mut times) {
            times.push(row());
        }
    }
    for ((name, _), mut times) in rows.into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let (first, last) = (times[0], times[times.len() - 1]);
        println!("{name:16} {:6.1} ns ({first:.1}..{last:.1})", times[times.len() / 2]);
    }
}
