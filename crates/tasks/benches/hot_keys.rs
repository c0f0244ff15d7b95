//! Many threads call a map on a few keys at once, with more threads than cores. The program prints millions of calls a
//! second, by number of threads and by number of keys.
//!
//! `cargo bench -p tourbillon-tasks --bench hot_keys`. A thread that holds a lock is preempted sooner or later. A lock
//! that spins wastes the processor until its holder runs again. So the program fails if eight threads make less than
//! half the calls of two threads. Under `cargo test --benches` each cell runs for a moment, and nothing is compared.
#![expect(clippy::print_stdout, reason = "the program prints its figures")]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_tasks::TaskEngine;
use tourbillon_tasks::keyed::Keyed;
use tourbillon_tasks::uses::{ExpiryMap, Lifetime};

const LONG: Duration = Duration::from_secs(3_600);
const THREADS: [usize; 4] = [1, 2, 4, 8];
const KEYS: [u64; 4] = [1, 10, 50, 100_000];
const MANY_KEYS: u64 = 1_000_000;

/// The name of a call, and a function that makes the call on a key.
type Call<'a> = (&'a str, &'a (dyn Fn(u64) + Sync));

/// An endless random sequence of keys below `keys`.
struct Keys {
    state: u64,
    keys: u64,
}

impl Keys {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % self.keys
    }
}

/// Returns the number of calls a second that `threads` threads make together.
fn rate(call: &(dyn Fn(u64) + Sync), threads: usize, keys: u64, span: Duration) -> f64 {
    let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let counts: Vec<_> = (1..=threads as u64)
            .map(|n| {
                let (start, stop) = (&start, &stop);
                scope.spawn(move || {
                    let mut keys = Keys { state: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), keys };
                    let mut count = 0_u64;
                    start.wait();
                    while !stop.load(Ordering::Relaxed) {
                        call(keys.next());
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        thread::sleep(span);
        stop.store(true, Ordering::Relaxed);
        let count: u64 = counts.into_iter().map(|count| count.join().unwrap()).sum();
        count as f64 / begin.elapsed().as_secs_f64()
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the row of the table for a call on `keys` keys. Returns whether eight threads make at least half the calls of
/// two threads.
fn print_row(&(name, call): &Call<'_>, keys: u64, (rounds, span): (usize, Duration)) -> bool {
    let rates = THREADS.map(|threads| median((0..rounds).map(|_| rate(call, threads, keys, span)).collect()));
    print!("{name:<30}{keys:>9}");
    rates.iter().for_each(|rate| print!("{:>10.3}", rate / 1e6));
    let [_, two, _, eight] = rates;
    println!("{:>12.2}", eight / two);
    eight >= two / 2.0
}

/// Prints the cost of a call in nanoseconds, made by one thread on a table of many keys.
fn print_cost(&(name, call): &Call<'_>, keys: u64) {
    (0..keys).for_each(call);
    let mut some = Keys { state: 7, keys };
    let begin = Instant::now();
    (0..keys).for_each(|_| call(some.next()));
    println!("{name:<30}{keys:>9}{:>10.0} ns", begin.elapsed().as_secs_f64() * 1e9 / keys as f64);
}

/// Prints the time of the slowest of many inserts of new keys, in microseconds. The printed time shows the cost of a
/// growing table.
fn print_longest(&(name, call): &Call<'_>, keys: u64) {
    let longest = (keys..2 * keys).map(|key| {
        let begin = Instant::now();
        call(key);
        begin.elapsed()
    });
    println!("{name:<30}{keys:>9}{:>10} us", longest.max().unwrap_or_default().as_micros());
}

fn main() -> ExitCode {
    let has = |flag| std::env::args().any(|argument| argument == flag);
    let is_test = has("--test") || !has("--bench");
    let effort = if is_test { (1, Duration::from_millis(1)) } else { (3, Duration::from_millis(300)) };
    let tasks = TaskEngine::new().unwrap();
    let keyed: Keyed<u64, u64> = tasks.handle().keyed(|_| {});
    let map: ExpiryMap<u64, u64> = tasks.handle().expiry_map(Lifetime::of(LONG));
    let replace = |key| _ = black_box(keyed.schedule(key, LONG, key).unwrap());
    let insert = |key| _ = black_box(map.insert(key, key).unwrap());
    let refresh = |key| _ = black_box(map.refresh(&key));
    let get = |key| _ = black_box(map.get(&key));
    let calls: [Call<'_>; 4] = [
        ("Keyed::schedule, replacing", &replace),
        ("ExpiryMap::insert, replacing", &insert),
        ("ExpiryMap::refresh", &refresh),
        ("ExpiryMap::get", &get),
    ];
    let keys: &[u64] = if is_test { &KEYS[..2] } else { &KEYS };
    println!(
        "{:<30}{:>9}{:>10}{:>10}{:>10}{:>10}{:>12}",
        "million calls a second", "keys", 1, 2, 4, 8, "8 to 2"
    );
    let mut is_well = true;
    for &keys in keys {
        for key in 0..keys {
            replace(key);
            insert(key);
        }
        for call in &calls {
            is_well &= print_row(call, keys, effort);
        }
    }
    let many = if is_test { 100 } else { MANY_KEYS };
    println!("one thread, many keys");
    calls[..2].iter().for_each(|call| print_cost(call, many));
    println!("the longest insert of a new key");
    calls[..2].iter().for_each(|call| print_longest(call, many));
    if is_well || is_test {
        ExitCode::SUCCESS
    } else {
        println!("eight threads make less than half the calls of two");
        ExitCode::FAILURE
    }
}
