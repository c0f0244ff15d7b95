//! The workloads. Each has a file, which lists the contestants that take part.

mod axum;
mod burst;
mod busy;
mod cache;
mod closures;
mod dropins;
mod engines;
mod expiry;
mod floor;
mod growth;
mod idle;
mod keys;
mod load;
mod loops;
mod memory;
mod mixed;
mod owned;
mod pair;
mod pairs;
mod periodic;
mod proxy;
mod queue;
mod reach;
mod rearm;
mod refresh;
mod requests;
mod retries;
mod shards;
mod shots;
mod start;
mod storm;
mod structures;
mod timeout;
mod touch;
mod wrk;

pub(crate) use load::play as play_load;
pub(crate) use wrk::version as version_of_wrk;

use crate::common::Chance;
use crate::workload::Workload;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use tokio::net::{TcpListener, TcpSocket};

/// All workloads of the book, in the order of the page.
pub(crate) const WORKLOADS: &[Workload] = &[
    pair::WORKLOAD,
    rearm::WORKLOAD,
    refresh::WORKLOAD,
    loops::WORKLOAD,
    timeout::WORKLOAD,
    dropins::WORKLOAD,
    growth::WORKLOAD,
    shards::WORKLOAD,
    expiry::WORKLOAD,
    burst::WORKLOAD,
    mixed::WORKLOAD,
    busy::WORKLOAD,
    proxy::WORKLOAD,
    requests::WORKLOAD,
    axum::WORKLOAD,
    memory::WORKLOAD,
    storm::WORKLOAD,
    idle::WORKLOAD,
    reach::WORKLOAD,
    closures::WORKLOAD,
    keys::WORKLOAD,
    periodic::WORKLOAD,
    touch::WORKLOAD,
    cache::WORKLOAD,
    queue::WORKLOAD,
    retries::WORKLOAD,
    engines::WORKLOAD,
    structures::WORKLOAD,
    floor::WORKLOAD,
];

/// The range of delays, in nanoseconds, with which timers stay pending until the end of the measurement.
const LONG: Range<u64> = 10_000_000_000..60_000_000_000;
const HOUR: u64 = 3_600_000_000_000;

/// Listens on a free port of this machine, with room for `count` connections that nobody has accepted yet.
fn listen(count: usize) -> (TcpListener, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("the system gives us a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let listener = socket.listen(u32::try_from(count).expect("some connections")).expect("it is bound");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Returns a random number below `count`: the index of a timer.
fn below(chance: &mut Chance, count: usize) -> u32 {
    u32::try_from(chance.within(&(0..count as u64))).expect("fewer than 2^32 timers")
}

/// Returns whether the full-size table of a workload and case has a figure of `contestant` in `column`.
#[cfg(test)]
pub(crate) fn measures(workload: &str, case: &str, contestant: &str, column: &str) -> bool {
    use crate::workload::Scale;
    let Some(workload) = WORKLOADS.iter().find(|known| known.name == workload) else { return false };
    let cases = (workload.cases)(Scale::Full);
    let case = cases.iter().find(|known| known.name == case);
    case.is_some_and(|case| (workload.columns)(case).iter().any(|known| known.key == column))
        && (workload.entrants)().iter().any(|entrant| entrant.name == contestant)
}
