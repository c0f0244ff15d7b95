//! Plots with a row for each contestant. The contestant with the best figure in the first column is at the top.

use crate::plan::{CONTESTANTS, Contestant};
use crate::results::Results;
use plotters::chart::ChartBuilder;
use plotters::element::{Circle, PathElement, Rectangle};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;
use tourbillon_book::Plot;
use tourbillon_book::axis::{ACROSS, Axis};
use tourbillon_book::canvas::{self, INK, OURS, STEPS, bold, label, name, text};
use tourbillon_book::figure::figure;

const NAMES_WIDTH: u32 = 296;
const FIGURE_WIDTH: i32 = 82;
const ROW_HEIGHT: u32 = 36;

/// A plot with a row for each contestant and a dot for each column, on a logarithmic axis. A line shows the range of
/// the rounds, and the medians are on the right.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) case: &'a str,
    pub(super) unit: &'a str,
    /// The keys of at most three figures, each with its heading.
    pub(super) columns: &'a [(&'a str, &'a str)],
    pub(super) is_more_better: bool,
}

impl Rows<'_> {
    pub(super) fn draw(self, title: &str, results: &Results) -> Plot {
        let rows = self.ranked(results);
        if rows.is_empty() {
            return Ok(None);
        }
        let samples = |one: &Contestant, key: &str| results.samples(self.case, one.name, key);
        let all = rows.iter().flat_map(|one| self.columns.iter().filter_map(|(key, _)| samples(one, key)));
        let x = Axis::log(ACROSS, all.flat_map(|samples| <[f64; 2]>::from(samples.range())));
        let height = canvas::count(rows.len()) * ROW_HEIGHT + 84;
        let right = canvas::count(self.columns.len()) * FIGURE_WIDTH.unsigned_abs() + 16;
        let svg = canvas::draw(title, height, |area| {
            let mut chart = ChartBuilder::on(area);
            chart.margin_top(28).margin_right(right).x_label_area_size(42).y_label_area_size(NAMES_WIDTH);
            let mut chart = chart.build_cartesian_2d(x.clone(), Axis::rows(rows.len()))?;
            canvas::mesh(&mut chart, self.unit)?;
            let area = chart.plotting_area();
            for (one, y) in rows.iter().zip((0..).map(f64::from)) {
                if one.is_ours() {
                    let band = [(x.start(), y - 0.5), (x.end(), y + 0.5)];
                    area.draw(&Rectangle::new(band, OURS[0].mix(0.12).filled()))?;
                }
                label(area, (x.start(), y), (-12, -7), one.name, name(one.is_ours(), HPos::Right))?;
                let survives = format!("survives: {}", one.survives.text());
                label(area, (x.start(), y), (-12, 8), &survives, text(10.0, INK, HPos::Right))?;
            }
            let columns = self.columns.iter().zip(STEPS).zip((1..).map(|place| place * FIGURE_WIDTH));
            for (((key, heading), colour), right) in columns {
                label(area, (x.end(), -0.5), (right, -14), heading, bold(12.0, colour, HPos::Right))?;
                for (one, y) in rows.iter().zip((0..).map(f64::from)) {
                    let Some(samples) = samples(one, key) else { continue };
                    let (least, most) = samples.range();
                    let range = vec![(least, y), (most, y)];
                    area.draw(&PathElement::new(range, colour.mix(0.6).stroke_width(2)))?;
                    area.draw(&Circle::new((samples.median(), y), 5, colour.filled()))?;
                    let median = figure(samples.median());
                    label(area, (x.end(), y), (right, 0), &median, text(12.0, colour, HPos::Right))?;
                }
            }
            Ok(())
        });
        svg.map(Some)
    }

    /// Returns the contestants with a figure in any of the columns. The contestant with the best figure in the first
    /// column comes first.
    fn ranked(self, results: &Results) -> Vec<&'static Contestant> {
        let median =
            |one: &Contestant, key: &str| results.samples(self.case, one.name, key).map(|all| all.median());
        let rank = |one: &Contestant| {
            let first = self.columns.first().and_then(|(key, _)| median(one, key));
            first.map_or(f64::INFINITY, |figure| if self.is_more_better { -figure } else { figure })
        };
        let has_figures = |one: &&Contestant| self.columns.iter().any(|(key, _)| median(one, key).is_some());
        let mut rows: Vec<&Contestant> = CONTESTANTS.iter().filter(has_figures).collect();
        rows.sort_by(|one, other| rank(one).total_cmp(&rank(other)));
        rows
    }
}
