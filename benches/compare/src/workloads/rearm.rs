//! A request's timeout: armed when it comes and disarmed when it is answered, over connections in random order.

use super::below;
use super::owned::{self, Work, in_iterations};
use crate::case::{Case, thousands};
use crate::common::Chance;
use crate::contestants::{Connections, Owned};
use crate::results::Figures;
use crate::roster::rearm;
use crate::workload::{Scale, Workload, columns_by_threads, threads_key};
use std::ops::Range;
use std::time::Duration;

pub(super) const WORKLOAD: Workload = Workload {
    name: "rearm",
    what: "arm a timeout of 5 s and disarm it, connections in random order (ns a request and thread)",
    cases,
    columns: columns_by_threads,
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || rearm!(turn),
};

const TIMEOUT: Duration = Duration::from_secs(5);

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(10_000, 1_000, 70);
    vec![Case {
        timers,
        threads: vec![1, 2],
        operations: scale.pick(1_000_000, 50_000, 500),
        settle_ms: scale.pick(50, 5, 1),
        ..Case::named(format!("{} connections", thousands(timers)))
    }]
}

fn turn<C: Owned>(case: &Case) -> Figures {
    case.threads.iter().fold(Figures::default(), |figures, &threads| {
        figures.number(threads_key(threads), owned::measure::<C, Requests>(case, threads))
    })
}

struct Requests {
    connections: Vec<u32>,
    /// The connection of each request.
    order: Vec<u32>,
}

impl Work for Requests {
    const DISARMS: bool = true;

    fn plan(case: &Case, thread: usize) -> Self {
        let mut chance = Chance::new(thread as u64);
        let connections = chance.order(case.timers);
        let order = (0..case.operations).map(|_| below(&mut chance, case.timers)).collect();
        Self { connections, order }
    }

    /// A request on each connection.
    fn prepare(&self, connections: &mut impl Connections) {
        in_iterations(connections, &self.connections, request);
    }

    fn warm_up(&self, connections: &mut impl Connections) {
        self.prepare(connections);
    }

    #[inline]
    fn run(&self, part: Range<usize>, connections: &mut impl Connections) {
        in_iterations(connections, &self.order[part], request);
    }
}

#[inline]
fn request<C: Connections>(connections: &mut C, at: u32) {
    connections.arm(at, TIMEOUT);
    connections.disarm(at);
}
