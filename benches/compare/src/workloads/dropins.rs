//! A drop-in of the folder `patch` beside the crate whose place it takes.

use super::expiry::offsets;
use super::pairs::Pairs;
use super::shots::Volley;
use super::{HOUR, LONG};
use crate::case::Case;
use crate::contestants::{
    Delays, FuturesOneShot, FuturesTimer, FuturesTimerDropIn, OneShots, Pingora, PingoraSleeps,
    PingoraTimeout, PingoraTimeoutDropIn, TasksOfThreads,
};
use crate::process::resident;
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload, columns_by_threads};
use std::ops::Range;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "dropins",
    operation: "timers by a drop-in of ours, beside those of the crate whose place it takes",
    family: Family::Tasks,
    about: "With a million others pending, a timer is made, polled once and dropped (ns a timer and thread). The \
        memory is the resident memory that the million adds, with the futures themselves. Then 100,000 tasks of a \
        tokio runtime with one worker, or with eight workers on these two cores, wait until random moments of a \
        second. Lateness is the moment at which a task goes on, less its deadline. Checked: no timer of the first \
        table fires, and each of the others fires once. Timers that fire early are counted.\n\n\
        pingora-timeout and its drop-in wait in a tokio runtime in all tables, futures-timer and its drop-in in threads \
        without a runtime in the first. A task of the runtime turns the timers of pingora-timeout's drop-in, so its \
        jobs yield after each 256 operations of the first table, within the measured time.",
    reading: "futures-timer has one thread, which wakes for each deadline and owns the heap: a caller sends it each new \
        timer and each drop, and waits for neither. pingora-timeout rounds to ten milliseconds, is early by less \
        than one at times, shares one entry among all timers of a slot, and keeps the entry of a dropped timer until its \
        deadline. The drop-in of futures-timer has the engine's tick of 1 ms. That of pingora-timeout has a task of the \
        runtime, which sleeps by tokio's timer.",
    cases,
    columns,
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || {
        vec![
            entrant::<FuturesOneShot<FuturesTimer>, TasksOfThreads<Delays<FuturesTimer>>>(),
            entrant::<FuturesOneShot<FuturesTimerDropIn>, TasksOfThreads<Delays<FuturesTimerDropIn>>>(),
            entrant::<Pingora<PingoraTimeout>, TasksOfThreads<PingoraSleeps<PingoraTimeout>>>(),
            entrant::<Pingora<PingoraTimeoutDropIn>, TasksOfThreads<PingoraSleeps<PingoraTimeoutDropIn>>>(),
        ]
    },
};

const DELAYS: Range<u64> = HOUR + LONG.start..HOUR + LONG.end;

fn entrant<P: OneShots, L: OneShots>() -> Entrant {
    Entrant::new::<P>(|case| if fires(case) { lateness::<L>(case) } else { pairs_and_memory::<P>(case) })
}

/// Returns whether the timers in this case of the workload come due.
fn fires(case: &Case) -> bool {
    case.lead_ms > 0
}

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(1_000_000, 50_000, 200);
    let pending = Case {
        timers,
        threads: vec![1, 8],
        time_ms: scale.pick(300, 20, 1),
        settle_ms: scale.pick(100, 20, 5),
        ..Case::named(format!("{} pending", thousands(timers)))
    };
    let (timers, time_ms, lead_ms) = scale.pick((100_000, 1_000, 500), (20_000, 200, 500), (300, 100, 100));
    let due = |threads: usize| Case {
        timers,
        threads: vec![threads],
        time_ms,
        lead_ms,
        ..Case::named(format!(
            "{} waits, {threads} thread{}",
            thousands(timers),
            if threads == 1 { "" } else { "s" }
        ))
    };
    vec![pending, due(1), due(8)]
}

fn columns(case: &Case) -> Vec<Column> {
    if fires(case) {
        return vec![
            Column::new("early", "early", ""),
            Column::new("p50", "lateness, p50", "ms"),
            Column::new("p99", "p99", "ms"),
            Column::new("max", "max", "ms"),
            Column::new("cpu", "CPU", "s"),
        ];
    }
    let mut columns = columns_by_threads(case);
    columns.push(Column::new("bytes", "memory of a pending timer", "bytes"));
    columns
}

fn pairs_and_memory<C: OneShots>(case: &Case) -> Figures {
    let most_threads = case.threads.iter().copied().max().unwrap_or(1);
    let mut pairs = Pairs::<C>::new(most_threads, DELAYS);
    pairs.fill(1, case.settle());
    let before = resident();
    pairs.fill(1 + case.timers, case.settle());
    let after = resident();
    let bytes = before.zip(after).map(|(before, after)| (after as f64 - before as f64) / case.timers as f64);
    let figures = pairs.run_by_threads(case).number("bytes", bytes);
    pairs.check();
    figures
}

fn lateness<C: OneShots>(case: &Case) -> Figures {
    let volley = Volley::fire::<C>(case, offsets(case));
    let all = volley.sorted();
    Figures::default()
        .number("early", volley.early())
        .number("p50", all.millis(0.5))
        .number("p99", all.millis(0.99))
        .number("max", all.millis(1.0))
        .number("cpu", volley.cpu.map(|time| time.as_secs_f64()))
}
