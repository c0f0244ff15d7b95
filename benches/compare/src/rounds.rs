//! The rounds. In each round all contestants take their turns, so noise affects all of them alike.

use crate::case::Case;
use crate::results::{Outcome, Row};
use crate::scale::Scale;
use crate::steady;
use crate::turn::{self, Ending};
use crate::workload::{Entrant, Family, Turn, Workload};
use indicatif::{ProgressBar, ProgressStyle};

/// A workload in one case, with the rounds that were played.
pub(crate) struct Contest {
    scale: Scale,
    rounds: usize,
    case: Case,
    entrants: Vec<Entrant>,
    /// Whether all of the workload's contestants take part in the run.
    is_whole: bool,
    /// Whether a standstill of the machine would spoil the figures.
    needs_steadiness: bool,
    pub(crate) outcome: Outcome,
}

/// Selects the workloads, cases or contestants with the name `filter`. Without an exact match, selects all whose names
/// contain `filter`. Each contest gets `rounds` rounds, or the workload's own number.
pub(crate) fn select(
    workloads: &[Workload],
    scale: Scale,
    filter: &str,
    rounds: Option<u16>,
) -> Vec<Contest> {
    let is_a_name = names(workloads, scale).any(|name| name == filter);
    let is_meant = |name: &str| if is_a_name { name == filter } else { name.contains(filter) };
    let mut contests = Vec::new();
    for workload in workloads {
        for case in (workload.cases)(scale) {
            let is_whole = is_meant(workload.name) || is_meant(&case.name);
            let mut entrants = (workload.entrants)();
            entrants.retain(|entrant| is_whole || is_meant(&entrant.name));
            if !entrants.is_empty() {
                let rounds = rounds.map_or((workload.rounds)(scale, &case), usize::from);
                contests.push(Contest::new(workload, case, entrants, (scale, rounds), is_whole));
            }
        }
    }
    contests
}

/// Returns the names of all workloads, cases and contestants.
fn names(workloads: &[Workload], scale: Scale) -> impl Iterator<Item = String> {
    workloads.iter().flat_map(move |workload| {
        let cases = (workload.cases)(scale).into_iter().map(|case| case.name);
        let contestants = (workload.entrants)().into_iter().map(|entrant| entrant.name);
        [workload.name.to_owned()].into_iter().chain(cases).chain(contestants)
    })
}

