//! Shares of what all namespaces use: the rule of the store's claims.

pub(crate) use tourbillon_durable::store::free_for;
