//! Chooses the threads on which handlers run.

use super::executor::{Executor, Job, Work};
use super::panics::survives;
use super::workers::Workers;
use crate::base::sync::StdArc;
use core::fmt;
#[cfg(feature = "rayon")]
use rayon::ThreadPool;

/// The threads on which an engine's handlers run. Clones refer to the same threads.
#[derive(Clone)]
pub(crate) enum Dispatcher {
    /// Handlers run on the thread of the shard itself.
    Inline,
    /// Handlers run on the caller's rayon pool.
    #[cfg(feature = "rayon")]
    Rayon(StdArc<ThreadPool>),
    /// Handlers run on the workers that belong to the set of shards.
    Own(StdArc<Workers>),
    /// Handlers run where the caller's executor chooses.
    Executor(StdArc<dyn Executor>),
}

impl Dispatcher {
    /// Returns whether handlers run on the thread of the shard itself.
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self, Self::Inline)
    }

    /// Returns the workers of the set of shards; `None` if handlers run elsewhere.
    pub(crate) fn own_workers(&self) -> Option<&Workers> {
        match self {
            Self::Own(workers) => Some(workers),
            _ => None,
        }
    }

    /// Returns the number of threads that run handlers; zero if that number is unknown or handlers run inline.
    pub(crate) fn workers(&self) -> usize {
        match self {
            Self::Own(workers) => workers.count(),
            #[cfg(feature = "rayon")]
            Self::Rayon(pool) => pool.current_num_threads(),
            Self::Inline | Self::Executor(_) => 0,
        }
    }

    /// Returns whether the calling thread belongs to a rayon pool that runs handlers. A pool's thread may be working on
    /// behalf of a handler, and must not wait for handlers. The shards' own workers run nothing but handlers, so
    /// `shard::here::is_firing` suffices for these workers.
    pub(crate) fn is_worker_here(&self) -> bool {
        match self {
            #[cfg(feature = "rayon")]
            Self::Rayon(pool) => pool.current_thread_index().is_some(),
            Self::Inline | Self::Own(_) | Self::Executor(_) => false,
        }
    }

    /// Runs `work` on the threads for handlers, or at once on the calling thread. Returns false if the executor
    /// panicked.
    pub(super) fn send(&self, work: impl Work + 'static) -> bool {
        let job = Job::new(work);
        match self {
            Self::Inline => job.run(),
            #[cfg(feature = "rayon")]
            Self::Rayon(pool) => {
                // A panic of the user's clock, or of the handler's drop, would abort the process if it unwound from
                // here.
                pool.spawn(move || {
                    let _survived = survives(|| job.run());
                });
            }
            Self::Own(workers) => workers.execute(job),
            Self::Executor(executor) => return survives(|| executor.execute(job)),
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
