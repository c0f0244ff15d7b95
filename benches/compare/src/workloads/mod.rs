//! The workloads. Each has a file, which lists the contestants that take part.

mod axum;
mod burst;
mod busy;
mod cache;
mod closures;
mod draws;
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

use crate::workload::{Family, Workload};
use draws::{HOUR, LONG, below};

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

pub(crate) fn known(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

/// Returns the family of a workload. `Family::Former` for a name that only old results have.
pub(crate) fn family_of(name: &str) -> Family {
    known(name).map_or(Family::Former, |workload| workload.family)
}

/// Returns whether the full-size table of a workload and case has a figure of `contestant` in `column`.
#[cfg(test)]
pub(crate) fn measures(workload: &str, case: &str, contestant: &str, column: &str) -> bool {
    use crate::scale::Scale;
    let Some(workload) = WORKLOADS.iter().find(|known| known.name == workload) else { return false };
    let cases = (workload.cases)(Scale::Full);
    let case = cases.iter().find(|known| known.name == case);
    case.is_some_and(|case| (workload.columns)(case).iter().any(|known| known.key == column))
        && (workload.entrants)().iter().any(|entrant| entrant.name == contestant)
}
