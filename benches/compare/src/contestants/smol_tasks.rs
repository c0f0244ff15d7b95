//! Timers for actions, without a runtime of their own. Each timer is a task of smol's executor.
//!
//! A thread for each core runs an `Executor`, as in smol's documentation. Both kinds of timer use the same executor, so
//! only the timers differ. async-io's timers run in its own `block_on`, in which an idle thread waits for the timers
//! itself. futures-timer's helper thread wakes the executor. The threads stay until the process ends, like those of
//! smol's global executor.
//!
//! The deadline counts from the call. A cancel drops the task, and a thread of the executor notices that later. If the
//! timer fired just before, the cancel does not always know.

use super::{Caller, Clock, Contestant, OnFire, OneShots, Reads};
use crate::common::Payload;
use async_executor::{Executor, Task};
use async_io::Timer;
use futures_timer::Delay;
use std::future::pending;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub(crate) struct SmolTasks<S> {
    spawner: Spawner<S>,
}

/// The way in which a library's tasks sleep.
pub(crate) trait Sleep: Send + Sync + 'static {
    const NAME: &'static str;

    /// Returns a future that is ready `delay` after the call.
    fn sleep(delay: Duration) -> impl Future<Output = ()> + Send + 'static;

    /// Runs an executor's future on this thread, for ever.
    fn run(future: impl Future<Output = ()>);
}

/// The sleep of futures-timer, its `Delay`.
pub(crate) struct FuturesSleep;
/// The sleep of async-io, its `Timer`.
pub(crate) struct AsyncIoSleep;

impl Sleep for FuturesSleep {
    const NAME: &'static str = "futures-timer, tasks";

    fn sleep(delay: Duration) -> impl Future<Output = ()> + Send + 'static {
        Delay::new(delay)
    }

    fn run(future: impl Future<Output = ()>) {
        futures_lite::future::block_on(future);
    }
}

impl Sleep for AsyncIoSleep {
    const NAME: &'static str = "async-io, tasks";

    fn sleep(delay: Duration) -> impl Future<Output = ()> + Send + 'static {
        let timer = Timer::after(delay);
        async move {
            timer.await;
        }
    }

    fn run(future: impl Future<Output = ()>) {
        async_io::block_on(future);
    }
}

impl<S: Sleep> Contestant for SmolTasks<S> {
    const NAME: &'static str = S::NAME;
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(_threads: usize, on_fire: impl OnFire) -> Self {
        let executor = Arc::new(Executor::new());
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores {
            let executor = Arc::clone(&executor);
            thread::spawn(move || S::run(executor.run(pending())));
        }
        Self { spawner: Spawner { executor, on_fire: Arc::new(on_fire), sleep: PhantomData } }
    }
}

impl<S: Sleep> OneShots for SmolTasks<S> {
    type Caller = Spawner<S>;

    fn caller(&self) -> Spawner<S> {
        let Spawner { executor, on_fire, sleep } = &self.spawner;
        Spawner { executor: Arc::clone(executor), on_fire: Arc::clone(on_fire), sleep: *sleep }
    }
}

pub(crate) struct Spawner<S> {
    executor: Arc<Executor<'static>>,
    on_fire: Arc<dyn Fn(Payload) + Send + Sync>,
    sleep: PhantomData<S>,
}

impl<S: Sleep> Caller for Spawner<S> {
    type Id = Task<()>;
    const KNOWS_WHO_WON: bool = false;

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> Task<()> {
        let on_fire = Arc::clone(&self.on_fire);
        let sleep = S::sleep(delay);
        self.executor.spawn(async move {
            sleep.await;
            on_fire(payload);
        })
    }

    #[inline]
    fn cancel(&mut self, task: Task<()>) -> bool {
        let is_pending = !task.is_finished();
        drop(task);
        is_pending
    }
}
