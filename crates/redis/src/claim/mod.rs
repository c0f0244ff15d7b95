//! Claims: the timers that this process leases, and the ends of their leases.

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
