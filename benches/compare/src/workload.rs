//! What is measured: workloads, their cases, and who takes part.

use crate::case::Case;
use crate::contestants::{Contestant, Reads};
use crate::foreign::Program;
use crate::results::{Column, Figures};
use clap::ValueEnum;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scale {
    /// What is published
    Full,
    /// A few minutes: that it works, and a first impression
    Quick,
    /// Seconds: that it runs at all
    Smoke,
}

impl Scale {
    pub(crate) fn pick<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Smoke => smoke,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.pick("full", "quick", "smoke")
    }
}

/// The same work for all its entrants.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// What is done, and which figure is taken.
    pub(crate) what: &'static str,
    pub(crate) cases: fn(Scale) -> Vec<Case>,
    pub(crate) columns: fn(&Case) -> Vec<Column>,
    /// Rounds in which the entrants take turns.
    pub(crate) rounds: fn(Scale, &Case) -> usize,
    pub(crate) entrants: fn() -> Vec<Entrant>,
}

/// A contestant in a workload.
pub(crate) struct Entrant {
    pub(crate) name: String,
    /// Which clock is read inside the timed region, and how often.
    pub(crate) clock: String,
    pub(crate) is_ours: bool,
    pub(crate) turn: Turn,
}

/// How a contestant takes a turn, always in a process of its own.
pub(crate) enum Turn {
    /// This program, started again. It checks its own result, and panics.
    Here(fn(&Case) -> Figures),
    Foreign(&'static Program),
    /// Why it cannot.
    Never(&'static str),
}

impl Entrant {
    pub(crate) fn new<C: Contestant>(turn: fn(&Case) -> Figures) -> Self {
        let turn = C::WHY_NOT.map_or(Turn::Here(turn), Turn::Never);
        Self { name: C::NAME.to_owned(), clock: C::READS.to_string(), is_ours: C::IS_OURS, turn }
    }

    /// One that only this workload knows.
    pub(crate) fn here(name: &str, is_ours: bool, turn: fn(&Case) -> Figures) -> Self {
        Self { name: name.to_owned(), clock: String::new(), is_ours, turn: Turn::Here(turn) }
    }

    pub(crate) fn foreign(program: &'static Program) -> Self {
        let clock = Reads::EachArm(program.clock).to_string();
        Self { name: program.name.to_owned(), clock, is_ours: false, turn: Turn::Foreign(program) }
    }

    pub(crate) fn never(name: &str, why: &'static str) -> Self {
        Self { name: name.to_owned(), clock: String::new(), is_ours: false, turn: Turn::Never(why) }
    }
}

/// A figure for each number of threads.
pub(crate) fn columns_by_threads(case: &Case) -> Vec<Column> {
    let column = |&threads: &usize| {
        let s = if threads == 1 { "" } else { "s" };
        Column::new(threads_key(threads), format!("{threads} thread{s}"), "ns")
    };
    case.threads.iter().map(column).collect()
}

pub(crate) fn threads_key(threads: usize) -> String {
    format!("t{threads}")
}
