//! Tests many timers: their lateness, crowds that are due together, and cancels of many timers beside other callers.

use crate::{Note, PATIENCE, World, eventually, number_of, secs};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon_durable::store::{Durability, IfPresent, MemoryStore, Op};
use tourbillon_durable::{Durable, Kind, Spec, Verdict};

fn percentile(sorted: &[Duration], share: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn line(name: &str, mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| percentile(&times, share));
    let max = times.last().copied().unwrap_or_default();
    format!("{name}: {} times, p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}, max {max:?}", times.len())
}

#[test]
fn none_of_a_thousand_a_second_is_early_by_the_callers_own_clock() {
    #[derive(Serialize, Deserialize)]
    struct At(usize);
    impl Kind for At {
        const NAME: &'static str = "at";
    }
    // The moment before which each timer must not be delivered, by the caller's `Instant`.
    let wanted: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let lateness: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (earliest, noted) = (Arc::clone(&wanted), Arc::clone(&lateness));
    let handler = move |At(number), _| {
        let now = Instant::now();
        let late = now.checked_duration_since(earliest.lock().unwrap()[number]).expect("a timer is early");
        noted.lock().unwrap().push(late);
    };
    let durable = Durable::builder(MemoryStore::default()).blocking_handler(handler).start().unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let begin = Instant::now();
    let count = 1_000 * number_of("TOURBILLON_LATENESS_SECONDS", 3);
    for number in 0..count {
        let delay = Duration::from_millis(random.u64(1..1_000));
        let mut earliest = wanted.lock().unwrap();
        // The handler cannot look before the lock is released.
        earliest.push(Instant::now() + delay);
        let at = earliest.len() - 1;
        drop(earliest);
        durable
            .handle()
            .schedule_blocking(Spec::new(At(at)).after(delay))
            .unwrap_or_else(|_| panic!("refused"));
        let next = begin + Duration::from_millis(number + 1);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    eventually(|| durable.handle().stats().done == count);
    let lateness = std::mem::take(&mut *lateness.lock().unwrap());
    println!("{}", line("lateness at 1,000 a second", lateness.clone()));
    let mut upper = Duration::from_micros(500);
    while upper < secs(1) {
        let within = |late: &&Duration| **late <= upper && (**late > upper / 2 || upper.as_micros() == 500);
        let count = lateness.iter().filter(within).count();
        println!("  to {upper:>10?} {count:>6} {}", "#".repeat(count.div_ceil(50)));
        upper *= 2;
    }
    assert_eq!(
        durable.shutdown(PATIENCE).delivered,
        count,
        "an expectation that fails makes a second delivery"
    );
}

/// Returns the number of bytes of memory that this process takes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    4_096 * statm.split(' ').nth(1).map_or(0, |pages| pages.parse().unwrap_or(0))
}

/// Stores `count` timers directly in the store. A call of the runtime for each timer would take longer.
fn fill(world: &World, count: u64, label: &str) {
    let by_hand = Spec::new(Note(0)).after(secs(100)).label(label);
    let id = world.schedule(by_hand);
    let model = pollster::block_on(world.timers().get(id)).unwrap().unwrap();
    let numbers: Vec<u64> = (1..count).collect();
    for numbers in numbers.chunks(2_000) {
        let place = |number: &u64| {
            let mut timer = model.clone();
            timer.id = tourbillon_durable::timer::TimerId::from_u128(u128::from(*number));
            timer.payload = tourbillon_durable::timer::Payload(number.to_string().into_bytes().into());
            Op::Place(Box::new(timer), IfPresent::Reject)
        };
        let ops = numbers.iter().map(place).collect();
        pollster::block_on(world.store.apply(ops, Durability::Volatile)).unwrap();
    }
}

#[test]
fn a_herd_is_delivered_in_bounded_memory() {
    let count = number_of("TOURBILLON_HERD", 100_000);
    let world = World::with(|_, _| Verdict::Done, |builder| builder.workers(8));
    fill(&world, count, "herd");
    world.settle();
    let before = resident();
    let (is_over, peak) = (AtomicBool::new(false), Mutex::new((0, 0)));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let mut peak = peak.lock().unwrap();
                *peak = (peak.0.max(resident()), peak.1.max(world.timers().stats().running));
                drop(peak);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        world.clock.advance(secs(101));
        let idle = world.timers().await_idle(10 * PATIENCE);
        is_over.store(true, Ordering::SeqCst);
        assert!(idle, "{:?}", world.timers());
    });
    let took = begin.elapsed();
    let (peak, running) = *peak.lock().unwrap();
    let grown = peak.saturating_sub(before);
    println!(
        "{count} timers due at one instant: {took:?}, memory +{} MiB, at most {running} at a time",
        grown >> 20
    );
    let mut numbers = world.numbers();
    numbers.dedup();
    assert_eq!(numbers.len() as u64, count, "each once");
    assert_eq!(world.seen().len() as u64, count);
    assert!(running <= 8, "{running} deliveries at a time");
    // The test itself keeps at most 400 bytes of each delivery. All else may take 200 MiB.
    assert!(grown < (200 << 20) + count * 400, "{grown} bytes");
    world.assert_whole(&[]);
}

#[test]
fn a_bulk_cancel_leaves_other_callers_their_turn() {
    let count = number_of("TOURBILLON_BULK", 100_000);
    let world = World::done();
    fill(&world, count, "bulk");
    let time_of = |number: u64| {
        let begin = Instant::now();
        world.schedule(Spec::new(Note(number)).after(secs(1_000)));
        begin.elapsed()
    };
    let alone: Vec<Duration> = (0..2_000).map(time_of).collect();
    println!("{}", line("creations alone", alone));
    let is_over = AtomicBool::new(false);
    let (beside, progress) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut times = Vec::new();
            while !is_over.load(Ordering::SeqCst) || times.is_empty() {
                times.push(time_of(0));
            }
            times
        });
        let mut steps = 0;
        let cancelling = world.timers().cancel_labelled("", "bulk", |_| {
            steps += 1;
            true
        });
        let progress = pollster::block_on(cancelling).unwrap();
        is_over.store(true, Ordering::SeqCst);
        assert!(steps >= count / 500, "in {steps} batches");
        (beside.join().unwrap(), progress)
    });
    let created = 2_000 + beside.len() as u64;
    println!("{}", line("creations beside the bulk cancel", beside));
    assert_eq!((progress.cancelled, progress.in_flight), (count, 0));
    world.assert_whole(&[(tourbillon_durable::state::Phase::Pending, created)]);
}
