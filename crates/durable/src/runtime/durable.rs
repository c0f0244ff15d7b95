//! Owns a runtime from its start to its end.

use super::report::Stats;
use super::timers::Timers;
use core::time::Duration;
use std::thread;

/// A runtime that delivers durable timers. The runtime ends when this value is dropped. [`handle`](Self::handle)
/// returns the runtime's [`Timers`], by which a program stores and changes timers.
#[derive(Debug)]
#[must_use = "the runtime ends when it is dropped"]
pub struct Durable {
    pub(super) timers: Timers,
    /// The thread of the delivery loop. `None` once the runtime has ended.
    pub(super) thread: Option<thread::JoinHandle<()>>,
}

impl Durable {
    /// Returns the handle by which any thread stores, cancels and reads timers.
    ///
    /// ```
    /// use tourbillon_durable::Durable;
    /// use tourbillon_durable::store::MemoryStore;
    ///
    /// let durable = Durable::builder(MemoryStore::default()).start()?;
    /// let timers = durable.handle().clone();
    /// std::thread::spawn(move || timers.health()).join().map_err(|_| "a panic")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn handle(&self) -> &Timers {
        &self.timers
    }

    /// Ends the runtime. No further delivery begins. Waits for running handlers, for at most `patience`. If a handler
    /// has not returned in this time, its timer is given back to the store: no attempt and no delivery is counted, and
    /// the next start delivers the timer again. A timer that is delivered at most once is given back only if its
    /// delivery has not begun. When the call returns, the store has written the results of all finished deliveries to
    /// the disk, even with a lower [`end_durability`](crate::Builder::end_durability). If the store fails, results may
    /// be lost.
    ///
    /// The store is released when the last [`Timers`] of the runtime is dropped and all handlers have returned. After
    /// that a store in a file can be opened again.
    ///
    /// Returns the statistics up to the end.
    ///
    /// The calling thread waits. An asynchronous program must make the call on a thread that may wait, for example by
    /// `tokio::task::spawn_blocking(move || durable.shutdown(patience)).await`. On a thread of the executor that runs
    /// the handlers, the call could wait for handlers that need this thread. As soon as the call begins, no timer is
    /// claimed, and [`Timers`] refuse new timers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Rejection, Spec};
    ///
    /// let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// let timers = durable.handle().clone();
    /// let stats = durable.shutdown(Duration::from_secs(5));
    /// assert_eq!(stats.released, 0);
    /// let refused = timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()));
    /// assert!(refused.is_err_and(|error| matches!(error.reason, Rejection::ShutDown)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the numbers show what was given back"]
    pub fn shutdown(mut self, patience: Duration) -> Stats {
        self.end(patience);
        self.timers.stats()
    }

    fn end(&mut self, patience: Duration) {
        // The drop after a shutdown must not end the shutdown's patience.
        let Some(thread) = self.thread.take() else { return };
        self.timers.runtime.stop(patience);
        // The program's function for incidents runs on the delivery loop's thread, and may drop the runtime there. This
        // thread must not wait for itself.
        if thread.thread().id() != thread::current().id() {
            self.timers.runtime.await_end();
            // The delivery loop's thread keeps the store open until the thread ends.
            let _panic = thread.join();
        }
    }
}

/// Ends the runtime as [`shutdown`](crate::Durable::shutdown) does, without waiting for handlers.
impl Drop for Durable {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
