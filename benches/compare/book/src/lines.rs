//! Line plots.

use crate::Plot;
use crate::axis::Axis;
use crate::canvas::{self, Area, Drawn, INK, Pen, Plotting, label, text};
use plotters::chart::ChartBuilder;
use plotters::element::{EmptyElement, PathElement};
use plotters::series::LineSeries;
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

const LABELS_WIDTH: u32 = 278;
const LABEL_HEIGHT: i32 = 17;
const LEGEND_COLUMNS: usize = 3;
const LEGEND_HEIGHT: u32 = 22;

#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub pen: Pen,
    pub points: Vec<(f64, f64)>,
}

/// Several lines that are drawn on the same axes.
#[derive(Debug)]
pub struct Panel {
    pub y_title: String,
    pub x_title: &'static str,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

/// Draws one panel. Each line has its name at its end.
///
/// # Errors
/// Fails if the panel cannot be drawn.
pub fn labelled(title: &str, panel: &Panel) -> Plot {
    if panel.lines.is_empty() {
        return Ok(None);
    }
    canvas::draw(title, 440, |area| panel.draw(area, true)).map(Some)
}

/// Draws several panels with a title, under one legend.
///
/// # Errors
/// Fails if a panel cannot be drawn.
pub fn grid(title: &str, columns: usize, panels: &[Panel]) -> Plot {
    if panels.iter().all(|panel| panel.lines.is_empty()) {
        return Ok(None);
    }
    let mut lines: Vec<&Line> = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        if lines.iter().all(|known| known.name != line.name) {
            lines.push(line);
        }
    }
    let legend_height = canvas::count(lines.len().div_ceil(LEGEND_COLUMNS)) * LEGEND_HEIGHT + 20;
    let rows = panels.len().div_ceil(columns);
    let svg = canvas::draw(title, legend_height + canvas::count(rows) * 236, |area| {
        let (head, body) = area.split_vertically(legend_height);
        legend(&head, &lines)?;
        let areas = body.split_evenly((rows, columns));
        panels.iter().zip(&areas).try_for_each(|(panel, area)| panel.draw(area, false))
    });
    svg.map(Some)
}

fn legend(area: &Area<'_>, lines: &[&Line]) -> Drawn {
    let cells = area.split_evenly((lines.len().div_ceil(LEGEND_COLUMNS), LEGEND_COLUMNS));
    for (line, cell) in lines.iter().zip(&cells) {
        cell.draw(&PathElement::new(vec![(8, 10), (32, 10)], line.pen.style()))?;
        cell.draw_text(&line.name, &line.pen.text(), (40, 10))?;
    }
    Ok(())
}

impl Panel {
    fn draw(&self, area: &Area<'_>, has_names: bool) -> Drawn {
        let mut chart = ChartBuilder::on(area);
        chart.margin_right(if has_names { LABELS_WIDTH } else { 24 }).margin_top(24);
        chart.x_label_area_size(42).y_label_area_size(72);
        let mut chart = chart.build_cartesian_2d(self.x.clone(), self.y.clone())?;
        canvas::mesh(&mut chart, self.x_title)?;
        let corner = (self.x.start(), self.y.end());
        label(chart.plotting_area(), corner, (-4, -14), &self.y_title, text(12.0, INK, HPos::Left))?;
        // The first line is ours. It is drawn last, on top.
        for line in self.lines.iter().rev() {
            let radius = if has_names { line.pen.width + 1 } else { 0 };
            let points = line.points.iter().copied();
            chart.draw_series(LineSeries::new(points, line.pen.style()).point_size(radius))?;
        }
        if has_names {
            self.draw_names(chart.plotting_area())?;
        }
        Ok(())
    }

    /// Draws each line's name at the height of the line's end. Names that would overlap are moved.
    fn draw_names(&self, area: &Plotting<'_>) -> Drawn {
        let mut ends: Vec<(&Line, (f64, f64))> =
            self.lines.iter().filter_map(|line| Some((line, *line.points.last()?))).collect();
        ends.sort_by(|(_, (_, one)), (_, (_, other))| other.total_cmp(one));
        let pixels: Vec<(i32, i32)> = ends.iter().map(|(_, end)| area.map_coordinate(end)).collect();
        let (across, down) = area.get_pixel_range();
        let heights = apart(&pixels.iter().map(|(_, y)| *y).collect::<Vec<_>>(), down.end);
        for (((line, end), (x, y)), height) in ends.into_iter().zip(pixels).zip(heights) {
            let (dx, dy) = (across.end - x + 22, height - y);
            let leader = vec![(6, 0), (across.end - x + 6, 0), (dx - 4, dy)];
            area.draw(&(EmptyElement::at(end) + PathElement::new(leader, line.pen.colour.mix(0.6))))?;
            label(area, end, (dx, dy), &line.name, line.pen.text())?;
        }
        Ok(())
    }
}

/// Returns the heights of labels, moved so that no two labels overlap. Works from the top down, and leaves no label
/// below `bottom`.
fn apart(heights: &[i32], bottom: i32) -> Vec<i32> {
    let mut placed: Vec<i32> = Vec::new();
    for height in heights {
        let free = placed.last().map_or(*height, |last| last + LABEL_HEIGHT);
        placed.push(free.max(*height));
    }
    let mut limit = bottom;
    for height in placed.iter_mut().rev() {
        *height = limit.min(*height);
        limit = *height - LABEL_HEIGHT;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_moved_apart() {
        assert_eq!(apart(&[10, 50, 90], 100), [10, 50, 90]);
        assert_eq!(apart(&[10, 12, 14], 100), [10, 27, 44]);
        assert_eq!(apart(&[10, 98, 99], 100), [10, 83, 100]);
    }
}
