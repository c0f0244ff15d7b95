//! The instructions of an operation, its locked instructions, and the cache lines that it touches. `valgrind
//! --tool=callgrind` counts them, and a busy machine does not change them.
//!
//! `cargo bench --bench instructions` prints a row for each operation, and a table of the steps of an expiry. To
//! compare two versions, run it in both. It counts a round of some thousand operations, and a round of twice the
//! number. The difference is that of the operations alone. With `-- --functions` it also prints the functions of which
//! each step of an expiry consists. `callgrind` and `expiries` say how it counts.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "the figures are the output")]

mod baselines;
mod callgrind;
mod common;
mod expiries;

use callgrind::{ByStep, Cost, by_step, count};
use common::{Chance, Fired as Expired, TICKS, Timers, payload};
use expiries::{CLOCK, Kind, STEPS, TIMERS_PER_TURN, Work};
use std::env;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Clock as _, Engine, Fired, Timer, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(1);
/// The number of operations between two turns of a loop.
const OPERATIONS_PER_TURN: u64 = 64;
const BUDGET: usize = 1 << 20;
/// The number of operations in the shorter of two rounds. The cost comes from the difference between the rounds.
const OPERATIONS: u64 = 4_096;
/// The number of owned timers of which random timers are moved.
const MOVED: u64 = 1 << 18;
/// The delays of moved timers, in nanoseconds.
const DELAYS: std::ops::Range<u64> = 10_000_000_000..60_000_000_000;

/// An operation: its name, and the function that makes a number of operations.
type Operation = (&'static str, fn(u64));

const OPERATIONS_COUNTED: [Operation; 6] = [
    ("pair", |number| beside_a_thread("pair", number)),
    ("arm and disarm", |number| beside_a_thread("arm and disarm", number)),
    ("refresh", |number| beside_a_thread("refresh", number)),
    ("pair on a loop", on_a_loop),
    ("expiry", driven_expiries),
    ("move one of many", moves),
];

/// The wheels alone. Each fires ten thousand timers of 1 to 60 s, a tick at a time.
const ALONE: [Operation; 3] = [
    ("wheel alone: expiry", alone::<common::Wheel256>),
    ("cascading wheel: expiry", alone::<baselines::CascadingWheel>),
    ("Linux wheel: expiry", alone::<baselines::LinuxWheel>),
];
const TIMERS_ALONE: u64 = 10_000;

/// The columns of the table of an expiry's steps.
const COLUMNS: [(&str, Kind); 3] = [
    ("one-shot", Kind::OneShots),
    ("owned timer", Kind::Owned),
    ("cascading wheel behind a mutex", Kind::List),
];

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
    count(|| run(number));
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
    count(|| run(number));
}

/// Fires timers that are spread over a hundred ticks. The thread drives the timers' shard, with a turn (a pass of the
/// shard's loop) for each tick.
fn driven_expiries(number: u64) {
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
        if is_counted { count(turns) } else { turns() }
    };
    expire(false);
    expire(true);
}

