//! Runs closures: once, repeatedly, by name, or on owned timers.

mod core;
mod engine;
mod error;
mod handle;
mod job;
mod key;
mod named;
mod occurrences;
mod policies;
mod progress;
mod repeat;
mod repeating;
mod report;
mod run;
mod tasks;
mod timer;
mod wall;
mod with_moment;

pub use engine::{DrivenTasks, TaskEngine};
pub use error::{RepeatError, RepeatErrorKind};
pub use handle::{Stopped, Task};
pub use job::Call;
pub use key::{IfPresent, Key};
pub use named::{NamedError, NamedErrorKind, NamedTasks, Started};
pub use policies::{OnPanic, Overlap};
pub use repeat::{First, Repeat};
pub use report::Report;
pub use run::Run;
pub use tasks::Tasks;
pub use timer::TaskTimer;
pub use tourbillon::extend::Moment;

pub(crate) use self::core::TaskCore;
pub(crate) use job::{Job, OnDue, OnEnd, Shot};
