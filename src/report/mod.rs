//! Statistics and health.

pub(crate) mod health;
pub(crate) mod stats;
