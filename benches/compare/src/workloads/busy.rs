//! Timers come due while the program's own threads fill the cores.
//!
//! By default the engine pins each shard to a core, and the shard's thread runs due handlers. Other rows measure the
//! modes for a shared machine, and the default without the short scheduler slice.

use super::expiry;
use crate::case::Case;
use crate::contestants::OneShots;
use crate::results::{Column, Figures};
use crate::roster::entrants;
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "busy",
    operation: "timers due at random moments of a window, while other threads of the process burn their cores: how late their handlers are called",
    family: Family::Firing,
    about: "The default pins each shard's thread to a core, lets that thread run due handlers, and asks the \
        scheduler for short slices. Other rows have the default without the short slices, and shards that \
        the scheduler may move. In Go, goroutines compute. Checked: each timer fires once. Timers that fire \
        early are counted.",
    reading: "When a shard's thread wakes, it may have to wait until a computing thread has used up its \
        slice.",
    cases,
    columns: |_| {
        vec![
            Column::new("early", "early", ""),
            Column::new("p50", "p50", "ms"),
            Column::new("p99", "p99", "ms"),
            Column::new("p999", "p99.9", "ms"),
            Column::new("max", "max", "ms"),
        ]
    },
    rounds: |scale, _| scale.pick(3, 1, 1),
    entrants,
};

fn entrants() -> Vec<Entrant> {
    use crate::roster::names::*;
    let mut entrants = entrants![turn:
        Of<OwnWorkers>,
        Of<DefaultSlice>,
        Of<Unpinned>,
        Of<UnpinnedInline>,
        Of<Locked<Tree>>,
        Tasks<TokioSleeps>,
    ];
    entrants.extend(foreign::PROGRAMS.iter().map(Entrant::foreign));
    entrants
}

fn cases(scale: Scale) -> Vec<Case> {
    let (timers, time_ms) = scale.pick((20_000, 2_000), (2_000, 200), (100, 50));
    let case = |burners| Case {
        timers,
        time_ms,
        lead_ms: 500,
        threads: vec![burners],
        ..Case::named(format!("{} timers, {burners} threads burn", thousands(timers)))
    };
    [0, 2, 4].map(case).into()
}

/// Threads that only compute. They stop when this value is dropped.
struct Burners {
    done: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Burners {
    fn light(count: usize) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let burn = |done: Arc<AtomicBool>| {
            move || {
                while !done.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            }
        };
        let threads = (0..count).map(|_| thread::spawn(burn(Arc::clone(&done)))).collect();
        Self { done, threads }
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a burner does not panic");
        }
    }
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let _burners = Burners::light(case.threads.first().copied().unwrap_or(0));
    let all = expiry::volley::<C>(case);
    Figures::default()
        .number("early", all.early())
        .number("p50", all.sorted().millis(0.5))
        .number("p99", all.sorted().millis(0.99))
        .number("p999", all.sorted().millis(0.999))
        .number("max", all.sorted().millis(1.0))
}
