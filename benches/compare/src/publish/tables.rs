//! Writes results as Markdown tables.

use crate::results::{Column, Outcome, Results, Row, Samples};
use comfy_table::{Table, presets};
use serde_json::Value;
use tourbillon_book::figure::{count, figure};

/// The units of figures that count events. Counts of events are not costs.
const COUNTS: [&str; 3] = ["", "times", "1/s"];

/// Writes a table of the machine and of the contestants' versions.
pub(crate) fn machine(results: &Results) -> String {
    let mut table = markdown(["machine", ""]);
    for (key, value) in results.machine.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => "unknown".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        table.add_row([escaped(key), escaped(&value)]);
    }
    table.add_row(["sizes", &results.scale]);
    table.add_row(["took", &format!("{} min", results.seconds.div_ceil(60))]);
    let mut versions = markdown(["compared", "version"]);
    for (name, version) in &results.versions {
        versions.add_row([escaped(name), escaped(version)]);
    }
    format!("{table}\n\n{versions}")
}

/// Writes one line with the machine and the date of the measurement.
pub(crate) fn in_a_line(results: &Results) -> String {
    let value = |key: &str| match &results.machine[key] {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.split(" (").next().unwrap_or(text).to_owned(),
        other => other.to_string(),
    };
    let processor = results.machine["processor"].as_str().unwrap_or("a processor of unknown name");
    let time = match results.seconds {
        0 => "workload by workload".to_owned(),
        seconds => format!("{} minutes", seconds.div_ceil(60)),
    };
    let mut line = format!(
        "{}, {} cores, Linux {}, {}; commit {}, {} sizes, {time}.",
        escaped(processor),
        value("cores"),
        value("kernel"),
        value("rustc"),
        value("commit"),
        results.scale
    );
    let mut later: Vec<(String, Vec<&str>)> = Vec::new();
    for outcome in &results.outcomes {
        let Some(commit) = commit_of(outcome) else { continue };
        match later.iter_mut().find(|(known, _)| *known == commit) {
            Some((_, workloads)) if workloads.contains(&&*outcome.workload) => {}
            Some((_, workloads)) => workloads.push(&outcome.workload),
            None => later.push((commit, vec![&outcome.workload])),
        }
    }
    let parts: Vec<String> = later
        .iter()
        .map(|(commit, workloads)| format!("`{}` at {}", workloads.join("`, `"), escaped(commit)))
        .collect();
    if !parts.is_empty() {
        line += &format!(" Measured by themselves, in part or whole: {}.", parts.join("; "));
    }
    line
}

/// Returns the commit of an outcome that a later run measured, and the processor if it is another.
fn commit_of(outcome: &Outcome) -> Option<String> {
    let commit = outcome.commit.as_ref()?;
    let processor = outcome.processor.as_ref().map(|processor| format!(" on {processor}"));
    Some(format!("{commit}{}", processor.unwrap_or_default()))
}

/// Writes the table of an outcome. The table has a row for each contestant, in the order of the results. Notes stand
/// below the table.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    let has_clocks = outcome.rows.iter().any(|row| !row.clock.is_empty());
    let line = |contestant: &str, clock: &str, cells: Vec<String>| {
        let clock = has_clocks.then(|| escaped(clock));
        [escaped(contestant)].into_iter().chain(clock).chain(cells).collect::<Vec<String>>()
    };
    let headings = outcome.columns.iter().map(|column| escaped(&column.with_unit()));
    let mut table = markdown(line("contestant", "clock read", headings.collect()));
    let bests: Vec<Option<f64>> = outcome.columns.iter().map(|column| best(outcome, column)).collect();
    for row in &outcome.rows {
        table.add_row(line(&row.contestant, &row.clock, cells(outcome, row, &bests)));
    }
    let is_disturbed =
        outcome.rows.iter().any(|row| figures(outcome, row).any(|samples| samples.is_disturbed()));
    let notes = outcome.rows.iter().filter(|row| figures(outcome, row).next().is_some()).filter_map(|row| {
        let note = row.note.as_ref()?;
        Some(format!("{}: {}", escaped(&row.contestant), escaped(note)))
    });
    let later = commit_of(outcome).map(|commit| format!("Measured at commit {commit}."));
    let below = is_disturbed.then(disturbed).into_iter().chain(notes).chain(later);
    [table.to_string()].into_iter().chain(below).collect::<Vec<_>>().join("\n\n")
}

pub(crate) fn markdown<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(header.into_iter().map(Into::into).collect::<Vec<String>>());
    table
}

/// Returns `text` for a cell of a table. Escapes HTML and the character that ends a cell.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('<', "\\<").replace('|', "\\|").replace('\n', " ")
}

