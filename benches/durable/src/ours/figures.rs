//! The figures of a turn.

use super::deliveries::Noted;
use super::tools::per;
use crate::results::Figures;
use hdrhistogram::Histogram;
use std::time::Duration;

/// The number of calls a second, and two quantiles of a call's time in milliseconds.
pub(crate) struct Pace {
    pub(crate) rate: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Pace {
    /// Computes the pace of `total` calls in `time`. `times` has the nanoseconds of each call.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    pub(crate) fn of(total: usize, time: Duration, times: &Histogram<u64>) -> Self {
        let quantile = |part: f64| times.value_at_quantile(part) as f64 / 1e6;
        Self { rate: total as f64 / time.as_secs_f64(), p50_ms: quantile(0.5), p99_ms: quantile(0.99) }
    }
}

#[derive(Default)]
pub(crate) struct Numbers(pub(crate) Figures);

impl Numbers {
    pub(crate) fn put(&mut self, key: impl Into<String>, figure: f64) {
        self.0.numbers.insert(key.into(), figure);
    }

    pub(crate) fn pace(&mut self, name: &str, pace: &Pace) {
        self.put(format!("{name}_rate"), pace.rate);
        self.put(format!("{name}_p50_ms"), pace.p50_ms);
        self.put(format!("{name}_p99_ms"), pace.p99_ms);
    }

    /// Adds quantiles of the deliveries' lateness to the figures, under keys that begin with `prefix`.
    pub(crate) fn late(&mut self, prefix: &str, noted: Noted) {
        self.late_of(prefix, noted.late_ms);
    }

    /// Adds quantiles of times in milliseconds to the figures.
    pub(super) fn late_of(&mut self, prefix: &str, mut late: Vec<f64>) {
        late.sort_unstable_by(f64::total_cmp);
        let Some(last) = late.len().checked_sub(1) else { return };
        for (key, per_mille) in
            [("min", 0), ("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999), ("max", 1_000)]
        {
            self.put(format!("{prefix}{key}_ms"), late[(late.len() * per_mille / 1_000).min(last)]);
        }
    }

    /// Adds the rate of deliveries of a herd to the figures. A herd is timers that were all due at the moment `due`.
    pub(crate) fn herd(&mut self, noted: &Noted, due: f64) {
        self.put("rate", 1.0 / per(noted.last - due, noted.late_ms.len()));
        self.put("last_ms", (noted.last - due) * 1_000.0);
        self.put("first_ms", (noted.first - due) * 1_000.0);
    }
}
