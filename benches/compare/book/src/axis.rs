//! Axes of plots: the positions of values and of the marks on an axis, the ticks.

use crate::figure::figure;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use std::ops::Range;

/// A tick of an axis: its value and its text. A tick with an empty text is only a line.
type Tick = (f64, String);

/// The largest ratio of a logarithmic axis's ends at which all ticks have a text. Texts side by side have room for two
/// decades, and texts above each other (`UP`) for three.
pub const ACROSS: f64 = 100.0;
pub const UP: f64 = 1_000.0;

#[derive(Clone, Debug)]
pub struct Axis {
    is_log: bool,
    range: Range<f64>,
    ticks: Vec<Tick>,
}

impl Axis {
    /// Makes a logarithmic axis. Both ends are numbers of the series 1, 2, 5, 10 and so on. If the upper end is more
    /// than `dense` times the lower end, only the powers of ten have a text. The axis shows values of zero or less at
    /// its lower end.
    pub fn log(dense: f64, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = ends(values.filter(|value| *value > 0.0));
        let (below, above) = (least.log10().floor(), most.log10().ceil() + 1.0);
        let decades = (0..).map(|decade| below + f64::from(decade)).take_while(|decade| *decade <= above);
        let steps = decades.map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powf(decade)));
        let steps: Vec<[f64; 3]> = steps.collect();
        let all = || steps.iter().flatten().copied();
        let first = all().filter(|value| *value <= least).fold(steps[0][0], f64::max);
        let last = all().filter(|value| *value > first && *value >= most).fold(f64::INFINITY, f64::min);
        let has_text = |value| last / first <= dense || steps.iter().any(|decade| decade[0] == value);
        let ticks = all().filter(|value| (first..=last).contains(value));
        let ticks = ticks.map(|value| if has_text(value) { tick(value) } else { (value, String::new()) });
        Self { is_log: true, range: first..last, ticks: ticks.collect() }
    }

    /// Makes a linear axis that begins at zero.
    pub fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (_, most) = ends(values);
        let power = 10_f64.powf(most.log10().floor());
        let step = [0.2, 0.5, 1.0, 2.0].map(|part| part * power).into_iter().find(|step| most / step <= 6.0);
        let step = step.unwrap_or(most);
        let ticks = (0..).map(|count| f64::from(count) * step).take_while(|value| *value < most + step / 4.0);
        let ticks: Vec<Tick> = ticks.map(tick).collect();
        let end = ticks.last().map_or(most, |(last, _)| last.max(most));
        Self { is_log: false, range: 0.0..end, ticks }
    }

    /// Makes an axis on which quantiles have equal distances: the first quantile is at 0, the next at 1 and so on.
    pub fn quantiles(quantiles: &[f64]) -> Self {
        let text = |quantile: &f64| short(format!("{:.4}", quantile * 100.0));
        let ticks: Vec<Tick> = (0..).map(f64::from).zip(quantiles.iter().map(text)).collect();
        let last = ticks.last().map_or(1.0, |(at, _)| at.max(1.0));
        Self { is_log: false, range: 0.0..last, ticks }
    }

    /// Makes an axis for `count` rows from the top down. The first row is at 0.
    pub fn rows(count: usize) -> Self {
        let count = u32::try_from(count).map_or(f64::MAX, f64::from);
        Self { is_log: false, range: count - 0.5..-0.5, ticks: Vec::new() }
    }

    #[must_use]
    pub fn start(&self) -> f64 {
        self.range.start
    }

    #[must_use]
    pub fn end(&self) -> f64 {
        self.range.end
    }

    /// Returns the coordinate of a value on the axis. It is the value's logarithm on a logarithmic axis, and the value
    /// itself on other axes.
    fn at(&self, value: f64) -> f64 {
        if self.is_log { value.max(self.range.start).log10() } else { value }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let range = self.at(self.range.start)..self.at(self.range.end);
        RangedCoordf64::from(range).map(&self.at(*value), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let is_light = hint.weight().allow_light_points();
        let ticks = self.ticks.iter().filter(|(_, text)| text.is_empty() == is_light);
        ticks.map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.ticks.iter().find(|tick| tick.0 == *value).map_or_else(String::new, |tick| tick.1.clone())
    }
}

fn tick(value: f64) -> Tick {
    (value, short(figure(value)))
}

/// Removes the zeros at the end of the fraction in `text`, which is a number.
fn short(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Returns the smallest and the largest of `values`. Returns 1 and 1 without values.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = |(least, most): (f64, f64), value: f64| (least.min(value), most.max(value));
    values.map(|value| (value, value)).reduce(|all, (value, _)| ends(all, value)).unwrap_or((1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).filter(|text| !text.is_empty()).collect()
    }

    #[test]
    fn ticks_of_a_logarithmic_axis_reach_around_all_values() {
        assert_eq!(
            texts(&Axis::log(ACROSS, [12.0, 300.0].into_iter())),
            ["10", "20", "50", "100", "200", "500"]
        );
        assert_eq!(texts(&Axis::log(ACROSS, [0.06, 300.0].into_iter())), ["0.1", "1", "10", "100"]);
        assert_eq!(texts(&Axis::log(ACROSS, [1e3, 1e7].into_iter())).last(), Some(&"10,000,000"));
        assert_eq!(texts(&Axis::log(ACROSS, [3.0].into_iter())), ["2", "5"]);
    }

    #[test]
    fn zero_stands_at_the_end_of_a_logarithmic_axis() {
        let axis = Axis::log(ACROSS, [0.0, 10.0, 100.0].into_iter());
        assert_eq!([0.0, 10.0, 100.0].map(|value| axis.map(&value, (0, 300))), [0, 0, 300]);
    }

    #[test]
    fn a_linear_axis_begins_at_zero() {
        assert_eq!(texts(&Axis::linear([420.0].into_iter())), ["0", "100", "200", "300", "400"]);
        let axis = Axis::linear([1_970.0].into_iter());
        assert_eq!(texts(&axis), ["0", "500", "1,000", "1,500", "2,000"]);
        assert_eq!(axis.end(), 2_000.0);
    }

    #[test]
    fn quantiles_are_percent() {
        assert_eq!(texts(&Axis::quantiles(&[0.5, 0.999, 0.9999, 1.0])), ["50", "99.9", "99.99", "100"]);
    }
}
