//! Samples, tables and verdicts.

use comfy_table::{Table, presets};
use serde_json::{Value, json};
use std::fmt;

/// One figure of one contestant, once a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }

    /// NaN when there are none.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        match (sorted.get(sorted.len() / 2), sorted.len().is_multiple_of(2)) {
            (Some(upper), true) => f64::midpoint(sorted[sorted.len() / 2 - 1], *upper),
            (Some(middle), false) => *middle,
            (None, _) => f64::NAN,
        }
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

/// The median, and what it lies between.
impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = |value: f64| {
            let is_short = value.fract() != 0.0 && value.abs() < 100.0;
            if is_short { format!("{value:.2}") } else { format!("{value:.0}") }
        };
        match [self.median(), self.min(), self.max()].map(figure) {
            _ if self.0.is_empty() => f.write_str("-"),
            [median, min, max] if min == max => f.write_str(&median),
            [median, min, max] => write!(f, "{median} ({min}..{max})"),
        }
    }
}

/// What one goal came to.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    goal: String,
    measured: String,
    pub(crate) is_met: bool,
}

/// What one section found.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<Samples>)>,
    pub(crate) verdicts: Vec<Verdict>,
    notes: Vec<String>,
    /// What children reported beyond the columns.
    details: Value,
}

impl Report {
    pub(crate) fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
            verdicts: Vec::new(),
            notes: Vec::new(),
            details: Value::Null,
        }
    }

    pub(crate) fn row(&mut self, contestant: impl Into<String>, figures: Vec<Samples>) {
        assert_eq!(figures.len(), self.columns.len());
        self.rows.push((contestant.into(), figures));
    }

    /// The figure of a contestant in a column.
    pub(crate) fn samples(&self, contestant: &str, column: usize) -> &Samples {
        let (_, figures) = self.rows.iter().find(|row| row.0 == contestant).expect("a row of this report");
        &figures[column]
    }

    pub(crate) fn median(&self, contestant: &str, column: usize) -> f64 {
        self.samples(contestant, column).median()
    }

    /// `slower` over `faster` in `column`, to be at least `wanted`.
    pub(crate) fn want_ratio(&mut self, goal: &str, column: usize, faster: &str, slower: &str, wanted: f64) {
        let ratio = self.median(slower, column) / self.median(faster, column);
        self.verdict(
            format!("{goal}: {faster} at least {wanted} times faster than {slower}"),
            format!("{ratio:.2}"),
            ratio >= wanted,
        );
    }

    pub(crate) fn verdict(&mut self, goal: impl Into<String>, measured: impl Into<String>, is_met: bool) {
        self.verdicts.push(Verdict { goal: goal.into(), measured: measured.into(), is_met });
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(crate) fn details(&mut self, details: Value) {
        self.details = details;
    }

    pub(crate) fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|(contestant, figures)| {
            let figures: serde_json::Map<String, Value> = self
                .columns
                .iter()
                .zip(figures)
                .map(|(column, samples)| {
                    let figure = json!({ "median": samples.median(), "samples": samples.0 });
                    (column.clone(), figure)
                })
                .collect();
            (contestant.clone(), Value::Object(figures))
        });
        let verdicts = self.verdicts.iter().map(
            |verdict| json!({ "goal": verdict.goal, "measured": verdict.measured, "met": verdict.is_met }),
        );
        json!({
            "title": self.title,
            "figures": rows.collect::<serde_json::Map<_, _>>(),
            "goals": verdicts.collect::<Vec<_>>(),
            "notes": self.notes,
            "details": self.details,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n", self.title)?;
        let header: Vec<&str> = std::iter::once("").chain(self.columns.iter().map(String::as_str)).collect();
        let mut figures = markdown(&header);
        for (contestant, samples) in &self.rows {
            let cells = samples.iter().map(ToString::to_string);
            figures.add_row(std::iter::once(contestant.clone()).chain(cells));
        }
        writeln!(f, "{figures}\n")?;
        if !self.verdicts.is_empty() {
            let mut goals = markdown(&["goal", "measured", "met"]);
            for Verdict { goal, measured, is_met } in &self.verdicts {
                goals.add_row([goal.as_str(), measured, if *is_met { "yes" } else { "no" }]);
            }
            writeln!(f, "{goals}\n")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}\n"))
    }
}

pub(crate) fn markdown(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table
}
