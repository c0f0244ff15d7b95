//! Timers for actions, as tasks of a tokio runtime. A task sleeps first, and then acts.
//!
//! The caller's thread does not belong to the runtime. A cancel aborts the task, and the task's worker notices that
//! later. If the timer fired just before, the cancel does not always know.

use super::{Caller, Clock, Contestant, OnFire, OneShots, Reads};
use crate::common::Payload;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) struct Tasks<S> {
    runtime: Runtime,
    on_fire: Arc<dyn Fn(Payload) + Send + Sync>,
    sleeps: PhantomData<fn() -> S>,
}

/// The way in which a task sleeps, and the runtime that it needs.
pub(crate) trait Sleeps: 'static {
    const NAME: &'static str;
    const READS: Reads = Reads::EachArm(Clock::Instant);
    const IS_OURS: bool = false;
    const WHY_NOT: Option<&'static str> = None;

    fn runtime() -> Runtime;

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static;
}

/// tokio's own sleep, in its default runtime with a worker for each core.
pub(crate) struct TokioSleeps;

impl Sleeps for TokioSleeps {
    const NAME: &'static str = "tokio, tasks";

    fn runtime() -> Runtime {
        Builder::new_multi_thread().enable_time().build().expect("the system gives us threads")
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        tokio::time::sleep_until(deadline)
    }
}

impl<S: Sleeps> Contestant for Tasks<S> {
    const NAME: &'static str = S::NAME;
    const READS: Reads = S::READS;
    const IS_OURS: bool = S::IS_OURS;
    const WHY_NOT: Option<&'static str> = S::WHY_NOT;

    fn start(_threads: usize, on_fire: impl OnFire) -> Self {
        Self::of(S::runtime(), on_fire)
    }
}

impl<S: Sleeps> Tasks<S> {
    fn of(runtime: Runtime, on_fire: impl OnFire) -> Self {
        Self { runtime, on_fire: Arc::new(on_fire), sleeps: PhantomData }
    }
}

/// Tasks that sleep, on a runtime with a worker for each thread that the workload asks for.
pub(crate) struct TasksOfThreads<S>(Tasks<S>);

impl<S: Sleeps> Contestant for TasksOfThreads<S> {
    const NAME: &'static str = S::NAME;
    const READS: Reads = S::READS;
    const IS_OURS: bool = S::IS_OURS;

    fn start(threads: usize, on_fire: impl OnFire) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_time().build();
        Self(Tasks::of(runtime.expect("the system gives us threads"), on_fire))
    }
}

impl<S: Sleeps> OneShots for TasksOfThreads<S> {
    type Caller = Spawner<S>;

    fn caller(&self) -> Spawner<S> {
        self.0.caller()
    }
}

impl<S: Sleeps> OneShots for Tasks<S> {
    type Caller = Spawner<S>;

    fn caller(&self) -> Spawner<S> {
        let (runtime, on_fire) = (self.runtime.handle().clone(), Arc::clone(&self.on_fire));
        Spawner { runtime, on_fire, sleeps: PhantomData }
    }
}

pub(crate) struct Spawner<S> {
    runtime: Handle,
    on_fire: Arc<dyn Fn(Payload) + Send + Sync>,
    sleeps: PhantomData<fn() -> S>,
}

impl<S: Sleeps> Caller for Spawner<S> {
    type Id = JoinHandle<()>;
    const KNOWS_WHO_WON: bool = false;

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> JoinHandle<()> {
        let on_fire = Arc::clone(&self.on_fire);
        let deadline = Instant::now() + delay;
        self.runtime.spawn(async move {
            S::sleep_until(deadline).await;
            on_fire(payload);
        })
    }

    #[inline]
    fn cancel(&mut self, task: JoinHandle<()>) -> bool {
        let is_pending = !task.is_finished();
        task.abort();
        is_pending
    }
}
