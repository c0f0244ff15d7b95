//! The meaning of the operations on ordered tables: the entries of each timer, and the effect of an operation on them.
//!
//! A ledger lives as long as one transaction. A store that offers ordered tables gets its behaviour from here; it adds
//! the transaction, the durability and the clock.
//!
//! # Invariants
//! L1. A stored timer has the entries that `entries` lists, and no others: one record, one entry by its phase, one for
//!     each label, one for its key if it owns the key, one among the timers without a key if it owns none and is not
//!     dead, and one among the stopped timers of its namespace if it is parked or dead.
//! L2. A timer owns its key unless it is dead or withdrawn. Of one key there is one owner.
//! L3. The counts are the numbers of records by namespace and phase.
//! L4. The hours are the numbers of entries by due moment in each hour of UTC.

// Below the others: the bytes of entries, and timers with their entries.
mod entries;
mod timers;

// The operations, by subject.
mod changes;
mod check;
mod ends;
mod horizon;
mod leases;
mod limits;
mod lists;
mod operations;
mod placing;
mod remembered;
mod scrub;
mod turns;

pub use changes::PAUSED;
pub(crate) use entries::{entries, key_of, moment_of};
pub(crate) use horizon::LOOKS;
pub(crate) use limits::admit;
pub(crate) use scrub::{ScrubCursor, Step, Suspect};
pub(crate) use timers::Ledger;
pub(crate) use turns::{Chosen, Turns};
