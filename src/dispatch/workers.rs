//! The workers of a set of shards: threads that stand by for jobs, and for shards whose leader is held up by a handler.
//!
//! A shard's leader itself runs the handlers of the timers that one turn found due. Handing them over would cost a
//! second wake-up, which on a busy machine waits for a core again. The leader lets go of its shard for that time: if a
//! handler does not return, a thread that stands by takes the shard over (`shard`, [`watch`](crate::lockfree::watch)).
//! If a turn has more than one batch, all of them go through the queue of jobs. So do the batches of a shard that was
//! taken over, for a while.
//!
//! # Invariants
//! P1. The number of threads that run handlers at a time is at most the number of workers: each of these threads has a
//!     [`Permit`]. The set also has a thread for each shard, so a thread is left to take over each shard whose
//!     leader has let go of it.
//! P2. A job in the queue is taken once a permit is free: the thread that gives its permit back wakes a thread for the
//!     job.
//!
//! # Synchronisation
//! | pair | one side                     | other side                | ruled out         | model |
//! |------|------------------------------|---------------------------|-------------------|-------|
//! | P3   | a permit's drop              | a push, a thread's sleep  | all three miss    | `watch::a_permit_comes_back_while_a_job_is_pushed` |

use super::executor::{Executor, Job};
use super::panics::survives;
use crate::base::sync::{
    AtomicBool, AtomicU64, ModelledMutex, ModelledMutexGuard, Ordering, PoisonError, StdArc, fence,
};
use crate::lockfree::roster::Roster;
use crate::lockfree::sleepers::Sleepers;
use crate::lockfree::watch::{Checks, Watch};
use core::time::Duration;
use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;

/// The state that the threads of a set of shards with workers share.
#[derive(Debug)]
pub(crate) struct Workers {
    count: usize,
    jobs: SegQueue<Job>,
    permits: CachePadded<AtomicU64>,
    sleepers: Sleepers,
    watch: Watch,
    /// Held by the thread that watches.
    checks: ModelledMutex<Checks>,
    closed: AtomicBool,
}

/// The right of a thread to run handlers.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit<'a>(&'a Workers);

impl Workers {
    /// The workers of a set of `shards` shards, with as many threads as the roster has.
    pub(crate) fn new(count: usize, shards: usize, roster: StdArc<Roster>) -> Self {
        Self {
            count,
            jobs: SegQueue::new(),
            permits: CachePadded::new(AtomicU64::new(count as u64)),
            sleepers: Sleepers::new(roster),
            watch: Watch::new(shards),
            checks: ModelledMutex::new(Checks::new(shards)),
            closed: AtomicBool::new(false),
        }
    }

    /// The number of threads that may run handlers at a time.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The memory of the last watcher. Only for the caller that has taken the watch.
    pub(crate) fn checks(&self) -> ModelledMutexGuard<'_, Checks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`permit`](Self::permit), for a leader. Returns `None` while jobs are in the queue, since their timers are
    /// due earlier.
    pub(crate) fn permit_to_leader(&self) -> Option<Permit<'_>> {
        if self.jobs.is_empty() { self.permit() } else { None }
    }

    /// The right to run handlers, if fewer threads than there are workers have it.
    pub(crate) fn permit(&self) -> Option<Permit<'_>> {
        let take = |permits: u64| permits.checked_sub(1);
        // Ordering: Relaxed. A number that hands nothing over; the fences rule out a lost permit (P3).
        self.permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok().then(|| Permit(self))
    }

    /// Runs the jobs that are in the queue, if a permit is free.
    pub(crate) fn run_jobs(&self) {
        if self.jobs.is_empty() {
            return;
        }
        let Some(_permit) = self.permit() else { return };
        while let Some(job) = self.jobs.pop() {
            // A job unwinds only if the user's clock does, or the drop of a handler whose engine ends with the job.
            // That costs the job and nothing else.
            let _survived = survives(|| job.run());
        }
    }

    /// Wakes a thread that stands by, if there is one.
    pub(crate) fn wake_one(&self) {
        self.sleepers.wake_one();
    }

    /// Passes the watch on from the calling thread, the watcher, to a thread that stands by.
    pub(crate) fn pass_on_the_watch(&self) {
        self.watch.pass_on();
        self.wake_one();
    }

    /// Sleeps as thread `n` of the roster until there is a job to run or a watch to take, or the workers are closed.
    pub(crate) fn stand_by(&self, n: usize) {
        self.sleepers.sleep_unless(n, || self.has_job() || self.watch.is_wanted() || self.is_closed());
    }

    /// Sleeps as thread `n`, the watcher, for `time`, or until there is a job to run or the workers are closed. The
    /// sleep may end early.
    pub(crate) fn stand_watch(&self, n: usize, time: Duration) {
        self.sleepers.doze_unless(n, time, || self.has_job() || self.is_closed());
    }

    /// Whether there is a job, and a permit to run it.
    pub(crate) fn has_job(&self) -> bool {
        // Ordering: Relaxed. If a permit is missed, the thread that gave it back looks at the queue afterwards (P2).
        !self.jobs.is_empty() && self.permits.load(Ordering::Relaxed) > 0
    }

    /// Closes the workers, so that all threads of the set end.
    pub(crate) fn close(&self) {
        // Ordering: Relaxed. The sleepers' fences order this store as they order an offer (U1).
        self.closed.store(true, Ordering::Relaxed);
        self.sleepers.wake_all();
    }

    /// Like `close`, in the child of a fork, which has no other thread to wake.
    pub(crate) fn close_in_child(&self) {
        // Ordering: Relaxed. There is one thread.
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Ordering: Relaxed. See `close`.
        self.closed.load(Ordering::Relaxed)
    }

    /// Drops the jobs that are left when the workers are closed. They fire nothing any more and keep their engines
    /// alive.
    pub(crate) fn drop_jobs(&self) {
        while let Some(job) = self.jobs.pop() {
            let _survived = survives(|| drop(job));
        }
    }
}

impl Executor for Workers {
    fn execute(&self, job: Job) {
        self.jobs.push(job);
        // Ordering: SeqCst fence [P3]: the job is in the queue before the permits are read.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed. The fence orders this load. If no permit is free, the thread that gives one back wakes a
        // thread for the job.
        if self.permits.load(Ordering::Relaxed) > 0 {
            self.sleepers.wake_one();
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        // Ordering: Relaxed. As in `permit`.
        self.0.permits.fetch_add(1, Ordering::Relaxed);
        // Ordering: SeqCst fence [P3]: the permit is back before the queue is read.
        fence(Ordering::SeqCst);
        if !self.0.jobs.is_empty() {
            self.0.sleepers.wake_one();
        }
    }
}
