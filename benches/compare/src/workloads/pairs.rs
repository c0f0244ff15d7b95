//! Timers that are repeatedly scheduled and cancelled at once, while others are pending.

use super::start::{Limit, Start, nanos_each};
use crate::case::Case;
use crate::common::{Chance, payload};
use crate::contestants::{Caller, Fires, OneShots};
use crate::results::Figures;
use crate::workload::threads_key;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A contestant with pending timers. The timers are not due before the end of the measurement.
pub(super) struct Pairs<C: OneShots> {
    pub(super) service: Arc<C>,
    fires: Fires,
    delays: Range<u64>,
    held: Option<Held<C>>,
}

/// The caller that scheduled the pending timers, and the ids of the timers. With some contestants, dropping an id drops
/// its timer.
struct Held<C: OneShots> {
    caller: C::Caller,
    ids: Vec<<C::Caller as Caller>::Id>,
}

/// The number of different delays in a thread's schedule + cancel pairs.
const DELAYS: usize = 1_024;
/// The number of schedule + cancel pairs that each thread makes before the measurement.
const WARM_UP: usize = 1_024;

impl<C: OneShots> Pairs<C> {
    /// Starts a contestant without pending timers. At most `threads` threads will call it.
    pub(super) fn new(threads: usize, delays: Range<u64>) -> Self {
        let fires = Fires::default();
        Self::of(C::start(threads, fires.handler()), fires, delays)
    }

    pub(super) fn of(service: C, fires: Fires, delays: Range<u64>) -> Self {
        let service = Arc::new(service);
        let on_job = Arc::clone(&service);
        let job = async move { Held { caller: on_job.caller(), ids: Vec::new() } };
        let held = service.run(vec![job]).pop();
        Self { service, fires, delays, held }
    }

    pub(super) fn pending(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.ids.len())
    }

    /// Returns the number of bytes that the ids of the pending timers occupy.
    pub(super) fn bytes_of_ids(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.ids.capacity() * size_of::<<C::Caller as Caller>::Id>())
    }

    /// Schedules timers from one thread until `pending` are pending. Then gives the contestant the time `settle`.
    pub(super) fn fill(&mut self, pending: usize, settle: Duration) {
        let mut held = self.held.take().expect("put back by each job");
        let delays = self.delays.clone();
        let job = async move {
            let mut chance = Chance::new(pending as u64);
            let more = pending - held.ids.len();
            held.ids.reserve_exact(more);
            for n in held.ids.len() as u64..pending as u64 {
                let delay = Duration::from_nanos(chance.within(&delays));
                held.ids.push(held.caller.schedule(delay, payload(n)));
            }
            held
        };
        self.held = self.service.run(vec![job]).pop();
        self.service.settle(settle);
    }

    /// Runs schedule + cancel pairs on `threads` threads at the same time. Returns a thread's nanoseconds for a pair,
    /// and the number of pairs.
    pub(super) fn run(&mut self, threads: usize, limit: Limit) -> (f64, usize) {
        let start = Arc::new(Start::new(threads));
        let mut first = self.held.take();
        let jobs = (0..threads as u64).map(|seed| {
            let (service, start, held) = (Arc::clone(&self.service), Arc::clone(&start), first.take());
            let delays = delays(seed, &self.delays);
            async move {
                let mut held = held.unwrap_or_else(|| Held { caller: service.caller(), ids: Vec::new() });
                pairs(&mut held.caller, &delays, 0..WARM_UP);
                let lap = start.lap::<C>(limit, |part| pairs(&mut held.caller, &delays, part)).await;
                (lap, held)
            }
        });
        let (laps, callers): (Vec<_>, Vec<_>) = self.service.run(jobs.collect()).into_iter().unzip();
        self.held = callers.into_iter().next();
        let count = laps.iter().map(|lap| lap.operations).sum();
        (nanos_each(&laps), count)
    }

    /// Runs schedule + cancel pairs once for each of the case's numbers of threads. Each run takes the case's time.
    pub(super) fn run_by_threads(&mut self, case: &Case) -> Figures {
        case.threads.iter().fold(Figures::default(), |figures, &threads| {
            let (nanos, _) = self.run(threads, Limit::time(case.time()));
            figures.number(threads_key(threads), nanos)
        })
    }

    /// Checks that no timer fired, and that exactly the expected timers are pending.
    pub(super) fn check(&self) {
        assert_eq!(self.fires.count(), 0, "{}: nothing was due", C::NAME);
        let pending = self.service.pending();
        assert!(pending.is_none_or(|pending| pending == self.pending()), "{}: {pending:?} pending", C::NAME);
    }
}

fn delays(seed: u64, range: &Range<u64>) -> Vec<Duration> {
    let mut chance = Chance::new(seed);
    (0..DELAYS).map(|_| Duration::from_nanos(chance.within(range))).collect()
}

#[inline]
fn pairs(caller: &mut impl Caller, delays: &[Duration], numbers: Range<usize>) {
    for n in numbers {
        let was_pending = caller.schedule_and_cancel(delays[n % DELAYS], payload(n as u64));
        assert!(was_pending, "a timer scheduled just now is not pending");
    }
}
