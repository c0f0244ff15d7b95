//! The cost of a million expiries: lateness, processor time and context switches.
//!
//! A million timers are due at random moments of two seconds, 500 in a millisecond. Each handler writes its lateness to
//! a random word of memory that was touched before. In the row `in_turn` each handler writes to the next word instead,
//! which is in the cache. So the difference between `in_turn` and `one_shots` is the cost of the handlers' own cache
//! misses. One thread arms all timers a second ahead. A *switch* is a voluntary context switch: a thread of the process
//! slept and woke.
//!
//! `cargo bench --bench firing` prints the median and the range of five rounds. The rows take turns in each round.
//! `--rounds N` makes N rounds, and `--only NAME` measures only that row. With `--at-once` all timers are due at one
//! moment.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Fired, Timer, Timestamp};

const MILLISECOND: u64 = 1_000_000;
/// The value of a timer's word in the record before the timer has fired.
const PENDING: u64 = u64::MAX;
const BUDGET: usize = 16_384;

/// The sizes of a run: its number of timers, and its times.
#[derive(Clone, Copy)]
struct Sizes {
    timers: usize,
    /// The time from the first arming to the first deadline.
    lead: Duration,
    window: Duration,
}

/// Each timer's lateness, in nanoseconds. The index is the number of the timer.
struct Record(Box<[AtomicU64]>);

impl Record {
    fn new(timers: usize) -> Arc<Self> {
        Arc::new(Self((0..timers).map(|_| AtomicU64::new(PENDING)).collect()))
    }

    fn note(&self, number: usize, lateness: u64) {
        self.0[number].store(lateness, Ordering::Relaxed);
    }

    fn is_complete(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) != PENDING)
    }

    fn sorted(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.0.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        all.sort_unstable();
        all
    }
}

/// The process's processor time, and its threads' voluntary context switches.
#[derive(Clone, Copy)]
struct Usage {
    cpu: Duration,
    switches: u64,
}

impl Usage {
    #[cfg(target_os = "linux")]
    fn now() -> Self {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let cpu = Duration::new(
            cpu.tv_sec.cast_unsigned(),
            u32::try_from(cpu.tv_nsec).expect("a part of a second"),
        );
        let mut switches = 0;
        for task in std::fs::read_dir("/proc/self/task").expect("Linux has it").flatten() {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            switches += count.map_or(0, |count| count.trim().parse().expect("a number"));
        }
        Self { cpu, switches }
    }

    #[cfg(not(target_os = "linux"))]
    fn now() -> Self {
        Self { cpu: Duration::ZERO, switches: 0 }
    }
}

/// A round's figures, in the order of [`COLUMNS`].
type Figures = [f64; 6];
const COLUMNS: [&str; 6] = ["p50 ms", "p99 ms", "p99.9 ms", "max ms", "CPU s", "switches/1000"];

/// Returns the timers' deadlines, in nanoseconds from the start of the window in which timers are due.
fn offsets(sizes: Sizes) -> Vec<u64> {
    let window = u64::try_from(sizes.window.as_nanos()).expect("some seconds");
    let mut random = 1_u64;
    (0..sizes.timers)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 11) % window
        })
        .collect()
}

fn figures(sizes: Sizes, record: &Record, before: Usage, after: Usage) -> Figures {
    let all = record.sorted();
    let at = |per_mille: usize| all[(all.len() - 1) * per_mille / 1_000] as f64 * 1e-6;
    let switches = after.switches.saturating_sub(before.switches) as f64 * 1e3 / sizes.timers as f64;
    [at(500), at(990), at(999), at(1_000), (after.cpu - before.cpu).as_secs_f64(), switches]
}

/// Sleeps until all timers have fired. Returns the figures of the process, counted from the reading `before`.
fn wait(sizes: Sizes, first: Instant, record: &Record, before: Usage) -> Figures {
    let end = first + sizes.window + Duration::from_millis(20);
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let mut after = Usage::now();
    while !record.is_complete() {
        assert!(end.elapsed() < Duration::from_secs(60), "a timer is lost");
        std::thread::sleep(Duration::from_millis(20));
        after = Usage::now();
    }
    figures(sizes, record, before, after)
}

