//! How long a handler that blocks holds up the other timers of its shard.
//!
//! An engine has one shard, and a timer is due every 250 µs. One of the handlers blocks for 30 ms. The figure is the
//! longest lateness among the other timers, which a worker's thread fires once it has taken the shard over. In the row
//! `at first` the blocking handler is the first one; in the row `after quick ones` it comes after quick handlers of
//! 400 ms.
//!
//! `cargo bench --bench held_up` prints the median and the range of 40 rounds, the rows interleaved.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Fired};

const APART: Duration = Duration::from_micros(250);
const BLOCKED: Duration = Duration::from_millis(30);
const LEAD: Duration = Duration::from_millis(20);

/// The longest lateness of the others, in ms, if the handler blocks that is due after quick ones for `quick`.
fn longest_lateness(quick: Duration) -> f64 {
    let longest = Arc::new(AtomicU64::new(0));
    let for_handler = Arc::clone(&longest);
    let handler = move |fired: Fired<'_, Option<Duration>>| match fired.payload {
        Some(time) => std::thread::sleep(time),
        None => {
            let lateness = u64::try_from(fired.lateness.as_nanos()).expect("short");
            for_handler.fetch_max(lateness, Ordering::Relaxed);
        }
    };
    let engine = Builder::new().shards(1).workers(2).start(handler).expect("an engine");
    let first = Instant::now() + LEAD;
    let schedule = |after, payload| {
        let _ = engine.handle().schedule_at((first + after).into(), payload).expect("room");
    };
    schedule(quick, Some(BLOCKED));
    let mut after = Duration::ZERO;
    while after < quick + BLOCKED {
        // In the first row, nothing is due before the handler that blocks.
        if after != quick {
            schedule(after, None);
        }
        after += APART;
    }
    while !engine.handle().is_empty() {
        assert!((first + after).elapsed() < Duration::from_secs(60), "a timer is lost");
        std::thread::sleep(LEAD);
    }
    // Waits for the end of all handlers.
    assert!(engine.handle().shutdown().is_empty(), "all have fired");
    longest.load(Ordering::Relaxed) as f64 * 1e-6
}

fn main() {
    // Under `cargo test --benches` one round is enough.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 40 } else { 1 };
    let rows = [("at first", Duration::ZERO), ("after quick ones", Duration::from_millis(400))];
    let mut results = rows.map(|_| Vec::new());
    for _ in 0..rounds {
        for ((_, quick), results) in rows.iter().zip(&mut results) {
            results.push(longest_lateness(*quick));
        }
    }
    for ((name, _), values) in rows.iter().zip(&mut results) {
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        println!("{name:16} {:6.2} ms ({least:.2}..{most:.2})", values[values.len() / 2]);
    }
}
