//! Writes statistics in Prometheus' text format.

use super::series::{Read, SERIES, Series, Value};
use super::{Lateness, Stats};
use core::fmt::{self, Display, Formatter, Write};

/// Statistics in Prometheus' text exposition format, version 0.0.4. `Display` prints the body of the response to a
/// scrape.
///
/// The name of each series begins with `tourbillon_engine_`. Times are in seconds, and a shard's series have the label
/// `shard`. Lateness is a histogram with the bounds of [`Lateness::BOUNDS`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let mut engine = Builder::new().driven(|_| {})?;
/// engine.handle().schedule(Duration::from_secs(1), ())?;
/// engine.advance(Duration::from_secs(2));
/// let page = engine.handle().stats().prometheus().to_string();
/// let fired = "\n# TYPE tourbillon_engine_fired_total counter\ntourbillon_engine_fired_total{shard=\"0\"} 1\n";
/// assert!(page.contains(fired));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Prometheus<'a> {
    engines: Vec<(Option<&'a str>, &'a Stats)>,
}

impl Stats {
    /// Returns the snapshot in the format that Prometheus reads.
    #[must_use]
    pub fn prometheus(&self) -> Prometheus<'_> {
        Prometheus::new(self)
    }
}

impl<'a> Prometheus<'a> {
    /// The value of the header `Content-Type` for this format.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    pub(super) fn new(stats: &'a Stats) -> Self {
        Self { engines: vec![(None, stats)] }
    }

    /// Returns the statistics of several engines. The label `engine` distinguishes the engines, so each engine needs
    /// its own name.
    ///
    /// ```
    /// use tourbillon::{Builder, Prometheus};
    ///
    /// let engines = [4, 8].map(|capacity| Builder::new().capacity(capacity).driven(|_: tourbillon::Fired<'_, ()>| {}));
    /// let [http, jobs] = engines.map(|engine| engine.unwrap().handle().stats());
    /// let page = Prometheus::of([("http", &http), ("jobs", &jobs)]).to_string();
    /// for sample in [r#"tourbillon_engine_capacity{engine="http"} 4"#, r#"tourbillon_engine_capacity{engine="jobs"} 8"#] {
    ///     assert!(page.lines().any(|line| line == sample));
    /// }
    /// ```
    pub fn of(engines: impl IntoIterator<Item = (&'a str, &'a Stats)>) -> Self {
        Self { engines: engines.into_iter().map(|(name, stats)| (Some(name), stats)).collect() }
    }
}

impl Display for Prometheus<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for series in &SERIES {
            let kind = match series.read {
                Read::Lateness(_) => "histogram",
                _ if series.is_counter() => "counter",
                _ => "gauge",
            };
            writeln!(f, "# HELP {} {}", series.name, series.help)?;
            writeln!(f, "# TYPE {} {kind}", series.name)?;
            for &(engine, stats) in &self.engines {
                write_samples(f, series, engine, stats)?;
            }
        }
        Ok(())
    }
}

fn write_samples(f: &mut Formatter<'_>, series: &Series, engine: Option<&str>, stats: &Stats) -> fmt::Result {
    let of_engine = Labels { engine, ..Labels::default() };
    match series.read {
        Read::Engine(read) => return write_sample(f, series.name, &of_engine, read(stats)),
        Read::Source(read) => {
            let labels = Labels { source: Some(read(stats)), ..of_engine };
            return write_sample(f, series.name, &labels, Value::Count(1));
        }
        Read::Shard(_) | Read::Lateness(_) => {}
    }
    for (index, shard) in stats.shards.iter().enumerate() {
        let labels = Labels { shard: Some(index), ..of_engine };
        match series.read {
            Read::Engine(_) | Read::Source(_) => {}
            Read::Shard(read) => write_sample(f, series.name, &labels, read(shard))?,
            Read::Lateness(read) => write_histogram(f, series.name, labels, read(shard))?,
        }
    }
    Ok(())
}

fn write_histogram(
    f: &mut Formatter<'_>,
    name: &str,
    labels: Labels<'_>,
    lateness: &Lateness,
) -> fmt::Result {
    let count = Value::Count(lateness.count);
    let bound_of = |bound| Labels { bound: Some(bound), ..labels };
    for (bound, within) in lateness.buckets() {
        write_sample(f, format_args!("{name}_bucket"), &bound_of(bound.as_secs_f64()), Value::Count(within))?;
    }
    write_sample(f, format_args!("{name}_bucket"), &bound_of(f64::INFINITY), count)?;
    write_sample(f, format_args!("{name}_sum"), &labels, Value::Time(lateness.sum))?;
    write_sample(f, format_args!("{name}_count"), &labels, count)
}

fn write_sample(f: &mut Formatter<'_>, name: impl Display, labels: &Labels<'_>, value: Value) -> fmt::Result {
    match value {
        Value::Count(count) => writeln!(f, "{name}{labels} {count}"),
        Value::Time(time) => writeln!(f, "{name}{labels} {}", time.as_secs_f64()),
    }
}

/// The labels of a sample. `Display` prints them in braces, and nothing if no label is set.
#[derive(Clone, Copy, Default)]
struct Labels<'a> {
    engine: Option<&'a str>,
    shard: Option<usize>,
    source: Option<&'a str>,
    /// The upper bound of a histogram's bucket, for the label `le`; `None` for samples without that label.
    bound: Option<f64>,
}

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut separator = '{';
        if let Some(engine) = self.engine {
            write!(f, "{separator}engine=\"")?;
            write_escaped(f, engine)?;
            f.write_char('"')?;
            separator = ',';
        }
        if let Some(shard) = self.shard {
            write!(f, "{separator}shard=\"{shard}\"")?;
            separator = ',';
        }
        if let Some(source) = self.source {
            write!(f, "{separator}source=\"{source}\"")?;
            separator = ',';
        }
        match self.bound {
            Some(bound) if bound.is_infinite() => write!(f, "{separator}le=\"+Inf\"")?,
            Some(bound) => write!(f, "{separator}le=\"{bound}\"")?,
            None => {}
        }
        let has_any =
            self.engine.is_some() || self.shard.is_some() || self.source.is_some() || self.bound.is_some();
        f.write_str(if has_any { "}" } else { "" })
    }
}

/// Writes the value of a label in escaped form: with a backslash before each backslash and quote, and with `\n` in
/// place of a line break.
fn write_escaped(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        match c {
            '\\' | '"' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            _ => f.write_char(c)?,
        }
    }
    Ok(())
}
