//! Running handlers: the thread that a due chunk runs on, and the means that keep a slow or panicking handler from
//! harming others.
//!
//! If the engine has its own workers and a turn has one handover, the shard's leader runs that handover itself, and
//! another thread takes the shard over if a handler does not return (`workers`). Every other handover is a job for a
//! worker, a pool or an executor. A job takes the tickets of its handover one by one from shared cursors. So a second worker can be given
//! the same chunks if a slow handler holds up the first worker: the shard looks at the handovers under way (`Underway`)
//! and sends help to those that take long. Splitting chunks beforehand would cost a task for every few timers, nearly
//! always for nothing.

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

/// An engine, as the shards see it: it runs the handlers of due tickets.
pub(crate) trait Fire: Send + Sync + 'static {
    /// The threads that the handlers run on.
    fn dispatcher(&self) -> &Dispatcher;

    /// Fires the tickets of `handover` that no other worker takes.
    fn fire(self: StdArc<Self>, handover: &Handover);

    /// Notes that every ticket of a handover was taken: the shard may hand over more.
    fn handover_taken(&self, shard: usize);

    /// Notes that an executor dropped a job: the shard should check its handovers.
    fn job_dropped(&self, shard: usize);
}
