//! Limits how much of a shared resource a client may take, by the rule that the store's claims use.

pub(crate) use tourbillon_durable::store::free_for;
