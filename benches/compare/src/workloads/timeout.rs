//! A time limit on a future that is ready. The limit is made, polled once and dropped.

use super::start::{Lap, Limit, Start, nanos_each};
use crate::case::Case;
use crate::contestants::{
    AsyncIoTimeout, Fires, FuturesTimeout, OursTimeout, Pingora, Timeouts, TokioTimeout,
};
use crate::results::Figures;
use crate::roster::entrants;
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload, columns_by_threads, threads_key};
use std::future::{pending, ready};
use std::hint::black_box;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(super) const WORKLOAD: Workload = Workload {
    name: "timeout",
    operation: "limit a ready future to 5 s, poll and drop (ns a timeout and thread)",
    family: Family::Tasks,
    about: "Checked: the outputs of the futures; a limit on a future that is never ready ends in time.",
    reading: "Ours and async-io's read no clock and make no timer before the future is pending. tokio's takes a handle to its runtime, \
        whose count all threads write.",
    cases,
    columns: columns_by_threads,
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || {
        let mut entrants =
            entrants![turn: OursTimeout, TokioTimeout, FuturesTimeout, AsyncIoTimeout, Pingora];
        entrants.push(Entrant::never("hierarchical_hash_wheel_timer", "calls closures, has no futures"));
        entrants.push(Entrant::never("kestrel-timer", "calls closures, has no timeout for a future"));
        entrants
    },
};

const LIMIT: Duration = Duration::from_secs(5);
/// The number of operations that each thread makes before the measurement.
const WARM_UP: usize = 1_000;

fn cases(scale: Scale) -> Vec<Case> {
    let operations = scale.pick(500_000, 20_000, 200);
    vec![Case { threads: vec![1, 2, 8], operations, ..Case::named("a ready future") }]
}

fn turn<C: Timeouts>(case: &Case) -> Figures {
    case.threads.iter().fold(Figures::default(), |figures, &threads| {
        figures.number(threads_key(threads), measure::<C>(threads, Limit::operations(case.operations)))
    })
}

fn measure<C: Timeouts>(threads: usize, limit: Limit) -> f64 {
    let service = Arc::new(C::start(threads, Fires::default().handler()));
    let start = Arc::new(Start::new(threads));
    let jobs = (0..threads).map(|_| run_job(Arc::clone(&service), Arc::clone(&start), limit)).collect();
    let laps = service.run(jobs);
    check_that_it_limits(&service);
    nanos_each(&laps)
}

async fn run_job<C: Timeouts>(service: Arc<C>, start: Arc<Start>, limit: Limit) -> Lap {
    assert_eq!(sum_under_timeouts(&*service, 0..WARM_UP), sum_of(0..WARM_UP));
    let mut sum = 0;
    let lap = start.lap::<C>(limit, |part| sum += sum_under_timeouts(&*service, part)).await;
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

/// Limits a future that is never ready. Checks that the limit ends the future in time, and not early.
fn check_that_it_limits<C: Timeouts>(service: &Arc<C>) {
    const SOON: Duration = Duration::from_millis(3);
    let on_job = Arc::clone(service);
    let start = Instant::now();
    let outcomes = service.run(vec![async move { on_job.timeout(SOON, pending::<u64>()).await }]);
    assert!(matches!(outcomes[..], [Err(_)]), "{}: {outcomes:?}", C::NAME);
    assert!(start.elapsed() + C::EARLY >= SOON, "{}: early", C::NAME);
}
