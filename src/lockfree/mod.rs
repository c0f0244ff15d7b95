//! The lock-free parts: slots, state words, lanes, sleeps, and counts of threads.

pub(crate) mod barrier;
pub(crate) mod calls;
pub(crate) mod inbox;
pub(crate) mod parker;
pub(crate) mod roster;
pub(crate) mod segments;
pub(crate) mod sessions;
pub(crate) mod slab;
pub(crate) mod sleepers;
pub(crate) mod state;
#[cfg(feature = "async")]
pub(crate) mod waker;
pub(crate) mod watch;
