//! A random one of many pending timers gets a new deadline, over and over, from one thread.

use super::owned::{self, Work, in_iterations};
use super::{Case, Entrant, Workload, below};
use crate::baselines::{LazyHeap, Locked, Tree};
use crate::common::{Chance, NANOS};
use crate::contestants::{ById, Connections, FuturesDelay, OursTimer, Owned, TokioSleep};
use crate::sizes::Sizes;
use std::ops::Range;
use std::time::Duration;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "refresh",
    what: "move a random pending timer to 1 to 60 s from now (ns a move)",
    cases,
    entrants: &[
        entrant::<OursTimer<false>>(),
        entrant::<TokioSleep<false>>(),
        entrant::<FuturesDelay>(),
        entrant::<ById<Locked<LazyHeap>>>(),
        entrant::<ById<Locked<Tree>>>(),
    ],
};

const fn entrant<C: Owned>() -> Entrant {
    Entrant::new::<C>(owned::measure::<C, Refreshes>)
}

fn cases(sizes: &Sizes) -> Vec<Case> {
    let case = |timers| Case { threads: 1, timers, operations: sizes.refreshes, settle: sizes.settle };
    sizes.pending.map(case).into()
}

struct Refreshes {
    /// Every timer once.
    first: Vec<Refresh>,
    order: Vec<Refresh>,
}

/// A timer, and how far ahead it goes.
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

    fn due_within(&self, time: Duration) -> u64 {
        self.first.iter().chain(&self.order).filter(|(_, delay)| *delay <= time).count() as u64
    }
}

fn delay(chance: &mut Chance) -> Duration {
    Duration::from_nanos(chance.within(&NANOS))
}

#[inline]
fn refresh<C: Connections>(connections: &mut C, (at, delay): Refresh) {
    connections.arm(at, delay);
}
