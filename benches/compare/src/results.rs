//! The raw results: a run writes them, and all tables and plots are made from them.

use crate::case::Case;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::{fs, io};

/// The results of a run of the book.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    /// The machine: its processor, its kernel, its toolchain and the commit.
    pub(crate) machine: Value,
    /// The versions of other crates, of the Java virtual machine and of other programs.
    pub(crate) versions: BTreeMap<String, String>,
    /// The size of the run. Only figures of a `full` run mean something.
    pub(crate) scale: String,
    /// The duration of the run, in seconds.
    pub(crate) seconds: u64,
    pub(crate) outcomes: Vec<Outcome>,
}

/// The results of a single workload in a single case.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) workload: String,
    /// The workload's operation, and the measured figure, in words.
    #[serde(rename = "what")]
    pub(crate) operation: String,
    pub(crate) case: Case,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// The commit at which a later run measured the workload. `None` if the whole run measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// The processor of that later run, if it is another than that of the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) processor: Option<String>,
}

/// A figure that is measured for each contestant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Column {
    /// The key of the column in [`Row::numbers`].
    pub(crate) key: String,
    pub(crate) heading: String,
    pub(crate) unit: String,
}

/// The figures of a single contestant.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) contestant: String,
    /// The clock that the measured operations read, and how often.
    pub(crate) clock: String,
    pub(crate) is_ours: bool,
    /// The reason why figures are missing. `None` if all figures exist.
    pub(crate) note: Option<String>,
    /// The figures by the key of their column. Each column has a figure for each round.
    pub(crate) numbers: BTreeMap<String, Vec<f64>>,
    /// The series by name. A series has a list for each round, with a figure for each part of the time or for each
    /// quantile.
    pub(crate) series: BTreeMap<String, Vec<Vec<f64>>>,
}

/// The figures from one measurement of a contestant. Foreign programs print them as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) numbers: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) series: BTreeMap<String, Vec<f64>>,
}

impl Column {
    pub(crate) fn new(key: impl Into<String>, heading: impl Into<String>, unit: &str) -> Self {
        Self { key: key.into(), heading: heading.into(), unit: unit.to_owned() }
    }
}

impl Figures {
    pub(crate) fn number(mut self, key: impl Into<String>, figure: impl Into<Option<f64>>) -> Self {
        if let Some(figure) = figure.into() {
            self.numbers.insert(key.into(), figure);
        }
        self
    }

    pub(crate) fn series(mut self, key: impl Into<String>, figures: Vec<f64>) -> Self {
        self.series.insert(key.into(), figures);
        self
    }
}

impl Row {
    pub(crate) fn add(&mut self, figures: Figures) {
        for (key, number) in figures.numbers {
            self.numbers.entry(key).or_default().push(number);
        }
        for (key, series) in figures.series {
            self.series.entry(key).or_default().push(series);
        }
    }

    /// Returns the figures of the column `key`, a figure for each round.
    pub(crate) fn samples(&self, key: &str) -> Option<Samples> {
        let samples = self.numbers.get(key)?;
        (!samples.is_empty()).then(|| Samples::new(samples))
    }
}

/// The first words of a program's version text if the run has left that program out.
pub(crate) const LEFT_OUT: &str = "left out";

impl Results {
    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// Returns the results after a later run. The later run's workloads and cases replace the same workloads and cases.
    pub(crate) fn updated_by(mut self, later: Self) -> Self {
        let commit = later.machine["commit"].as_str().map(str::to_owned);
        let is_elsewhere = later.machine["processor"] != self.machine["processor"];
        let processor = later.machine["processor"].as_str().filter(|_| is_elsewhere).map(str::to_owned);
        for (program, version) in later.versions {
            // If the later run left a program out, the program keeps its earlier rows and its earlier version.
            if !version.starts_with(LEFT_OUT) || !self.versions.contains_key(&program) {
                self.versions.insert(program, version);
            }
        }
        for outcome in later.outcomes {
            let is_of_it =
                |old: &&mut Outcome| old.workload == outcome.workload && old.case.name == outcome.case.name;
            let old = self.outcomes.iter_mut().find(is_of_it);
            let outcome = Outcome { commit: commit.clone(), processor: processor.clone(), ..outcome };
            match old {
                Some(old) => *old = outcome,
                None => self.outcomes.push(outcome),
            }
        }
        self
    }

