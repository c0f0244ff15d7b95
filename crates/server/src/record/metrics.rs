//! Numbers and histograms of deliveries since the start, for machines.

use super::by_word::ByWord;
use super::tenants::Tenants;
use crate::state::Counter;
use core::time::Duration;
use tourbillon_api::RepeatCause;

/// The upper bounds of the buckets, in seconds, as they are written.
pub(crate) const BOUNDS: [(&str, f64); 16] = [
    ("0.001", 0.001),
    ("0.0025", 0.0025),
    ("0.005", 0.005),
    ("0.01", 0.01),
    ("0.025", 0.025),
    ("0.05", 0.05),
    ("0.1", 0.1),
    ("0.25", 0.25),
    ("0.5", 0.5),
    ("1", 1.0),
    ("2.5", 2.5),
    ("5", 5.0),
    ("10", 10.0),
    ("30", 30.0),
    ("300", 300.0),
    ("3600", 3_600.0),
];

/// StoreTimes in the buckets of a machine's page.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One more than bounds: the last bucket has none.
    counts: [Counter; BOUNDS.len() + 1],
    micros: Counter,
}

impl Histogram {
    pub(crate) fn note(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.counts[BOUNDS.partition_point(|(_, bound)| *bound < seconds)].add(1);
        self.micros.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// The numbers of times up to each bound, then of all, and their sum in seconds.
    pub(crate) fn read(&self) -> ([u64; BOUNDS.len() + 1], f64) {
        let mut sum = 0;
        let counts = self.counts.each_ref().map(|count| {
            sum += count.get();
            sum
        });
        #[expect(clippy::cast_precision_loss, reason = "2^53 µs are 285 years")]
        let seconds = self.micros.get() as f64 / 1e6;
        (counts, seconds)
    }
}

/// The numbers of deliveries since the start.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// From the due moment to the start of the delivery: until the request is sent, or a receiver has the timer.
    pub(crate) to_start: Histogram,
    /// From the due moment of a delivery that succeeded until its end is stored.
    pub(crate) to_ack: Histogram,
    /// Deliveries that have ended, by their outcome.
    pub(crate) fired: ByWord<Counter, 7>,
    /// Timers that died, by the reason.
    pub(crate) dead: ByWord<Counter, 6>,
    /// Deliveries that a receiver may have had and gets again, by the cause.
    pub(crate) duplicates: ByWord<Counter, 5>,
    /// Callbacks, by the class of the answer.
    pub(crate) callbacks: ByWord<Histogram, 8>,
    /// The numbers by namespace.
    pub(crate) tenants: Tenants,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            to_start: Histogram::default(),
            to_ack: Histogram::default(),
            fired: ByWord::new(["delivered", "failed", "dead", "parked", "skipped", "given-back", "lost"]),
            dead: ByWord::new(["blocked-destination", "gone", "deliveries", "plan", "failures", "refused"]),
            duplicates: ByWord::new(["no-answer", "lease-lost", "end-lost", "given-back", "process-died"]),
            callbacks: ByWord::new(["2xx", "3xx", "4xx", "5xx", "timeout", "connection", "blocked", "other"]),
            tenants: Tenants::default(),
        }
    }
}

/// The word of a cause.
pub(crate) fn cause_name(cause: RepeatCause) -> &'static str {
    match cause {
        RepeatCause::NoAnswer => "no-answer",
        RepeatCause::LeaseLost => "lease-lost",
        RepeatCause::EndLost => "end-lost",
        RepeatCause::GivenBack => "given-back",
        _ => "process-died",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_the_times_up_to_its_bound() {
        let histogram = Histogram::default();
        for millis in [0, 1, 2, 1_000, 1_001, 7_200_000] {
            histogram.note(Duration::from_millis(millis));
        }
        let (counts, sum) = histogram.read();
        assert_eq!((counts[0], counts[1], counts[9], counts[10]), (2, 3, 4, 5));
        assert_eq!((counts[BOUNDS.len() - 1], counts[BOUNDS.len()]), (5, 6));
        assert!((sum - 7_202.004).abs() < 1e-6, "{sum}");
        for (text, bound) in BOUNDS {
            assert_eq!(text.parse(), Ok(bound));
        }
    }
}