fn handler(record: &Arc<Record>) -> impl Fn(Fired<'_, usize>) + Send + Sync + 'static {
    let record = Arc::clone(record);
    move |fired| record.note(fired.payload, u64::try_from(fired.lateness().as_nanos()).expect("short"))
}

fn one_shots(sizes: Sizes) -> Figures {
    let record = Record::new(sizes.timers);
    fire_one_shots(sizes, &record, handler(&record))
}

fn fire_one_shots(
    sizes: Sizes,
    record: &Record,
    handler: impl Fn(Fired<'_, usize>) + Send + Sync + 'static,
) -> Figures {
    let engine = Builder::new().start(handler).expect("an engine");
    let first = Instant::now() + sizes.lead;
    for (number, offset) in offsets(sizes).into_iter().enumerate() {
        let _ =
            engine.handle().schedule_at((first + Duration::from_nanos(offset)).into(), number).expect("room");
    }
    wait(sizes, first, record, Usage::now())
}

fn in_turn(sizes: Sizes) -> Figures {
    let record = Record::new(sizes.timers);
    let (for_handler, next) = (Arc::clone(&record), AtomicUsize::new(0));
    let handler = move |fired: Fired<'_, usize>| {
        let at = next.fetch_add(1, Ordering::Relaxed);
        for_handler.note(at, u64::try_from(fired.lateness().as_nanos()).expect("short"));
    };
    fire_one_shots(sizes, &record, handler)
}

fn owned(sizes: Sizes) -> Figures {
    let record = Record::new(sizes.timers);
    let engine = Builder::new().start(handler(&record)).expect("an engine");
    let timers: Vec<Timer<usize>> =
        (0..sizes.timers).map(|number| engine.handle().timer(number).expect("room")).collect();
    let first = Instant::now() + sizes.lead;
    for (timer, offset) in timers.iter().zip(offsets(sizes)) {
        timer.arm_at((first + Duration::from_nanos(offset)).into()).expect("open");
    }
    wait(sizes, first, &record, Usage::now())
}

/// Measures an event loop with one shard on the calling thread.
fn one_loop(sizes: Sizes) -> Figures {
    let record = Record::new(sizes.timers);
    let (shards, mut loops) = Builder::new().loops(1).expect("a loop");
    let engine = shards.engine().start(handler(&record)).expect("an engine");
    let mut shard = loops.remove(0);
    let first = Instant::now() + sizes.lead;
    let _ = shard.turn(Instant::now(), BUDGET);
    for (number, offset) in offsets(sizes).into_iter().enumerate() {
        let _ =
            engine.handle().schedule_at((first + Duration::from_nanos(offset)).into(), number).expect("room");
    }
    let before = Usage::now();
    let end = Timestamp::from(first + sizes.window + Duration::from_millis(20));
    loop {
        let now = Timestamp::from(Instant::now());
        if now >= end {
            break;
        }
        let _ = black_box(shard.turn(now, BUDGET));
        let rest = shard.timeout(Instant::now()).unwrap_or(Duration::MAX);
        if rest > Duration::ZERO {
            std::thread::sleep(rest.min(end - Timestamp::from(Instant::now())));
        }
    }
    assert!(record.is_complete(), "a timer is lost");
    figures(sizes, &record, before, Usage::now())
}

/// An ordered tree of timers. `is_closed` says that no further timer will come.
#[derive(Default)]
struct Tree {
    due: BTreeMap<(u64, usize), usize>,
    is_closed: bool,
}

/// Measures an ordered tree of timers behind a mutex. A single thread wakes in each millisecond in which a timer is
/// due.
fn tree(sizes: Sizes) -> Figures {
    let record = Record::new(sizes.timers);
    let shared = Arc::new((Mutex::new(Tree::default()), Condvar::new()));
    let origin = Instant::now();
    let (on_thread, for_handler) = (Arc::clone(&shared), Arc::clone(&record));
    let nanos = move |moment: Instant| u64::try_from((moment - origin).as_nanos()).expect("some years");
    let thread = std::thread::spawn(move || {
        tighten_timer_slack();
        let (lock, changed) = &*on_thread;
        let mut fired = Vec::new();
        let mut tree = lock.lock().expect("no panic");
        while !tree.is_closed {
            let now = nanos(Instant::now());
            while let Some(entry) = tree.due.first_entry()
                && entry.key().0 <= now
            {
                fired.push((entry.key().0, entry.remove()));
            }
            drop(tree);
            for (deadline, number) in fired.drain(..) {
                for_handler.note(number, nanos(Instant::now()) - deadline);
            }
            tree = lock.lock().expect("no panic");
            let first = tree.due.first_key_value().map(|(key, _)| key.0.next_multiple_of(MILLISECOND));
            let rest = first.map_or(Duration::from_secs(1), |first| {
                Duration::from_nanos(first.saturating_sub(nanos(Instant::now())))
            });
            tree = changed.wait_timeout(tree, rest).expect("no panic").0;
        }
    });
    let first = Instant::now() + sizes.lead;
    for (number, offset) in offsets(sizes).into_iter().enumerate() {
        let deadline = nanos(first + Duration::from_nanos(offset));
        let mut tree = shared.0.lock().expect("no panic");
        if tree.due.first_key_value().is_none_or(|(key, _)| deadline < key.0) {
            shared.1.notify_one();
        }
        tree.due.insert((deadline, number), number);
    }
    let figures = wait(sizes, first, &record, Usage::now());
    shared.0.lock().expect("no panic").is_closed = true;
    shared.1.notify_one();
    thread.join().expect("no panic");
    figures
}

/// A function that lets a million timers fire in the way of one row of the table, and returns the figures.
type Row = fn(Sizes) -> Figures;

fn tighten_timer_slack() {
    #[cfg(target_os = "linux")]
    let _refused = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1));
}

