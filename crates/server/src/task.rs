//! Starts tasks that begin rarely: the background tasks of the service, and calls that may block.
//!
//! The compiler generates the runtime's code for tasks once for each type of future. The functions of this module box
//! all futures and calls, so that there is only one type.

use core::pin::Pin;
use core::time::Duration;
use std::io;
use std::time::Instant;
use tokio::sync::{oneshot, watch};

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts a task of the calling runtime.
pub(crate) fn start(task: impl Future<Output = ()> + Send + 'static) {
    let task: Boxed = Box::pin(task);
    drop(tokio::spawn(task));
}

/// Starts a task of the calling runtime, and returns a future with its result. If the future is dropped, the task still
/// runs to its end. The future fails if the task panics, or if the runtime ends.
pub(crate) fn answered<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = io::Result<T>> + Send {
    let (sender, receiver) = oneshot::channel();
    start(async move {
        // Nobody waits if the future was dropped.
        let _dropped = sender.send(task.await);
    });
    async move { receiver.await.map_err(io::Error::other) }
}

/// Calls `work` on a thread that may block. If the returned future is dropped, the call still runs to its end. The
/// future fails if the call panics, or if the runtime ends before the call has begun.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = io::Result<T>> + Send {
    let (sender, receiver) = oneshot::channel();
    let work: Box<dyn FnOnce() + Send> = Box::new(move || {
        // Nobody waits if the future was dropped.
        let _dropped = sender.send(work());
    });
    let task = tokio::task::spawn_blocking(work);
    async move {
        task.await.map_err(io::Error::other)?;
        receiver.await.map_err(io::Error::other)
    }
}

/// Counts the tasks for whose end a service waits when it stops. Clones share the count.
#[derive(Clone)]
pub(crate) struct Tasks(watch::Sender<usize>);

impl Tasks {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Counts a task. The task counts until the returned value is dropped.
    pub(crate) fn begin(&self) -> Task {
        self.0.send_modify(|tasks| *tasks += 1);
        Task(self.0.clone())
    }

    /// Waits for at most `patience` until no task is counted. Returns whether all tasks have ended. Blocks the calling
    /// thread.
    pub(crate) fn await_end(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while *self.0.borrow() > 0 {
            if begun.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

/// Counts one task, until this value is dropped.
pub(crate) struct Task(watch::Sender<usize>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.send_modify(|tasks| *tasks -= 1);
    }
}
