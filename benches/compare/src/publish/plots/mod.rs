//! Draws the plots, as SVG.
//!
//! The plots are drawn with plotters, which leaves the place of each mark to its caller. poloto lays out legends and
//! axes itself, and charming needs a JavaScript engine. The axes are our own code, since logarithmic axes of plotters
//! may lose their labels (plotters-rs/plotters#654).

mod chosen;
mod rows;

use crate::results::{Outcome, Results, Row};
use chosen::chosen;
use std::error::Error;
use tourbillon_book::Plot;
use tourbillon_book::axis::{ACROSS, Axis, UP};
use tourbillon_book::canvas::{self, Pen};
use tourbillon_book::lines::{self, Line, Panel};

/// Our contestants in the plot of lateness by due time. The plot also has the best other contestant.
const BY_DUE_TIME: [&str; 3] = [ACROSS_BOUNDARY, "engine, own workers", "engine, inline"];
/// A contestant that is drawn only in the plot by due time. In other plots its line would cover the line of our own
/// workers.
const ACROSS_BOUNDARY: &str = "engine, own workers, across tick 65,536";

/// Returns the names and the contents of the plots' files. The same results always give the same files.
pub(crate) fn draw(results: &Results) -> Result<Vec<(&'static str, String)>, Box<dyn Error>> {
    let plots = [
        ("pair", pair(results)?),
        ("rearm", rearm(results)?),
        ("memory", memory(results)?),
        ("growth", growth(results)?),
        ("expiry", expiry(results)?),
        ("lateness_by_due_time", lateness_by_due_time(results)?),
        ("mixed", mixed(results)?),
    ];
    Ok(plots.into_iter().filter_map(|(name, svg)| Some((name, svg?))).collect())
}

fn pair(results: &Results) -> Plot {
    let Some(outcome) = largest(results, "pair") else { return Ok(None) };
    let title = format!("Schedule and cancel, {}", outcome.case.name);
    rows::dots(&title, "ns a pair and thread", outcome)
}

fn rearm(results: &Results) -> Plot {
    let Some(outcome) = largest(results, "rearm") else { return Ok(None) };
    let title = format!("Arm and disarm a timeout, {}", outcome.case.name);
    rows::dots(&title, "ns a pair and thread", outcome)
}

fn memory(results: &Results) -> Plot {
    let Some(outcome) = largest(results, "memory") else { return Ok(None) };
    rows::bars(&format!("Memory, {}", outcome.case.name), "bytes a timer", outcome, "bytes")
}

fn growth(results: &Results) -> Plot {
    let Some(outcome) = largest(results, "growth") else { return Ok(None) };
    let sizes = outcome.columns.iter().filter_map(|column| {
        let size = column.key.strip_prefix('p')?.parse::<f64>().ok()?;
        Some((size, column.key.as_str()))
    });
    let sizes: Vec<(f64, &str)> = sizes.collect();
    let Some((_, most)) = sizes.last() else { return Ok(None) };
    let points = |row: &Row| {
        let points = sizes.iter().filter_map(|(size, key)| Some((*size, row.samples(key)?.median())));
        points.collect::<Vec<_>>()
    };
    let lines = contestants(outcome, outcome.best_other(most), points);
    let panel = Panel {
        y_title: "ns a pair".to_owned(),
        x_title: "pending timers",
        x: Axis::log(ACROSS, sizes.iter().map(|(size, _)| *size)),
        y: Axis::log(UP, heights(&lines)),
        lines,
    };
    lines::labelled("Schedule and cancel as the population grows", &panel)
}

fn expiry(results: &Results) -> Plot {
    let Some(outcome) = largest(results, "expiry") else { return Ok(None) };
    let mut lines = contestants(outcome, outcome.best_other("p999"), |row| by_quantile(row, "lateness"));
    lines.retain(|line| line.name != ACROSS_BOUNDARY);
    let panel = Panel {
        y_title: "lateness (ms)".to_owned(),
        x_title: "part of the timers that are at most so late (%)",
        x: Axis::quantiles(&quantiles(outcome)),
        y: Axis::log(UP, heights(&lines)),
        lines,
    };
    lines::labelled(&format!("Lateness, {}", outcome.case.name), &panel)
}

/// Draws lateness by due time, with a panel for each contestant: some of ours and the best other.
fn lateness_by_due_time(results: &Results) -> Plot {
    const PARTS: [(&str, &str); 3] = [("part_p50", "50 %"), ("part_p99", "99 %"), ("part_max", "the latest")];
    let Some(outcome) = largest(results, "expiry") else { return Ok(None) };
    let lines = |row: &Row| {
        let parts = PARTS.into_iter().zip(canvas::STEPS);
        let line = |((series, name), colour)| {
            let pen = Pen { colour, width: 2 };
            Line { name: String::from(name), pen, points: by_due_time(row, series) }
        };
        parts.map(line).collect::<Vec<_>>()
    };
    let ours = BY_DUE_TIME.iter().filter_map(|name| outcome.row(name));
    let rows = ours.chain(outcome.best_other("p999")).map(|row| (row.contestant.clone(), lines(row)));
    let rows: Vec<_> = rows.filter(|(_, lines)| heights(lines).next().is_some()).collect();
    let points = || rows.iter().flat_map(|(_, lines)| lines).flat_map(|line| &line.points);
    let x = Axis::linear(points().map(|(x, _)| *x));
    let y = Axis::log(UP, points().map(|(_, y)| *y));
    let panels = rows.iter().map(|(name, lines)| Panel {
        y_title: format!("{name}: lateness (ms)"),
        x_title: "due (ms into the window)",
        x: x.clone(),
        y: y.clone(),
        lines: lines.clone(),
    });
    let panels: Vec<Panel> = panels.collect();
    lines::grid(&format!("Lateness by due time, {}", outcome.case.name), 1, &panels)
}

