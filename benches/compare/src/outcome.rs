//! What one workload came to at one size, as a table and as raw figures.

use crate::report::{Samples, markdown};
use crate::workloads::{Case, Entrant, Workload};
use serde_json::{Value, json};
use std::fmt;

/// A row whose figures lie further apart, by its median, says so.
const MOST_SPREAD: f64 = 0.25;

pub(crate) struct Outcome {
    workload: &'static Workload,
    pub(crate) case: Case,
    pub(crate) rows: Vec<Row>,
}

/// One contestant's figures.
pub(crate) struct Row {
    pub(crate) entrant: Entrant,
    /// ns an operation and thread, once a round.
    pub(crate) nanos: Vec<f64>,
}

impl Row {
    fn samples(&self) -> Samples {
        self.nanos.iter().copied().collect()
    }

    /// The distance of the greatest from the least, by the median.
    fn spread(&self) -> f64 {
        let samples = self.samples();
        (samples.max() - samples.min()) / samples.median()
    }

    fn is_disturbed(&self) -> bool {
        self.spread() > MOST_SPREAD
    }
}

impl Outcome {
    pub(crate) fn new(workload: &'static Workload, case: Case, entrants: &[Entrant]) -> Self {
        let rows = entrants.iter().map(|&entrant| Row { entrant, nanos: Vec::new() }).collect();
        Self { workload, case, rows }
    }

    /// How many times ours the row takes; ours being that which reads its clock as often.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let ours = self
            .rows
            .iter()
            .find(|ours| ours.entrant.is_ours && ours.entrant.reads.is_like(row.entrant.reads))?;
        Some(row.samples().median() / ours.samples().median())
    }

    pub(crate) fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let samples = row.samples();
            json!({
                "contestant": row.entrant.name,
                "clock": row.entrant.reads.to_string(),
                "median": samples.median(),
                "min": samples.min(),
                "max": samples.max(),
                "disturbed": row.is_disturbed(),
                "ratio_to_ours": self.ratio(row),
                "ns": row.nanos,
            })
        });
        json!({
            "workload": self.workload.name,
            "operation": self.workload.what,
            "threads": self.case.threads,
            "timers_of_each_thread": self.case.timers,
            "operations_of_the_first_thread": self.case.operations,
            "contestants": rows.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}: {}; {}\n", self.workload.name, self.workload.what, self.case.name())?;
        let mut table =
            markdown(&["contestant", "clock read", "median ns", "min..max", "ratio to ours", "note"]);
        for row in &self.rows {
            let samples = row.samples();
            table.add_row([
                row.entrant.name.to_owned(),
                row.entrant.reads.to_string(),
                format!("{:.1}", samples.median()),
                format!("{:.1}..{:.1} ({:.0} %)", samples.min(), samples.max(), row.spread() * 100.0),
                self.ratio(row).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
                if row.is_disturbed() { "disturbed" } else { "" }.to_owned(),
            ]);
        }
        writeln!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::{Scale, Sizes};
    use crate::workloads::WORKLOADS;

    #[test]
    fn a_row_is_disturbed_when_its_spread_is_above_a_quarter() {
        let workload = &WORKLOADS[0];
        let case = (workload.cases)(&Sizes::of(Scale::Smoke))[0];
        let mut outcome = Outcome::new(workload, case, &workload.entrants[..2]);
        outcome.rows[0].nanos = vec![90.0, 100.0, 115.0];
        outcome.rows[1].nanos = vec![90.0, 100.0, 116.0];
        assert_eq!(outcome.rows.iter().map(Row::is_disturbed).collect::<Vec<_>>(), [false, true]);
        assert_eq!(outcome.to_string().matches("disturbed").count(), 1);
        assert_eq!(outcome.to_json()["contestants"][1]["median"], 100.0);
    }
}