/// Gives random owned timers of many a random deadline, as the workload `refresh` of the book does. Before that, it
/// moves a quarter as many as there are. The caller knows the moment.
fn moves(number: u64) {
    let shards = Builder::new().shards(1).workers(1).start_shards().expect("the system gives us threads");
    let engine = shards.engine().start(|_: Fired<'_, u64>| {}).expect("an engine");
    let timers: Vec<Timer<u64>> = (0..MOVED).map(|n| engine.handle().timer(n).expect("room")).collect();
    let mut chance = Chance::new(1);
    let now = engine.handle().now();
    let mut random = |number: u64| -> Vec<(usize, Timestamp)> {
        let one = |_| {
            let timer = usize::try_from(chance.within(&(0..MOVED))).expect("an index");
            (timer, now + Duration::from_nanos(chance.within(&DELAYS)))
        };
        (0..number).map(one).collect()
    };
    let first: Vec<Timestamp> = random(MOVED).into_iter().map(|(_, at)| at).collect();
    timers.iter().zip(first).for_each(|(timer, at)| arm(timer, at));
    let run = |moves: &[(usize, Timestamp)]| moves.iter().for_each(|&(timer, at)| arm(&timers[timer], at));
    run(&random(MOVED / 4));
    let moves = random(number);
    count(|| run(&moves));
}

/// Fires all timers of a structure, a tick at a time.
fn alone<T: Timers>(number: u64) {
    let mut timers = T::new();
    let mut chance = Chance::new(1);
    for n in 0..number {
        let _id = timers.schedule(chance.within(&TICKS), payload(n));
    }
    let mut fired = Expired::default();
    count(|| (1..=TICKS.end + TICKS.end / 8).for_each(|tick| fired.join(timers.advance(tick))));
    assert_eq!((fired.count, timers.len()), (number, 0));
}

/// Counts an operation in this program under valgrind. Returns the cost of one operation.
fn counted_twice(operation: &str, number: u64) -> Result<Cost, String> {
    let run = |number: u64| callgrind::run(&["--operation", operation, &number.to_string()]);
    Ok((&run(2 * number)? - &run(number)?).sum().of_each(number))
}

fn row(name: &str, cost: Result<Cost, String>) {
    match cost {
        Ok(Cost { instructions, locked, lines, .. }) => {
            println!("{name:26} {instructions:9.2} instructions {locked:6.2} locked {lines:6.2} lines");
        }
        Err(why) => println!("{name:26} skipped: {why}"),
    }
}

/// Returns the costs of the steps of one expiry.
fn steps(kind: Kind, work: Work) -> Result<ByStep, String> {
    const TURNS: u64 = 8;
    let run = |turns: u64| {
        callgrind::run(&["--expiry", &format!("{kind:?}"), &format!("{work:?}"), &turns.to_string()])
    };
    let mut by_step = by_step(&(&run(2 * TURNS)? - &run(TURNS)?), STEPS)?;
    let number = TURNS * TIMERS_PER_TURN;
    by_step.steps.iter_mut().for_each(|cost| *cost = cost.of_each(number));
    by_step.functions.values_mut().for_each(|cost| *cost = cost.of_each(number));
    Ok(by_step)
}

/// Prints the table of the steps of an expiry: instructions, locked instructions and cache lines of one timer.
fn print_steps(with_functions: bool) -> Result<(), String> {
    let names: Vec<&str> = STEPS.iter().map(|step| step.name).chain(["the rest of the turn"]).collect();
    let columns: Vec<ByStep> =
        COLUMNS.iter().map(|&(_, kind)| steps(kind, Work::Nothing)).collect::<Result<_, _>>()?;
    let with_work: Vec<ByStep> =
        COLUMNS.iter().map(|&(_, kind)| steps(kind, Work::Adds)).collect::<Result<_, _>>()?;
    let cell = |Cost { instructions, locked, lines, .. }: Cost| match instructions > 0.05 {
        true => format!("{instructions:.1}; {:.2}; {:.2}", locked.max(0.0), lines.max(0.0)),
        false => "-".to_owned(),
    };
    let line = |name: &str, costs: Vec<Cost>| {
        let cells: Vec<String> = costs.into_iter().map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    };
    let clock = STEPS.iter().position(|step| step.name == CLOCK).expect("a step");
    let sum = |by_step: &ByStep| {
        let mut sum = Cost::default();
        by_step
            .steps
            .iter()
            .enumerate()
            .filter(|&(step, _)| step != clock)
            .for_each(|(_, &cost)| sum += cost);
        sum
    };
    println!("\n| step | {} |", COLUMNS.map(|(name, _)| name).join(" | "));
    println!("|---|---|---|---|");
    for (step, name) in names.iter().enumerate().filter(|&(step, _)| step != clock) {
        line(name, columns.iter().map(|column| column.steps[step]).collect());
    }
    line("sum", columns.iter().map(sum).collect());
    line("sum, with a handler that adds the payload", with_work.iter().map(sum).collect());
    for ((name, _), Cost { readings, instructions, locked, .. }) in
        COLUMNS.iter().zip(columns.iter().map(|column| column.steps[clock]))
    {
        if readings > 0.0 {
            println!(
                "not in the sum, {name}: {readings:.2} readings of the clock, {instructions:.1} instructions, \
                 {locked:.2} locked"
            );
        }
    }
    if with_functions {
        for ((name, _), column) in COLUMNS.iter().zip(&columns) {
            let mut functions: Vec<_> = column.functions.iter().collect();
            functions.sort_by(|(_, one), (_, other)| other.instructions.total_cmp(&one.instructions));
            for ((step, function), &cost) in functions {
                if cost.instructions >= 0.05 {
                    println!("{name}; {}; {}; {function}", names[*step], cell(cost));
                }
            }
        }
    }
    Ok(())
}

fn run_operation(operation: &str, number: u64) {
    let (_, run) =
        OPERATIONS_COUNTED.iter().chain(&ALONE).find(|(name, _)| *name == operation).expect("a name");
    run(number);
}

fn run_expiry(kind: &str, work: &str, turns: u64) {
    let (_, kind) = COLUMNS.into_iter().find(|(_, known)| format!("{known:?}") == kind).expect("a kind");
    let work = if work == format!("{:?}", Work::Adds) { Work::Adds } else { Work::Nothing };
    expiries::fire(kind, work, turns);
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(|argument| &**argument).collect();
    let number = |text: &str| text.parse().expect("a number");
    match arguments[..] {
        ["--operation", operation, operations] => return run_operation(operation, number(operations)),
        ["--expiry", kind, work, turns] => return run_expiry(kind, work, number(turns)),
        _ => {}
    }
    if !arguments.contains(&"--bench") {
        OPERATIONS_COUNTED.iter().for_each(|(_, run)| run(OPERATIONS));
        ALONE.iter().for_each(|(_, run)| run(100));
        for (_, kind) in COLUMNS {
            [Work::Nothing, Work::Adds].into_iter().for_each(|work| expiries::fire(kind, work, 2));
        }
        return;
    }
    for (name, _) in OPERATIONS_COUNTED {
        row(name, counted_twice(name, OPERATIONS));
    }
    for (name, _) in ALONE {
        let run = callgrind::run(&["--operation", name, &TIMERS_ALONE.to_string()]);
        row(name, run.map(|costs| costs.sum().of_each(TIMERS_ALONE)));
    }
    if let Err(why) = print_steps(arguments.contains(&"--functions")) {
        println!("the steps of an expiry skipped: {why}");
    }
}
