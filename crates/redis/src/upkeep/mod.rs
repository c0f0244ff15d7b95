//! The background work of a node: its thread, and the sweep, which repairs stored data.

mod sweep;
mod thread;

#[cfg(test)]
pub(crate) use sweep::AFTER;
pub(crate) use thread::{Upkeep, start};
