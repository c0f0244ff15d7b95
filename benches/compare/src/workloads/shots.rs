//! Timers that come due in a turn. Recorded are their deadlines, the moments of their handlers, and their lateness.

use crate::case::Case;
use crate::common::payload;
use crate::contestants::{Caller, OnFire, OneShots, Stopwatch};
use crate::process::{cpu_time, sleeps_of_all_threads};
use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The record that handlers write when timers fire. Each timer has a word, and each thread that calls handlers has a
/// count. All words are written beforehand, so no handler is the first to touch a page. Clones share the record.
#[derive(Clone, Debug)]
pub(super) struct Shots {
    pub(super) clock: Stopwatch,
    /// The moment at which each timer's handler was called, in ns. The index is the number of the timer.
    words: Arc<[AtomicU64]>,
    counts: Arc<Mutex<Vec<Arc<Count>>>>,
}

/// The number of handlers that a single thread has called. The count has its own cache line, because a line that two
/// threads write is slow.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

thread_local! {
    /// The count of handlers that this thread has called. A process measures once, so it has at most one record.
    static COUNT: OnceCell<Arc<Count>> = const { OnceCell::new() };
}

/// A timer's word before the timer has fired.
const NOT_FIRED: u64 = u64::MAX;

/// The results of timers that were all scheduled before the first timer was due.
pub(super) struct Volley {
    /// Each timer's lateness, in ns, in the order of scheduling. A negative number means that the timer was early.
    pub(super) lateness: Vec<i64>,
    pub(super) nanos_per_insert: f64,
    /// The processor time between the last insert and the last handler.
    pub(super) cpu: Option<Duration>,
    /// How often the process's threads went to sleep between the last insert and the last handler, for each 1,000
    /// timers.
    pub(super) wakes: Option<f64>,
}

/// The time after which a timer that has not fired counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

impl Shots {
    pub(super) fn new(clock: Stopwatch, timers: usize) -> Self {
        let words = (0..timers).map(|_| AtomicU64::new(NOT_FIRED)).collect();
        Self { clock, words, counts: Arc::default() }
    }

    pub(super) fn handler(&self) -> impl OnFire + use<> {
        let shots = self.clone();
        move |[number, check]| {
            assert_eq!(number, !check);
            let word = &shots.words[usize::try_from(number).expect("an index")];
            word.store(shots.clock.nanos(), Ordering::Relaxed);
            COUNT.with(|count| count.get_or_init(|| shots.new_count()).add_one());
        }
    }

    #[cold]
    fn new_count(&self) -> Arc<Count> {
        let count = Arc::new(Count::default());
        self.counts.lock().expect("nobody panics with the lock held").push(Arc::clone(&count));
        count
    }

    /// Returns the number of called handlers. The words of the timers that these handlers served are set.
    fn count(&self) -> usize {
        let counts = self.counts.lock().expect("nobody panics with the lock held");
        // Ordering: Acquire. Pairs with the release in `add_one`. So the words of the counted handlers are seen.
        let count = counts.iter().map(|count| count.0.load(Ordering::Acquire)).sum::<u64>();
        usize::try_from(count).expect("a count")
    }

    /// Returns the moment at which each timer fired, or `None` if it did not fire.
    fn fired_at(&self) -> Vec<Option<u64>> {
        let fired_at = |word: &AtomicU64| Some(word.load(Ordering::Relaxed)).filter(|&at| at != NOT_FIRED);
        self.words.iter().map(fired_at).collect()
    }

    /// Waits until `count` timers have fired.
    pub(super) async fn wait_for_count<C: Caller>(&self, caller: &mut C, count: usize) {
        let start = self.clock.nanos();
        while self.count() < count {
            let waited = Duration::from_nanos(self.clock.nanos() - start);
            assert!(waited < PATIENCE, "{} of {count} timers have fired", self.count());
            caller.pass(Duration::from_millis(1)).await;
        }
    }

