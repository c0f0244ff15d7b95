//! Figures as text: three significant digits, a comma for each thousand.

use crate::case::thousands;
use crate::results::{Column, Samples};

impl Column {
    pub(crate) fn with_unit(&self) -> String {
        if self.unit.is_empty() { self.heading.clone() } else { format!("{} ({})", self.heading, self.unit) }
    }
}

impl Samples {
    /// The range of the figures, unless they are one figure, each written by `text`.
    pub(crate) fn range(&self, text: impl Fn(f64) -> String) -> String {
        if self.min() == self.max() {
            return String::new();
        }
        format!(" ({}..{})", text(self.min()), text(self.max()))
    }

    pub(crate) fn mark(&self) -> &'static str {
        if self.is_disturbed() { " ~" } else { "" }
    }
}

/// As `1.23`, `12.3`, `123`, `1,230`.
pub(crate) fn figure(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value < 0.0 {
        return format!("-{}", figure(-value));
    }
    let scientific = format!("{value:.2e}");
    let Some((_, exponent)) = scientific.split_once('e') else { return "-".to_owned() };
    let exponent: i32 = exponent.parse().expect("an exponent");
    let rounded: f64 = scientific.parse().expect("a number");
    match usize::try_from(2 - exponent) {
        Ok(decimals) => format!("{rounded:.decimals$}"),
        _ => grouped(rounded),
    }
}

/// A count, to the last digit.
pub(crate) fn count(value: f64) -> String {
    if value.fract() == 0.0 && value >= 0.0 { grouped(value) } else { figure(value) }
}

fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    digits.parse().map_or(digits, thousands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_significant_digits() {
        let figures =
            [0.0, 0.001_234, 0.25, 1.236, 9.999, 12.34, 48.0, 99.96, 123.4, 999.9, 12_345.0, 1e7, -1.5];
        let texts = figures.map(figure);
        let expected = [
            "0",
            "0.00123",
            "0.250",
            "1.24",
            "10.0",
            "12.3",
            "48.0",
            "100",
            "123",
            "1,000",
            "12,300",
            "10,000,000",
            "-1.50",
        ];
        assert_eq!(texts, expected);
        assert_eq!(figure(f64::NAN), "-");
    }

    #[test]
    fn counts_keep_all_their_digits() {
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!(count(0.5), "0.500");
    }

    #[test]
    fn a_range_is_given_where_rounds_differ() {
        assert_eq!(Samples::new(&[2.0, 2.5, 3.0]).range(figure), " (2.00..3.00)");
        assert_eq!(Samples::new(&[599_877.0, 599_990.0, 600_000.0]).range(count), " (599,877..600,000)");
        assert_eq!(Samples::new(&[2.0]).range(figure), "");
        assert_eq!(Samples::new(&[2.0, 2.0]).mark(), "");
        assert_eq!(Samples::new(&[2.0, 3.0]).mark(), " ~");
    }
}
