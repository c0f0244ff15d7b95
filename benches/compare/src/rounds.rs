//! The rounds: in each, all contestants take their turns, so that noise hits all alike.

use crate::outcome::Outcome;
use crate::sizes::Sizes;
use crate::workloads::{Entrant, WORKLOADS};
use indicatif::{ProgressBar, ProgressStyle};

/// What is to be measured: workloads, or contestants, whose names contain `filter`.
pub(crate) fn select(sizes: &Sizes, filter: &str) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for workload in WORKLOADS {
        let is_chosen = |entrant: &&Entrant| workload.name.contains(filter) || entrant.name.contains(filter);
        let entrants: Vec<Entrant> = workload.entrants.iter().filter(is_chosen).copied().collect();
        if !entrants.is_empty() {
            let cases = (workload.cases)(sizes);
            outcomes.extend(cases.into_iter().map(|case| Outcome::new(workload, case, &entrants)));
        }
    }
    outcomes
}

/// Adds a figure to each row in each round. Each round begins with another contestant.
pub(crate) fn run(outcomes: &mut [Outcome], rounds: usize) {
    let turns = outcomes.iter().map(|outcome| outcome.rows.len()).sum::<usize>() * rounds;
    // Drawn between turns only: a thread of its own would run beside the contestants.
    let progress = ProgressBar::new(turns as u64).with_style(style());
    for round in 0..rounds {
        for outcome in &mut *outcomes {
            let Outcome { case, rows, .. } = outcome;
            let first = round % rows.len();
            for turn in 0..rows.len() {
                let at = (first + turn) % rows.len();
                let row = &mut rows[at];
                progress.set_message(format!("round {}: {}, {}", round + 1, row.entrant.name, case.name()));
                row.nanos.push((row.entrant.measure)(case));
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{pos}/{len} [{bar:30}] {elapsed} of about {duration}, {msg}")
        .expect("a template with known keys")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Scale;

    #[test]
    fn every_contestant_runs_in_every_workload() {
        let mut outcomes = select(&Sizes::of(Scale::Smoke), "");
        run(&mut outcomes, 2);
        assert!(outcomes.len() >= WORKLOADS.len());
        for row in outcomes.iter().flat_map(|outcome| &outcome.rows) {
            assert_eq!(row.nanos.len(), 2);
            assert!(row.nanos.iter().all(|nanos| *nanos > 0.0), "{}: {:?}", row.entrant.name, row.nanos);
        }
    }

    #[test]
    fn a_filter_is_part_of_a_workloads_or_a_contestants_name() {
        let sizes = Sizes::of(Scale::Smoke);
        let rows = |filter| select(&sizes, filter).iter().map(|outcome| outcome.rows.len()).sum::<usize>();
        let all = rows("");
        assert_eq!(rows("rearm"), 2 * WORKLOADS[0].entrants.len());
        assert!(rows("tokio") > 0 && rows("tokio") < all);
        assert_eq!(rows("nobody"), 0);
    }
}
