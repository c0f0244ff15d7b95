//! The lock-free parts: slots and state words of timers, lanes for tickets, and the sleeping and waking of threads.

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
pub(crate) mod waiters;
#[cfg(feature = "async")]
pub(crate) mod waker;
pub(crate) mod watch;
