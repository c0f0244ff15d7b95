//! Draws the plots, as SVG. A row has the contestant's durability beside its name.

mod rows;

use crate::plan::{CONTESTANTS, Contestant, Survives};
use crate::results::Results;
use plotters::prelude::RGBColor;
use rows::Rows;
use std::error::Error;
use tourbillon_book::Plot;
use tourbillon_book::axis::{Axis, UP};
use tourbillon_book::canvas::{OURS, Pen};
use tourbillon_book::lines::{self, Line, Panel};

/// The percentiles in the plot of lateness. Each percentile has the key of its figure and its value.
const PERCENTILES: [(&str, f64); 5] =
    [("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("p999_ms", 0.999), ("max_ms", 1.0)];

const COLOURS: [RGBColor; 8] = [
    RGBColor(0xd1, 0x4e, 0x0d),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xcc, 0x8a, 0x00),
    RGBColor(0x9a, 0x6c, 0xd0),
    RGBColor(0xa8, 0x7b, 0x4f),
    RGBColor(0x2a, 0xa8, 0xb8),
    RGBColor(0x8a, 0x8f, 0x2a),
];

/// A rendered plot with its place on the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// The file's name without its extension.
    pub(super) name: &'static str,
    /// The section of the page to which the plot belongs.
    pub(super) section: &'static str,
    /// A text that describes the plot to readers who cannot see it.
    pub(super) shows: &'static str,
    pub(super) svg: String,
}

/// Draws all plots for which the results have figures. The same results always give the same files.
pub(super) fn draw(results: &Results) -> Result<Vec<Picture>, Box<dyn Error>> {
    let plots = [
        ("creations", "D1", "Creations a second", creations(results)?),
        ("bytes", "D2", "Bytes of a pending timer", bytes(results)?),
        ("lateness", "D3", "Percentiles of lateness at 1,000 timers a second", lateness(results)?),
        ("cancels", "D5", "Cancels and replacements by key", cancels(results)?),
        (
            "restart",
            "D6",
            "The time from a start to the first creation and to the last delivery",
            restart(results)?,
        ),
        ("service", "D8", "The library and the service", service(results)?),
    ];
    let plot = |(name, section, shows, svg): (_, _, _, Option<String>)| {
        Some(Picture { name, section, shows, svg: svg? })
    };
    Ok(plots.into_iter().filter_map(plot).collect())
}

/// Returns a short label of a contestant: its name, and a word for its durability.
fn label(one: &Contestant) -> String {
    let name = one.name.replace("tourbillon-durable", "tourbillon").replace(", PostgreSQL", "");
    format!("{name} · {}", short(one))
}

/// Returns the durability of a contestant in a word.
fn short(one: &Contestant) -> &'static str {
    match one.survives {
        Survives::PowerLoss => "power",
        Survives::ProcessCrash => "crash",
        Survives::Mixed => "mixed",
    }
}

fn creations(results: &Results) -> Plot {
    let columns = [("one_rate", "one by one"), ("waiting_rate", "64 waiting"), ("batch_rate", "batches")];
    Rows { case: "create", unit: "creations a second", columns: &columns, is_more_better: true }
        .draw("Creations a second", results)
}

fn bytes(results: &Results) -> Plot {
    let columns = [("disk", "on the disk"), ("ram", "in memory")];
    Rows { case: "stock", unit: "bytes a pending timer", columns: &columns, is_more_better: false }
        .draw("Bytes of a pending timer", results)
}

fn restart(results: &Results) -> Plot {
    let columns = [("accepted_s", "accepted"), ("all_s", "all fired")];
    Rows {
        case: "stock",
        unit: "seconds from the start of the process",
        columns: &columns,
        is_more_better: false,
    }
    .draw("SIGKILL, and start: the first creation, the last overdue delivery", results)
}

fn cancels(results: &Results) -> Plot {
    let columns = [("cancel_rate", "cancels"), ("replace_rate", "replaced")];
    Rows { case: "stock", unit: "calls a second, 64 waiting", columns: &columns, is_more_better: true }
        .draw("Cancels and replacements by key", results)
}

fn service(results: &Results) -> Plot {
    let columns = [("waiting_rate", "creations"), ("rate", "callbacks"), ("floor_rate", "HTTP alone")];
    Rows { case: "service", unit: "a second", columns: &columns, is_more_better: true }
        .draw("The library and the service", results)
}

/// Draws the lateness of deliveries, with a line for each contestant.
fn lateness(results: &Results) -> Plot {
    const CASE: &str = "late_1000";
    let (mut ours, mut others) = (OURS.into_iter().cycle(), COLOURS.into_iter().cycle());
    let line = |one: &Contestant| {
        let colour = if one.is_ours() { ours.next() } else { others.next() }?;
        let pen = Pen { colour, width: if one.is_ours() { 4 } else { 2 } };
        let points = (0..).map(f64::from).zip(PERCENTILES).filter_map(|(x, (key, _))| {
            // Due moments are not exact to less than a part of a millisecond.
            Some((x, results.samples(CASE, one.name, key)?.median().max(0.1)))
        });
        let points: Vec<(f64, f64)> = points.collect();
        (!points.is_empty()).then(|| Line { name: label(one), pen, points })
    };
    let takes_part = |one: &&Contestant| one.cases.contains(&CASE);
    let lines: Vec<Line> = CONTESTANTS.iter().filter(takes_part).filter_map(line).collect();
    let panel = Panel {
        y_title: "lateness (ms)".to_owned(),
        x_title: "part of the timers that are at most so late (%)",
        x: Axis::quantiles(&PERCENTILES.map(|(_, quantile)| quantile)),
        y: Axis::log(UP, lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y)),
        lines,
    };
    lines::labelled("Lateness at 1,000 timers a second; behind each name, what an answer survives", &panel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_show_what_was_measured_with_its_durability() {
        let results = crate::publish::tests::results(30_000.0, 14_000.0);
        let plots = draw(&results).unwrap();
        assert_eq!(plots.iter().map(|plot| plot.name).collect::<Vec<_>>(), ["creations"]);
        let svg = &plots[0].svg;
        for text in ["tourbillon-durable, redb", "BullMQ, AOF always", "survives: loss of power", "30,000"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(draw(&results).unwrap(), plots);
    }
}
