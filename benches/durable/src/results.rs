//! The raw results: a run writes them, and the page is made from them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::{fs, mem};

/// The results of a run, or of several runs. Later runs have replaced parts of earlier runs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) machine: Value,
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) cases: Vec<Outcome>,
}

/// The results of one case, for all contestants that take part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) case: String,
    pub(crate) sizes: Value,
    /// The size of the case: `full`, or `quick`. The sizes of `quick` are too small to mean anything.
    pub(crate) scale: String,
    pub(crate) seconds: u64,
    /// The last commit that changed the library before the case was measured.
    pub(crate) commit: String,
    /// The versions of the contestants, and of the programs that the contestants need.
    #[serde(default)]
    pub(crate) versions: BTreeMap<String, String>,
    /// The time of a write of 4 KiB with fdatasync just before the case, in milliseconds: the median and the 99th
    /// percentile.
    pub(crate) fsync_ms: (f64, f64),
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) contestant: String,
    /// The reason why some rounds have no figures for the contestant. `None` if all rounds have figures.
    pub(crate) note: Option<String>,
    /// Whether the contestant was measured alone instead of in turns with others.
    #[serde(default)]
    pub(crate) is_alone: bool,
    /// The figures by their keys. Each key has a figure for each round.
    pub(crate) numbers: BTreeMap<String, Vec<f64>>,
}

/// The figures from a single measurement of a contestant.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) numbers: BTreeMap<String, f64>,
}

impl Row {
    pub(crate) fn rounds(&self) -> usize {
        self.numbers.values().map(Vec::len).max().unwrap_or(0)
    }
}

impl Outcome {
    /// Returns the largest number of rounds that a contestant of the case has.
    pub(crate) fn rounds(&self) -> usize {
        self.rows.iter().map(Row::rounds).max().unwrap_or(0)
    }
}

impl Results {
    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }

    /// Sets the versions of the newest run. Cases without their own versions get the earlier run's versions.
    pub(crate) fn set_versions(&mut self, versions: BTreeMap<String, String>) {
        let before = mem::replace(&mut self.versions, versions);
        for case in self.cases.iter_mut().filter(|case| case.versions.is_empty()) {
            case.versions.clone_from(&before);
        }
    }

    /// Stores the results of a case, in place of an earlier result of the same case.
    pub(crate) fn put(&mut self, outcome: Outcome) {
        self.cases.retain(|old| old.case != outcome.case);
        self.cases.push(outcome);
    }

    /// Stores rows of a case, in place of earlier rows of the same contestants.
    pub(crate) fn put_rows(&mut self, outcome: Outcome) -> Result<(), Box<dyn Error>> {
        let old = self
            .cases
            .iter_mut()
            .find(|old| old.case == outcome.case)
            .ok_or("nothing was measured before")?;
        let is_other = |(name, version)| outcome.versions.get(name).is_some_and(|newer| newer != version);
        if old.sizes != outcome.sizes || old.commit != outcome.commit || old.versions.iter().any(is_other) {
            return Err(format!(
                "{} was measured at other sizes, another commit or other versions: measure it whole",
                old.case
            )
            .into());
        }
        old.versions.extend(outcome.versions);
        for row in outcome.rows {
            old.rows.retain(|other| other.contestant != row.contestant);
            old.rows.push(row);
        }
        Ok(())
    }

    pub(crate) fn case(&self, name: &str) -> Option<&Outcome> {
        self.cases.iter().find(|outcome| outcome.case == name)
    }

    /// Returns a contestant's figures with this key, in ascending order. Returns `None` if the contestant has no such
    /// figures.
    pub(crate) fn samples(&self, case: &str, contestant: &str, key: &str) -> Option<Samples> {
        let row = self.case(case)?.rows.iter().find(|row| row.contestant == contestant)?;
        Samples::new(row.numbers.get(key)?)
    }
}

/// Figures of a contestant in ascending order, at least a single figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn new(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        (!sorted.is_empty()).then_some(Self(sorted))
    }

    pub(crate) fn median(&self) -> f64 {
        let upper = self.0.len() / 2;
        if self.0.len().is_multiple_of(2) {
            f64::midpoint(self.0[upper - 1], self.0[upper])
        } else {
            self.0[upper]
        }
    }

    /// Returns the smallest and the largest figure.
    pub(crate) fn range(&self) -> (f64, f64) {
        (self.0[0], self.0[self.0.len() - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_has_as_many_figures_above_as_below() {
        assert_eq!(Samples::new(&[3.0, 1.0, 2.0]).unwrap().median(), 2.0);
        assert_eq!(Samples::new(&[4.0, 1.0, 2.0, 3.0]).unwrap().median(), 2.5);
        assert_eq!(Samples::new(&[7.0, 5.0]).unwrap().range(), (5.0, 7.0));
        assert_eq!(Samples::new(&[]), None);
    }

    #[test]
    fn a_row_that_is_measured_by_itself_replaces_the_old_one() {
        let outcome = |commit: &str, names: &[&str], is_alone| Outcome {
            case: "create".to_owned(),
            sizes: Value::Null,
            scale: "full".to_owned(),
            seconds: 1,
            commit: commit.to_owned(),
            versions: BTreeMap::new(),
            fsync_ms: (0.0, 0.0),
            rows: names
                .iter()
                .map(|name| Row {
                    contestant: (*name).to_owned(),
                    note: None,
                    is_alone,
                    numbers: BTreeMap::new(),
                })
                .collect(),
        };
        let mut results = Results::default();
        results.put(outcome("old", &["a", "b"], false));
        results.put_rows(outcome("old", &["a"], true)).unwrap();
        let rows = &results.case("create").unwrap().rows;
        let alone: Vec<_> = rows.iter().map(|row| (&*row.contestant, row.is_alone)).collect();
        assert_eq!(alone, [("b", false), ("a", true)]);
        assert!(results.put_rows(outcome("new", &["a"], true)).is_err());
    }

    #[test]
    fn a_case_that_is_measured_again_replaces_the_old_one() {
        let outcome = |seconds| Outcome {
            case: "create".to_owned(),
            sizes: Value::Null,
            scale: "full".to_owned(),
            seconds,
            commit: String::new(),
            versions: BTreeMap::new(),
            fsync_ms: (0.0, 0.0),
            rows: Vec::new(),
        };
        let mut results = Results::default();
        assert!(results.put_rows(outcome(1)).is_err());
        results.put(outcome(1));
        results.put(outcome(2));
        assert_eq!(results.cases.len(), 1);
        assert_eq!(results.case("create").unwrap().seconds, 2);
    }
}
