//! Where handlers run.

use super::{Fire, Handover};
use crate::sync::StdArc;
use core::fmt;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// A chunk of due timers, to be run once on some thread.
///
/// Running it calls the handler for each timer in turn. It never unwinds.
pub struct Job(Box<dyn FnOnce() + Send>);

impl Job {
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

/// Runs jobs: the way to fire timers on a pool of one's own.
///
/// `execute` is called on a shard's thread and should return soon. It must not run jobs on a thread that blocks until
/// they are done. A job that is dropped without having been run is sent again as soon as the shard notices.
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

/// The engine's choice of where handlers run.
pub(crate) enum Dispatcher {
    /// On the shard's own thread.
    Inline,
    /// On a rayon pool, the engine's own or the caller's.
    Rayon(StdArc<ThreadPool>),
    /// Wherever the caller says.
    Custom(Box<dyn Executor>),
}

impl Dispatcher {
    pub(crate) fn owned_pool(workers: usize) -> Result<Self, ThreadPoolBuildError> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(workers)
            .thread_name(|index| format!("tourbillon-worker-{index}"))
            .build()?;
        Ok(Self::Rayon(StdArc::new(pool)))
    }

    /// Whether due chunks are run by the thread that finds them.
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self, Self::Inline)
    }

    pub(crate) fn dispatch<F: Fire>(&self, fire: &StdArc<F>, handover: &StdArc<Handover>) {
        if let Self::Inline = self {
            handover.run(fire);
            return;
        }
        let (fire, handover) = (StdArc::clone(fire), StdArc::clone(handover));
        let run = move || handover.run(&fire);
        match self {
            Self::Inline => {}
            Self::Rayon(pool) => pool.spawn(run),
            Self::Custom(executor) => executor.execute(Job(Box::new(run))),
        }
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inline => "Inline",
            Self::Rayon(_) => "Rayon",
            Self::Custom(_) => "Custom",
        })
    }
}
