//! Single steps of the machine of which each operation consists. No timer can be cheaper.

use crate::case::Case;
use crate::common::Chance;
use crate::results::{Column, Figures};
use crate::workload::{Entrant, Family, Workload};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;
use tourbillon::{Clock, MonotonicClock};

pub(super) const WORKLOAD: Workload = Workload {
    name: "floor",
    operation: "single steps of the machine (ns each)",
    family: Family::Structures,
    about: "Checked: counts.",
    reading: "A pair of ours takes one read of the clock and one compare-and-swap on a line of its own; it \
        takes no allocation and no mutex.",
    cases: |scale| {
        vec![Case { operations: scale.pick(10_000_000, 200_000, 1_000), ..Case::named("one step") }]
    },
    columns: |_| vec![Column::new("ns", "a step", "ns")],
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants,
};

fn entrants() -> Vec<Entrant> {
    let step = |name, turn| Entrant::here(name, false, turn);
    vec![
        step("atomic add, alone", add),
        step("atomic add, beside another thread's", contended_add),
        step("std::sync::Mutex, lock and unlock, alone", lock),
        step("allocate and free 64 bytes", allocate),
        step("Instant::now", instant),
        step("the engine's clock", engine_clock),
        step("read a random line of 256 MiB", cold_miss),
    ]
}

fn each(case: &Case, mut step: impl FnMut()) -> Figures {
    let start = Instant::now();
    for _ in 0..case.operations {
        step();
    }
    Figures::default().number("ns", start.elapsed().as_secs_f64() * 1e9 / case.operations as f64)
}

fn add(case: &Case) -> Figures {
    let count = AtomicU64::new(0);
    let figures = each(case, || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(count.into_inner(), case.operations as u64);
    figures
}

fn contended_add(case: &Case) -> Figures {
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut added = 0;
            while !is_over.load(Ordering::Relaxed) {
                count.fetch_add(1, Ordering::Relaxed);
                added += 1;
            }
            added
        });
        while count.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let figures = each(case, || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        is_over.store(true, Ordering::Relaxed);
        let others: u64 = other.join().expect("it only adds");
        assert_eq!(count.load(Ordering::Relaxed), others + case.operations as u64);
        figures
    })
}

fn lock(case: &Case) -> Figures {
    let count = Mutex::new(0_usize);
    let figures = each(case, || *count.lock().expect("nobody panics") += 1);
    assert_eq!(count.into_inner().expect("nobody panics"), case.operations);
    figures
}

fn allocate(case: &Case) -> Figures {
    each(case, || drop(black_box(Box::new([0_u64; 8]))))
}

fn instant(case: &Case) -> Figures {
    each(case, || {
        black_box(Instant::now());
    })
}

fn engine_clock(case: &Case) -> Figures {
    let clock = MonotonicClock::new();
    each(case, || {
        black_box(clock.now());
    })
}

/// Measures a cache miss. Each line of memory has the index of the next line, so the reads never overlap.
fn cold_miss(case: &Case) -> Figures {
    const WORDS_OF_A_LINE: usize = 8;
    const LINES: usize = (256 << 20) / 64;
    let lines = if case.operations < LINES / 100 { 1_024 } else { LINES };
    let order = Chance::new(1).order(lines);
    let mut memory = vec![0_u32; lines * WORDS_OF_A_LINE * 2];
    let word = |line: u32| line as usize * WORDS_OF_A_LINE * 2;
    for (at, &line) in order.iter().enumerate() {
        memory[word(line)] = order[(at + 1) % lines];
    }
    let mut line = order[0];
    let reads = Case { operations: case.operations / 10, ..case.clone() };
    let figures = each(&reads, || line = memory[word(line)]);
    assert_eq!(line, order[reads.operations % lines]);
    figures
}
