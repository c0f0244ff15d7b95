//! Running handlers: the thread that a due chunk runs on, and the means that keep a slow or panicking handler from
//! harming others.
//!
//! If the engine has its own workers and a turn has one batch, the shard's leader runs that batch itself, and
//! another thread takes the shard over if a handler does not return (`workers`). Every other batch is a job for a
//! worker, a pool or an executor. A job takes the tickets of its batch one by one from shared cursors. So a second worker can be given
//! the same chunks if a slow handler holds up the first worker: the shard looks at the batches in flight (`InFlight`)
//! and sends help to those that take long. Splitting chunks beforehand would cost a task for every few timers, nearly
//! always for nothing.

mod batch;
mod executor;
mod panics;
mod workers;

pub(crate) use batch::{BATCH_CHUNKS, Batch, BatchJob, DueChunk, InFlight};
pub(crate) use executor::Dispatcher;
pub use executor::{Executor, Job};
pub(crate) use panics::Guarded;
pub use panics::PanicHook;
pub(crate) use panics::survives;
pub(crate) use workers::Workers;

use crate::sync::StdArc;

/// An engine, as the shards see it: it runs the handlers of due tickets.
pub(crate) trait Fire: Send + Sync + 'static {
    /// The threads that the handlers run on.
    fn dispatcher(&self) -> &Dispatcher;

    /// Fires the tickets of `batch` that no other worker takes.
    fn fire(self: StdArc<Self>, batch: &Batch);

    /// Notes that every ticket of a batch was taken: the shard may hand over more.
    fn batch_taken(&self, shard: usize);

    /// Notes that an executor dropped a job: the shard should check its batches.
    fn job_dropped(&self, shard: usize);
}