fn main() {
    tighten_timer_slack();
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    // Under `cargo test --benches` the sizes are tiny.
    let is_measured = arguments.iter().any(|argument| argument == "--bench");
    let sizes = if is_measured {
        Sizes { timers: 1_000_000, lead: Duration::from_millis(1_500), window: Duration::from_secs(2) }
    } else {
        Sizes { timers: 300, lead: Duration::from_millis(50), window: Duration::from_millis(100) }
    };
    let window = if arguments.iter().any(|argument| argument == "--at-once") {
        Duration::from_nanos(1)
    } else {
        sizes.window
    };
    let sizes = Sizes { window, ..sizes };
    let rounds =
        after("--rounds").map_or(if is_measured { 5 } else { 1 }, |rounds| rounds.parse().expect("a number"));
    let only = after("--only");
    let rows: [(&str, Row); 5] = [
        ("one_shots", one_shots),
        ("in_turn", in_turn),
        ("owned", owned),
        ("one_loop", one_loop),
        ("tree", tree),
    ];
    let rows: Vec<_> =
        rows.into_iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name)).collect();
    let mut results = vec![Vec::new(); rows.len()];
    for _ in 0..rounds {
        for ((_, row), results) in rows.iter().zip(&mut results) {
            results.push(row(sizes));
        }
    }
    for ((name, _), results) in rows.iter().zip(&results) {
        for (column, title) in COLUMNS.iter().enumerate() {
            let mut values: Vec<f64> = results.iter().map(|figures| figures[column]).collect();
            values.sort_by(f64::total_cmp);
            let (least, most) = (values[0], values[values.len() - 1]);
            println!("{name:10} {title:13} {:8.3} ({least:.3}..{most:.3})", values[values.len() / 2]);
        }
    }
}
