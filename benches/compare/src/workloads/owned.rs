//! Common parts of the workloads whose timers stay: the run, and the checks after it.

use super::start::{Lap, Limit, Start, nanos_each};
use crate::case::Case;
use crate::common::Chance;
use crate::contestants::{Connections, Fires, Owned, PER_ITERATION};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A thread's operations on its connections. No timer comes due before the end of the measurement.
pub(super) trait Work: Send + Sync + Sized + 'static {
    /// Whether the work disarms the timer after each arming.
    const DISARMS: bool;

    /// Plans the operations of thread number `thread`. The plan is the same for all contestants.
    fn plan(case: &Case, thread: usize) -> Self;
    /// Arms the connections once, before the contestant settles.
    fn prepare(&self, connections: &mut impl Connections);
    /// Runs operations that are not measured, on the measured thread, just before the measurement.
    fn warm_up(&self, _connections: &mut impl Connections) {}
    /// Runs the operations with the indices of `part`. The measurement times this call.
    fn run(&self, part: Range<usize>, connections: &mut impl Connections);
}

/// Runs `operation` on each item. Groups the items into iterations of an event loop.
#[inline]
pub(super) fn in_iterations<C: Connections, T: Copy>(
    connections: &mut C,
    items: &[T],
    mut operation: impl FnMut(&mut C, T),
) {
    for iteration in items.chunks(PER_ITERATION) {
        connections.begin_iteration();
        for &item in iteration {
            operation(connections, item);
        }
    }
}

/// Runs the work on `threads` threads at the same time. Returns a thread's nanoseconds for an operation.
pub(super) fn measure<C: Owned, W: Work>(case: &Case, threads: usize) -> f64 {
    let works: Vec<Arc<W>> = (0..threads).map(|thread| Arc::new(W::plan(case, thread))).collect();
    let fires = Fires::default();
    let service = Arc::new(C::start(threads, fires.handler()));
    let start = Arc::new(Start::new(threads));
    let prepare = |work: &Arc<W>| prepare(Arc::clone(&service), Arc::clone(work), case.timers);
    let connections = service.run(works.iter().map(prepare).collect());
    service.settle(case.settle());
    let limit = Limit::operations(case.operations);
    let time = |(connections, work)| time::<C, W>(connections, Arc::clone(work), Arc::clone(&start), limit);
    let jobs = connections.into_iter().zip(&works).map(time).collect();
    let (laps, connections): (Vec<_>, Vec<_>) = service.run(jobs).into_iter().unzip();
    let left = if W::DISARMS && C::DISARMS { 0 } else { case.timers };
    let mut armed = Armed { service, fires, connections, left: left * threads };
    armed.check();
    armed.probe(case.timers);
    nanos_each(&laps)
}

async fn prepare<C: Owned, W: Work>(service: Arc<C>, work: Arc<W>, timers: usize) -> C::Connections {
    let mut connections = service.connect(timers);
    work.prepare(&mut connections);
    connections
}

async fn time<C: Owned, W: Work>(
    mut connections: C::Connections,
    work: Arc<W>,
    start: Arc<Start>,
    limit: Limit,
) -> (Lap, C::Connections) {
    work.warm_up(&mut connections);
    let lap = start.lap::<C>(limit, |part| work.run(part, &mut connections)).await;
    (lap, connections)
}

/// A contestant with its connections. `left` is the number of timers that must still be armed at the end.
pub(super) struct Armed<C: Owned> {
    service: Arc<C>,
    fires: Fires,
    connections: Vec<C::Connections>,
    left: usize,
}

impl<C: Owned> Armed<C> {
    /// The number of timers in each thread's connections that are checked at the end.
    const PROBES: u32 = 50;
    const LATER: Duration = Duration::from_secs(300);
    const SOON: Duration = Duration::from_millis(3);
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Makes a single job's connections, and arms all their timers.
    pub(super) fn new(timers: usize, delays: &Range<u64>, settle: Duration) -> Self {
        let fires = Fires::default();
        let service = Arc::new(C::start(1, fires.handler()));
        let (on_job, delays) = (Arc::clone(&service), delays.clone());
        let job = async move {
            let mut chance = Chance::new(timers as u64);
            let mut connections = on_job.connect(timers);
            connections.begin_iteration();
            for at in 0..u32::try_from(timers).expect("fewer than 2^32") {
                connections.arm(at, Duration::from_nanos(chance.within(&delays)));
            }
            connections
        };
        let connections = service.run(vec![job]);
        service.settle(settle);
        Self { service, fires, connections, left: timers }
    }

    fn pending(&mut self) -> usize {
        self.service.pending(&mut self.connections)
    }

    /// Checks that no timer is lost, that no disarmed timer is pending, and that no timer has fired.
    pub(super) fn check(&mut self) {
        assert_eq!(self.fires.count(), 0, "{}: nothing was due", C::NAME);
        assert_eq!(self.pending(), self.left, "{}: pending", C::NAME);
    }

    /// Arms some timers again at the end of the run. Checks that they fire when they are due, and not before.
    fn probe(&mut self, timers: usize) {
        self.arm_probes(timers, Self::LATER);
        let before = self.pending();
        let armed = Instant::now();
        let probes = self.arm_probes(timers, Self::SOON);
        loop {
            let fired = before.saturating_sub(self.pending());
            let due = if armed.elapsed() < Self::SOON { 0 } else { probes };
            assert!(fired <= due, "{}: {fired} fired, {due} were due", C::NAME);
            if fired == probes {
                return;
            }
            assert!(armed.elapsed() < Self::PATIENCE, "{}: {fired} of {probes} fired", C::NAME);
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn arm_probes(&mut self, timers: usize, delay: Duration) -> usize {
        let probes: Vec<u32> = (0..Self::PROBES).take(timers).collect();
        for connections in &mut self.connections {
            in_iterations(connections, &probes, |connections, at| connections.arm(at, delay));
        }
        probes.len() * self.connections.len()
    }
}
