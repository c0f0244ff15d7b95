//! The public interface.

pub(crate) mod builder;
pub(crate) mod driven;
pub(crate) mod global;
pub(crate) mod handle;
pub(crate) mod loops;
pub(crate) mod shards;
pub(crate) mod timer;
mod unwind;
