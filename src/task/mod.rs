//! Closures that run once after a delay, that repeat, or that run on owned timers, all on one engine.
//!
//! An [`Engine`](crate::Engine) delivers payloads of one type to one handler. A [`TaskEngine`] is an engine whose
//! payloads carry the closure to run, so that a whole process can share one set of threads. A one-shot costs an
//! engine's timer and an allocation. A [`TaskTimer`] is armed at the price of a [`Timer`](crate::Timer), and a
//! repeating task is such a timer. [`keyed`](crate::keyed) and [`uses`](crate::uses) are built on a task engine.
//!
//! ```
//! use std::sync::mpsc;
//! use std::time::Duration;
//! use tourbillon::Builder;
//! use tourbillon::task::{Missed, Repeat};
//!
//! let mut tasks = Builder::new().build_driven_tasks()?;
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
//! A task that repeats at a fixed rate has an instant for each run. Two things can go wrong, and each has a policy:
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
//! Tasks that survive a restart, and tasks that await: their future can sleep by itself (feature `async`).

mod course;
mod error;
mod job;
mod key;
mod named;
mod repeat;
mod repeating;
mod run;
mod tasks;
mod timer;
mod told;
mod wall;

pub use error::{RepeatError, RepeatErrorKind};
pub use job::{Call, Moment};
pub use key::{IfPresent, Key};
pub use named::{NamedError, NamedErrorKind, NamedTasks, Started};
pub use repeat::{First, Missed, OnPanic, Overlap, Repeat};
pub use repeating::{Stopped, Task};
pub use run::{Report, Run};
pub use tasks::{DrivenTasks, TaskEngine, Tasks};
pub use timer::TaskTimer;

pub(crate) use job::{Job, OnDue, OnEnd, Shot};
