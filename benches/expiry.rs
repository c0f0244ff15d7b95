//! The cost of one expiry, from the wheel to the vacant slot, in ticks of the processor's time stamp counter.
//!
//! Timers that are due in one tick fire in one turn of an event loop, on the loop's own thread. Their number is 4,096,
//! whose words stay in the cache, or a million. The handler does nothing in one row. In the other row it adds the
//! payload to a sum. The tickets are in the wheel by then. In a third row they are still in the thread's lane, since a
//! loop looks at its lanes when a timer is due: then the same turn also moves them from the lane to the wheel. Three
//! rows before them tell what single instructions take here: a reading of the counter, a locked addition and a
//! compare-and-swap, each on a line that the core holds.
//!
//! `cargo bench --bench expiry` prints the median and the range of the rounds; with `-- 4096` only for that number.
//! `cargo bench --bench instructions` counts the instructions of the same path.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Fired, LoopLeft, Timestamp};

const BUDGET: usize = 16_384;
/// The time from the first arming of a round to the deadline: more than the arming takes, and within the reach of the
/// finest level.
const LEAD: Duration = Duration::from_millis(400);
const TICK: Duration = Duration::from_millis(1);
/// The numbers of timers that are due at once, each with its number of rounds.
const POPULATIONS: [(u64, usize); 2] = [(4_096, 201), (1_000_000, 7)];

/// Reads the processor's time stamp counter. Other processors count nanoseconds instead.
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: each processor of this kind has the instruction.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// Runs `step` many times in each of 201 rounds. Returns the ticks for one step in each round, sorted.
fn steps(mut step: impl FnMut()) -> Vec<f64> {
    const STEPS: u32 = 10_000;
    let mut all: Vec<f64> = (0..201)
        .map(|_| {
            let begin = ticks();
            for _ in 0..STEPS {
                step();
            }
            (ticks() - begin) as f64 / f64::from(STEPS)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

fn print(timers: u64, name: &str, figures: &[f64]) {
    let (least, median, most) = (figures[0], figures[figures.len() / 2], figures[figures.len() - 1]);
    println!("{timers:9} {name:24} {median:8.1} {least:8.1} {most:8.1}");
}

/// The place of the tickets before the turn that fires their timers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tickets {
    InTheWheel,
    InTheLane,
}

/// Fires `timers` timers in each of `rounds` rounds. Returns the ticks for one timer in each round, sorted.
fn rounds(
    (timers, rounds): (u64, usize),
    tickets: Tickets,
    handler: impl Fn(Fired<'_, u64>) + Send + Sync + 'static,
) -> Vec<f64> {
    let (shards, mut loops) = Builder::new().loops(1).expect("a loop");
    let engine = shards.engine().start(handler).expect("an engine");
    let shard = &mut loops[0];
    // A turn at a later moment than the present takes the wheel ahead of the clock. The next round begins there.
    let mut ahead = Instant::now();
    let mut round = || {
        let begin = ahead.max(Instant::now());
        let due = begin + LEAD;
        for number in 0..timers {
            let _ = engine.handle().schedule_at(due.into(), number).expect("room");
        }
        if tickets == Tickets::InTheWheel {
            // A loop looks at its lanes for this timer, which adds nothing to the sum.
            let _ = engine.handle().schedule_at(begin.into(), 0).expect("room");
            while shard.turn(begin + TICK, BUDGET) == LoopLeft::More {}
        }
        // The turn gets a moment at which the timers are due. A wait would let other programs empty the cache.
        ahead = due + TICK;
        let now = Timestamp::from(ahead);
        let begin = ticks();
        while black_box(shard.turn(now, BUDGET)) == LoopLeft::More {}
        (ticks() - begin) as f64 / timers as f64
    };
    let mut all: Vec<f64> = (0..rounds).map(|_| round()).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn main() {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    println!("{:>9} {:24} {:>8} {:>8} {:>8}", "timers", "handler", "median", "least", "most");
    let chosen = std::env::args().find_map(|argument| argument.parse::<u64>().ok());
    let word = AtomicU64::new(0);
    print(0, "a reading of the counter", &steps(|| _ = black_box(ticks())));
    print(0, "a locked addition", &steps(|| _ = black_box(word.fetch_add(1, Ordering::Relaxed))));
    let swap = || {
        let seen = word.load(Ordering::Relaxed);
        let _ = black_box(word.compare_exchange(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed));
    };
    print(0, "a compare-and-swap", &steps(swap));
    for (timers, count) in POPULATIONS {
        if chosen.is_some_and(|chosen| chosen != timers) {
            continue;
        }
        let (timers, count) = if is_measured { (timers, count) } else { (timers.min(4_096), 2) };
        let sum = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&sum);
        let add = move |fired: Fired<'_, u64>| {
            let next = sum.load(Ordering::Relaxed).wrapping_add(fired.payload);
            sum.store(next, Ordering::Relaxed);
        };
        let sizes = (timers, count);
        let rows = [
            ("none", rounds(sizes, Tickets::InTheWheel, |_| {})),
            ("adds the payload", rounds(sizes, Tickets::InTheWheel, add)),
            ("none, from the lane", rounds(sizes, Tickets::InTheLane, |_| {})),
        ];
        for (name, figures) in rows {
            print(timers, name, &figures);
        }
        let each = timers * (timers - 1) / 2;
        assert_eq!(
            seen.load(Ordering::Relaxed),
            each.wrapping_mul(count as u64),
            "a timer fired twice or never"
        );
    }
}
