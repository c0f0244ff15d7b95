//! The publisher of the books of benchmarks: figures as text, plots, and files that are written or checked.

pub mod axis;
pub mod canvas;
pub mod figure;
pub mod files;
pub mod lines;

use std::error::Error;

/// The SVG text of a plot. `None` if there are no figures to draw.
pub type Plot = Result<Option<String>, Box<dyn Error>>;
