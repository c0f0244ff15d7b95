//! A timer engine for servers that arm a timeout for nearly everything and see nearly none of them fire.
//!
//! Timers are scheduled, moved and cancelled from any thread without a lock and without a line that two threads write.
//! Each shard has a hierarchical timing wheel and a pinned thread of its own, which fires what is due; a worker takes the
//! shard over where a handler does not return. The wheel never touches a timer before it is due: it holds 16-byte *tickets*, and a cancel is one
//! compare-and-swap on the timer's own word.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::{Cancel, Engine};
//!
//! let engine = Engine::new(|timer| println!("{} is {:?} late", timer.payload, timer.lateness))?;
//! let id = engine.handle().schedule(Duration::from_secs(30), "request 17 timed out")?;
//! // ... the answer comes ...
//! assert_eq!(engine.handle().cancel(id), Cancel::Cancelled("request 17 timed out"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The way of a ticket
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
//! [`Engine`] is that with threads, [`DrivenEngine`] the same on a manual clock and one thread, and [`wheel`] the wheel
//! alone. A [`Timer`] has a slot of its own, to be armed and disarmed any number of times by a store and a load.
//!
//! # Guarantees
//!
//! | | |
//! |---|---|
//! | never early | a handler begins when the caller's [`Instant`](std::time::Instant) shows at least the delay |
//! | arming holds | a [`Timer`] fires once for the deadline that was acknowledged last, and not before it |
//! | at most once | each timer fires once, or is cancelled, or is returned by the shutdown: exactly one of them |
//! | cancel tells | [`Cancel::Cancelled`] means that the handler does not run and has not begun; else [`Cancel`] says why |
//! | lateness | below one tick, plus a thread's wake-up, plus the workers' queue; [`Stats`] shows it |
//! | order | none within a tick, nor between handlers on several workers |
//! | panics | a panicking handler is counted and reported, and costs nobody else anything |
//! | bounds | pending timers, tickets under way, garbage and the work of a turn are bounded |
//! | shutdown | fired + cancelled + returned = scheduled; payloads of unfired timers come back |
//!
//! # Limits
//!
//! - Memory for slots grows with the peak of timers (16 bytes and the payload each, 8 more for a [`Timer`]) and is kept
//!   until the engine is dropped. The ticket of a cancelled timer stays, 16 bytes, until its shard looks at it; tickets in
//!   the wheels are at most about twice the pending and the owned timers plus 65,536 and 4,096 for each thread that cancels,
//!   drops, or arms for earlier.
//! - An id stays distinguishable from later ones of its slot until the slot has been reused 2^39 times.
//! - The child of a fork has none of the engine's threads. There every call on an engine that was built before the fork
//!   is refused as `Forked`, at once, and [`Handle::is_forked`] says so; pending timers can be cancelled. A daemon forks
//!   first, detaches, and builds its engine afterwards. A fork that is followed by exec is unaffected.
//! - The end of time is 584 years after the clock's origin; later deadlines are that one.
//!
//! # Vocabulary
//!
//! *tick*: the unit of a wheel's time. *deadline*: the moment at or after which a timer may fire. *slot*, *level*,
//! *wheel*: a list of tickets; a ring of such lists; all levels of one shard. *ticket*: "look at this timer at this
//! tick". *lane*: the way of one thread's tickets to one shard. *chunk*: up to 32 tickets, stored and handed over as
//! one. *stale*: said of a ticket or an id whose timer has ended. *turn*: one pass of a shard's loop.
//!
//! # Features
//!
//! None is on by default. The engine needs the standard library; the crate [`tourbillon-wheel`](tourbillon_wheel) is the wheel
//! alone, on `core` and `alloc`.
//!
//! - `async`: `sleep`, `timeout` and `interval` for any executor, in the module `future`.
//! - `tasks`: closures, repeating tasks and timers by key on one engine, in the modules `task` and `keyed`; idle timeouts, a map
//!   whose entries expire and a queue of delays, in the module `uses`.
//! - `calendar`: cron expressions and days of the month, in the module `calendar`; tasks repeat by them. The crate
//!   `tourbillon-calendar` is the same without the engine.
//! - `rayon`: handlers on a rayon pool of the caller's, `Builder::rayon_pool`.
//! - `metrics`: [`Stats`] for the `metrics` facade, `Stats::record`. [`Stats::prometheus`] needs no feature.
//! - `tracing`: events with the target `tourbillon` when an engine starts and stops, when a shard stalls and has caught up, when
//!   timers are refused for want of room, when a handler panics, and when a shard could not be pinned. The first refusal of an
//!   episode and a stall are told once, not each time. What [`Handle::health`] says needs no feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Floors: a module uses those of its own floor and of the floors below it (`tests/tidy.rs`).

// Floor 0: words and doors.
mod limits;
mod sync;
mod tick;
mod ticket;
mod trace;

// Floor 1: the single-threaded wheel, a crate of its own.
pub mod wheel;

// Floor 2: the lock-free parts, and all unsafe code.
mod affinity;
mod barrier;
mod buckets;
mod clock;
mod counters;
mod forks;
mod inbox;
mod parker;
mod roster;
mod scheduling;
mod sessions;
mod signals;
mod slab;
mod sleepers;
mod state;
#[cfg(feature = "async")]
mod waker;
mod watch;

// Floor 3: running handlers.
mod dispatch;

// Floor 4: one shard.
mod shard;

// Floor 5: the shards together.
mod engine;
mod health;
mod stats;

// Floor 6: the face.
mod builder;
mod driven;
mod error;
#[cfg(feature = "async")]
pub mod future;
mod handle;
mod producer;
mod timer;

// Floor 7: what is built on it.
#[cfg(feature = "calendar")]
pub mod calendar;
#[cfg(feature = "tasks")]
pub mod keyed;
#[cfg(feature = "tasks")]
mod map;
#[cfg(feature = "tasks")]
pub mod task;
#[cfg(feature = "tasks")]
pub mod uses;

pub use tick::{Tick, Timestamp};
pub use ticket::TimerId;

pub use self::{
    builder::Builder,
    clock::{Clock, ClockReport, ManualClock, MonotonicClock, OnStep, SystemClock},
    dispatch::{Executor, Job, PanicHook},
    driven::DrivenEngine,
    engine::{Cancel, Unfired},
    error::{BatchError, BuildError, RescheduleError, ScheduleError, ScheduleErrorKind},
    handle::{Engine, Fired, Handle},
    health::{Condition, Health},
    producer::Producer,
    stats::{Lateness, OwnedStats, Prometheus, ShardStats, Stats},
    timer::{ArmError, Armed, Disarm, Timer, TimerRef},
};

#[cfg(target_os = "linux")]
pub use clock::BootClock;

/// The README's examples, as tests.
#[cfg(all(doctest, feature = "tasks", feature = "calendar"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(test, tourbillon_loom))]
#[path = "../loom_tests/mod.rs"]
mod loom_tests;
