//! Reports on an engine: statistics and health.

pub(crate) mod health;
pub(crate) mod stats;
