//! The costs of the ready-made uses, beside the costs of the timers that they consist of. The program prints
//! nanoseconds for each call, on one thread. A figure is the median of rounds. The rows take turns in each round.
//!
//! `cargo bench -p tourbillon-tasks --bench uses`. Under `cargo test --benches` each row runs once, to show that it
//! works.
#![expect(clippy::print_stdout, reason = "the program prints its figures")]

use std::fmt::Debug;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tourbillon::{Engine, Timer, TimerId, Timestamp};
use tourbillon_tasks::keyed::Keyed;
use tourbillon_tasks::uses::{
    Acquired, Connection, DelayQueue, Delayed, ExpiryMap, IdleTimeouts, Lifetime, Limits, Rate,
};
use tourbillon_tasks::{TaskEngine, TaskTimer};

const LONG: Duration = Duration::from_secs(3_600);

/// A row of the printed table: a call, and the number of times that a round repeats the call.
struct Row<'a> {
    name: String,
    round: Box<dyn FnMut() -> f64 + 'a>,
    nanos: Vec<f64>,
}

fn row<'a>(name: impl Into<String>, calls: usize, mut call: impl FnMut(usize) + 'a) -> Row<'a> {
    let round = move || {
        let begin = Instant::now();
        (0..calls).for_each(&mut call);
        begin.elapsed().as_secs_f64() * 1e9 / calls as f64
    };
    Row { name: name.into(), round: Box::new(round), nanos: Vec::new() }
}

/// Runs the calls of all rows in each round. Prints for each row the median time, and its ratio to the first row's time
/// in the same round.
fn compare(title: &str, mut rows: Vec<Row<'_>>, rounds: usize) {
    for _ in 0..rounds {
        for row in &mut rows {
            let nanos = (row.round)();
            row.nanos.push(nanos);
        }
    }
    println!("{title}");
    let first = rows[0].nanos.clone();
    for Row { name, nanos, .. } in rows {
        let ratios = nanos.iter().zip(&first).map(|(nanos, first)| nanos / first).collect();
        println!("  {name:<44}{:>9.1} ns{:>8.2}", median(nanos), median(ratios));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns a random order in which to visit `count` items.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..count).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        order.swap(at, usize::try_from(seed % (at as u64 + 1)).unwrap());
    }
    order
}

struct Sizes {
    rounds: usize,
    calls: usize,
    populations: &'static [usize],
}

fn main() {
    let has = |flag| std::env::args().any(|argument| argument == flag);
    let is_test = has("--test") || !has("--bench");
    let sizes = if is_test {
        Sizes { rounds: 1, calls: 100, populations: &[10] }
    } else {
        Sizes { rounds: 41, calls: 100_000, populations: &[1, 100, 10_000] }
    };
    for &population in sizes.populations {
        touches(population, &sizes);
    }
    maps(&sizes);
    queues(&sizes);
}

/// The data that a server has for a connection. It has the same size for each type of timer that the benchmark
/// compares.
#[repr(align(128))]
struct Peer<T>(T);

fn some<T, E: Debug>(count: usize, mut make: impl FnMut(usize) -> Result<T, E>) -> Vec<Peer<T>> {
    (0..count).map(|n| make(n).map(Peer)).collect::<Result<_, _>>().unwrap()
}

fn touches(population: usize, sizes: &Sizes) {
    let engine = Engine::new(|_| {}).unwrap();
    let tasks = TaskEngine::new().unwrap();
    let timers: Vec<Peer<Timer<u64>>> = some(population, |n| engine.handle().timer(n as u64));
    let closures: Vec<Peer<TaskTimer>> = some(population, |_| tasks.handle().timer(|| {}));
    let idle: IdleTimeouts<u64> = tasks.handle().idle_timeouts(Limits::idle(LONG).max_age(24 * LONG), |_| {});
    let connections: Vec<Peer<Connection<u64>>> = some(population, |n| idle.insert(n as u64));
    let order = shuffled(population);
    let pick = |call: usize| order[call % population];
    let mut now = Timestamp::ZERO;
    let mut later = move || {
        now = now + Duration::from_nanos(100);
        now
    };
    let mut later_too = later;
    let rows = vec![
        row("Timer::arm", sizes.calls, |call| _ = black_box(timers[pick(call)].0.arm(LONG))),
        row("TaskTimer::arm", sizes.calls, |call| _ = black_box(closures[pick(call)].0.arm(LONG))),
        row("Connection::touch", sizes.calls, |call| assert!(connections[pick(call)].0.touch())),
        row("IdleTimeouts::touch, by id", sizes.calls, |call| assert!(idle.touch(&(pick(call) as u64)))),
    ];
    compare(&format!("touch, {population} connections"), rows, sizes.rounds);
    let rows = vec![
        row("Timer::arm_at", sizes.calls, |call| _ = black_box(timers[pick(call)].0.arm_at(later() + LONG))),
        row("Connection::touch_at", sizes.calls, |call| {
            assert!(connections[pick(call)].0.touch_at(later_too()))
        }),
    ];
    compare(&format!("touch with one's own time, {population} connections"), rows, sizes.rounds);
}

