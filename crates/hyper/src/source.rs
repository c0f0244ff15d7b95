//! Chooses the engine on which sleeps run.

use tourbillon::future::{self, Sleep, Wakeup};
use tourbillon::{Handle, Timestamp};

/// The engine on which the sleeps of a timer run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// The engine that the caller chose. `None` stands for the engine that is current where a sleep is made, as with
    /// the functions of [`tourbillon::future`].
    engine: Option<Handle<Wakeup>>,
}

impl Source {
    pub(crate) fn of(engine: Handle<Wakeup>) -> Self {
        Self { engine: Some(engine) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.engine.as_ref().map_or_else(future::now, Handle::now)
    }

    pub(crate) fn sleep_until(&self, deadline: Timestamp) -> Sleep {
        match &self.engine {
            None => future::sleep_until(deadline),
            Some(engine) => engine.sleep_until(deadline),
        }
    }
}
