//! Limits how much of a shared resource one client may take. The store limits the deliveries of each namespace by the
//! same function.

pub(crate) use tourbillon_durable::store::free_for;
