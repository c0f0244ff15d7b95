//! Claims of due timers, and their leases.

mod claims;
mod leases;

pub(crate) use claims::Claims;
pub(crate) use leases::{reap, renew};
