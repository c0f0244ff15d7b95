//! Sizes in sentences, and figures in tables.

use crate::results::Samples;
use serde_json::Value;
use tourbillon_book::figure::{count, figure};

/// Replaces placeholders such as `{one}` in a text by the sizes of a case.
pub(super) fn fill_in(text: &str, sizes: &Value) -> String {
    let fill = |text: String, (key, size): (&String, &Value)| {
        text.replace(&format!("{{{key}}}"), &count(size.as_f64().unwrap_or(f64::NAN)))
    };
    sizes.as_object().into_iter().flatten().fold(text.to_owned(), fill)
}

pub(super) fn cell(samples: &Samples) -> String {
    let (least, most) = samples.range();
    let median = figure(samples.median());
    if least == most { median } else { format!("{median} ({}..{})", figure(least), figure(most)) }
}
