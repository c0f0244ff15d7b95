//! A request's timeout: armed when it comes and disarmed when it is answered, over connections in random order.

use super::owned::{self, Work, in_iterations};
use super::{Case, Entrant, Workload, below};
use crate::baselines::{LazyHeap, Locked, Tree};
use crate::common::{Chance, ThroughHandle};
use crate::contestants::{
    ById, Connections, FuturesDelay, LockedOwnNow, OursTimer, Owned, TokioFar, TokioSleep,
};
use crate::sizes::Sizes;
use std::ops::Range;
use std::time::Duration;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "rearm",
    what: "arm a timeout of 5 s and disarm it, connections in random order (ns a pair and thread)",
    cases,
    entrants: &[
        entrant::<OursTimer<false>>(),
        entrant::<OursTimer<true>>(),
        entrant::<ById<ThroughHandle>>(),
        entrant::<TokioSleep<false>>(),
        entrant::<TokioSleep<true>>(),
        entrant::<TokioFar<false>>(),
        entrant::<TokioFar<true>>(),
        entrant::<FuturesDelay>(),
        entrant::<ById<Locked<LazyHeap>>>(),
        entrant::<LockedOwnNow<LazyHeap>>(),
        entrant::<ById<Locked<Tree>>>(),
        entrant::<LockedOwnNow<Tree>>(),
    ],
};

const THREADS: [usize; 2] = [1, 2];
const TIMEOUT: Duration = Duration::from_secs(5);

const fn entrant<C: Owned>() -> Entrant {
    Entrant::new::<C>(owned::measure::<C, Requests>)
}

fn cases(sizes: &Sizes) -> Vec<Case> {
    THREADS
        .map(|threads| Case {
            threads,
            timers: sizes.connections,
            operations: sizes.requests,
            settle: sizes.settle,
        })
        .into()
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

    fn due_within(&self, time: Duration) -> u64 {
        if time < TIMEOUT { 0 } else { (2 * self.connections.len() + self.order.len()) as u64 }
    }
}

#[inline]
fn request<C: Connections>(connections: &mut C, at: u32) {
    connections.arm(at, TIMEOUT);
    connections.disarm(at);
}
