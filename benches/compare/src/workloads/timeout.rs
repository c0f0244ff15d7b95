//! A time limit on a future that is ready: made, polled once and dropped.

use super::start::{Lap, Start, nanos_each};
use super::{Case, Entrant, Workload};
use crate::contestants::{FuturesTimeout, OursTimeout, Timeouts, TokioTimeout};
use crate::sizes::Sizes;
use std::future::{pending, ready};
use std::hint::black_box;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "timeout",
    what: "limit a ready future to 5 s, poll and drop (ns a timeout and thread)",
    cases,
    entrants: &[entrant::<OursTimeout>(), entrant::<TokioTimeout>(), entrant::<FuturesTimeout>()],
};

const THREADS: [usize; 3] = [1, 2, 8];
const LIMIT: Duration = Duration::from_secs(5);
/// Of each thread, before the time is taken.
const WARM_UP: usize = 1_000;

const fn entrant<C: Timeouts>() -> Entrant {
    Entrant::new::<C>(measure::<C>)
}

fn cases(sizes: &Sizes) -> Vec<Case> {
    let case = |threads| Case { threads, timers: 0, operations: sizes.timeouts, settle: Duration::ZERO };
    THREADS.map(case).into()
}

fn measure<C: Timeouts>(case: &Case) -> f64 {
    let service = Arc::new(C::start(case.threads));
    let start = Arc::new(Start::new(case.threads));
    let jobs = (0..case.threads)
        .map(|_| run_job(Arc::clone(&service), Arc::clone(&start), case.operations))
        .collect();
    let laps = service.run(jobs);
    check_that_it_limits(&service);
    nanos_each(&laps)
}

async fn run_job<C: Timeouts>(service: Arc<C>, start: Arc<Start>, operations: usize) -> Lap {
    assert_eq!(sum_under_timeouts(&*service, 0..WARM_UP), sum_of(0..WARM_UP));
    let mut sum = 0;
    let lap = start.lap(operations, |part| sum += sum_under_timeouts(&*service, part)).await;
    assert_eq!(sum, sum_of(0..lap.operations), "{}: the futures' outputs", C::NAME);
    lap
}

#[inline]
fn sum_under_timeouts<C: Timeouts>(service: &C, numbers: Range<usize>) -> usize {
    let mut context = Context::from_waker(Waker::noop());
    numbers
        .map(|number| {
            let timeout = pin!(service.timeout(LIMIT, ready(black_box(number))));
            match timeout.poll(&mut context) {
                Poll::Ready(Ok(number)) => number,
                other => panic!("{}: a ready future under a timeout is {other:?}", C::NAME),
            }
        })
        .sum()
}

fn sum_of(numbers: Range<usize>) -> usize {
    numbers.sum()
}

/// A future that is never ready ends with its time, and not before.
fn check_that_it_limits<C: Timeouts>(service: &Arc<C>) {
    const SOON: Duration = Duration::from_millis(3);
    let on_job = Arc::clone(service);
    let start = Instant::now();
    let outcomes = service.run(vec![async move { on_job.timeout(SOON, pending::<u64>()).await }]);
    assert!(matches!(outcomes[..], [Err(_)]), "{}: {outcomes:?}", C::NAME);
    assert!(start.elapsed() >= SOON, "{}: early", C::NAME);
}
