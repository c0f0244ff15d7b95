//! Connections that receive data. The figures are the cost of a touch, and of the arming of which it consists.

use crate::case::Case;
use crate::common::Chance;
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::time::{Duration, Instant};
use tourbillon::{Armed, Engine, Timer};
use tourbillon_book::figure::thousands;
use tourbillon_tasks::TaskEngine;
use tourbillon_tasks::uses::{Connection, Limits};

pub(super) const WORKLOAD: Workload = Workload {
    name: "touch",
    operation: "a random connection is touched: its idle timeout of 30 s starts again (ns each)",
    family: Family::Tasks,
    about: "Checked: none has expired.",
    reading: "A touch reads two lines of memory more than an arming: the connection's own line with its \
        limits, and the word that says whether the connection has ended. A touch by id also takes a look-up \
        in a map.",
    cases,
    columns: |_| vec![Column::new("t1", "1 thread", "ns")],
    rounds: |scale, _| scale.pick(7, 1, 1),
    entrants,
};

fn entrants() -> Vec<Entrant> {
    vec![
        Entrant::here("engine, Timer::arm", true, timers),
        Entrant::here("IdleTimeouts, Connection::touch", true, |case| connections(case, false)),
        Entrant::here("IdleTimeouts, Connection::touch, by its id", true, |case| connections(case, true)),
    ]
}

const IDLE: Duration = Duration::from_secs(30);

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(10_000, 1_000, 100);
    let operations = scale.pick(5_000_000, 200_000, 200);
    vec![Case { timers, operations, ..Case::named(format!("{} connections", thousands(timers))) }]
}

/// Measures `touch`, which is called with the index of a connection, in random order.
fn time(case: &Case, mut touch: impl FnMut(usize)) -> Figures {
    let order: Vec<usize> = Chance::new(1).order(case.timers).into_iter().map(|at| at as usize).collect();
    order.iter().copied().for_each(&mut touch);
    let start = Instant::now();
    order.iter().copied().cycle().take(case.operations).for_each(touch);
    Figures::default().number("t1", start.elapsed().as_secs_f64() * 1e9 / case.operations as f64)
}

fn timers(case: &Case) -> Figures {
    let engine = Engine::new(|_| {}).expect("the system gives us threads");
    let timers: Vec<Timer<u64>> =
        (0..case.timers as u64).map(|at| engine.handle().timer(at).expect("there is room")).collect();
    let figures = time(case, |at| assert_eq!(timers[at].arm(IDLE), Ok(Armed::Pending)));
    assert_eq!(engine.handle().stats().owned.fired, 0);
    figures
}

fn connections(case: &Case, by_id: bool) -> Figures {
    let tasks = TaskEngine::new().expect("the system gives us threads");
    let timeouts = tasks.handle().idle_timeouts(Limits::idle(IDLE), |_| {});
    let connections: Vec<Connection<u64>> =
        (0..case.timers as u64).map(|id| timeouts.insert(id).expect("there is room")).collect();
    let figures = if by_id {
        time(case, |at| assert!(timeouts.touch(&(at as u64))))
    } else {
        time(case, |at| assert!(connections[at].touch()))
    };
    assert_eq!((tasks.handle().stats().owned.fired, timeouts.len()), (0, case.timers));
    figures
}
