//! The cases, for each thing that the tests of the original show by its public items, and for the rest of its
//! documented behaviour. The text is our own. `subject` is the crate that they run against.

mod borders;
mod limits;
mod pauses;
mod sleeps;
mod threshold;
mod types;

use crate::subject::fast_timeout::fast_timeout;
use crate::subject::{Elapsed, timeout, tokio_timeout};
use std::pin::Pin;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// The longest time that a loaded machine needs to wake a task.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The time by which the original may be early: it counts whole milliseconds. This crate is never early.
const EARLY: Duration = MS;

/// A lock that each case holds for reading. A case that changes the threshold, or pauses the timers of the process,
/// holds the lock for writing.
static PROCESS: RwLock<()> = RwLock::new(());

pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    PROCESS.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    PROCESS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a future on a runtime of tokio.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A function that limits a future.
#[derive(Clone, Copy, Debug)]
enum Function {
    Timeout,
    Fast,
    Tokio,
}

const FUNCTIONS: [Function; 3] = [Function::Timeout, Function::Fast, Function::Tokio];

type Limited<T> = Pin<Box<dyn Future<Output = Result<T, Elapsed>> + Send>>;

impl Function {
    fn limit<T>(self, time: Duration, future: impl Future<Output = T> + Send + 'static) -> Limited<T> {
        match self {
            Self::Timeout => Box::pin(timeout(time, future)),
            Self::Fast => Box::pin(fast_timeout(time, future)),
            Self::Tokio => Box::pin(tokio_timeout(time, future)),
        }
    }
}
