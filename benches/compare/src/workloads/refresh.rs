//! One thread repeatedly gives a new deadline to a random timer of many pending timers.

use super::owned::{self, Work, in_iterations};
use super::{LONG, below};
use crate::case::Case;
use crate::common::Chance;
use crate::contestants::{Connections, Owned};
use crate::results::Figures;
use crate::roster::refresh;
use crate::scale::Scale;
use crate::workload::{Family, Workload, columns_by_threads, threads_key};
use std::ops::Range;
use std::time::Duration;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "refresh",
    operation: "move a random pending timer to 10 to 60 s from now (ns a move)",
    family: Family::Arming,
    about: "Checked: all timers stay pending; some fire when due, not before.",
    reading: "Nearly half of the random deadlines are before the timer's present ticket, and then cost another \
        ticket, with a compare-and-swap and a third cache miss. The rest is two cache misses, on the handle and on \
        the timer's slot. A timeout that only moves ahead, as a connection's does, is measured in `rearm`.",
    cases,
    columns: columns_by_threads,
    rounds: |scale, _| scale.pick(3, 1, 1),
    entrants: || refresh!(turn),
};

fn cases(scale: Scale) -> Vec<Case> {
    let case = |timers| Case {
        timers,
        threads: vec![1],
        operations: scale.pick(500_000, 20_000, 500),
        settle_ms: scale.pick(50, 5, 1),
        ..Case::named(format!("{} pending", thousands(timers)))
    };
    scale.pick([100_000, 1_000_000], [10_000, 100_000], [100, 300]).map(case).into()
}

fn turn<C: Owned>(case: &Case) -> Figures {
    case.threads.iter().fold(Figures::default(), |figures, &threads| {
        figures.number(threads_key(threads), owned::measure::<C, Refreshes>(case, threads))
    })
}

struct Refreshes {
    /// The first refreshes. Each gives one timer its first deadline.
    first: Vec<Refresh>,
    order: Vec<Refresh>,
}

/// The index of a timer, and the delay of its new deadline.
type Refresh = (u32, Duration);

impl Work for Refreshes {
    const DISARMS: bool = false;

    fn plan(case: &Case, thread: usize) -> Self {
        let mut chance = Chance::new(thread as u64);
        let order = chance.order(case.timers);
        let first = order.into_iter().map(|at| (at, delay(&mut chance))).collect();
        let order =
            (0..case.operations).map(|_| (below(&mut chance, case.timers), delay(&mut chance))).collect();
        Self { first, order }
    }

    fn prepare(&self, connections: &mut impl Connections) {
        in_iterations(connections, &self.first, refresh);
    }

    #[inline]
    fn run(&self, part: Range<usize>, connections: &mut impl Connections) {
        in_iterations(connections, &self.order[part], refresh);
    }
}

fn delay(chance: &mut Chance) -> Duration {
    Duration::from_nanos(chance.within(&LONG))
}

#[inline]
fn refresh<C: Connections>(connections: &mut C, (at, delay): Refresh) {
    connections.arm(at, delay);
}
