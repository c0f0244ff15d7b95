//! The time for which a handler that blocks holds up the other timers of its shard.
//!
//! An engine has one shard, and a timer is due every 250 µs. One of the handlers blocks for 30 ms. The figure is the
//! longest lateness of the timers that are due during that time. Any timer may be late by a tick of a millisecond,
//! which is part of the figure. In the row `at first` the handler that blocks is the first handler. In the row
//! `after quick ones` it comes after quick handlers of 400 ms.
//!
//! `cargo bench --bench held_up` prints the median and the range of 40 rounds. The rows take turns in each round. A
//! round does not count if the shard was taken over more than once. In such a round the machine paused, which looks
//! like another handler that blocks. A round without a takeover counts.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Fired};

const APART: Duration = Duration::from_micros(250);
const BLOCKED: Duration = Duration::from_millis(30);
const LEAD: Duration = Duration::from_millis(20);

/// The part that a timer's handler plays in the test.
enum Part {
    /// The handler returns at once. It runs before the handler that blocks.
    Quick,
    Blocks,
    /// The handler notes its lateness. Its timer comes due while another timer's handler blocks.
    Meanwhile,
}

/// Returns the largest lateness, in ms, of timers that are due while a handler blocks. Before that handler, quick
/// handlers run for the time `quick`. Returns `None` if the shard was taken over more than once.
fn longest_lateness(quick: Duration) -> Option<f64> {
    let longest = Arc::new(AtomicU64::new(0));
    let for_handler = Arc::clone(&longest);
    let handler = move |fired: Fired<'_, Part>| match fired.payload {
        Part::Quick => {}
        Part::Blocks => std::thread::sleep(BLOCKED),
        Part::Meanwhile => {
            let lateness = u64::try_from(fired.lateness().as_nanos()).expect("short");
            for_handler.fetch_max(lateness, Ordering::Relaxed);
        }
    };
    let engine = Builder::new().shards(1).workers(2).start(handler).expect("an engine");
    let first = Instant::now() + LEAD;
    let end = quick + BLOCKED;
    for number in 0.. {
        let after = number * APART;
        if after >= end {
            break;
        }
        let part = match after.cmp(&quick) {
            Less => Part::Quick,
            Equal => Part::Blocks,
            Greater => Part::Meanwhile,
        };
        let _ = engine.handle().schedule_at((first + after).into(), part).expect("room");
    }
    while !engine.handle().is_empty() {
        assert!((first + end).elapsed() < Duration::from_secs(60), "a timer is lost");
        std::thread::sleep(LEAD);
    }
    // The shutdown waits for the end of all handlers.
    assert!(engine.handle().shutdown().is_empty(), "all have fired");
    let is_disturbed = engine.handle().stats().total.takeovers > 1;
    (!is_disturbed).then(|| longest.load(Ordering::Relaxed) as f64 * 1e-6)
}

fn main() {
    // Under `cargo test --benches` one round is enough.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 40 } else { 1 };
    let rows = [("at first", Duration::ZERO), ("after quick ones", Duration::from_millis(400))];
    let mut results = rows.map(|_| Vec::new());
    for _ in 0..rounds {
        for ((_, quick), results) in rows.iter().zip(&mut results) {
            results.extend(longest_lateness(*quick));
        }
    }
    for ((name, _), values) in rows.iter().zip(&mut results) {
        values.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (values.first(), values.last()) else { continue };
        let (median, counted) = (values[values.len() / 2], values.len());
        println!("{name:16} {median:6.2} ms ({least:.2}..{most:.2}), {counted} of {rounds} rounds");
    }
}