    /// Waits until all timers for which `must` returns true have fired. Returns each timer's moment of firing, or
    /// `None`. Checks that no timer fired twice: the number of handler calls must equal the number of set words.
    pub(super) async fn wait_for<C: Caller>(
        &self,
        caller: &mut C,
        must: impl Fn(usize) -> bool,
    ) -> Vec<Option<u64>> {
        let mut count = (0..self.words.len()).filter(|&number| must(number)).count();
        loop {
            self.wait_for_count(caller, count).await;
            let called = self.count();
            let fired_at = self.fired_at();
            let fired = fired_at.iter().flatten().count();
            assert!(called <= fired, "{fired} timers have fired, and {called} handlers were called");
            let is_missing = |&number: &usize| must(number) && fired_at[number].is_none();
            let missing = (0..fired_at.len()).filter(is_missing).count();
            if missing == 0 && called == fired {
                return fired_at;
            }
            // Other timers were counted instead of the missing timers, since they raced with their cancels. Or a
            // handler has set its word and has not counted itself yet.
            count = fired + missing;
        }
    }
}

impl Count {
    /// Adds one to the count. Only the thread that owns the count calls this.
    #[inline]
    fn add_one(&self) {
        let count = self.0.load(Ordering::Relaxed);
        // Ordering: Release. Pairs with the acquire in `Shots::count`: publishes the handler's word.
        self.0.store(count + 1, Ordering::Release);
    }
}

impl Volley {
    /// Schedules a timer for each of `offsets` from one thread, and waits until all have fired. Offsets are in ns after
    /// `case.lead()`. The contestant gets the number of threads of the case, or one.
    pub(super) fn fire<C: OneShots>(case: &Case, offsets: Vec<u64>) -> Self {
        let shots = Shots::new(Stopwatch::start(), offsets.len());
        let threads = case.threads.iter().copied().max().unwrap_or(1);
        let service = Arc::new(C::start(threads, shots.handler()));
        let on_job = Arc::clone(&service);
        let (lead, window) = (case.lead(), case.time());
        let job = async move {
            let mut caller = on_job.caller();
            caller.prepare(offsets.len());
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
            let (sleeps, cpu) = (sleeps_of_all_threads(), cpu_time());
            caller.pass(Duration::from_nanos(first - inserted) + window).await;
            shots.wait_for_count(&mut caller, offsets.len()).await;
            let cpu = cpu.zip(cpu_time()).map(|(before, after)| after - before);
            let sleeps =
                sleeps.zip(sleeps_of_all_threads()).map(|(before, after)| after.saturating_sub(before));
            let wakes = sleeps.map(|sleeps| sleeps as f64 * 1e3 / offsets.len() as f64);
            let fired_at = shots.wait_for(&mut caller, |_| true).await;
            let late = |(fired_at, offset): (&Option<u64>, u64)| {
                let at = fired_at.expect("waited for");
                at.wrapping_sub(first + offset).cast_signed()
            };
            let nanos_per_insert = (inserted - begin) as f64 / fired_at.len() as f64;
            let lateness = fired_at.iter().zip(offsets).map(late).collect();
            Self { lateness, nanos_per_insert, cpu, wakes }
        };
        let volley = service.run(vec![job]).pop().expect("one job");
        assert!(service.pending().is_none_or(|pending| pending == 0), "{}: all have fired", C::NAME);
        volley
    }

    pub(super) fn early(&self) -> f64 {
        self.lateness.iter().filter(|&&lateness| lateness < 0).count() as f64
    }

    /// Returns the lateness in ns, in ascending order. An early timer counts as on time.
    pub(super) fn sorted(&self) -> Sorted {
        Sorted::new(self.lateness.iter().map(|&lateness| u64::try_from(lateness).unwrap_or(0)).collect())
    }
}

/// Times in ns, in ascending order. Quantiles are read from them.
pub(super) struct Sorted(Vec<u64>);

/// The quantiles of the tables and plots. The quantile 1 is the maximum, and is not called a percentile.
pub(super) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

impl Sorted {
    pub(super) fn new(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// Returns the smallest value, in ns, such that the fraction `quantile` of all values does not exceed it. `None`
    /// without values.
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
    fn each_handler_sets_the_word_of_its_timer_and_counts_itself() {
        let shots = Shots::new(Stopwatch::start(), 3);
        let handler = shots.handler();
        std::thread::scope(|scope| {
            scope.spawn(|| handler(payload(2)));
            scope.spawn(|| handler(payload(0)));
        });
        assert_eq!(shots.count(), 2);
        assert_eq!(shots.fired_at().iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    }

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
