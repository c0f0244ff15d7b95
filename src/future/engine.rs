//! Makes engines for futures: on a set of shards, by a builder, and without threads.

use super::wakeup::{Wakeup, take_waker, wake_up};
use crate::api::builder::Builder;
use crate::api::driven::DrivenEngine;
use crate::api::handle::{Engine, Handle};
use crate::api::shards::Shards;
use crate::base::error::BuildError;
use crate::dispatch::Dispatcher;
use crate::engine::Settings;

fn waking_at_shutdown(engine: Engine<Wakeup>) -> Engine<Wakeup> {
    engine.handle().core().timers().wake_at_shutdown(take_waker);
    engine
}

fn engine_on(shards: &Shards) -> Engine<Wakeup> {
    let settings = Settings::by_default(Dispatcher::Inline);
    waking_at_shutdown(Engine::start(shards.owner(), settings, wake_up()))
}

impl Shards {
    /// Returns a handle to the engine for futures on these shards. The handle has the methods `sleep`, `timeout` and
    /// `interval`. The shards' own threads wake the tasks.
    ///
    /// # Time complexity
    ///
    /// O(1). The first call makes the engine.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "no other layer puts an object there")]
    pub fn futures(&self) -> &Handle<Wakeup> {
        let layer = self.layer(|| Box::new(engine_on(self)));
        layer.downcast_ref::<Engine<Wakeup>>().expect("no other layer").handle()
    }
}

impl Builder {
    /// Starts an engine for futures. The shards' threads wake the tasks, so the builder's settings of workers and
    /// executor do not apply.
    ///
    /// # Errors
    ///
    /// Fails as [`start`](Self::start) does.
    pub fn start_futures(self) -> Result<Engine<Wakeup>, BuildError> {
        Ok(waking_at_shutdown(self.inline().build_with(wake_up())?))
    }

    /// Makes an engine for futures without threads, on a manual clock: see [`driven`](Self::driven).
    ///
    /// # Errors
    ///
    /// Fails as [`driven`](Self::driven) does.
    pub fn driven_futures(self) -> Result<DrivenEngine<Wakeup>, BuildError> {
        let engine = self.build_driven_with(wake_up())?;
        engine.handle().core().timers().wake_at_shutdown(take_waker);
        Ok(engine)
    }
}
