//! The engine's own workers: threads that take jobs from a queue and sleep while there are none.
//!
//! A shard has a job once a tick, some hundred timers of which take some µs: what it costs to wake a worker and to let it
//! sleep again is then most of what workers cost. A rayon pool's worker looks around and yields many times before it
//! sleeps, and wakes others to help it: a third more of processor time (`docs/design.md`, "Handing over").

use super::executor::{Executor, Job};
use super::panics::survives;
use crate::scheduling::{Scheduling, SchedulingRefusals};
use crate::signals::Blocked;
use crate::sleepers::Sleepers;
use crate::sync::{AtomicBool, Ordering, StdArc, thread};
use crossbeam_queue::SegQueue;
use std::io;

/// The threads; they end when this is dropped and the jobs are done.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: StdArc<Shared>,
}

#[derive(Debug)]
struct Shared {
    jobs: SegQueue<Job>,
    sleepers: Sleepers,
    closed: AtomicBool,
}

impl Workers {
    pub(super) fn start(
        count: usize,
        scheduling: Scheduling,
        refusals: &StdArc<SchedulingRefusals>,
    ) -> io::Result<Self> {
        let shared =
            Shared { jobs: SegQueue::new(), sleepers: Sleepers::new(count), closed: AtomicBool::new(false) };
        let workers = Self { shared: StdArc::new(shared) };
        let _no_signals = Blocked::new();
        for n in 0..count {
            let (shared, refusals) = (StdArc::clone(&workers.shared), StdArc::clone(refusals));
            thread::Builder::new().name(format!("tb-worker-{n}")).spawn(move || {
                scheduling.apply_here(&refusals);
                shared.work(n);
            })?;
        }
        Ok(workers)
    }

    pub(super) fn count(&self) -> usize {
        self.shared.sleepers.len()
    }
}

impl Executor for Workers {
    fn execute(&self, job: Job) {
        self.shared.jobs.push(job);
        self.shared.sleepers.wake_one();
    }
}

impl Drop for Workers {
    /// Waits for nothing: it may be a worker that drops the engine's last part.
    fn drop(&mut self) {
        // Ordering: Relaxed. The sleepers' fences order it as they order an offer (U1).
        self.shared.closed.store(true, Ordering::Relaxed);
        self.shared.sleepers.wake_all();
    }
}

impl Shared {
    fn work(&self, n: usize) {
        self.sleepers.adopt_current_thread(n);
        loop {
            while let Some(job) = self.jobs.pop() {
                // A job unwinds only where a clock of the user's does, or the drop of a handler whose engine ends with
                // the job: that costs the job and no more.
                let _survived = survives(|| job.run());
            }
            if self.is_closed() {
                return;
            }
            self.sleepers.sleep_unless(n, || !self.jobs.is_empty() || self.is_closed());
        }
    }

    fn is_closed(&self) -> bool {
        // Ordering: Relaxed. See `Workers::drop`.
        self.closed.load(Ordering::Relaxed)
    }
}
