//! Closures: once, repeating, by name, or on owned timers.

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
pub use repeat::{First, OnPanic, Overlap, Repeat};
pub use repeating::{Stopped, Task};
pub use run::{Report, Run};
pub use tasks::{DrivenTasks, TaskEngine, Tasks};
pub use timer::TaskTimer;

pub(crate) use job::{Job, OnDue, OnEnd, Shot};
