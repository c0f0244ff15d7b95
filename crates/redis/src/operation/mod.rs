//! Operations on timers. Each operation reads the timers that it names and computes its effect in this process. A
//! script commits the effect if the timers are still as they were read.

mod batch;
mod bulk;
mod commit;
mod creations;
mod ends;
mod held;
mod import;
mod messages;
mod queue;
mod redirects;
mod transact;

pub(crate) use batch::{Batches, partial};
pub(crate) use bulk::Bulk;
pub(crate) use held::Held;
pub(crate) use import::Imports;
pub(crate) use redirects::{RESERVED, displace};
pub(crate) use transact::{Start, Transactions};
