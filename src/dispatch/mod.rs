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
mod dispatcher;
mod executor;
mod panics;
mod workers;

pub(crate) use batch::{BATCH_CHUNKS, Batch, BatchJob, DueChunk, Fire, InFlight, dispatch};
pub(crate) use dispatcher::Dispatcher;
pub use executor::{Executor, Job};
pub(crate) use panics::Guarded;
pub use panics::PanicHook;
pub(crate) use panics::survives;
pub(crate) use workers::Workers;