/// Draws the latency of calls and the lateness of timers, with a row for each offered rate.
fn mixed(results: &Results) -> Plot {
    const SERIES: [(&str, &str, &str); 2] = [
        ("op_us", "an operation takes (µs)", "part of the operations (%)"),
        ("late_ms", "lateness (ms)", "part of the timers (%)"),
    ];
    let lines = |outcome: &Outcome, series| {
        contestants(outcome, outcome.best_other("late_p999"), |row| by_quantile(row, series))
    };
    let scales = SERIES.map(|(series, ..)| {
        let all: Vec<Line> = results.cases("mixed").flat_map(|outcome| lines(outcome, series)).collect();
        Axis::log(UP, heights(&all))
    });
    let panels = results.cases("mixed").flat_map(|outcome| {
        SERIES.iter().zip(&scales).map(move |((series, title, x_title), y)| Panel {
            y_title: format!("{}: {title}", outcome.case.name),
            x_title,
            x: Axis::quantiles(&quantiles(outcome)),
            y: y.clone(),
            lines: lines(outcome, series),
        })
    });
    let panels: Vec<Panel> = panels.collect();
    lines::grid("Operations and lateness at an offered rate", SERIES.len(), &panels)
}

/// Returns the workload's case with the most timers.
fn largest<'a>(results: &'a Results, workload: &'a str) -> Option<&'a Outcome> {
    results.cases(workload).max_by_key(|outcome| outcome.case.timers)
}

/// Returns a line for each contestant to draw. Contestants for which `points` is empty are left out.
fn contestants(outcome: &Outcome, best: Option<&Row>, points: impl Fn(&Row) -> Vec<(f64, f64)>) -> Vec<Line> {
    let rows = outcome.rows.iter().filter(|row| !points(row).is_empty());
    let line = |(row, pen): (&Row, Pen)| Line { name: row.contestant.clone(), pen, points: points(row) };
    chosen(rows, best).into_iter().map(line).collect()
}

fn by_quantile(row: &Row, series: &str) -> Vec<(f64, f64)> {
    row.medians(series).map_or_else(Vec::new, |figures| (0..).map(f64::from).zip(figures).collect())
}

fn by_due_time(row: &Row, series: &str) -> Vec<(f64, f64)> {
    let [due, late] = ["due_ms", series].map(|series| row.medians(series).unwrap_or_default());
    due.into_iter().zip(late).collect()
}

fn quantiles(outcome: &Outcome) -> Vec<f64> {
    outcome.rows.iter().find_map(|row| row.medians("quantile")).unwrap_or_default()
}

fn heights(lines: &[Line]) -> impl Iterator<Item = f64> {
    lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::synthetic;

    #[test]
    fn the_same_results_give_the_same_plots() {
        let names = ["pair", "rearm", "memory", "growth", "expiry", "lateness_by_due_time", "mixed"];
        let plots = draw(&synthetic::results()).unwrap();
        assert_eq!(plots.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
        assert!(plots.iter().all(|(_, svg)| svg.starts_with("<svg ") && svg.ends_with("</svg>\n")));
        assert_eq!(draw(&synthetic::results()).unwrap(), plots);
    }

    #[test]
    fn a_plot_without_its_workload_is_left_out() {
        let mut results = synthetic::results();
        results.outcomes.retain(|outcome| outcome.workload == "pair");
        assert_eq!(draw(&results).unwrap().len(), 1);
    }

    #[test]
    fn a_plot_shows_ours_and_the_best_other() {
        for (name, svg) in draw(&synthetic::results()).unwrap() {
            assert!(svg.contains("engine") && svg.contains("Mutex&lt;BinaryHeap&gt;"), "{name}");
        }
    }

    #[test]
    fn rows_without_figures_do_not_keep_others_from_being_drawn() {
        let mut results = synthetic::results();
        for row in results.outcomes.iter_mut().filter_map(|outcome| outcome.rows.first_mut()) {
            row.numbers.clear();
            row.series.clear();
        }
        assert_eq!(draw(&results).unwrap().len(), 7);
        for row in results.outcomes.iter_mut().flat_map(|outcome| &mut outcome.rows) {
            row.numbers.clear();
            row.series.clear();
        }
        assert!(draw(&results).unwrap().is_empty());
    }
}
