//! The number of tickets that the arms of our owned timers cost. No time is measured, since the engine runs on a manual
//! clock and counts.

use crate::case::Case;
use crate::common::{Payload, payload};
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::time::Duration;
use tourbillon::{Builder, Disarm, DrivenEngine, Timer};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "reach",
    operation: "connections armed over and over: how many of our arms cost a ticket. No timing: it counts, on a manual clock",
    family: Family::Arming,
    about: "Checked: the timers that were left armed fire.",
    reading: "A ticket in a lane or in the wheel serves all later deadlines: when it comes due, the shard \
        posts it again for the deadline that holds then.",
    cases,
    columns: |_| {
        vec![
            Column::new("arms", "arms", ""),
            Column::new("posted", "posted to a shard", ""),
            Column::new("put_off", "posted again by the shard", ""),
            Column::new("each", "arms a ticket", ""),
        ]
    },
    rounds: |_, _| 1,
    entrants,
};

/// A pattern of timer operations that each connection repeats.
struct Pattern {
    arms: &'static [Duration],
    disarms: bool,
    /// The largest number of tickets (entries in a lane or in the wheel) that a connection may cost in a timeout.
    most_tickets: u64,
}

const TIMEOUT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);

const PUT_OFF: Pattern = Pattern { arms: &[TIMEOUT], disarms: false, most_tickets: 1 };
const DISARMED: Pattern = Pattern { arms: &[TIMEOUT], disarms: true, most_tickets: 1 };
/// A pattern of short and long deadlines in turns. A ticket that comes due in the idle phase serves the idle deadline.
/// The next request then needs its own ticket.
const IN_TURNS: Pattern = Pattern { arms: &[TIMEOUT, IDLE], disarms: false, most_tickets: 2 };

fn entrants() -> Vec<Entrant> {
    let entrant = |pattern: &str, turn| Entrant::here(&format!("engine, Timer: {pattern}"), true, turn);
    vec![
        entrant("5 s, put off", |case| run(case, &PUT_OFF)),
        entrant("5 s, disarmed", |case| run(case, &DISARMED)),
        entrant("5 s and 60 s in turns", |case| run(case, &IN_TURNS)),
    ]
}

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(1_000, 100, 20);
    let arms = scale.pick(1_000, 1_000, 50);
    let name = format!(
        "{} connections, each armed {} times in a timeout, ten times over",
        thousands(timers),
        thousands(arms)
    );
    vec![Case { timers, operations: arms, ..Case::named(name) }]
}

/// The number of timeouts that pass during a run.
const TIMEOUTS: u32 = 10;

fn run(case: &Case, pattern: &Pattern) -> Figures {
    let arms_per_timeout = u32::try_from(case.operations).expect("some thousand");
    let mut engine = Builder::new().driven(|_| {}).expect("an engine without threads");
    let timers: Vec<Timer<Payload>> = (0..case.timers as u64)
        .map(|at| engine.handle().timer(payload(at)).expect("there is room"))
        .collect();
    let mut arms = 0;
    for round in 0..arms_per_timeout * TIMEOUTS {
        let delay = pattern.arms[round as usize % pattern.arms.len()];
        for timer in &timers {
            timer.arm(delay).expect("nobody shuts the engine down");
            arms += 1;
            if pattern.disarms {
                assert_eq!(timer.disarm(), Disarm::Disarmed);
            }
        }
        engine.advance(TIMEOUT / arms_per_timeout);
    }
    let owned = engine.handle().stats().owned;
    let tickets = owned.posted + owned.postponed;
    check(case, pattern, tickets, &mut engine);
    Figures::default()
        .number("arms", f64::from(arms))
        .number("posted", owned.posted as f64)
        .number("put_off", owned.postponed as f64)
        .number("each", f64::from(arms) / tickets as f64)
}

fn check(case: &Case, pattern: &Pattern, tickets: u64, engine: &mut DrivenEngine<Payload>) {
    let connections = case.timers as u64;
    // A ticket may come due up to a quarter of the timeout early, together with others.
    let most = connections * u64::from(TIMEOUTS * 4 / 3 + 1) * pattern.most_tickets;
    assert!(tickets <= most, "{tickets} tickets, at most {most}");
    assert_eq!(engine.handle().stats().owned.fired, 0, "always armed again in time");
    engine.advance(IDLE);
    let left = if pattern.disarms { 0 } else { connections };
    assert_eq!(engine.handle().stats().owned.fired, left, "what was left armed");
}
