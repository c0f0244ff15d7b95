//! Finds rows and figures in the results.

use crate::results::{Outcome, Results, Row, Samples};

impl Results {
    pub(crate) fn cases<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = &'a Outcome> {
        self.outcomes.iter().filter(move |outcome| outcome.workload == workload)
    }

    pub(crate) fn outcome(&self, workload: &str, case: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.workload == workload && outcome.case.name == case)
    }
}

impl Outcome {
    pub(crate) fn row(&self, contestant: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.contestant == contestant)
    }

    /// Returns the row of another contestant that has the smallest median in the column.
    pub(crate) fn best_other(&self, column: &str) -> Option<&Row> {
        self.best(column, |row| !row.is_ours)
    }

    /// Returns the row of another contestant that has the smallest median in the column. Only considers rows that read
    /// their clocks as often as `ours`.
    pub(crate) fn best_like(&self, ours: &Row, column: &str) -> Option<&Row> {
        self.best(column, |row| !row.is_ours && row.is_like(ours))
    }

    /// Returns the row with the smallest median in the column, among rows for which `is_eligible` returns true.
    pub(crate) fn best(&self, column: &str, is_eligible: impl Fn(&Row) -> bool) -> Option<&Row> {
        let eligible = self.rows.iter().filter(|row| is_eligible(row));
        let medians = eligible.filter_map(|row| Some((row, row.samples(column)?.median())));
        medians.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(row, _)| row)
    }

    /// Returns a column's heading with its unit.
    pub(crate) fn heading(&self, column: &str) -> Option<String> {
        let column = self.columns.iter().find(|known| known.key == column)?;
        Some(column.with_unit())
    }
}

impl Row {
    /// Returns whether the contestant reads the clock only once for an iteration of an event loop, and counts its
    /// deadlines from that reading.
    pub(crate) fn has_callers_now(&self) -> bool {
        self.clock.contains("each 64")
    }

    /// Returns whether both contestants read their clocks for each arming, or both once for an iteration.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.has_callers_now() == other.has_callers_now()
    }

    /// Returns a median for each index of a series, over all rounds.
    pub(crate) fn medians(&self, series: &str) -> Option<Vec<f64>> {
        let rounds = self.series.get(series)?;
        let length = rounds.iter().map(Vec::len).min()?;
        let median = |at| Samples::new(&rounds.iter().map(|round| round[at]).collect::<Vec<_>>()).median();
        Some((0..length).map(median).collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::publish::synthetic;

    #[test]
    fn the_best_other_is_not_ours() {
        let outcome = synthetic::outcome("pair", "few", &["t1"], &[("a", &[3.0]), ("b", &[2.0])]);
        assert_eq!(outcome.best_other("t1").unwrap().contestant, "b");
        let outcome =
            synthetic::outcome("pair", "few", &["t1"], &[("a", &[3.0]), ("engine, Handle", &[2.0])]);
        assert_eq!(outcome.best_other("t1").unwrap().contestant, "a");
        assert!(outcome.best_other("t2").is_none());
    }

    #[test]
    fn the_best_like_ours_reads_its_clock_as_often() {
        let rows: [(&str, &[f64]); 3] = [("engine, Handle", &[2.0]), ("a", &[3.0]), ("b", &[1.0])];
        let mut outcome = synthetic::outcome("pair", "few", &["t1"], &rows);
        outcome.rows[2].clock = "Instant, each 64".to_owned();
        assert_eq!(outcome.best_like(&outcome.rows[0], "t1").unwrap().contestant, "a");
        assert_eq!(outcome.best_other("t1").unwrap().contestant, "b");
    }

    #[test]
    fn a_series_is_the_median_at_each_place() {
        let mut outcome = synthetic::outcome("expiry", "few", &[], &[("a", &[])]);
        let rounds = vec![vec![1.0, 9.0], vec![3.0, 7.0], vec![2.0, 8.0]];
        outcome.rows[0].series.insert("lateness".to_owned(), rounds);
        assert_eq!(outcome.rows[0].medians("lateness"), Some(vec![2.0, 8.0]));
        assert_eq!(outcome.rows[0].medians("quantile"), None);
    }
}
