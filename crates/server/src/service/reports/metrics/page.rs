//! Writes metrics in Prometheus' text format.

use crate::record::SharedTimes;
use core::fmt::{self, Write as _};
use core::ops::Deref;
use std::borrow::Cow;
use tourbillon_durable::Times;

/// Escapes a label value as Prometheus reads it. A program may have stored timers in a namespace with any name.
fn escaped(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return value.into();
    }
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n").into()
}

/// A page of metrics, or a part of such a page. The name of each metric begins with `prefix`.
#[derive(Debug)]
pub(super) struct Page {
    prefix: &'static str,
    text: String,
}

impl Page {
    pub(super) fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Appends the metrics of another page to this page.
    pub(super) fn add(&mut self, other: &Self) {
        self.text.push_str(&other.text);
    }

    /// Appends metrics that are already in Prometheus' text format.
    pub(super) fn add_text(&mut self, text: impl fmt::Display) {
        let _infallible = write!(self.text, "{text}");
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        let _infallible = write!(self.text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}\n");
    }

    /// Writes a value of a metric, with labels. Escapes the label values.
    pub(super) fn value(&mut self, name: &str, labels: &[(&str, &str)], value: &dyn fmt::Display) {
        let labels: Vec<_> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _infallible = writeln!(self.text, "{}{name}{labels} {value}", self.prefix);
    }

    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: &dyn fmt::Display) {
        self.family(name, kind, help);
        self.value(name, &[], value);
    }

    /// Writes a metric that has one label. `values` contains pairs of a label value and the metric's value for it.
    pub(super) fn by_label<W: AsRef<str>, V: fmt::Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (W, V)>,
    ) {
        self.family(name, kind, help);
        values.into_iter().for_each(|(word, value)| self.value(name, &[(label, word.as_ref())], &value));
    }

    /// Writes a metric that has one label. `times` contains pairs of a label value and the durations for its histogram.
    pub(super) fn histograms<T: Deref<Target = SharedTimes>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        times: impl IntoIterator<Item = (&'static str, T)>,
    ) {
        self.family(name, "histogram", help);
        times.into_iter().for_each(|(word, times)| self.histogram(name, (label, word), &times.get()));
    }

    fn histogram(&mut self, name: &str, label: (&str, &str), times: &Times) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in times.buckets() {
            self.value(&bucket, &[label, ("le", &bound.as_secs_f64().to_string())], &count);
        }
        self.value(&bucket, &[label, ("le", "+Inf")], &times.count);
        self.value(&format!("{name}_sum"), &[label], &times.sum.as_secs_f64());
        self.value(&format!("{name}_count"), &[label], &times.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_value_with_a_quote_a_backslash_or_a_line_feed_stays_one_value() {
        let mut page = Page::new("p_");
        page.by_label("n", "gauge", "Help.", "namespace", [("a\"b\\c\nd", 1), ("plain", 2)]);
        let expected = "# HELP p_n Help.\n# TYPE p_n gauge\np_n{namespace=\"a\\\"b\\\\c\\nd\"} 1\np_n{namespace=\"plain\"} 2\n";
        assert_eq!(page.into_text(), expected);
    }
}
