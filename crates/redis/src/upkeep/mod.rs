//! The upkeep of a node: its thread, and the sweep.

mod sweep;
mod thread;

#[cfg(test)]
pub(crate) use sweep::AFTER;
pub(crate) use thread::{Upkeep, start};
