//! The history of a run: the calls of clients, the deliveries at a receiver, and the faults.
//!
//! Each client and the receiver write their records to files of their own, one record a line. [`check`] finds
//! violations afterwards. Moments are microseconds of the machine's monotonic clock, which all processes share and
//! which is never set. Due moments are milliseconds of UTC by the store's clock.

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
