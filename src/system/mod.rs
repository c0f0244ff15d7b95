//! The modules that call the operating system: clocks, cores, scheduling, signals, forks.

pub(crate) mod affinity;
pub(crate) mod clock;
pub(crate) mod forks;
pub(crate) mod scheduling;
pub(crate) mod signals;
