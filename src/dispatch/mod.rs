//! Running handlers: where a due chunk runs, and how a slow or panicking handler is kept from harming others.
//!
//! With the engine's own workers the shard's leader runs the first handover of a turn itself, and another thread takes the
//! shard over should a handler not return (`workers`). Every other handover is a job for a worker, a pool or an executor.
//! A job takes their tickets one by one from shared cursors, so that a second
//! worker can be given the same chunks when the first is held up by a slow handler: the shard looks at what is under way
//! (`Underway`) and sends help to what takes long. Splitting chunks beforehand would cost a task for every few
//! timers, nearly always for nothing.

mod executor;
mod handover;
mod panics;
mod workers;

pub(crate) use executor::Dispatcher;
pub use executor::{Executor, Job};
pub(crate) use handover::{DueChunk, Errand, HANDOVER_CHUNKS, Handover, Underway};
pub(crate) use panics::Guarded;
pub use panics::PanicHook;
pub(crate) use panics::survives;
pub(crate) use workers::Workers;

use crate::sync::StdArc;

/// What runs the handlers of due tickets: the engine.
pub(crate) trait Fire: Send + Sync + 'static {
    /// Fires what it can take from `chunk`.
    fn fire(self: &StdArc<Self>, shard: usize, chunk: &DueChunk);

    /// Every ticket of a handover was taken: the shard may hand over more.
    fn handover_taken(&self, shard: usize);

    /// An executor dropped a job: the shard should look.
    fn job_dropped(&self, shard: usize);
}