fn cells(outcome: &Outcome, row: &Row, bests: &[Option<f64>]) -> Vec<String> {
    if let Some(note) = &row.note
        && figures(outcome, row).next().is_none()
    {
        let mut cells = vec![String::new(); outcome.columns.len()];
        if let Some(first) = cells.first_mut() {
            *first = escaped(note);
        }
        return cells;
    }
    let cell = |(column, best): (&Column, &Option<f64>)| match row.samples(&column.key) {
        Some(samples) => cell(column, &samples, *best),
        None => "-".to_owned(),
    };
    outcome.columns.iter().zip(bests).map(cell).collect()
}

fn cell(column: &Column, samples: &Samples, best: Option<f64>) -> String {
    let text = if column.unit.is_empty() { count } else { figure };
    let median = text(samples.median());
    let median = if best == Some(samples.median()) { format!("**{median}**") } else { median };
    format!("{median}{}{}", samples.range(text), samples.mark())
}

/// Returns the smallest median of a column. `None` for a column of counts.
fn best(outcome: &Outcome, column: &Column) -> Option<f64> {
    if COUNTS.contains(&column.unit.as_str()) {
        return None;
    }
    let medians = outcome.rows.iter().filter_map(|row| Some(row.samples(&column.key)?.median()));
    medians.min_by(f64::total_cmp)
}

fn disturbed() -> String {
    let most = Samples::MOST_SPREAD * 100.0;
    format!("~ disturbed: smallest and largest are more than {most} % of the median apart.")
}

fn figures(outcome: &Outcome, row: &Row) -> impl Iterator<Item = Samples> {
    outcome.columns.iter().filter_map(|column| row.samples(&column.key))
}

#[cfg(test)]
mod tests {
    use crate::publish::synthetic;

    #[test]
    fn a_table_has_medians_ranges_and_the_best_in_bold() {
        let rows: [(&str, &[f64]); 3] = [
            ("engine, Handle", &[10.0, 11.0, 12.0]),
            ("Mutex<BinaryHeap>", &[30.0, 20.0, 40.0]),
            ("slow", &[]),
        ];
        let mut outcome = synthetic::outcome("pair", "few", &["t1"], &rows);
        outcome.rows[0].note = Some("one round".to_owned());
        outcome.rows[2].note = Some("too slow".to_owned());
        let expected = "\
| contestant         | 1 thread (ns)  |
|--------------------|----------------|
| engine, Handle     | **11.0** (10.0..12.0) |
| Mutex\\<BinaryHeap> | 30.0 (20.0..40.0) ~  |
| slow               | too slow       |

~ disturbed: smallest and largest are more than 25 % of the median apart.

engine, Handle: one round";
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('-', "");
        assert_eq!(squeezed(&super::outcome(&outcome)), squeezed(expected));
    }

    #[test]
    fn clocks_are_shown_where_there_are_any() {
        let mut outcome = synthetic::outcome("pair", "few", &["t1", "t2"], &[("a", &[1.0])]);
        outcome.rows[0].numbers.remove("t2");
        assert!(!super::outcome(&outcome).contains("clock read"));
        outcome.rows[0].clock = "TSC, each arm".to_owned();
        let table = super::outcome(&outcome);
        assert!(
            table.contains("| clock read    |") && table.contains("| TSC, each arm | **1.00**      | -"),
            "{table}"
        );
    }

    #[test]
    fn the_machine_fits_a_line() {
        let mut results = synthetic::results();
        let line = super::in_a_line(&results);
        assert_eq!(
            line,
            "a processor, 2 cores, Linux unknown, unknown; commit unknown, full sizes, 21 minutes."
        );
        for at in [0, 1, 4] {
            results.outcomes[at].commit = Some("abc".to_owned());
        }
        let later = "Measured by themselves, in part or whole:";
        assert_eq!(super::in_a_line(&results), format!("{line} {later} `pair`, `refresh` at abc."));
        results.outcomes[4].processor = Some("another processor".to_owned());
        let (near, far) = ("`pair` at abc", "`refresh` at abc on another processor");
        assert_eq!(super::in_a_line(&results), format!("{line} {later} {near}; {far}."));
    }

    #[test]
    fn counts_have_no_best() {
        let rows: [(&str, &[f64]); 2] = [("a", &[0.0]), ("b", &[1_234_567.0])];
        let mut outcome = synthetic::outcome("expiry", "few", &["early", "pairs"], &rows);
        outcome.columns[0].unit.clear();
        outcome.columns[1].unit = "times".to_owned();
        let table = super::outcome(&outcome);
        assert!(table.contains("1,234,567") && !table.contains("**"), "{table}");
    }
}
