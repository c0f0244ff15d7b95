//! Headings and ranges as text.

use crate::results::{Column, Samples};

impl Column {
    pub(crate) fn with_unit(&self) -> String {
        if self.unit.is_empty() { self.heading.clone() } else { format!("{} ({})", self.heading, self.unit) }
    }
}

impl Samples {
    /// Returns the smallest and largest figure, written by `text`. Returns an empty text if all figures are the same.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_book::figure::{count, figure};

    #[test]
    fn a_range_is_given_where_rounds_differ() {
        assert_eq!(Samples::new(&[2.0, 2.5, 3.0]).range(figure), " (2.00..3.00)");
        assert_eq!(Samples::new(&[599_877.0, 599_990.0, 600_000.0]).range(count), " (599,877..600,000)");
        assert_eq!(Samples::new(&[2.0]).range(figure), "");
        assert_eq!(Samples::new(&[2.0, 2.0]).mark(), "");
        assert_eq!(Samples::new(&[2.0, 3.0]).mark(), " ~");
    }
}
