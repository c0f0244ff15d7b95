//! The sessions of workers and the end of an engine. A session is the time in which a worker fires tickets of
//! one batch. One word counts the sessions under way, and shows how far the engine's end has come.
//!
//! A worker begins a session, fires tickets while the engine does not stop, and ends the session. A shutdown stops the
//! engine, waits until the engine is quiescent, and evicts the timers that are still armed. One word holds the count of
//! sessions and the flags, and each change of the word is a read-modify-write. So if `stop` does not count a session
//! because it begins later, the session sees the flag.
//!
//! # Layout
//! ```text
//! word   63         62        61                            0
//!       | stopping | evicted | sessions that have not ended  |
//! ```
//!
//! # States and transitions
//! ```text
//! running ── stop ──► stopping ── evicted ──► over
//! ```
//! | operation | from -> to                          | otherwise                                  |
//! |-----------|-------------------------------------|--------------------------------------------|
//! | `begin`   | any -> the same, one session more   |                                            |
//! | `end`     | any -> the same, one session less   | the last one of a stopping engine: true    |
//! | `stop`    | running -> stopping: the right to evict | stopping, over: `None`                 |
//! | `evicted` | stopping -> over                    | only the holder of the right calls it      |
//!
//! # Invariants
//! E1. One call of `stop` gets the right to evict, so an engine is evicted once. A second eviction would take timers
//!     that were armed after the first eviction had passed their slots. The threads that scheduled these timers are
//!     about to take them back. They would find the timers gone, and assume that the first eviction had returned them.
//! E2. A session that begins after `stop` fires nothing: a worker reads `is_stopping` after its `begin`, so it reads
//!     its own change of the word or a later change.
//! E3. After `stop`, either `is_quiescent` is true, or the last `end` returns true. The caller of that `end` wakes the
//!     waiting threads.
//!
//! # Races and their legal endings
//! - begin x stop: the session is counted and awaited, or it fires nothing.
//! - end x stop: the shutdown finds the engine quiescent, or the last session wakes the shutdown.
//! - two stops: one evicts; the other returns after the eviction, unless it is inside a handler.
//!
//! # Synchronisation
//! | pair | release side | acquire side  | handed over                        | model |
//! |------|--------------|---------------|------------------------------------|-------|
//! | E4   | `end`        | `is_quiescent`    | the effects of the session's handlers | `sessions::a_quiescent_engine_has_what_its_handlers_did` |
//! | E5   | `evicted`    | `has_evicted` | the timers that the eviction took  | `sessions::the_second_stop_has_what_the_first_evicted` |
//!
//! `begin` and `stop` hand nothing over: E1 to E3 need only the modification order of the word. Since `begin` and
//! `stop` are read-modify-writes, they continue the release sequence of an earlier `end`.
//!
//! # Progress and cost
//! All operations are wait-free. A session costs two read-modify-writes, each ticket a load.

use crate::base::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

const STOPPING: u64 = 1 << 63;
const EVICTED: u64 = 1 << 62;
const SESSIONS: u64 = EVICTED - 1;

/// The right to evict an engine's timers, that is to take all armed timers out. The engine's first shutdown gets it.
#[derive(Debug)]
#[must_use = "the engine's timers are returned by the holder of this"]
pub(crate) struct EvictionRight(());

/// The word of one engine: the number of sessions under way, and the progress of the shutdown. A session is the time in
/// which a worker fires tickets of one batch.
#[derive(Debug)]
pub(crate) struct Sessions(CachePadded<AtomicU64>);

impl Sessions {
    pub(crate) fn new() -> Self {
        Self(CachePadded::new(AtomicU64::new(0)))
    }

    /// Begins a session, in which a worker fires timers. The worker stops when `is_stopping` returns true. At the end,
    /// the worker calls `end`.
    pub(crate) fn begin(&self) {
        // Ordering: Relaxed. Nothing is handed over; E2 relies on the order of changes of this word.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a session, in which a worker has fired timers. Returns true if the engine stops and no session is left.
    /// Then the caller wakes the waiting threads.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        // Ordering: Release [E4]. Pairs with `is_quiescent`.
        let before = self.0.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(before & SESSIONS, 0, "ended more sessions than there were");
        before & STOPPING != 0 && before & SESSIONS == 1
    }

    /// Returns whether the engine stops. A session that gets true must fire no more timers.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        // Ordering: Relaxed. The value is not older than the session's own `begin` (E2). A later stop waits for this
        // session.
        self.0.load(Ordering::Relaxed) & STOPPING != 0
    }

    /// Stops the engine. The first caller gets the right to take the engine's armed timers out. Later callers get
    /// `None`.
    pub(crate) fn stop(&self) -> Option<EvictionRight> {
        // Ordering: Relaxed. Nothing is handed over; E1 and E2 rely on the order of changes of this word.
        let before = self.0.fetch_or(STOPPING, Ordering::Relaxed);
        (before & STOPPING == 0).then_some(EvictionRight(()))
    }

    /// Returns whether all sessions have ended. The caller has called `stop` before, so no later session fires a timer.
    pub(crate) fn is_quiescent(&self) -> bool {
        // Ordering: Acquire [E4]. Pairs with `end`.
        self.0.load(Ordering::Acquire) & SESSIONS == 0
    }

    /// Records that the engine's timers were taken out, so that a second shutdown may return.
    pub(crate) fn evicted(&self, EvictionRight(()): EvictionRight) {
        // Ordering: Release [E5]. Pairs with `has_evicted`.
        self.0.fetch_or(EVICTED, Ordering::Release);
    }

    /// Returns whether the first shutdown has taken the engine's timers out.
    pub(crate) fn has_evicted(&self) -> bool {
        // Ordering: Acquire [E5]. Pairs with `evicted`.
        self.0.load(Ordering::Acquire) & EVICTED != 0
    }
}
