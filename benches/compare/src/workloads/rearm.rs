//! A request's timeout. It is armed when the request comes, and disarmed when the request is answered. The connections
//! come in random order.

use super::below;
use super::owned::{self, Work, in_iterations};
use crate::case::Case;
use crate::common::Chance;
use crate::contestants::{Connections, Owned};
use crate::results::Figures;
use crate::roster::rearm;
use crate::scale::Scale;
use crate::workload::{Family, Workload, columns_by_threads, threads_key};
use std::ops::Range;
use std::time::Duration;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "rearm",
    operation: "arm a timeout of 5 s and disarm it, connections in random order (ns a request and thread)",
    family: Family::Arming,
    about: "Each thread has its own connections. Checked: no timer fires, and no timer that was disarmed is \
        still armed; some timers are armed once more, and fire when due, not before.\n\n\
        tokio cannot disarm a `Sleep` that stays: \"tokio, Sleep\" has one reset for a request and nothing \
        for the answer, and so has futures-timer; \"reset to far to disarm\" moves the timer 30 days ahead \
        with the answer. No other task runs on tokio's runtime, and its driver is not turned within the \
        measured time; our shards do the corresponding work beside it. DelayQueue has one owner: with \
        several threads each has its own queue, and no lock. Rows with the caller's own `now` read the clock \
        once for an iteration of an event loop, and are compared with each other.",
    reading: "Most of the cost of an arming is the read of the clock. With the caller's own `now`, two \
        stores and two loads remain.",
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
    /// For each request, the index of its connection.
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

    /// Makes a request on each connection once.
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