impl Contest {
    fn new(
        workload: &Workload,
        case: Case,
        entrants: Vec<Entrant>,
        (scale, rounds): (Scale, usize),
        is_whole: bool,
    ) -> Self {
        let rows = entrants.iter().map(|entrant| Row {
            contestant: entrant.name.clone(),
            clock: entrant.clock.clone(),
            is_ours: entrant.is_ours,
            note: None,
            numbers: Default::default(),
            series: Default::default(),
        });
        let outcome = Outcome {
            workload: workload.name.to_owned(),
            operation: workload.operation.to_owned(),
            case: case.clone(),
            columns: (workload.columns)(&case),
            rows: rows.collect(),
            commit: None,
            processor: None,
        };
        let has_latencies = matches!(workload.family, Family::Firing | Family::Servers);
        let needs_steadiness = has_latencies && scale == Scale::Full;
        Self { scale, rounds, case, entrants, is_whole, needs_steadiness, outcome }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    fn turns(&self) -> usize {
        self.rounds * self.entrants.len()
    }

    /// Plays a round: measures each contestant once, and adds a figure to each contestant's row. Each round begins with
    /// a different contestant. Returns messages of failures.
    fn play(&mut self, round: usize, progress: &ProgressBar) -> Vec<String> {
        let mut failures = Vec::new();
        // The turn before belonged to another contest, perhaps to a foreign program. Such a program has gigabytes of
        // memory, or hundreds of megabytes as an event loop in C.
        let mut follows_foreign = true;
        for turn in 0..self.entrants.len() {
            let at = (round + turn) % self.entrants.len();
            let (entrant, row) = (&self.entrants[at], &mut self.outcome.rows[at]);
            let workload = &self.outcome.workload;
            progress.set_message(format!("{workload}, {}, {}", self.case.name, entrant.name));
            if row.note.is_none() {
                if self.needs_steadiness && follows_foreign {
                    steady::wait();
                }
                follows_foreign = matches!(entrant.turn, Turn::Foreign(_));
                match take(entrant, workload, &self.case, self.scale) {
                    Ending::Figures(figures) => row.add(figures),
                    Ending::Cannot(why) => row.note = Some(why),
                    Ending::Failed(how) => {
                        failures.push(format!("{workload}, {}, {}: {how}", self.case.name, entrant.name));
                        row.note = Some(format!("failed: {how}"));
                    }
                }
            }
            progress.inc(1);
        }
        failures
    }
}

fn take(entrant: &Entrant, workload: &str, case: &Case, scale: Scale) -> Ending {
    match entrant.turn {
        Turn::Here(_) => turn::here(workload, &entrant.name, case),
        Turn::Foreign(program) => turn::foreign(program, workload, case, scale),
        Turn::Never(why) => Ending::Cannot(why.to_owned()),
    }
}

/// Plays all rounds of all contests. Each contest plays its first round, then each contest plays its second round, and
/// so on. Returns a message for each failure.
pub(crate) fn run(contests: &mut [Contest]) -> Vec<String> {
    let turns: usize = contests.iter().map(Contest::turns).sum();
    // The bar is drawn only between turns. A thread that draws it would run beside the contestants.
    let progress = ProgressBar::new(turns as u64).with_style(style());
    let rounds = contests.iter().map(|contest| contest.rounds).max().unwrap_or(0);
    let mut failures = Vec::new();
    for round in 0..rounds {
        for contest in contests.iter_mut().filter(|contest| round < contest.rounds) {
            for failure in contest.play(round, &progress) {
                progress.suspend(|| eprintln!("FAILED {failure}"));
                failures.push(failure);
            }
        }
    }
    progress.finish_and_clear();
    failures
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{pos}/{len} [{bar:30}] {elapsed}, {eta} left: {msg}")
        .expect("a template with known keys")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::WORKLOADS;

    fn selected(filter: &str) -> Vec<(String, String, usize)> {
        let contests = select(WORKLOADS, Scale::Full, filter, Some(1));
        contests
            .into_iter()
            .map(|contest| (contest.outcome.workload, contest.case.name, contest.entrants.len()))
            .collect()
    }

    fn workloads(filter: &str) -> Vec<String> {
        let mut workloads: Vec<String> =
            selected(filter).into_iter().map(|(workload, ..)| workload).collect();
        workloads.dedup();
        workloads
    }

    #[test]
    fn a_whole_name_means_nothing_that_only_contains_it() {
        assert_eq!(workloads("pair"), ["pair"], "the case of `storm` has pairs in its name");
        assert_eq!(workloads("pai"), ["pair", "storm", "engines"]);
        assert_eq!(selected("20,000 timers, 2 threads burn").len(), 1);
        assert!(selected("engine, inline").iter().all(|(.., entrants)| *entrants == 1));
    }

    #[test]
    fn only_latencies_in_full_size_wait_for_a_steady_machine() {
        let waiting = |scale| {
            let contests = select(WORKLOADS, scale, "", None);
            let waiting = contests.into_iter().filter(|contest| contest.needs_steadiness);
            let mut workloads: Vec<String> = waiting.map(|contest| contest.outcome.workload).collect();
            workloads.dedup();
            workloads
        };
        assert_eq!(waiting(Scale::Full), ["expiry", "burst", "mixed", "busy", "proxy", "requests", "axum"]);
        assert!(waiting(Scale::Quick).is_empty() && waiting(Scale::Smoke).is_empty());
    }

    #[test]
    fn a_part_of_a_name_means_all_that_contain_it() {
        assert_eq!(workloads("threads burn"), ["busy"]);
        assert_eq!(workloads("").len(), WORKLOADS.len());
        assert!(selected("called so by nobody").is_empty());
    }
}
