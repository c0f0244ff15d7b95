//! The instructions of an operation. `valgrind --tool=callgrind` counts them, and a busy machine does not change them.
//!
//! `cargo bench --bench instructions` prints a row for each operation. To compare two versions, run it in both. It
//! counts a round of some thousand operations, and a round of twice the number. The difference is that of the
//! operations alone.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::env;
use std::hint::black_box;
use std::io::ErrorKind;
use std::process::Command;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Clock as _, Engine, Fired, Timer, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(1);
/// The number of operations between two turns of a loop.
const OPERATIONS_PER_TURN: u64 = 64;
const BUDGET: usize = 1 << 20;
/// The number of operations in the shorter of two rounds. The cost comes from the difference between the rounds.
const OPERATIONS: u64 = 4_000;

const OPERATION_NAMES: [&str; 5] = ["pair", "arm and disarm", "refresh", "pair on a loop", "expiry"];

/// Runs `work`. Valgrind counts only the instructions that run inside this function.
#[inline(never)]
fn counted(work: impl FnOnce()) {
    black_box(work)();
}

fn pair(engine: &Engine<u64>, at: Timestamp, payload: u64) {
    let id = engine.handle().schedule_at(at, payload).expect("room");
    black_box(engine.handle().cancel(id).payload());
}

fn arm(timer: &Timer<u64>, at: Timestamp) {
    timer.arm_at(at).expect("the engine runs");
}

/// Makes `number` operations from a thread that is not the shard's thread.
fn beside_a_thread(operation: &str, number: u64) {
    let shards = Builder::new().shards(1).workers(1).start_shards().expect("the system gives us threads");
    let engine = shards.engine().start(|_: Fired<'_, u64>| {}).expect("an engine");
    let timer = engine.handle().timer(0).expect("room");
    let at = engine.handle().now() + MINUTE;
    let run = |number: u64| match operation {
        "pair" => (0..number).for_each(|n| pair(&engine, at, n)),
        "refresh" => (0..number).for_each(|n| arm(&timer, at + Duration::from_millis(n))),
        _ => (0..number).for_each(|n| {
            arm(&timer, at + Duration::from_millis(n));
            black_box(timer.disarm());
        }),
    };
    run(OPERATIONS);
    counted(|| run(number));
}

/// Makes schedule + cancel pairs on an event loop whose present moment stands still.
fn on_a_loop(number: u64) {
    let (shards, mut loops) = Builder::new().loops(1).expect("a loop");
    let engine = shards.engine().start(|_: Fired<'_, u64>| {}).expect("an engine");
    let now: Timestamp = Instant::now().into();
    let mut run = |number: u64| {
        for n in 0..number {
            pair(&engine, now + MINUTE, n);
            if n % OPERATIONS_PER_TURN == 0 {
                let _ = black_box(loops[0].turn(now, BUDGET));
            }
        }
    };
    run(OPERATIONS);
    counted(|| run(number));
}

/// Fires timers that are spread over a hundred ticks. The thread drives the timers' shard, with a turn (a pass of the
/// shard's loop) for each tick.
fn expiries(number: u64) {
    let mut shards = Builder::new().driven_shards().expect("shards");
    let engine = shards.shards().engine().start(|_: Fired<'_, u64>| {}).expect("an engine");
    let mut expire = |is_counted: bool| {
        let begin = shards.clock().now();
        for n in 0..number {
            let at = begin + 10 * TICK + Duration::from_millis(n % 100);
            let _ = engine.handle().schedule_at(at, n).expect("room");
            if n % OPERATIONS_PER_TURN == 0 {
                shards.turn();
            }
        }
        let mut turns = || {
            for tick in 1..130 {
                shards.clock().set(begin + TICK * tick);
                shards.turn();
            }
        };
        if is_counted { counted(turns) } else { turns() }
    };
    expire(false);
    expire(true);
}

fn run(operation: &str, number: u64) {
    match operation {
        "pair on a loop" => on_a_loop(number),
        "expiry" => expiries(number),
        _ => beside_a_thread(operation, number),
    }
}

/// Returns the number of instructions that valgrind counts inside [`counted`]. If valgrind cannot count, returns the
/// reason.
fn count(operation: &str, number: u64) -> Result<u64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*counted*"])
        .arg("--callgrind-out-file=/dev/null")
        .arg(program)
        .args(["--operation", operation, &number.to_string()])
        .output();
    let output = output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => "there is no valgrind".to_owned(),
        _ => error.to_string(),
    })?;
    let log = String::from_utf8_lossy(&output.stderr);
    let collected = log.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.ok_or_else(|| format!("no count in: {log}"))
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let [_, flag, operation, number] = &arguments[..]
        && flag == "--operation"
    {
        return run(operation, number.parse().expect("a number"));
    }
    let is_measured = arguments.iter().any(|argument| argument == "--bench");
    for operation in OPERATION_NAMES {
        if !is_measured {
            run(operation, OPERATIONS);
            continue;
        }
        let counts =
            count(operation, OPERATIONS).and_then(|one| Ok((one, count(operation, 2 * OPERATIONS)?)));
        match counts {
            Ok((one, two)) => {
                println!("{operation:20} {:9.2} instructions", (two - one) as f64 / OPERATIONS as f64);
            }
            Err(why) => println!("{operation:20} skipped: {why}"),
        }
    }
}
