//! The engine for sleeps whose own engine was shut down.

use std::sync::OnceLock;
use tourbillon::future::Wakeup;
use tourbillon::{Builder, Engine, Handle};

/// Returns an engine with one thread that is never shut down. The engine starts at the first call. Returns `None` if
/// the system refused the thread.
pub(crate) fn fallback_engine() -> Option<&'static Handle<Wakeup>> {
    static ENGINE: OnceLock<Option<Engine<Wakeup>>> = OnceLock::new();
    ENGINE.get_or_init(|| Builder::new().shards(1).start_futures().ok()).as_ref().map(Engine::handle)
}
