//! Running handlers: the choice of the thread for a due chunk, and protection of other handlers from a slow or
//! panicking handler.
//!
//! If the workers of the shards run the engine's handlers and a turn has one batch, the shard's leader runs that batch
//! itself, and another thread takes the shard over if a handler does not return (`workers`). Every other batch is a job
//! for a worker, a pool or an executor. A job takes the tickets of its batch one by one from shared cursors. So a
//! second worker can help with the same chunks if a slow handler holds up the first worker: the shard looks at the
//! batches in flight (`InFlight`) and sends another job for batches that take long. The alternative, splitting chunks
//! beforehand, would cost a job for every few timers, nearly always for nothing.

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
