//! The workers of a set of shards: threads that wait for jobs, or for a shard whose leader a handler holds up.
//!
//! A shard's leader runs the handlers of the timers that a turn has found due. If it handed them over, a second thread
//! would have to wake, and would wait for a core on a busy machine. While handlers run, the leader unlocks its shard.
//! If a handler does not return, the sentry, a thread for this purpose only, wakes an idle thread, which takes the
//! shard over (`shard`, [`watch`](crate::lockfree::watch)). If a turn has more than one batch, all batches go through
//! the queue of jobs. After a takeover, all batches of the shard go through the queue for a while.
//!
//! # Invariants
//! P1. The number of threads that run handlers at a time is at most the number of workers: each of these threads has a
//!     [`Permit`]. Besides the sentry, the set also has a thread for each shard. So for each shard that its leader has
//!     unlocked, a thread is left to take the shard over.
//! P2. A job in the queue is taken once a permit is free: the thread that gives a permit back wakes a thread for the
//!     job.
//!
//! # Synchronisation
//! | pair | one side                     | other side                | ruled out         | model |
//! |------|------------------------------|---------------------------|-------------------|-------|
//! | P3   | a permit's drop              | a push, a thread's sleep  | all three miss    | `watch::a_permit_comes_back_while_a_job_is_pushed` |

use super::executor::{Executor, Job};
use super::panics::survives;
use crate::base::sync::{AtomicBool, AtomicU64, Ordering, StdArc, fence};
use crate::lockfree::roster::Roster;
use crate::lockfree::sleepers::Sleepers;
use crate::lockfree::watch::Watch;
use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;

/// The state that the threads of a set of shards share: the queue of jobs, and the permits to run handlers.
#[derive(Debug)]
pub(crate) struct Workers {
    count: usize,
    jobs: SegQueue<Job>,
    permits: CachePadded<AtomicU64>,
    sleepers: Sleepers,
    watch: Watch,
    closed: AtomicBool,
}

/// A thread's permission to run handlers. Dropping the permit lets another thread run handlers.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit<'a>(&'a Workers);

impl Workers {
    /// Makes the state for a set of `shards` shards with `count` workers. `roster` lists the set's threads.
    pub(crate) fn new(count: usize, shards: usize, roster: StdArc<Roster>) -> Self {
        Self {
            count,
            jobs: SegQueue::new(),
            permits: CachePadded::new(AtomicU64::new(count as u64)),
            sleepers: Sleepers::new(roster),
            watch: Watch::new(shards),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns how many threads may run handlers at a time.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Returns a permit to run handlers, for a thread that leads a shard. Returns `None` if no permit is free. Also
    /// returns `None` while jobs are in the queue, because the jobs' timers are due earlier.
    pub(crate) fn permit_to_leader(&self) -> Option<Permit<'_>> {
        if self.jobs.is_empty() { self.permit() } else { None }
    }

    /// Returns a permit to run handlers. There are as many permits as workers. Returns `None` if all permits are taken.
    pub(crate) fn permit(&self) -> Option<Permit<'_>> {
        let take = |permits: u64| permits.checked_sub(1);
        // Ordering: Relaxed. The number hands nothing over, and the fences rule out a lost permit (P3).
        self.permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok().then(|| Permit(self))
    }

    /// Runs the jobs in the queue on the calling thread, if a permit to run handlers is free.
    pub(crate) fn run_jobs(&self) {
        if self.jobs.is_empty() {
            return;
        }
        let Some(_permit) = self.permit() else { return };
        while let Some(job) = self.jobs.pop() {
            // A job unwinds only if the user's clock panics, or the drop of a handler whose engine ends with the job.
            // Only that job is lost.
            let _survived = survives(|| job.run());
        }
    }

    /// Runs the sentry, the thread that waits for the shards' alarms, until the workers are closed. If the alarm of a
    /// shard rings while a handler holds up the shard's leader, wakes a thread to take the shard over.
    pub(crate) fn stand_guard(&self) {
        let mut rung = Vec::new();
        while self.watch.await_alarms(&mut rung) {
            rung.drain(..).for_each(|shard| self.alarm_rings(shard));
        }
    }

    /// Wakes a thread to take `shard` over, if a handler holds up its leader. The shard's alarm has rung.
    pub(crate) fn alarm_rings(&self, shard: usize) {
        if self.watch.ring(shard) {
            self.sleepers.wake_one();
        }
    }

    /// Lets the calling thread sleep until it has work. `n` is the thread's number in the roster, the list of the set's
    /// threads. The thread wakes to run a job, to take a shard over, or when the workers are closed.
    pub(crate) fn stand_by(&self, n: usize) {
        self.sleepers.sleep_unless(n, || self.has_job() || self.watch.is_held_up() || self.is_closed());
    }

    /// Returns whether a job waits, and a permit, without which no thread may run handlers, is free.
    pub(crate) fn has_job(&self) -> bool {
        // Ordering: Relaxed. If this load misses a free permit, the thread that gave the permit back looks at the queue
        // afterwards (P2).
        !self.jobs.is_empty() && self.permits.load(Ordering::Relaxed) > 0
    }

    /// Closes the workers, so that all threads of the set end.
    pub(crate) fn close(&self) {
        // Ordering: Relaxed. The sleepers' fences order this store as they order an offer (U1).
        self.closed.store(true, Ordering::Relaxed);
        self.sleepers.wake_all();
        self.watch.close();
    }

    /// Closes the workers in the child of a fork. Wakes no thread, because the child has no other thread.
    pub(crate) fn close_in_child(&self) {
        // Ordering: Relaxed. There is one thread.
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Ordering: Relaxed. See `close`.
        self.closed.load(Ordering::Relaxed)
    }

    /// Drops the jobs that are left when the workers are closed. The jobs would fire no timer any more, but would keep
    /// their engines alive.
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
