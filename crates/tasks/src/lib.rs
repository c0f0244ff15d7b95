//! Tasks on the timer engine [`tourbillon`]. A task is a closure. It runs once after a delay, it repeats, or it runs
//! whenever a timer is due that the program owns and arms. The crate also has timers by key, idle timeouts, maps whose
//! entries expire, delay queues and rate limiters. All of them share one set of threads.
//!
//! An [`Engine`](tourbillon::Engine) delivers payloads of one type to one handler. A [`TaskEngine`] is an engine whose
//! payloads carry the closure to run. So all tasks of a process can share one engine and its threads.
//!
//! - A *one-shot* is a task that runs once. It costs a timer of the engine and an allocation.
//! - A [`TaskTimer`] is an *owned timer* with a closure. Arming it costs as much as arming a
//!   [`Timer`](tourbillon::Timer).
//! - A repeating task has an owned timer, which is armed for each run.
//!
//! The modules [`keyed`] and [`uses`] are built on a task engine.
//!
//! ```
//! use std::sync::mpsc;
//! use std::time::Duration;
//! use tourbillon_tasks::{DrivenTasks, Missed, Repeat};
//!
//! let mut tasks = DrivenTasks::new()?;
//! let (log, entries) = mpsc::channel();
//!
//! let once = log.clone();
//! tasks.handle().after(Duration::from_secs(5), move || once.send("five seconds later").unwrap())?;
//!
//! let minutely = Repeat::every(Duration::from_secs(60)).times(2).missed(Missed::Skip);
//! let ordinal = |number| if number == 1 { "first" } else { "second" };
//! let task = tasks.handle().repeat(minutely, move |run| log.send(ordinal(run.number)).unwrap())?;
//!
//! tasks.advance(Duration::from_secs(600));
//! assert_eq!(entries.try_iter().collect::<Vec<_>>(), ["five seconds later", "first", "second"]);
//! assert_eq!(task.report().runs, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When a repeating task is late, or long
//!
//! A task that repeats at a fixed rate has an *instant* for each run: the planned moment of the run. Two things can go
//! wrong, and each has a policy:
//!
//! | an instant came due | it is | policy | counted in [`Report`] |
//! |---|---|---|---|
//! | before a run began: the engine or its workers were late | *missed* | [`Missed`]: run them all, go on from now, or leave them out | `missed`, `skipped` |
//! | while a run lasted: it was longer than its period | *overlapped* | [`Overlap`]: leave them out, or queue one; [`Tasks::repeat_in_parallel`] runs them beside the long run | `overlapped`, `skipped` |
//!
//! With a fixed pause between runs, instants are neither missed nor overlapped.
//!
//! # Out of scope
//!
//! Tasks that survive a restart are out of scope. So are tasks that await. A future can sleep by itself (feature
//! `async` of [`tourbillon`]).
//!
//! # Features
//!
//! - `calendar`: tasks repeat by cron expressions and days of the month. The module `calendar` is the crate
//!   `tourbillon-calendar`.
//! - `stream`: the receiver of a delay queue is a `Stream`.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Floors: a module uses only modules of its own floor and of the floors below it (`tests/tidy`).

// Floor 0: the only access to threads and atomics.
mod sync;

// Floor 1: the map of keys, divided into shards.
mod map;

// Floor 2: tasks and their engines.
mod task;

// Floor 3: timers by key.
pub mod keyed;

// Floor 4: ready-made uses.
pub mod uses;

// Floor 5: unwind safety of all public types.
mod unwind;

#[cfg(feature = "calendar")]
pub use tourbillon_calendar as calendar;

pub use tourbillon::Missed;

pub use task::{
    Call, DrivenTasks, First, IfPresent, Key, Moment, NamedError, NamedErrorKind, NamedTasks, OnPanic,
    Overlap, Repeat, RepeatError, RepeatErrorKind, Report, Run, Started, Stopped, Task, TaskEngine,
    TaskTimer, Tasks,
};

/// The examples of the README files, as tests.
#[cfg(all(doctest, feature = "calendar", feature = "stream"))]
mod readme {
    #[doc = include_str!("../README.md")]
    struct Tasks;

    #[doc = include_str!("../../../README.md")]
    struct Engine;
}

#[cfg(all(test, tourbillon_loom))]
#[path = "../loom_tests/mod.rs"]
mod loom_tests;
