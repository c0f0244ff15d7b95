//! Limits how much of a shared resource a client may take. The store uses this function for its claims.

pub(crate) use tourbillon_durable::store::free_for;
