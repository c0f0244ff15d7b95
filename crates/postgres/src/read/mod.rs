//! Reads timers: by address, in lists, as numbers, and all of them.

mod counts;
mod find;
mod list;
mod reasons;
mod whole;

pub(crate) use counts::{counts, horizon};
pub(crate) use find::{find, recover, upcoming};
pub(crate) use list::list;
pub(crate) use reasons::{parked_among, reasons};
pub(crate) use whole::{check, export};
