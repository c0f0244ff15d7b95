//! A tokio runtime for jobs. A single job runs on the calling thread. Several jobs have a worker each.

use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::unconstrained;

pub(crate) struct TokioRuntime(Runtime);

impl TokioRuntime {
    pub(super) fn start(threads: usize) -> Self {
        let mut builder = match threads {
            1 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        // A current-thread runtime has no workers and ignores their number.
        let runtime = builder.worker_threads(threads).enable_time().build();
        Self::of(runtime.expect("the system gives us threads"))
    }

    pub(super) fn of(runtime: Runtime) -> Self {
        Self(runtime)
    }

    /// Runs each job as a task.
    ///
    /// The tasks run without a budget, because a task without budget left does not register its `Sleep` at the first
    /// poll.
    pub(super) fn run<R: Send + 'static>(
        &self,
        jobs: Vec<impl Future<Output = R> + Send + 'static>,
    ) -> Vec<R> {
        self.0.block_on(async {
            let tasks: Vec<_> = jobs.into_iter().map(|job| tokio::spawn(unconstrained(job))).collect();
            let mut results = Vec::with_capacity(tasks.len());
            for task in tasks {
                results.push(task.await.expect("a job's own checks hold"));
            }
            results
        })
    }

    /// Runs the runtime's driver of timers for `time`.
    pub(super) fn turn(&self, time: Duration) {
        self.0.block_on(async { tokio::time::sleep(time).await });
    }
}
