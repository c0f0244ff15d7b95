//! What is measured: a file for each workload, with the contestants that take part in it.

mod owned;
pub(crate) mod reach;
mod rearm;
mod refresh;
mod start;
mod timeout;

use crate::common::Chance;
use crate::contestants::{Contestant, Reads};
use crate::sizes::Sizes;
use std::time::Duration;

/// All that are timed, in the order of the report; [`reach`] is not.
pub(crate) const WORKLOADS: &[Workload] = &[rearm::WORKLOAD, refresh::WORKLOAD, timeout::WORKLOAD];

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// What one operation is.
    pub(crate) what: &'static str,
    pub(crate) cases: fn(&Sizes) -> Vec<Case>,
    pub(crate) entrants: &'static [Entrant],
}

/// A workload at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) threads: usize,
    /// Timers of each thread.
    pub(crate) timers: usize,
    /// Operations that are timed, of the thread which is done first.
    pub(crate) operations: usize,
    pub(crate) settle: Duration,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let Self { threads, timers, .. } = self;
        match timers {
            0 => format!("threads: {threads}"),
            _ => format!("threads: {threads}, timers of each: {timers}"),
        }
    }
}

/// A contestant in a workload.
#[derive(Clone, Copy)]
pub(crate) struct Entrant {
    pub(crate) name: &'static str,
    pub(crate) reads: Reads,
    pub(crate) is_ours: bool,
    /// Runs it once and checks what it did; the ns that an operation takes, by thread.
    pub(crate) measure: fn(&Case) -> f64,
}

impl Entrant {
    const fn new<C: Contestant>(measure: fn(&Case) -> f64) -> Self {
        Self { name: C::NAME, reads: C::READS, is_ours: C::IS_OURS, measure }
    }
}

/// The index of one of `count` timers.
fn below(chance: &mut Chance, count: usize) -> u32 {
    u32::try_from(chance.within(&(0..count as u64))).expect("fewer than 2^32 timers")
}
