//! The writer of a page in Prometheus' text format.

use crate::record::{BOUNDS, Histogram};
use core::fmt::{self, Write as _};

/// A page, or a part of a page. The names of its series begin alike.
#[derive(Debug)]
pub(super) struct Page {
    prefix: &'static str,
    text: String,
}

impl Page {
    pub(super) fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Adds the series of another page.
    pub(super) fn add(&mut self, other: &Self) {
        self.text.push_str(&other.text);
    }

    /// Adds series that are in the format already.
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

    /// `labels` have values without quotes, backslashes and line feeds.
    pub(super) fn value(&mut self, name: &str, labels: &[(&str, &str)], value: &dyn fmt::Display) {
        let labels: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _infallible = writeln!(self.text, "{}{name}{labels} {value}", self.prefix);
    }

    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: &dyn fmt::Display) {
        self.family(name, kind, help);
        self.value(name, &[], value);
    }

    pub(super) fn histogram(&mut self, name: &str, label: (&str, &str), times: &Histogram) {
        let (counts, sum) = times.read();
        let bounds = BOUNDS.iter().map(|(text, _)| *text).chain(["+Inf"]);
        for (bound, count) in bounds.zip(counts) {
            self.value(&format!("{name}_bucket"), &[label, ("le", bound)], &count);
        }
        self.value(&format!("{name}_sum"), &[label], &sum);
        self.value(&format!("{name}_count"), &[label], &counts[BOUNDS.len()]);
    }
}
