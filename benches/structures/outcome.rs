//! What was found: a table for each measure, structures down and populations across.

use crate::contestant::Contestant;
use crate::report::{Report, Samples, markdown};
use crate::workload::Workload;
use serde_json::{Value, json};
use std::fmt;

/// A table's heading, and its key in what a child found.
const MEASURES: [(&str, &str); 8] = [
    ("Insert, from none to all (ns)", "fill"),
    ("Insert in a cancelled one's place (ns)", "insert"),
    ("Cancel in random order (ns)", "cancel"),
    ("A tick with nothing due (ns)", "tick"),
    ("Expiry, a tick at a time (ns a timer)", "expire"),
    ("Expiry, in steps of one timer or more (ns a timer)", "expire_in_steps"),
    ("Resident memory (bytes a timer)", "bytes"),
    ("Latest firing (ticks of 1 ms)", "latest"),
];

pub(crate) struct Outcome {
    workload: Workload,
    populations: Vec<usize>,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    cells: Vec<Cell>,
}

enum Cell {
    /// For each of [`MEASURES`].
    Measured(Vec<Samples>),
    Refused(String),
}

impl Outcome {
    pub(crate) fn new(workload: Workload, populations: Vec<usize>, contestants: &[Contestant]) -> Self {
        let row = |contestant: &Contestant| {
            let cell = |&timers: &usize| match contestant.limits.refuses(&workload.demand(timers)) {
                Some(reason) => Cell::Refused(reason),
                None => Cell::Measured(vec![Samples::default(); MEASURES.len()]),
            };
            Row { name: contestant.name, cells: populations.iter().map(cell).collect() }
        };
        let rows = contestants.iter().map(row).collect();
        Self { workload, populations, rows }
    }

    pub(crate) fn is_refused(&self, contestant: usize, population: usize) -> bool {
        matches!(self.rows[contestant].cells[population], Cell::Refused(_))
    }

    /// Takes in what a child found.
    pub(crate) fn add(&mut self, contestant: usize, population: usize, found: &Value) {
        if let Cell::Measured(measures) = &mut self.rows[contestant].cells[population] {
            for (samples, (_, key)) in measures.iter_mut().zip(MEASURES) {
                found[key].as_f64().into_iter().for_each(|figure| samples.push(figure));
            }
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut json = json!({ "title": self.workload.title() });
        let columns: Vec<String> = self.populations.iter().map(ToString::to_string).collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        for (measure, (heading, key)) in MEASURES.iter().enumerate() {
            let mut report = Report::new(*heading, &columns);
            let mut refused = json!({});
            for row in &self.rows {
                let samples = row.cells.iter().map(|cell| match cell {
                    Cell::Measured(measures) => measures[measure].clone(),
                    Cell::Refused(_) => Samples::default(),
                });
                report.row(row.name, samples.collect());
                for (column, cell) in columns.iter().zip(&row.cells) {
                    if let Cell::Refused(reason) = cell {
                        refused[row.name][column] = reason.as_str().into();
                    }
                }
            }
            report.details(json!({ "refused": refused }));
            json[key] = report.to_json();
        }
        json
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}", self.workload.title())?;
        let columns = self.populations.iter().map(|timers| format!("{timers} timers"));
        let header: Vec<String> = std::iter::once(String::new()).chain(columns).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        for (measure, (heading, _)) in MEASURES.iter().enumerate() {
            let mut table = markdown(&header);
            for row in &self.rows {
                let cells = row.cells.iter().map(|cell| match cell {
                    Cell::Measured(measures) => measures[measure].to_string(),
                    Cell::Refused(reason) => reason.clone(),
                });
                table.add_row(std::iter::once(row.name.to_owned()).chain(cells));
            }
            writeln!(f, "\n### {heading}\n\n{table}")?;
        }
        Ok(())
    }
}
