//! Chooses the engine for a future: the process's own engine, the engine of the shards that the thread has entered, or
//! a given engine.

use super::wakeup::Wakeup;
use crate::api::global;
use crate::api::handle::Handle;
use crate::api::shards;
use crate::base::sync::OnceLock;

/// The engine on which a future waits.
#[derive(Clone)]
pub(super) enum Source {
    /// The process's own engine. A `'static` reference spares a reference count that all threads would write.
    Global(&'static Handle<Wakeup>),
    Given(Handle<Wakeup>),
}

impl Source {
    #[inline]
    pub(super) fn handle(&self) -> &Handle<Wakeup> {
        match self {
            Self::Global(handle) => handle,
            Self::Given(handle) => handle,
        }
    }
}

/// Returns a handle to the process's own engine for futures, on the process's own [`Shards`](crate::Shards). A program
/// needs it for functions that take a handle, and for the engine's statistics.
///
/// # Panics
///
/// This function and all other functions of the module [`future`](super) panic if the process's shards are not started
/// yet and the system refuses a thread.
pub fn global() -> &'static Handle<Wakeup> {
    static GLOBAL: OnceLock<&'static Handle<Wakeup>> = OnceLock::new();
    GLOBAL.get_or_init(|| match global::shards() {
        Ok(shards) => shards.futures(),
        Err(error) => panic!("the process's shards could not be started: {error}"),
    })
}

/// Returns the engine for futures on the current shards.
#[inline]
pub(super) fn current() -> Source {
    match shards::entered() {
        Some(shards) => Source::Given(shards.futures().clone()),
        None => Source::Global(global()),
    }
}
