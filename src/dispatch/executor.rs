//! Jobs with due timers, and the interface of the pools that run them.

use core::fmt;

/// A batch of up to 1,024 due timers of one shard. Any thread can run a job, as a whole or in parts.
///
/// Running a job calls the handler for each timer, one after the other. The run leaves out timers that were cancelled
/// before. If a handler takes long, the shard sends another job for the same batch. Each timer is fired by only one of
/// these jobs. Running a job unwinds only if the engine's clock panics. Until its handler is called, a timer is
/// pending: it can be cancelled, moved or disarmed while its job waits.
pub struct Job(Box<dyn Work>);

/// The work of a job: calling the handlers of a batch. It does not depend on the type of the engine's payloads.
pub(super) trait Work: Send {
    /// Calls the handler for up to `most` timers. Returns the number of called handlers.
    fn run_some(&mut self, most: usize) -> usize;

    /// Returns whether the job has no timer left to fire.
    fn is_done(&self) -> bool;
}

impl Job {
    pub(super) fn new(work: impl Work + 'static) -> Self {
        Self(Box::new(work))
    }

    /// Fires the timers of the job.
    pub fn run(mut self) {
        self.0.run_some(usize::MAX);
    }

    /// Fires up to `most` timers of the job. A thread calls this method if it has room for the results of only `most`
    /// handlers. Returns the number of called handlers. If the number is smaller than `most`, the job is done.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Job};
    ///
    /// let jobs = Arc::new(Mutex::new(Vec::<Job>::new()));
    /// let kept = Arc::clone(&jobs);
    /// let mut engine = Builder::new().executor(move |job| kept.lock().unwrap().push(job)).driven(|_| {})?;
    /// for n in 0..5 {
    ///     engine.handle().schedule(Duration::from_millis(1), n)?;
    /// }
    /// engine.advance(Duration::from_secs(1));
    /// let mut job = jobs.lock().unwrap().pop().expect("five timers are due");
    /// assert_eq!((job.run_some(3), job.is_done()), (3, false));
    /// assert_eq!((job.run_some(3), job.is_done()), (2, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_some(&mut self, most: usize) -> usize {
        self.0.run_some(most)
    }

    /// Returns whether the job is done, as found by its last partial run. All its timers were fired or cancelled, or
    /// the engine was shut down.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

/// A pool of the caller that runs the jobs of an engine, and so fires its timers.
///
/// A shard's thread calls `execute`, and the shard is held up while `execute` runs. `execute` must not wait until a job
/// was run, because a handler that schedules may wait for the shard. If a job is dropped before it is
/// [done](Job::is_done), the shard sends it again a millisecond later. This holds also if a panic of `execute` dropped
/// the job; such a panic is counted.
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
    /// Makes some thread run `job`, now or later.
    fn execute(&self, job: Job);
}

impl<F: Fn(Job) + Send + Sync> Executor for F {
    fn execute(&self, job: Job) {
        self(job);
    }
}
