//! Lateness while other threads compute, for different options of the builder for the scheduler.
//!
//! Twenty thousand timers are due at random moments of two seconds, while two or four threads compute. The first row is
//! the default. The other rows are the default without its short slice, shards that the scheduler may move, and threads
//! with a nice value of -20 or a real-time priority. The last two need a privilege. If the system refuses a setting,
//! the row says so.
//!
//! `cargo bench --bench busy` prints the median and the range of five rounds. The rows take turns in each round.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

#[allow(dead_code, reason = "each bench takes what it needs")]
#[path = "common/chance.rs"]
mod chance;

use chance::Chance;
use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Fired};

const BURNERS: [usize; 2] = [2, 4];

#[derive(Clone, Copy)]
struct Sizes {
    timers: usize,
    lead: Duration,
    window: Duration,
}

/// The 99th and the 99.9th percentile of the timers' lateness, in ms. `None` if the system refused a setting.
type Figures = Option<[f64; 2]>;

/// The name of a row of the table, and the function that makes the row's engine builder.
type Row = (&'static str, fn() -> Builder);

fn round(builder: Builder, burners: usize, sizes: Sizes) -> Figures {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..burners {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        let figures = lateness(builder, sizes);
        is_over.store(true, Ordering::Relaxed);
        figures
    })
}

fn lateness(builder: Builder, sizes: Sizes) -> Figures {
    let all = Arc::new(Mutex::new(Vec::with_capacity(sizes.timers)));
    let noted = Arc::clone(&all);
    let note = move |fired: Fired<'_, ()>| noted.lock().expect("no panic").push(fired.lateness());
    let engine = builder.start(note).expect("an engine");
    let first = Instant::now() + sizes.lead;
    let window = u64::try_from(sizes.window.as_nanos()).expect("some seconds");
    let mut chance = Chance::new(1);
    for _ in 0..sizes.timers {
        let after = Duration::from_nanos(chance.within(&(0..window)));
        let _ = engine.handle().schedule_at((first + after).into(), ()).expect("room");
    }
    thread::sleep((first + sizes.window).saturating_duration_since(Instant::now()));
    while !engine.handle().is_empty() {
        assert!(first.elapsed() < Duration::from_secs(60), "a timer is lost");
        thread::sleep(sizes.lead);
    }
    // The shutdown waits for the end of all handlers.
    assert!(engine.handle().shutdown().is_empty(), "all have fired");
    let stats = engine.handle().stats();
    let mut all = all.lock().expect("no panic");
    assert_eq!(all.len(), sizes.timers, "each timer fires once");
    all.sort_unstable();
    let at = |per_mille: usize| all[(all.len() - 1) * per_mille / 1_000].as_secs_f64() * 1e3;
    (stats.slices_refused + stats.priorities_refused == 0).then(|| [at(990), at(999)])
}

fn main() {
    // Under `cargo test --benches` the sizes are tiny.
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let (sizes, rounds) = if is_measured {
        (Sizes { timers: 20_000, lead: Duration::from_millis(200), window: Duration::from_secs(2) }, 5)
    } else {
        (Sizes { timers: 100, lead: Duration::from_millis(20), window: Duration::from_millis(50) }, 1)
    };
    let rows: [Row; 5] = [
        ("default", Builder::new),
        ("slice(None)", || Builder::new().slice(None)),
        ("unpinned", || Builder::new().unpinned()),
        ("nice(-20)", || Builder::new().nice(-20)),
        ("real_time(1)", || Builder::new().real_time(1)),
    ];
    for burners in BURNERS {
        let mut results = rows.map(|_| Vec::new());
        for _ in 0..rounds {
            for ((_, builder), results) in rows.iter().zip(&mut results) {
                results.extend(round(builder(), burners, sizes));
            }
        }
        for ((name, _), figures) in rows.iter().zip(&results) {
            print!("{burners} threads compute  {name:13}");
            for (column, title) in ["p99", "p99.9"].iter().enumerate() {
                let mut values: Vec<f64> = figures.iter().map(|figures| figures[column]).collect();
                values.sort_by(f64::total_cmp);
                match (values.first(), values.last()) {
                    (Some(least), Some(most)) => {
                        print!("  {title} {:6.2} ms ({least:.2}..{most:.2})", values[values.len() / 2]);
                    }
                    _ => print!("  {title} refused"),
                }
            }
            println!();
        }
    }
}
