//! The threads that handlers run on.

use super::Fire;
use super::batch::{Batch, BatchJob};
use super::panics::survives;
use super::workers::Workers;
use crate::sync::StdArc;
use core::fmt;
#[cfg(feature = "rayon")]
use rayon::ThreadPool;

/// A chunk of due timers, to be run once on any thread.
///
/// Running a job calls the handler for each timer in turn. It never unwinds.
pub struct Job(Box<dyn FnOnce() + Send>);

impl Job {
    fn of(job: BatchJob) -> Self {
        Self(Box::new(move || job.run()))
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

/// Runs jobs, in order to fire timers on a pool of the caller's own.
///
/// `execute` is called on a shard's thread and holds up the shard while it runs. It must not wait for a job to be run:
/// a handler that schedules may wait for the shard. A job that is dropped without having been run is sent again a
/// millisecond later, also if `execute` dropped it by a panic. Such a panic is counted.
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

/// The choice of the threads that an engine's handlers run on. Clones are the same choice.
#[derive(Clone)]
pub(crate) enum Dispatcher {
    /// On the shard's own thread.
    Inline,
    /// On the caller's rayon pool.
    #[cfg(feature = "rayon")]
    Rayon(StdArc<ThreadPool>),
    /// On the workers of the shards.
    Own(StdArc<Workers>),
    /// On the threads that the caller's executor chooses.
    Executor(StdArc<dyn Executor>),
}

impl Dispatcher {
    /// Whether due chunks are run by the thread that finds them due.
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self, Self::Inline)
    }

    /// The workers of the shards, if handlers run on them.
    pub(crate) fn own_workers(&self) -> Option<&Workers> {
        match self {
            Self::Own(workers) => Some(workers),
            _ => None,
        }
    }

    /// The number of workers; zero if it is unknown.
    pub(crate) fn workers(&self) -> usize {
        match self {
            Self::Own(workers) => workers.count(),
            #[cfg(feature = "rayon")]
            Self::Rayon(pool) => pool.current_num_threads(),
            Self::Inline | Self::Executor(_) => 0,
        }
    }

    /// Whether the calling thread belongs to a rayon pool that runs handlers: the thread may be doing something on
    /// behalf of a handler, and must not wait for handlers. The engine's own workers run only handlers, which
    /// `is_firing_here` covers.
    pub(crate) fn is_worker_here(&self) -> bool {
        match self {
            #[cfg(feature = "rayon")]
            Self::Rayon(pool) => pool.current_thread_index().is_some(),
            Self::Inline | Self::Own(_) | Self::Executor(_) => false,
        }
    }

    /// Sends a job for `batch`. Returns false if the executor panicked.
    pub(crate) fn dispatch(&self, engine: &StdArc<dyn Fire>, batch: &StdArc<Batch>) -> bool {
        match self {
            Self::Inline => {
                batch.run(engine);
                true
            }
            _ => self.send(BatchJob::new(batch, engine)),
        }
    }

    /// Sends `job`. Returns false if the executor panicked.
    pub(super) fn send(&self, job: BatchJob) -> bool {
        match self {
            Self::Inline => job.run(),
            #[cfg(feature = "rayon")]
            Self::Rayon(pool) => {
                // A panic of the user's clock, or of the handler's drop, would abort the process
                // if it unwound from here.
                pool.spawn(move || {
                    let _survived = survives(|| job.run());
                });
            }
            Self::Own(workers) => workers.execute(Job::of(job)),
            Self::Executor(executor) => return survives(|| executor.execute(Job::of(job))),
        }
        true
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inline => "Inline",
            #[cfg(feature = "rayon")]
            Self::Rayon(_) => "Rayon",
            Self::Own(_) => "Own",
            Self::Executor(_) => "Executor",
        })
    }
}
