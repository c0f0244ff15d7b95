//! Limits how much of a shared resource a client may take. The store limits its claims by the same function.

pub(crate) use tourbillon_durable::store::free_for;
