//! Jobs, and the interface of the pools that run them.

use core::fmt;

/// A batch of up to 512 due timers of one shard, to be run once on any thread.
///
/// Running a job calls the handler for each timer in turn, except for timers that were cancelled meanwhile, and for
/// those that another job for the same batch takes: the shard sends such a job if a handler takes long. It never
/// unwinds.
pub struct Job(Box<dyn FnOnce() + Send>);

impl Job {
    pub(super) fn new(run: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(run))
    }

    /// Fires the timers.
    pub fn run(self) {
        (self.0)();
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

/// A pool of the caller's own that runs the jobs of an engine, and so fires its timers.
///
/// `execute` is called on a shard's thread and holds up the shard while it runs. It must not wait for a job to be run,
/// since a handler that schedules may wait for the shard. If a job is dropped before it was run, the shard sends it
/// again a millisecond later. The same holds if a panic of `execute` dropped the job; such a panic is counted.
///
/// Any `Fn(Job) + Send + Sync` is an executor.
///
/// ```
/// use std::sync::mpsc;
/// use tourbillon::{Executor, Job};
///
/// let (jobs, queue) = mpsc::channel::<Job>();
/// std::thread::spawn(move || queue.into_iter().for_each(Job::run));
/// let executor: Box<dyn Executor> = Box::new(move |job| jobs.send(job).unwrap());
/// # drop(executor);
/// ```
pub trait Executor: Send + Sync {
    /// Arranges for `job` to be run.
    fn execute(&self, job: Job);
}

impl<F: Fn(Job) + Send + Sync> Executor for F {
    fn execute(&self, job: Job) {
        self(job);
    }
}
