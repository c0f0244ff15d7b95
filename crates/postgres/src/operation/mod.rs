//! Applies operations. A transaction locks timers, computes the effect, and writes it. For many timers at once, single
//! statements do the same faster.

mod apply;
mod batch;
mod columns;
mod confirmation;
mod creations;
mod imports;
mod needs;
mod operate;
mod transaction;
mod unpark;
mod write;

pub(crate) use batch::Batches;
pub(crate) use creations::Creations;
pub(crate) use imports::{import, import_all};
pub(crate) use needs::{lasting, now as now_of};
pub(crate) use transaction::{Act, Transactions, Work};
pub(crate) use write::write;
