//! A timer engine for servers that arm a timeout for nearly everything and see nearly none of them fire.
//!
//! Any thread schedules, moves and cancels timers without a lock; only its first call on an engine takes one. Threads
//! with timers of their own write to different cache lines. A *shard* is a thread that fires due timers, one for each
//! core by default, with a hierarchical timing wheel for each engine. If a handler blocks, another thread takes over
//! the shard. Deadlines are rounded up to a *tick*, 1 ms by default.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::{Cancel, Engine};
//!
//! let engine = Engine::new(|timer| println!("{} is {:?} late", timer.payload, timer.lateness()))?;
//! let id = engine.handle().schedule(Duration::from_secs(30), "request 17 timed out")?;
//! // ... the answer comes ...
//! assert_eq!(engine.handle().cancel(id), Cancel::Cancelled("request 17 timed out"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Parts
//!
//! [`Engine`]s with any type of payload share a set of [`Shards`]. [`DrivenShards`] are a set on a manual clock and the
//! caller's thread, for tests. [`LoopShard`]s are the shards of a program's event loops. A [`Timer`] belongs to one
//! owner, for example a connection, which arms and disarms it any number of times, by a store and a load each.
//! [`wheel`] is the wheel alone. [`extend`] is the interface for crates that build a layer on the engine.
//!
//! # Guarantees
//!
//! | | |
//! |---|---|
//! | never early | no handler begins before the delay has passed by the caller's [`Instant`](std::time::Instant) |
//! | arming holds | after several armings, a [`Timer`] fires once: for the last acknowledged deadline, and not before it |
//! | at most once | each timer ends in exactly one way: it fires once, is cancelled, or is returned by the shutdown |
//! | exact cancel | after [`Cancel::Cancelled`] the handler does not run and has not begun; else [`Cancel`] says why |
//! | lateness | less than one tick, plus a thread's wake-up, plus the wait in the workers' queue; [`Stats`] shows it |
//! | order | none is promised; up to 1,024 timers that come due together are fired roughly by deadline, the longest due first |
//! | panics | a panicking handler is counted and reported, and affects nothing else |
//! | bounds | pending timers, tickets in flight, garbage and the work of a turn are bounded |
//! | shutdown | fired + cancelled + returned = scheduled; payloads of unfired timers are returned |
//!
//! # Limits
//!
//! - Memory grows with the peak number of timers, and is kept until the engine is dropped: see [`Builder::capacity`].
//! - An id may name another timer once its slot in memory has been reused 2^39 times, or 2^31 in a part of an engine
//!   whose capacity is above the default: see [`TimerId`].
//! - The child of a fork has none of the engine's threads. There an engine that was built before the fork refuses
//!   timers as `Forked`. So a daemon forks first, detaches, and builds its engine afterwards. A fork that is followed
//!   by exec is unaffected.
//! - The end of time is 584 years after the clock's origin; later deadlines are clamped to that moment.
//!
//! # Vocabulary
//!
//! *tick*: the unit of a wheel's time. *deadline*: the moment at or after which a timer may fire. *shard*: a thread
//! with a wheel for each engine, or a part of an event loop. *turn*: one pass over a shard's wheels. *lane*: the queue
//! of the *tickets* by which a thread tells a shard about its timers. *stale*: describes an id whose timer has ended.
//!
//! # Features
//!
//! No feature is on by default. The engine needs the standard library; the crate [`tourbillon-wheel`](tourbillon_wheel)
//! is the wheel alone, on `core` and `alloc`. The crate `tourbillon-tasks` has closures, repeating tasks, timers by
//! key, idle timeouts, expiring maps and delay queues, all on one engine.
//!
//! - `async`: `sleep`, `timeout` and `interval` for any executor, in the module `future`.
//! - `tokio`: the names of `tokio::time`, in the module `time`. A task of the runtime turns the timers.
//! - `test-util`: timers inside a tokio runtime follow the runtime's clock, which a test may pause.
//! - `rayon`: `Builder::rayon_pool` runs handlers on the caller's rayon pool.
//! - `metrics`: `Stats::record` publishes [`Stats`] to the `metrics` facade. [`Stats::prometheus`] needs no feature.
//! - `tracing`: events with the target `tourbillon` when an engine starts and stops, when a shard stalls and when it
//!   has caught up, when timers are refused for want of room, when a handler panics, and when a shard could not be
//!   pinned. Only the first refusal of an episode is an event, and each stall is one event. [`Handle::health`] needs no
//!   feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Floors: a module uses only modules of its own floor and of the floors below it (`tests/tidy`).

// Floor 0: basic types, and the doors to threads, atomics and tracing.
mod base;

// Floor 1: the single-threaded wheel, a crate of its own.
pub mod wheel;

// Floor 2: the doors to the system.
mod system;

// Floor 3: the lock-free parts.
mod lockfree;

// Floor 4: running handlers.
mod dispatch;

// Floor 5: the shards.
mod shard;

// Floor 6: engines.
mod engine;

// Floor 7: reports.
mod report;

// Floor 8: the public interface.
mod api;
#[cfg(feature = "async")]
pub mod future;
#[cfg(feature = "tokio")]
pub mod time;

// Floor 9: the seam for layers that are built on the engine.
pub mod extend;

pub use self::{
    api::{
        builder::Builder,
        driven::{DrivenEngine, DrivenShards},
        handle::{Engine, Fired, Handle},
        loops::{LoopShard, On},
        shards::{Entered, Shards},
        timer::{ArmError, Armed, Disarm, Timer, TimerRef},
    },
    base::{
        error::{BatchError, BuildError, Refusal, RescheduleError, ScheduleError},
        missed::Missed,
        tick::{Tick, Timestamp},
        ticket::TimerId,
    },
    dispatch::{Executor, Job, PanicHook},
    engine::{Cancel, Unfired},
    report::{
        health::{Condition, Health},
        stats::{Lateness, OwnedStats, Prometheus, ShardStats, Stats},
    },
    shard::LoopLeft,
    system::clock::{Clock, ClockReport, ManualClock, MonotonicClock, OnStep, SystemClock},
};

#[cfg(target_os = "linux")]
pub use system::clock::BootClock;

#[cfg(all(test, tourbillon_loom))]
#[path = "../loom_tests/mod.rs"]
mod loom_tests;

#[cfg(all(test, tourbillon_lines))]
#[path = "../benches/lines/mod.rs"]
mod lines;
