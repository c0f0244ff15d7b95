//! Plots with a row for each contestant. The row with the smallest figure is the first.

use crate::results::{Column, Outcome, Row};
use plotters::chart::ChartBuilder;
use plotters::element::{Circle, PathElement, Rectangle};
use plotters::prelude::RGBColor;
use plotters::style::Color;
use plotters::style::text_anchor::HPos;
use tourbillon_book::Plot;
use tourbillon_book::axis::{ACROSS, Axis};
use tourbillon_book::canvas::{self, Drawn, INK, OURS, Plotting, STEPS, bold, label, name, text};
use tourbillon_book::figure::figure;

const NAMES_WIDTH: u32 = 268;
const FIGURE_WIDTH: i32 = 78;
const ROW_HEIGHT: u32 = 25;

/// Draws a row for each contestant, with a dot for each column. A line shows the range of the rounds, and the medians
/// are on the right. Bars would mean nothing on a logarithmic axis.
pub(crate) fn dots(title: &str, unit: &str, outcome: &Outcome) -> Plot {
    let columns: Vec<(&Column, RGBColor)> = outcome.columns.iter().zip(STEPS).collect();
    let keys: Vec<&str> = columns.iter().map(|(column, _)| column.key.as_str()).collect();
    let rows = ranked(outcome, &keys);
    let samples = rows.iter().flat_map(|row| keys.iter().filter_map(|key| row.samples(key)));
    let x = Axis::log(ACROSS, samples.flat_map(|samples| [samples.min(), samples.max()]));
    draw(title, unit, &rows, &x, keys.len(), |area| {
        for ((column, colour), right) in columns.iter().zip((1..).map(|place| place * FIGURE_WIDTH)) {
            label(area, (x.end(), -0.5), (right, -14), &column.heading, bold(12.0, *colour, HPos::Right))?;
            for (row, y) in rows.iter().zip((0..).map(f64::from)) {
                let Some(samples) = row.samples(&column.key) else { continue };
                let range = vec![(samples.min(), y), (samples.max(), y)];
                area.draw(&PathElement::new(range, colour.mix(0.6).stroke_width(2)))?;
                area.draw(&Circle::new((samples.median(), y), 5, colour.filled()))?;
                let median = figure(samples.median());
                label(area, (x.end(), y), (right, 0), &median, text(12.0, *colour, HPos::Right))?;
            }
        }
        Ok(())
    })
}

/// Draws a bar for each contestant's median in a column. The figure stands behind the bar.
pub(crate) fn bars(title: &str, unit: &str, outcome: &Outcome, column: &str) -> Plot {
    let rows = ranked(outcome, &[column]);
    let medians = rows.iter().filter_map(|row| Some((row.samples(column)?.median(), row.is_ours)));
    let medians: Vec<(f64, bool)> = medians.collect();
    let x = Axis::linear(medians.iter().map(|(median, _)| *median));
    draw(title, unit, &rows, &x, 1, |area| {
        for ((median, is_ours), y) in medians.iter().zip((0..).map(f64::from)) {
            let colour = if *is_ours { OURS[0].mix(1.0) } else { INK.mix(0.7) };
            area.draw(&Rectangle::new([(0.0, y - 0.32), (*median, y + 0.32)], colour.filled()))?;
            label(area, (*median, y), (8, 0), &figure(*median), name(*is_ours, HPos::Left))?;
        }
        Ok(())
    })
}

/// Draws the contestants' names, a band behind our rows, and the marks of `paint`. Leaves room for `figures` columns of
/// figures on the right.
fn draw(
    title: &str,
    unit: &str,
    rows: &[&Row],
    x: &Axis,
    figures: usize,
    paint: impl FnOnce(&Plotting<'_>) -> Drawn,
) -> Plot {
    if rows.is_empty() {
        return Ok(None);
    }
    let height = canvas::count(rows.len()) * ROW_HEIGHT + 84;
    let svg = canvas::draw(title, height, |area| {
        let mut chart = ChartBuilder::on(area);
        chart.margin_top(28).margin_right(canvas::count(figures) * FIGURE_WIDTH.unsigned_abs() + 16);
        chart.x_label_area_size(42).y_label_area_size(NAMES_WIDTH);
        let mut chart = chart.build_cartesian_2d(x.clone(), Axis::rows(rows.len()))?;
        canvas::mesh(&mut chart, unit)?;
        let area = chart.plotting_area();
        for (row, y) in rows.iter().zip((0..).map(f64::from)) {
            if row.is_ours {
                let band = [(x.start(), y - 0.5), (x.end(), y + 0.5)];
                area.draw(&Rectangle::new(band, OURS[0].mix(0.12).filled()))?;
            }
            label(area, (x.start(), y), (-12, 0), &row.contestant, name(row.is_ours, HPos::Right))?;
        }
        paint(area)
    });
    svg.map(Some)
}

/// Returns the rows with a figure in any of the columns, in ascending order of the first column.
fn ranked<'a>(outcome: &'a Outcome, columns: &[&str]) -> Vec<&'a Row> {
    let median = |row: &Row, column: &str| row.samples(column).map(|samples| samples.median());
    let rank = |row: &Row| columns.first().and_then(|first| median(row, first)).unwrap_or(f64::INFINITY);
    let mut rows: Vec<&Row> = outcome.rows.iter().collect();
    rows.retain(|row| columns.iter().any(|column| median(row, column).is_some()));
    rows.sort_by(|one, other| rank(one).total_cmp(&rank(other)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::synthetic;

    #[test]
    fn rows_are_sorted_by_their_first_column() {
        let rows: [(&str, &[f64]); 4] = [("a", &[3.0]), ("b", &[]), ("c", &[1.0]), ("d", &[2.0])];
        let mut outcome = synthetic::outcome("pair", "few", &["t1", "t2"], &rows);
        outcome.rows[2].numbers.remove("t1");
        let names: Vec<&str> =
            ranked(&outcome, &["t1", "t2"]).iter().map(|row| row.contestant.as_str()).collect();
        assert_eq!(names, ["d", "a", "c"]);
    }
}
