//! tokio's alternative timer. It has a wheel for each worker, instead of one wheel behind a lock for all workers.
//!
//! It is an option of the multi-thread runtime, which needs `--cfg tokio_unstable`, as in `.cargo/config.toml`. The
//! contestants are those of tokio's own timer on another runtime, and the notes there also apply here. Tasks on workers
//! poll their sleeps, so a new sleep only takes its own lock.
//!
//! A worker puts new timers into its wheel, and takes cancelled timers out, when its task yields. So the jobs yield
//! between two bursts of operations. Otherwise all timers would stay in memory. A reset makes a new timer and drops the
//! old timer.

use super::tasks::Sleeps;
use super::tokio_runtime::TokioRuntime;
use super::{Contestant, OnFire, OneShots, Owned, Reads, TokioFar, TokioOneShots, TokioSleep};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep_until};

/// A contestant whose jobs run on a tokio runtime with tokio's alternative timer.
pub(crate) struct Alternative<C> {
    runtime: TokioRuntime,
    /// The wrapped contestant, whose own runtime is not used.
    contestant: C,
}

/// A contestant whose timers belong to the runtime on which its job runs.
pub(crate) trait OnAnyRuntime: Contestant {
    const ALTERNATIVE_NAME: &'static str;
}

impl OnAnyRuntime for TokioOneShots {
    const ALTERNATIVE_NAME: &'static str = "tokio, alternative timer";
}

impl OnAnyRuntime for TokioSleep<false> {
    const ALTERNATIVE_NAME: &'static str = "tokio, alternative timer";
}

impl OnAnyRuntime for TokioFar<false> {
    const ALTERNATIVE_NAME: &'static str = "tokio, alternative timer, reset to far to disarm";
}

const WHY_NOT: Option<&str> = if cfg!(tokio_unstable) { None } else { Some("built without tokio_unstable") };

/// Makes a runtime with this number of workers. With `None`, the runtime has a worker for each core.
fn runtime(workers: Option<usize>) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers);
    }
    #[cfg(tokio_unstable)]
    builder.enable_alt_timer();
    builder.enable_time().build().expect("the system gives us threads")
}

impl<C: OnAnyRuntime> Contestant for Alternative<C> {
    const NAME: &'static str = C::ALTERNATIVE_NAME;
    const READS: Reads = C::READS;
    const YIELDS: bool = true;
    const WHY_NOT: Option<&'static str> = WHY_NOT;

    fn start(threads: usize, on_fire: impl OnFire) -> Self {
        Self { runtime: TokioRuntime::of(runtime(Some(threads))), contestant: C::start(1, on_fire) }
    }

    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        self.runtime.run(jobs)
    }
}

impl<C: OnAnyRuntime + OneShots> OneShots for Alternative<C> {
    type Caller = C::Caller;

    fn caller(&self) -> Self::Caller {
        self.contestant.caller()
    }
}

impl<C: OnAnyRuntime + Owned> Owned for Alternative<C> {
    type Connections = C::Connections;

    const DISARMS: bool = C::DISARMS;

    fn connect(&self, count: usize) -> Self::Connections {
        self.contestant.connect(count)
    }

    fn pending(&self, all: &mut [Self::Connections]) -> usize {
        self.contestant.pending(all)
    }
}

/// The sleep of tokio's alternative timer, for tasks.
pub(crate) struct AlternativeSleeps;

impl Sleeps for AlternativeSleeps {
    const NAME: &'static str = "tokio, tasks, alternative timer";
    const WHY_NOT: Option<&'static str> = WHY_NOT;

    fn runtime() -> Runtime {
        runtime(None)
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        sleep_until(deadline)
    }
}
