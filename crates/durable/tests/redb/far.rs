//! Tests a file with a great number of far timers, which must take no memory.

use crate::place::Place;
use crate::{ALL, apply, assert_whole, claimant, keyed, place, timer};
use pollster::block_on;
use std::time::{Duration, Instant};
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, RedbStore, TimerStore};

const YEAR: u64 = 365 * 86_400_000;
const CACHE: usize = 32 << 20;

/// Returns the number of bytes of this process's memory that no file backs. `None` where the system does not say.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1_024)
}

/// Returns the due moment of timer `n`, in milliseconds. A third of the timers is due in a single millisecond, and a
/// third within the next second. The others are due in 1 to 30 days.
fn due(n: u128) -> u64 {
    let spread = u64::try_from(n.wrapping_mul(2_654_435_761) % 2_592_000_000).unwrap();
    match n % 3 {
        0 => YEAR,
        1 => YEAR + 1 + spread % 1_000,
        _ => 86_400_000 + spread,
    }
}

/// Tests a store with many timers that are due much later. `TOURBILLON_FAR=10000000` sets their number to ten million.
/// Such a number needs a release build: with debug assertions redb reads the whole file at each opening.
#[test]
fn far_timers_cost_neither_memory_nor_time_to_open() {
    let far: u128 = std::env::var("TOURBILLON_FAR").map_or(30_000, |far| far.parse().unwrap());
    let place_of = Place::new();
    let clock = ManualClock::default();
    let open = || RedbStore::builder().clock(clock.clone()).cache(CACHE).open(place_of.file()).unwrap();
    let store = open();
    let begun = Instant::now();
    for start in (0..far).step_by(1_000) {
        let ops = (start..far.min(start + 1_000)).map(|n| place(keyed(n, due(n), &format!("k{n:015}"))));
        block_on(store.apply(ops.collect(), Durability::Volatile)).unwrap();
    }
    apply(&store, place(timer(1 << 100, 10 * YEAR)), Durability::PowerLoss).unwrap();
    let filled = begun.elapsed();
    drop(store);
    let before = memory();

    let begun = Instant::now();
    let store = open();
    let opened = begun.elapsed();
    let begun = Instant::now();
    apply(&store, place(timer(2 << 100, 1)), Durability::PowerLoss).unwrap();
    let accepted = begun.elapsed();
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), u64::try_from(far).unwrap() + 2);

    // The near timer is claimed among all the far timers. The next due moment is then that of the first far timer.
    clock.set(Timestamp::from_nanos(5_000_000));
    let claimed = block_on(store.claim(claimant(1), 1, ALL, None)).unwrap();
    assert_eq!(claimed.leased.len(), 1);
    let first = (0..far).map(due).min().unwrap();
    assert_eq!(claimed.next_due, Some(UtcMillis::from_millis(first)));

    let begun = Instant::now();
    let horizon = block_on(store.horizon()).unwrap();
    let ahead = begun.elapsed();
    // The near timer is leased, so it is not counted.
    assert_eq!((horizon.placed(), horizon.unplaced), (u64::try_from(far).unwrap() + 1, 0));
    assert!(horizon.spans.iter().all(|span| span.is_exact));

    // The timers that are due in one millisecond come in claims of bounded size.
    clock.set(Timestamp::from_nanos(YEAR * 1_000_000));
    let begun = Instant::now();
    let horizon = block_on(store.horizon()).unwrap();
    let due_now = begun.elapsed();
    assert_eq!(horizon.placed() + horizon.unplaced, u64::try_from(far).unwrap() + 1);
    let limit = tourbillon_durable::store::Limit { timers: 10_000, ..ALL };
    let due_by_then = (0..far).filter(|n| due(*n) <= YEAR).count();
    let (mut taken, mut slowest) = (0, Duration::ZERO);
    for claim in 2.. {
        let begun = Instant::now();
        let claimed = block_on(store.claim(claimant(1), claim, limit, None)).unwrap();
        slowest = slowest.max(begun.elapsed());
        assert!(claimed.leased.iter().all(|leased| leased.timer.due <= UtcMillis::from_millis(YEAR)));
        taken += claimed.leased.len();
        if claimed.leased.is_empty() || taken > 100_000 {
            break;
        }
    }
    assert!(taken == due_by_then || taken > 100_000, "{taken} of {due_by_then}");
    let gained = memory().zip(before).map(|(now, before)| now.saturating_sub(before));
    if far <= 100_000 {
        assert_whole(&store);
    }
    drop(store);
    let size = std::fs::metadata(place_of.file()).unwrap().len();
    #[expect(clippy::print_stdout, reason = "figures")]
    {
        println!(
            "{far} far timers: filled in {filled:.1?}, {} bytes each, opened in {opened:.1?}, the first accepted after \
             {accepted:.1?} more, slowest claim of 10,000 {slowest:.1?}, horizon in {ahead:.1?} and with a crowd that is due in {due_now:.1?}, \
             memory since the opening {gained:?} bytes",
            u128::from(size) / far
        );
    }
    // The memory has the cache, the pages of a transaction and the records of a claim, but not all timers.
    if let Some(gained) = gained {
        assert!(gained < CACHE as u64 + (200 << 20), "{gained} bytes of memory");
    }
}
