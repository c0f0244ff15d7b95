//! The same cases on each runtime: the traits that a runtime must implement, and the tests.
//!
//! By the engine's own clock, nothing may be early. The tests set no limit on lateness except for their patience.

pub(crate) mod many_tasks;
pub(crate) mod one_task;
pub(crate) mod peer;

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::future::Wakeup;
use tourbillon::{Builder, Engine};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// How long a test waits for an event that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A runtime that runs a future on the calling thread.
pub(crate) trait BlockOn {
    fn new() -> Self;

    fn block_on<F: Future>(&self, future: F) -> F::Output;
}

/// A runtime that runs tasks on several threads, and has sockets.
pub(crate) trait Runtime: BlockOn {
    type Task<T: Send + 'static>;
    type Stream: Send;

    fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Self::Task<T>;

    async fn join<T: Send + 'static>(task: Self::Task<T>) -> T;

    /// Cancels a task at its next wait. Returns without waiting for the end of the task.
    fn cancel(task: Self::Task<()>);

    async fn connect(address: SocketAddr) -> io::Result<Self::Stream>;

    async fn write(stream: &mut Self::Stream, byte: u8) -> io::Result<()>;

    async fn read(stream: &mut Self::Stream) -> io::Result<u8>;
}

/// Starts an engine for one test.
pub(crate) fn engine() -> Engine<Wakeup> {
    Builder::new().start_futures().unwrap()
}

/// Waits until the futures of the engine have exactly `count` timers.
pub(crate) fn await_alive(engine: &Engine<Wakeup>, count: u64) {
    let begin = Instant::now();
    while engine.handle().stats().owned.alive != count {
        assert!(begin.elapsed() < PATIENCE, "{:?}, {count} expected", engine.handle().stats().owned);
        thread::sleep(MS);
    }
}

/// Makes a test of each named case in the module `cases`, on the given runtime.
macro_rules! tests {
    ($runtime:ty, $cases:ident: $($case:ident)*) => {
        $(#[test]
        fn $case() {
            crate::cases::$cases::$case(&<$runtime as crate::cases::BlockOn>::new());
        })*
    };
}
pub(crate) use tests;

macro_rules! test_one_task {
    ($runtime:ty) => {
        crate::cases::tests! { $runtime, one_task:
            a_sleep_is_never_early
            a_sleep_of_the_process_s_engine_is_never_early
            a_timeout_elapses_and_not_early
            a_timeout_passes_the_value_on
            a_timeout_is_used_for_one_future_after_the_other
            an_interval_ticks_on_time_and_not_early
            ten_thousand_sleeps_in_one_task_complete_and_none_early
            a_sleep_wakes_the_thread_that_polled_it_last
            a_dropped_future_leaves_no_timer
            a_service_is_limited
            a_service_has_a_limited_rate
        }
    };
}
pub(crate) use test_one_task;

macro_rules! test_many_tasks {
    ($runtime:ty) => {
        crate::cases::tests! { $runtime, many_tasks:
            ten_thousand_tasks_sleep_and_none_wakes_early
            a_task_that_moves_to_another_worker_still_wakes
            a_read_from_a_socket_is_limited_request_by_request
            a_sleep_is_put_off_by_each_byte
            a_cancelled_task_leaves_no_timer
        }
    };
}
pub(crate) use test_many_tasks;
