//! Claims of due timers, and their leases.

mod claims;
mod leases;
mod parked;

pub(crate) use claims::Claims;
pub(crate) use leases::{reap, renew};
