//! Publishes statistics through the `metrics` facade.

use super::Stats;
use super::series::{Read, SERIES, Series, Value};
use metrics::{Label, SharedString, Unit};

impl Stats {
    /// Describes every series that [`record`](Self::record) publishes. A program calls it once for each recorder.
    pub fn describe() {
        for series in &SERIES {
            let unit = if series.is_time() { Unit::Seconds } else { Unit::Count };
            if series.is_facade_counter() {
                metrics::describe_counter!(series.name, unit, series.help);
            } else {
                metrics::describe_gauge!(series.name, unit, series.help);
            }
        }
    }

    /// Publishes the snapshot to the installed recorder of the `metrics` facade. A program calls it regularly: before
    /// each scrape, or every ten seconds.
    ///
    /// The series are the same as in [`prometheus`](Self::prometheus), with two exceptions. Lateness is published as
    /// gauges with the label `quantile`, where 1 is the maximum, because the facade cannot set a histogram. Sums of
    /// seconds are gauges, because the facade's counters are whole numbers.
    ///
    /// # Time complexity
    ///
    /// O(shards), plus the recorder's time for some thirty series.
    pub fn record(&self) {
        self.record_with(None);
    }

    /// Publishes the snapshot as [`record`](Self::record) does, with the label `engine`. This is for processes with
    /// more than one engine.
    pub fn record_as(&self, engine: impl Into<SharedString>) {
        self.record_with(Some(&engine.into()));
    }

    fn record_with(&self, engine: Option<&SharedString>) {
        let of_engine: Vec<Label> =
            engine.map(|engine| Label::new("engine", engine.clone())).into_iter().collect();
        for series in &SERIES {
            match series.read {
                Read::Engine(read) => series.set(of_engine.clone(), read(self)),
                Read::Source(read) => series.set(with(&of_engine, "source", read(self)), Value::Count(1)),
                Read::Shard(_) | Read::Lateness(_) => {}
            }
        }
        for (index, shard) in self.shards.iter().enumerate() {
            let of_shard = with(&of_engine, "shard", index.to_string());
            for series in &SERIES {
                match series.read {
                    Read::Engine(_) | Read::Source(_) => {}
                    Read::Shard(read) => series.set(of_shard.clone(), read(shard)),
                    Read::Lateness(read) => {
                        let lateness = read(shard);
                        let quantiles = [
                            ("0.5", lateness.p50),
                            ("0.99", lateness.p99),
                            ("0.999", lateness.p999),
                            ("1", lateness.max),
                        ];
                        for (quantile, time) in quantiles {
                            series.set(with(&of_shard, "quantile", quantile), Value::Time(time));
                        }
                    }
                }
            }
        }
    }
}

impl Series {
    fn is_facade_counter(&self) -> bool {
        self.is_counter() && !self.is_time()
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    fn set(&self, labels: Vec<Label>, value: Value) {
        match value {
            Value::Count(count) if self.is_facade_counter() => {
                metrics::counter!(self.name, labels).absolute(count);
            }
            Value::Count(count) => metrics::gauge!(self.name, labels).set(count as f64),
            Value::Time(time) => metrics::gauge!(self.name, labels).set(time.as_secs_f64()),
        }
    }
}

fn with(labels: &[Label], key: &'static str, value: impl Into<SharedString>) -> Vec<Label> {
    let mut labels = labels.to_vec();
    labels.push(Label::new(key, value));
    labels
}