    /// Returns the results. If later runs at a single commit and on a single processor replaced all outcomes, the
    /// results get that commit and that processor. The whole run's duration becomes zero.
    pub(crate) fn of_one_commit_if_gathered(mut self) -> Self {
        let Some(first) = self.outcomes.first() else { return self };
        let (commit, processor) = (first.commit.clone(), first.processor.clone());
        let is_of_it = |outcome: &Outcome| outcome.commit == commit && outcome.processor == processor;
        if commit.is_some() && self.outcomes.iter().all(is_of_it) {
            for outcome in &mut self.outcomes {
                (outcome.commit, outcome.processor) = (None, None);
            }
            self.machine["commit"] = commit.into();
            if processor.is_some() {
                self.machine["processor"] = processor.into();
            }
            self.seconds = 0;
        }
        self
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), io::Error> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text + "\n")
    }
}

/// The figures of a contestant, a figure for each round. There is at least one figure.
#[derive(Clone, Debug)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// The largest spread of undisturbed figures, as a fraction of their median.
    pub(crate) const MOST_SPREAD: f64 = 0.25;

    pub(crate) fn new(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Self(sorted)
    }

    pub(crate) fn min(&self) -> f64 {
        self.0[0]
    }

    pub(crate) fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median(&self) -> f64 {
        let upper = self.0.len() / 2;
        if self.0.len().is_multiple_of(2) {
            f64::midpoint(self.0[upper - 1], self.0[upper])
        } else {
            self.0[upper]
        }
    }

    pub(crate) fn is_disturbed(&self) -> bool {
        self.max() - self.min() > Self::MOST_SPREAD * self.median()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::synthetic;

    #[test]
    fn a_median_has_as_many_figures_above_as_below() {
        assert_eq!(Samples::new(&[3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Samples::new(&[4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert_eq!(Samples::new(&[7.0]).median(), 7.0);
    }

    #[test]
    fn what_a_later_run_measured_takes_the_place_of_the_old_and_says_so() {
        let results = |commit: &str, outcomes: &[(&str, f64)]| Results {
            machine: serde_json::json!({ "commit": commit, "processor": format!("processor of {commit}") }),
            outcomes: outcomes
                .iter()
                .map(|(case, figure)| synthetic::outcome("pair", case, &["t1"], &[("a", &[*figure])]))
                .collect(),
            ..synthetic::results()
        };
        let updated = results("old", &[("few", 1.0), ("many", 2.0)])
            .updated_by(results("new", &[("many", 3.0), ("more", 4.0)]));
        let seen: Vec<_> = updated
            .outcomes
            .iter()
            .map(|outcome| (&*outcome.case.name, outcome.rows[0].numbers["t1"][0], outcome.commit.as_deref()))
            .collect();
        assert_eq!(seen, [("few", 1.0, None), ("many", 3.0, Some("new")), ("more", 4.0, Some("new"))]);
        assert_eq!(updated.machine["commit"], "old");
        let gathered = updated.updated_by(results("new", &[("few", 5.0)])).of_one_commit_if_gathered();
        assert!(gathered.outcomes.iter().all(|outcome| outcome.commit.is_none()));
        assert_eq!((&gathered.machine["commit"], gathered.seconds), (&serde_json::json!("new"), 0));
        assert_eq!(gathered.machine["processor"], "processor of new");
        assert!(gathered.outcomes.iter().all(|outcome| outcome.processor.is_none()));
    }

    #[test]
    fn what_a_later_run_left_out_keeps_its_version() {
        let results = |versions: [(&str, &str); 2]| Results {
            versions: versions.map(|(program, version)| (program.to_owned(), version.to_owned())).into(),
            ..synthetic::results()
        };
        let updated = results([("Go", "1.27"), ("moka", "0.12")])
            .updated_by(results([("Go", "left out: no go here"), ("moka", "0.13")]));
        assert_eq!((&*updated.versions["Go"], &*updated.versions["moka"]), ("1.27", "0.13"));
    }

    #[test]
    fn results_of_two_commits_stay_so() {
        let mut results = synthetic::results();
        results.outcomes[0].commit = Some("new".to_owned());
        let gathered = results.of_one_commit_if_gathered();
        assert_eq!(gathered.outcomes[0].commit.as_deref(), Some("new"));
        assert_ne!(gathered.seconds, 0);
    }

    #[test]
    fn figures_are_disturbed_when_their_spread_is_above_a_quarter() {
        assert!(!Samples::new(&[90.0, 100.0, 115.0]).is_disturbed());
        assert!(Samples::new(&[90.0, 100.0, 116.0]).is_disturbed());
    }
}
