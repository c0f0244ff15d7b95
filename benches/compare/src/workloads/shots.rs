//! Timers that come due while everybody watches: when each was due, when its handler was called, and what that says.

use crate::case::Case;
use crate::common::payload;
use crate::contestants::{Caller, OnFire, OneShots, Stopwatch};
use crate::process::cpu_time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What handlers noted. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Shots {
    pub(super) clock: Stopwatch,
    /// When each was called, in ns; 0 before that.
    fired_at: Arc<[AtomicU64]>,
}

/// How timers went that were all scheduled before the first was due.
pub(super) struct Volley {
    /// Late by so much, in ns, in the order of scheduling; negative if early.
    pub(super) lateness: Vec<i64>,
    pub(super) nanos_per_insert: f64,
    /// From the last insert to the last handler.
    pub(super) cpu: Option<Duration>,
}

/// What is not done by then was lost.
const PATIENCE: Duration = Duration::from_secs(60);

impl Shots {
    pub(super) fn new(clock: Stopwatch, count: usize) -> Self {
        Self { clock, fired_at: (0..count).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn handler(&self) -> impl OnFire + use<> {
        let shots = self.clone();
        move |[number, check]| {
            assert_eq!(number, !check);
            let now = shots.clock.nanos().max(1);
            let before =
                shots.fired_at[usize::try_from(number).expect("an index")].swap(now, Ordering::Relaxed);
            assert_eq!(before, 0, "timer {number} fired twice");
        }
    }

    /// When timer `number` fired, if it has.
    pub(super) fn fired_at(&self, number: usize) -> Option<u64> {
        let at = self.fired_at[number].load(Ordering::Relaxed);
        (at > 0).then_some(at)
    }

    /// Waits until all have fired that `must`.
    pub(super) async fn wait<C: Caller>(&self, caller: &mut C, must: impl Fn(usize) -> bool) {
        let start = self.clock.nanos();
        for number in (0..self.fired_at.len()).filter(|&number| must(number)) {
            while self.fired_at(number).is_none() {
                let waited = Duration::from_nanos(self.clock.nanos() - start);
                assert!(waited < PATIENCE, "timer {number} has not fired");
                caller.pass(Duration::from_millis(1)).await;
            }
        }
    }
}

impl Volley {
    /// Schedules a timer for each of `offsets`, in ns after `case.lead()`, from one thread, and waits for them.
    pub(super) fn fire<C: OneShots>(case: &Case, offsets: Vec<u64>) -> Self {
        let shots = Shots::new(Stopwatch::start(C::READS.clock()), offsets.len());
        let service = Arc::new(C::start(1, shots.handler()));
        let on_job = Arc::clone(&service);
        let (lead, window) = (case.lead(), case.time());
        let job = async move {
            let mut caller = on_job.caller();
            let mut ids = Vec::with_capacity(offsets.len());
            let clock = shots.clock.clone();
            let begin = clock.nanos();
            let first = begin + u64::try_from(lead.as_nanos()).expect("some seconds");
            for (number, offset) in offsets.iter().enumerate() {
                let delay = Duration::from_nanos((first + offset).saturating_sub(clock.nanos()));
                ids.push(caller.schedule(delay, payload(number as u64)));
            }
            let inserted = clock.nanos();
            assert!(inserted < first, "{}: inserting took so long that timers were due", C::NAME);
            let cpu = cpu_time();
            caller.pass(Duration::from_nanos(first - inserted) + window).await;
            shots.wait(&mut caller, |_| true).await;
            let cpu = cpu.zip(cpu_time()).map(|(before, after)| after - before);
            let late = |(number, offset)| {
                let at = shots.fired_at(number).expect("waited for");
                at.wrapping_sub(first + offset).cast_signed()
            };
            let nanos_per_insert = (inserted - begin) as f64 / offsets.len() as f64;
            let lateness = offsets.iter().copied().enumerate().map(late).collect();
            Self { lateness, nanos_per_insert, cpu }
        };
        let volley = service.run(vec![job]).pop().expect("one job");
        assert!(service.pending().is_none_or(|pending| pending == 0), "{}: all have fired", C::NAME);
        volley
    }

    pub(super) fn early(&self) -> f64 {
        self.lateness.iter().filter(|&&lateness| lateness < 0).count() as f64
    }

    /// In ns, the early as if on time, in ascending order.
    pub(super) fn sorted(&self) -> Sorted {
        Sorted::new(self.lateness.iter().map(|&lateness| u64::try_from(lateness).unwrap_or(0)).collect())
    }
}

/// Times in ns, of which quantiles are taken.
pub(super) struct Sorted(Vec<u64>);

/// For the tables, and the plots; 1 is the maximum, and is not called a percentile.
pub(super) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

impl Sorted {
    pub(super) fn new(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The least that this part of all are not above, in ns; none of nothing.
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the length"
        )]
        let rank = (quantile * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).map(|&time| time as f64)
    }

    pub(super) fn millis(&self, quantile: f64) -> Option<f64> {
        self.quantile(quantile).map(|nanos| nanos * 1e-6)
    }

    pub(super) fn micros(&self, quantile: f64) -> Option<f64> {
        self.quantile(quantile).map(|nanos| nanos * 1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_times() {
        let sorted = Sorted::new((1..=1_000).rev().collect());
        assert_eq!(sorted.quantile(0.5), Some(500.0));
        assert_eq!(sorted.quantile(0.999), Some(999.0));
        assert_eq!(sorted.quantile(0.9999), Some(1_000.0));
        assert_eq!(sorted.quantile(1.0), Some(1_000.0));
        assert_eq!(Sorted::new(Vec::new()).quantile(0.5), None);
    }
}
