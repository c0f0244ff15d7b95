//! The engine that a future takes: the process's own, that of the shards that the thread has entered, or a given one.

use super::wakeup::Wakeup;
use crate::api::global;
use crate::api::handle::Handle;
use crate::api::shards;
use crate::base::sync::OnceLock;

/// The engine of a future.
#[derive(Clone)]
pub(super) enum Source {
    /// The process's own engine: no reference count that all threads write.
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

/// The process's own engine for futures, on the process's own [`Shards`](crate::Shards): for functions that take a
/// handle, and for the engine's statistics.
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

/// The engine for futures on the current shards.
#[inline]
pub(super) fn current() -> Source {
    match shards::entered() {
        Some(shards) => Source::Given(shards.futures().clone()),
        None => Source::Global(global()),
    }
}
