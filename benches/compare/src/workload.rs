//! Workloads, their cases, and the contestants that take part.

use crate::case::Case;
use crate::contestants::{Contestant, ServerTimers};
use crate::foreign::Program;
use crate::results::{Column, Figures};
use crate::scale::Scale;

/// A group of workloads. The tables of one group are in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Arming,
    Firing,
    Servers,
    Memory,
    Tasks,
    Structures,
    /// Workloads that only old results have.
    Former,
}

impl Family {
    /// All families of workloads, in the order of the page.
    pub(crate) const ALL: [Self; 7] = [
        Self::Arming,
        Self::Firing,
        Self::Servers,
        Self::Memory,
        Self::Tasks,
        Self::Structures,
        Self::Former,
    ];

    /// Returns the name of the family's file in the folder of tables.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Arming => "arming.md",
            Self::Firing => "firing.md",
            Self::Servers => "servers.md",
            Self::Memory => "memory.md",
            Self::Tasks => "tasks.md",
            Self::Structures => "structures.md",
            Self::Former => "former.md",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Arming => "Arm, move, cancel",
            Self::Firing => "Fire: lateness and processor time",
            Self::Servers => "Servers on tokio: a timeout for each wait",
            Self::Memory => "Memory, and idle time",
            Self::Tasks => "Futures, tasks, keys, maps",
            Self::Structures => "Classic structures, and the machine's floor",
            Self::Former => "Workloads that the book has no more",
        }
    }
}

/// A workload. All its entrants do the same operations.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// The workload's operation and the measured figure, in words.
    pub(crate) operation: &'static str,
    pub(crate) family: Family,
    /// Markdown above the workload's tables: its checks, and notes on the contestants.
    pub(crate) about: &'static str,
    /// Markdown below the workload's tables: the limits of the figures. The text has places for figures
    /// (`publish::text`).
    pub(crate) reading: &'static str,
    pub(crate) cases: fn(Scale) -> Vec<Case>,
    pub(crate) columns: fn(&Case) -> Vec<Column>,
    /// Returns the number of rounds in which the entrants take turns.
    pub(crate) rounds: fn(Scale, &Case) -> usize,
    pub(crate) entrants: fn() -> Vec<Entrant>,
}

/// A contestant that takes part in a certain workload.
pub(crate) struct Entrant {
    pub(crate) name: String,
    /// The clock that the measured operations read, and how often.
    pub(crate) clock: String,
    pub(crate) is_ours: bool,
    pub(crate) turn: Turn,
}

/// The way to measure a contestant once. Each measurement runs in its own process.
pub(crate) enum Turn {
    /// A new process of this program calls the function. The function panics if the contestant fails a check.
    Here(fn(&Case) -> Figures),
    Foreign(&'static Program),
    /// The contestant cannot take part. The text is the reason.
    Never(&'static str),
}

impl Entrant {
    pub(crate) fn new<C: Contestant>(turn: fn(&Case) -> Figures) -> Self {
        let turn = C::WHY_NOT.map_or(Turn::Here(turn), Turn::Never);
        Self { name: C::NAME.to_owned(), clock: C::READS.to_string(), is_ours: C::IS_OURS, turn }
    }

    /// Makes an entrant for the timers of a server.
    pub(crate) fn server<T: ServerTimers>(turn: fn(&Case) -> Figures) -> Self {
        let turn = T::WHY_NOT.map_or(Turn::Here(turn), Turn::Never);
        Self { name: T::NAME.to_owned(), clock: String::new(), is_ours: T::IS_OURS, turn }
    }

    /// Makes an entrant for a contestant that takes part in only one workload.
    pub(crate) fn here(name: &str, is_ours: bool, turn: fn(&Case) -> Figures) -> Self {
        Self { name: name.to_owned(), clock: String::new(), is_ours, turn: Turn::Here(turn) }
    }

    pub(crate) fn foreign(program: &'static Program) -> Self {
        Self {
            name: program.name.to_owned(),
            clock: program.reads.to_string(),
            is_ours: program.is_ours,
            turn: Turn::Foreign(program),
        }
    }

    pub(crate) fn never(name: &str, why: &'static str) -> Self {
        Self { name: name.to_owned(), clock: String::new(), is_ours: false, turn: Turn::Never(why) }
    }
}

/// Returns a column for each number of threads in the case.
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
