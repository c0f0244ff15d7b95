//! The one-shots and timers of an engine with loops: the payload is the callback and its `user` themselves.
//!
//! An engine with threads runs closures, and each one-shot allocates one. A loop that schedules and cancels a one-shot for
//! each request would spend as much time on the allocation as on the timer. So an engine with loops has two engines on
//! one set of shards: this one for `tb_schedule` and `tb_timer_create`, and one for keys and periodic tasks, which
//! run closures.

use crate::delivery::id_of;
use crate::event::Target;
use crate::options::tb_options;
use crate::status::Failure;
use tourbillon::extend::{Base, Due, Payload};
use tourbillon::{Cancel, Engine, Handle, Shards, Timer, Unfired};

/// The engine for callbacks, and its shards.
#[derive(Debug)]
pub(crate) struct Direct {
    shards: Shards,
    engine: Engine<Target>,
    base: Base<Target>,
}

impl Direct {
    /// Starts the engine on the shards of loops.
    pub(crate) fn start(shards: Shards, options: &tb_options) -> Result<Self, Failure> {
        let (engine, base) = Base::start(options.of_an_engine(shards.engine()), call)?;
        Ok(Self { shards, engine, base })
    }

    pub(crate) fn shards(&self) -> &Shards {
        &self.shards
    }

    pub(crate) fn handle(&self) -> &Handle<Target> {
        self.engine.handle()
    }

    pub(crate) fn timer(&self, target: Target) -> Result<Timer<Target>, Failure> {
        self.base.timer(target).map_err(|error| error.kind.into())
    }

    pub(crate) fn cancel(&self, id: tourbillon::TimerId, and_wait: bool) -> Cancel<()> {
        let handle = self.handle();
        if and_wait { handle.cancel_and_wait(id).map(drop) } else { handle.cancel(id).map(drop) }
    }

    /// Shuts the engine down. Returns the one-shots that had not fired.
    pub(crate) fn shut_down(&self) -> Vec<Unfired<Target>> {
        self.handle().shutdown()
    }
}

/// The handler, which runs in the turn of a loop.
fn call(due: Due<'_, Target>) {
    // The target of a timer is copied: its callback may free the timer.
    let (target, id) = match due.payload {
        Payload::Taken(target) => (target, id_of(due.id)),
        Payload::Kept(&target) => (target, 0),
    };
    target.call(&target.event(id, due.deadline, due.lateness, 1));
}