fn maps(sizes: &Sizes) {
    let tasks = TaskEngine::new().unwrap();
    let count = sizes.calls / 10;
    let one_shots: Keyed<u64, u64> = tasks.handle().keyed(|_| {});
    let timers: ExpiryMap<u64, u64> = tasks.handle().expiry_map(Lifetime::of(LONG));
    let refreshed: ExpiryMap<u64, u64> = tasks.handle().expiry_map(Lifetime::of(LONG).refreshed_on_access());
    let key = |call: usize| call as u64;
    for n in 0..count {
        refreshed.insert(key(n), 0).unwrap();
    }
    let rows = vec![
        row("Keyed::schedule, new", count, |n| _ = one_shots.schedule(key(n), LONG, 0).unwrap()),
        row("ExpiryMap::insert, new", count, |n| _ = timers.insert(key(n), 0).unwrap()),
        row("Keyed::schedule, replacing", count, |n| _ = one_shots.schedule(key(n), LONG, 0).unwrap()),
        row("ExpiryMap::insert, replacing", count, |n| _ = timers.insert(key(n), 0).unwrap()),
        row("Keyed::reschedule", count, |n| one_shots.reschedule(&key(n), LONG).unwrap()),
        row("ExpiryMap::refresh", count, |n| assert!(timers.refresh(&key(n)))),
        row("ExpiryMap::contains", count, |n| assert!(timers.contains(&key(n)))),
        row("ExpiryMap::get", count, |n| assert_eq!(timers.get(&key(n)), Some(0))),
        row("ExpiryMap::get, refreshed", count, |n| assert_eq!(refreshed.get(&key(n)), Some(0))),
        row("Keyed::contains", count, |n| assert!(one_shots.contains(&key(n)))),
        row("Keyed::cancel", count, |n| assert_eq!(one_shots.cancel(&key(n)), Some(0))),
        row("ExpiryMap::remove", count, |n| assert_eq!(timers.remove(&key(n)), Some(0))),
    ];
    compare("maps", rows, sizes.rounds);
}

fn queues(sizes: &Sizes) {
    let tasks = TaskEngine::new().unwrap();
    let count = sizes.calls / 10;
    let queue: DelayQueue<u64> = tasks.handle().delay_queue();
    let (mut closures, mut items): (Vec<TimerId>, Vec<Delayed>) = (Vec::new(), Vec::new());
    let (closures, items) = (std::cell::RefCell::new(&mut closures), std::cell::RefCell::new(&mut items));
    let rows = vec![
        row("Tasks::after", count, |_| {
            closures.borrow_mut().push(tasks.handle().after(LONG, || {}).unwrap())
        }),
        row("DelayQueue::push", count, |n| items.borrow_mut().push(queue.push(LONG, n as u64).unwrap())),
        row("Tasks::cancel", count, |_| _ = tasks.handle().cancel(closures.borrow_mut().pop().unwrap())),
        row("DelayQueue::remove", count, |_| _ = queue.remove(items.borrow_mut().pop().unwrap()).unwrap()),
    ];
    compare("queues", rows, sizes.rounds);
    let limiter = tasks.handle().rate_limiter(Rate::every(Duration::from_nanos(1))).unwrap();
    let exhausted = tasks.handle().rate_limiter(Rate::every(LONG)).unwrap();
    let _the_only_one = exhausted.acquire();
    let rows = vec![
        row("RateLimiter::acquire", sizes.calls, |_| assert_eq!(limiter.acquire(), Acquired::Now)),
        row("RateLimiter::acquire, in vain", sizes.calls, |_| assert_ne!(exhausted.acquire(), Acquired::Now)),
    ];
    compare("permits", rows, sizes.rounds);
}
