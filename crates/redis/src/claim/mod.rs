//! Claims: leases timers for this process, and ends the leases.

mod claims;
mod doubts;
mod leases;
mod look;
mod parked;
mod portions;
mod shares;

pub(crate) use claims::Claims;
pub(crate) use leases::Leases;
pub(crate) use parked::ParkedClaims;
