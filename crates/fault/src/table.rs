//! Prints the results of runs as a table.

use std::io::{self, Write};
use tourbillon_fault::history::{Broken, Lateness};
use tourbillon_fault::run::Row;

/// Writes a line to standard output.
pub(crate) fn say(line: &str) {
    // A failed write does not matter: the exit code says the same.
    drop(writeln!(io::stdout(), "{line}"));
}

pub(crate) fn head() {
    say(&format!(
        "{:<24} {:>5} {:>8} {:>8} {:>8}  {:<28} {:>5} {:>9} {:>5} {:>5} {:>22}  {}",
        "scenario",
        "s",
        "calls",
        "timers",
        "deliv.",
        "duplicates",
        "lost",
        "permitted",
        "never",
        "early",
        "late: ms",
        ""
    ));
}

/// Prints the line of a run in the table of results.
///
/// The column `permitted` has two numbers with a `+` between them: the lost timers, and the lost withdrawals
/// (cancellations and replacements). It counts only losses that the servers' settings permit. The column `never` counts
/// at-most-once timers that were never delivered because of a fault. The last columns are percentiles of the lateness:
/// 50, 99, 99.9 and 100 %.
pub(crate) fn line(name: &str, row: &Row) {
    let findings = &row.findings;
    let duplicates: Vec<String> =
        findings.duplicates.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    let lost = findings.count(|broken| matches!(broken, Broken::Lost(_) | Broken::Stuck(_)));
    let early = findings.count(|broken| matches!(broken, Broken::Early(..)));
    let permitted = format!("{}+{}", findings.lost_by_terms, findings.revived_by_terms);
    let Lateness { p50, p99, p999, most } = findings.lateness;
    let late = [p50, p99, p999, most].map(|time| (time / 1_000).to_string()).join("/");
    let verdict = if row.is_clean() { "ok" } else { "FAILED" };
    say(&format!(
        "{name:<24} {:>5} {:>8} {:>8} {:>8}  {:<28} {lost:>5} {permitted:>9} {:>5} {early:>5} {late:>22}  {verdict}",
        row.took.as_secs(),
        findings.calls,
        findings.acknowledged,
        findings.deliveries,
        duplicates.join(", "),
        findings.never,
    ));
    row.notes.iter().for_each(|note| say(&format!("  {note}")));
    if row.stalls > 0 {
        let times = row.stalls;
        say(&format!(
            "  the machine was busy: {times} times a process did not run, or a server did not answer"
        ));
    }
    if !row.is_clean() {
        say(row.to_string().trim_end());
    }
}

pub(crate) fn skipped(name: &str, why: &str) {
    say(&format!("{name:<24} skipped: {why}"));
}
