//! Limits how much of a shared resource one client may take, with the function that the store uses for its claims.

pub(crate) use tourbillon_durable::store::free_for;
