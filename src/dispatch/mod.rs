//! Runs handlers. Chooses a thread for due chunks, and keeps a slow or panicking handler from affecting other handlers.
//!
//! If the workers of the shards run the engine's handlers and a turn has only one batch, the shard's leader runs that
//! batch itself. If a handler does not return, another thread takes the shard over (`workers`). Every other batch
//! becomes a job for a worker, a pool or an executor. A job takes the tickets of its batch one by one, from shared
//! cursors. So if a slow handler holds up the first worker, a second worker can help with the batch. To make that
//! happen, the shard checks its batches in flight (`InFlight`), and sends another job for each batch that takes long.
//! The alternative, splitting chunks beforehand, would cost a job for every few timers, nearly always for nothing.

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
