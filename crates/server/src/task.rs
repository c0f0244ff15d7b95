//! Starts tasks that begin rarely: the background tasks of the service, and calls that may block.
//!
//! The compiler generates the runtime's code for tasks anew for each type of future. The functions of this module box
//! all futures and calls, so that this code is generated only once.

use core::pin::Pin;
use std::io;
use tokio::sync::oneshot;

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts a task of the calling runtime.
pub(crate) fn start(task: impl Future<Output = ()> + Send + 'static) {
    let task: Boxed = Box::pin(task);
    drop(tokio::spawn(task));
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
