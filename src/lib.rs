//! A timer engine for servers that arm a timeout for nearly everything and see nearly none of them fire.
//!
//! Any thread schedules, moves and cancels timers without a lock; only its first call on an engine takes one. Threads
//! with timers of their own write to different cache lines. Each shard has a hierarchical timing wheel and a pinned
//! thread of its own, which fires due timers. If a handler does not return, a worker takes over the shard. A shard does
//! not write to a timer before a ticket of the timer is due: the wheel holds 8-byte *tickets*, and a cancel is one
//! compare-and-swap on the timer's own word.
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
//! # The path of a ticket
//!
//! ```text
//!  any thread                         leader of a shard (pinned)            the same, or a worker
//!  ----------                         --------------------------            ---------------------
//!  take a slot, write the payload
//!  arm the timer's word
//!  post a ticket ──► lane ──┐
//!  any thread ─────► lane ──┴─► drain ──► wheel ──► chunk of due ────────►  claim by one CAS, or skip
//!                                          │        tickets                 run the handler
//!  cancel: one CAS on the word;            ▼                                free the slot
//!  the ticket dies in the lane       sleep until the
//!  or in the wheel                   next deadline
//! ```
//! [`Engine`]s with any type of payload share a set of [`Shards`], and run this pipeline on the set's threads. Each
//! engine has lanes and wheels of its own. [`DrivenShards`] run the pipeline on a manual clock and the caller's thread.
//! [`LoopShard`]s run it in the event loops of a program. [`wheel`] is the wheel alone. A [`Timer`] keeps a slot of its
//! own; a program arms and disarms it any number of times, by a store and a load each. [`extend`] is the interface for
//! crates that build a layer on the engine.
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
//! - Memory for slots grows with the peak number of timers (16 bytes and the payload each, 16 more for a [`Timer`]) and
//!   is kept until the engine is dropped. The 8-byte ticket of a cancelled timer stays until its shard looks at the
//!   ticket. The wheels hold at most about twice as many tickets as there are pending and owned timers, plus 65,536.
//!   Each thread that cancels or drops timers, or arms them for earlier deadlines, may add 4,096.
//! - An id stays distinguishable from later ids of its slot until the slot has been reused 2^39 times. In an engine
//!   with a capacity above the default, the number is 2^31 for the slots beyond the first 16,777,216.
//! - The child of a fork has none of the engine's threads. In the child, an engine that was built before the fork
//!   refuses to schedule, move or arm timers, at once and as `Forked`. [`Handle::is_forked`] returns true. Timers can
//!   be cancelled and disarmed, and a shutdown returns the rest. A daemon forks first, detaches, and builds its engine
//!   afterwards. A fork that is followed by exec is unaffected.
//! - The end of time is 584 years after the clock's origin; later deadlines are clamped to that moment.
//!
//! # Vocabulary
//!
//! *tick*: the unit of a wheel's time. *deadline*: the moment at or after which a timer may fire. *slot* of a wheel: a
//! list of tickets. *level*: a ring of slots. *wheel*: all levels of one engine at one shard. *ticket*: an entry that
//! says "look at this timer at this tick". *shard*: a thread with the wheels of the engines that use it. *station*: one
//! engine's part of a shard. *lane*: the queue of one thread's tickets to one station. *chunk*: up to 32 tickets,
//! stored and handed over together. *stale*: describes a ticket or an id whose timer has ended. *turn*: one pass of a
//! shard's loop.
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
