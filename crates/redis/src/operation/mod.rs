//! Operations on timers: each reads the timers that it names, computes its effect here, and commits it by a script that
//! compares the timers with those that were read.

mod batch;
mod bulk;
mod commit;
mod creations;
mod ends;
mod held;
mod import;
mod messages;
mod put_back;
mod put_backs;
mod queue;
mod redirects;
mod transact;

pub(crate) use batch::{Batches, partial};
pub(crate) use bulk::Bulk;
pub(crate) use held::Held;
pub(crate) use import::Imports;
#[cfg(test)]
pub(crate) use put_back::{AGAIN, KEPT};
pub(crate) use redirects::{RESERVED, displace};
pub(crate) use transact::{Start, Transactions};
