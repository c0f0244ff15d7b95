//! Shares of the resources that all namespaces use, by the rule of the store's claims.

pub(crate) use tourbillon_durable::store::free_for;
