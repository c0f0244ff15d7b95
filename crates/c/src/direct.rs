//! The engine for one-shots by id and for timers. A `tb_engine` has it if callbacks run on the program's own threads,
//! or if events are polled. The payload of its timers is just the callback and its `user`.
//!
//! One-shots by key and periodic tasks need closures, so they are on an engine of `tourbillon_tasks`. A one-shot of
//! that engine allocates its closure. For a loop that schedules and cancels a one-shot for each request, the allocation
//! would cost as much as the timer. So an engine that is polled, driven or run by loops has two engines on the same
//! shards: this engine for `tb_schedule` and `tb_timer_create`, and an engine of tasks for the rest.
//!
//! An engine whose own threads call the callbacks has only the engine of tasks. A callback there may wait for another
//! callback, and a single engine detects a callback that would wait for itself. Callbacks of two engines could wait for
//! each other undetected.

use crate::delivery::{Delivery, id_of};
use crate::event::{Target, tb_event};
use crate::events;
use crate::status::Failure;
use tourbillon::extend::{Base, Due, Payload};
use tourbillon::{Builder, Cancel, Engine, Handle, Timer, Unfired};

/// An [`Engine`] for one-shots by id and for timers. Its timers store just the callback and its `user`, so none of them
/// needs a closure.
#[derive(Debug)]
pub(crate) struct Direct {
    engine: Engine<Target>,
    base: Base<Target>,
}

impl Direct {
    pub(crate) fn start(builder: Builder, delivery: &Delivery) -> Result<Self, Failure> {
        let (engine, base) = match delivery {
            Delivery::Call => Base::start(builder, call)?,
            Delivery::Poll(_) => Base::start(builder, |due: Due<'_, Target>| events::put(event_of(due).1))?,
        };
        Ok(Self { engine, base })
    }

    #[inline]
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

    /// Shuts the engine down. Returns the one-shots that have not fired.
    pub(crate) fn shut_down(&self) -> Vec<Unfired<Target>> {
        self.handle().shutdown()
    }
}

fn call(due: Due<'_, Target>) {
    let (target, event) = event_of(due);
    target.call(&event);
}

/// Makes the event of a due timer. Returns a copy of the timer's target, because the callback may free the timer.
fn event_of(due: Due<'_, Target>) -> (Target, tb_event) {
    let moment = due.moment;
    let (target, id) = match due.payload {
        Payload::Taken(target) => (target, id_of(moment.id())),
        Payload::Kept(&target) => (target, 0),
    };
    (target, target.event(id, moment.deadline, moment.lateness(), 1))
}
