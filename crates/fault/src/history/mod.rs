//! What happened in a run: the operations of clients, the deliveries at a receiver, and the faults that were done.
//!
//! Each client, and the receiver, writes its records to its own file, one record a line. [`check`] finds the faults
//! afterwards. Moments are microseconds by the machine's monotonic clock, which all processes share and nobody sets;
//! due moments are milliseconds of UTC by the store's clock.

mod check;
mod excuses;
mod lives;
mod record;
mod terms;
#[cfg(test)]
mod tests;

pub use check::{Broken, End, Findings, Lateness, Stored, check};
pub use record::{Answer, Call, Cause, Delivery, Fault, Id, Moment, NoRecord, Place, Record, read};
pub use terms::Terms;
