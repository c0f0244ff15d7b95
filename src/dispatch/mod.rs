//! Running handlers: who runs a due chunk, and how a slow or panicking handler is kept from harming others.
//!
//! A chunk is handed over as one job. The job takes its tickets one by one from a shared cursor, so that a second
//! worker can be given the same chunk when the first is held up by a slow handler: the shard looks at the chunks that
//! are under way (`Underway`) and sends help to one whose cursor stands still. Splitting each chunk beforehand would
//! cost a task for every few timers, nearly always for nothing.

mod executor;
mod handover;
mod panics;

pub(crate) use executor::Dispatcher;
pub use executor::{Executor, Job};
pub(crate) use handover::{Handover, Underway};
pub(crate) use panics::Guarded;
pub use panics::PanicHook;

use crate::sync::StdArc;
use crate::ticket::Ticket;

/// What runs the handlers of due tickets: the engine.
pub(crate) trait Fire: Send + Sync + 'static {
    /// Is told which tickets a worker is about to take.
    fn look_ahead(&self, tickets: &[Ticket]);

    /// Fires what `tickets` yields, one after the other.
    fn fire(self: &StdArc<Self>, shard: usize, tickets: &mut dyn Iterator<Item = Ticket>);
}
