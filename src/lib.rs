//! A timer engine for servers that arm a timeout for nearly everything and see nearly none of them fire.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

// Floors: a module uses those of its own floor and of the floors below it (`tests/tidy.rs`).

// Floor 0: words and doors.
#[cfg(feature = "std")]
mod clock;
mod limits;
#[cfg(feature = "std")]
mod sync;
mod tick;
mod ticket;

// Floor 1: the single-threaded wheel.
pub mod wheel;

// Floor 2: the lock-free parts, and all unsafe code.
#[cfg(feature = "std")]
mod affinity;
#[cfg(feature = "std")]
mod barrier;
#[cfg(feature = "std")]
mod counters;
#[cfg(feature = "std")]
mod inbox;
#[cfg(feature = "std")]
mod parker;
#[cfg(feature = "std")]
mod slab;
#[cfg(feature = "std")]
mod state;

// Floor 3: running handlers.
#[cfg(feature = "std")]
mod dispatch;

// Floor 4: one shard.
#[cfg(feature = "std")]
mod shard;

// Floor 5: the shards together.
#[cfg(feature = "std")]
mod engine;
#[cfg(feature = "std")]
mod stats;

// Floor 6: the face.
#[cfg(feature = "std")]
mod builder;
#[cfg(feature = "std")]
mod driven;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
mod handle;
#[cfg(feature = "std")]
mod producer;

pub use tick::{Tick, Timestamp};
pub use ticket::TimerId;

#[cfg(feature = "std")]
pub use self::{
    builder::Builder,
    clock::{Clock, ManualClock, MonotonicClock, OnStep, SystemClock},
    dispatch::{Executor, Job, PanicHook},
    driven::DrivenEngine,
    engine::{Cancel, Unfired},
    error::{BatchError, BuildError, RescheduleError, ScheduleError, ScheduleErrorKind},
    handle::{Engine, Fired, Handle},
    producer::Producer,
    stats::{Lateness, ShardStats, Stats},
};

#[cfg(all(feature = "std", target_os = "linux"))]
pub use clock::BootClock;

#[cfg(all(test, tourbillon_loom))]
#[path = "../loom_tests/mod.rs"]
mod loom_tests;
