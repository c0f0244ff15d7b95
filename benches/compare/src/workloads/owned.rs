//! What the workloads over timers that stay have in common: how they run, and what must hold after it.

use super::Case;
use super::start::{Lap, Start, nanos_each};
use crate::contestants::{Connections, Counts, Owned, PER_ITERATION};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What one thread does to its connections.
pub(super) trait Work: Send + Sync + Sized + 'static {
    /// Whether each arm is followed by its disarm.
    const DISARMS: bool;

    /// The work of thread number `thread`: the same for all contestants.
    fn plan(case: &Case, thread: usize) -> Self;
    /// Once, before the contestant settles.
    fn prepare(&self, connections: &mut impl Connections);
    /// On the thread that is timed, just before.
    fn warm_up(&self, _connections: &mut impl Connections) {}
    /// Part of the operations, while the time is taken.
    fn run(&self, part: Range<usize>, connections: &mut impl Connections);
    /// How many of its arms can have come due when it began no longer than `time` ago, if it was done to its end.
    fn due_within(&self, time: Duration) -> u64;
}

/// Runs `operation` on each item, in iterations of an event loop.
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

pub(super) fn measure<C: Owned, W: Work>(case: &Case) -> f64 {
    let works: Vec<Arc<W>> = (0..case.threads).map(|thread| Arc::new(W::plan(case, thread))).collect();
    let service = Arc::new(C::start(case.threads));
    let start = Arc::new(Start::new(case.threads));
    let begun = Instant::now();
    let prepare = |work: &Arc<W>| prepare(Arc::clone(&service), Arc::clone(work), case.timers);
    let connections = service.run(works.iter().map(prepare).collect());
    service.settle(case.settle);
    let time = |(connections, work)| time(connections, Arc::clone(work), Arc::clone(&start), case.operations);
    let jobs = connections.into_iter().zip(&works).map(time).collect();
    let (laps, connections): (Vec<_>, Vec<_>) = service.run(jobs).into_iter().unzip();
    let mut outcome = Outcome { service: &*service, works: &works, connections, begun };
    outcome.check(case);
    outcome.probe(case);
    nanos_each(&laps)
}

async fn prepare<C: Owned, W: Work>(service: Arc<C>, work: Arc<W>, timers: usize) -> C::Connections {
    let mut connections = service.connect(timers);
    work.prepare(&mut connections);
    connections
}

async fn time<C: Connections, W: Work>(
    mut connections: C,
    work: Arc<W>,
    start: Arc<Start>,
    operations: usize,
) -> (Lap, C) {
    work.warm_up(&mut connections);
    let lap = start.lap(operations, |part| work.run(part, &mut connections)).await;
    (lap, connections)
}

/// A contestant after its work.
struct Outcome<'a, C: Owned, W> {
    service: &'a C,
    works: &'a [Arc<W>],
    connections: Vec<C::Connections>,
    begun: Instant,
}

impl<C: Owned, W: Work> Outcome<'_, C, W> {
    const PROBES: u32 = 50;
    /// Not due before all is checked.
    const LATER: Duration = Duration::from_secs(300);
    const SOON: Duration = Duration::from_millis(3);
    const PATIENCE: Duration = Duration::from_secs(30);

    fn count(&mut self) -> Counts {
        self.service.count(&mut self.connections)
    }

    /// Counts until `holds`, which a timer that is just firing may delay.
    fn count_until(&mut self, what: &str, holds: impl Fn(&Self, Counts) -> bool) -> Counts {
        let start = Instant::now();
        loop {
            let counts = self.count();
            if holds(self, counts) {
                return counts;
            }
            assert!(start.elapsed() < Self::PATIENCE, "{}: {what}, but {counts:?}", C::NAME);
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// How many of the work's arms can have come due by now.
    fn due(&self) -> u64 {
        let time = self.begun.elapsed();
        self.works.iter().map(|work| work.due_within(time)).sum()
    }

    /// No timer is lost, none is pending that was disarmed, and none fired that cannot have been due.
    fn check(&mut self, case: &Case) {
        let timers = (case.timers * case.threads) as u64;
        if W::DISARMS && C::DISARMS {
            let counts = self.count();
            assert!(counts.pending == 0 && counts.fired == 0, "{}: disarmed, but {counts:?}", C::NAME);
            return;
        }
        let counts = self.count_until(&format!("{timers} were armed"), |_, counts| {
            counts.pending <= timers && counts.pending + counts.fired >= timers
        });
        let due = self.due();
        assert!(counts.fired <= due, "{}: at most {due} were due, but {counts:?}", C::NAME);
    }

    /// Some of the timers, after all that was done to them, still fire when they are due and not before.
    fn probe(&mut self, case: &Case) {
        self.arm_probes(case, Self::LATER);
        let before = self.count().fired;
        let armed = Instant::now();
        let probes = self.arm_probes(case, Self::SOON);
        self.count_until(&format!("{probes} come due"), |outcome, counts| {
            let due = if armed.elapsed() < Self::SOON { 0 } else { probes };
            let fired = counts.fired.saturating_sub(before);
            assert!(fired <= due + outcome.due(), "{}: {fired} fired, {due} were due", C::NAME);
            fired >= probes
        });
    }

    fn arm_probes(&mut self, case: &Case, delay: Duration) -> u64 {
        let probes: Vec<u32> = (0..Self::PROBES).take(case.timers).collect();
        for connections in &mut self.connections {
            in_iterations(connections, &probes, |connections, at| connections.arm(at, delay));
        }
        (probes.len() * self.connections.len()) as u64
    }
}
