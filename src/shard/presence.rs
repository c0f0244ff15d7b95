//! Counts the shards that still serve an engine. Threads can wait until the count is zero.

use crate::base::fork::Generation;
use crate::base::sync::{AtomicU64, Condvar, Mutex, Ordering, PoisonError, StdArc};
use crate::dispatch::{Fire, survives};

/// Counts the stations that an engine still has. A station is the engine's part of a shard.
#[derive(Debug)]
pub(crate) struct Presence {
    stations: AtomicU64,
    made_in: Generation,
    /// The condition variable on which threads wait until no shard has a part of the engine any more.
    ended: (Mutex<()>, Condvar),
}

impl Presence {
    pub(crate) fn of(stations: usize) -> StdArc<Self> {
        StdArc::new(Self {
            stations: AtomicU64::new(stations as u64),
            made_in: Generation::current(),
            ended: (Mutex::new(()), Condvar::new()),
        })
    }

    /// Returns the number of shards that still have a part (a station) of the engine.
    pub(crate) fn stations(&self) -> u64 {
        // Ordering: Acquire. Pairs with `leave`: the stations have dropped their references to the engine.
        self.stations.load(Ordering::Acquire)
    }

    /// Waits until every shard has dropped its part of the engine.
    pub(crate) fn await_end(&self) {
        let (lock, changed) = &self.ended;
        let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.stations() > 0 {
            guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn leave(&self) {
        // Ordering: Release. Pairs with `stations`.
        self.stations.fetch_sub(1, Ordering::Release);
        // In the child of a fork, no thread waits, and the lock may be held for ever.
        if self.made_in.is_past() {
            return;
        }
        let (lock, changed) = &self.ended;
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        changed.notify_all();
    }
}

/// The reference of a station (an engine's part of a shard) to its engine. Dropping the reference also counts the
/// station as gone.
pub(super) struct EngineRef {
    engine: Option<StdArc<dyn Fire>>,
    presence: StdArc<Presence>,
}

impl EngineRef {
    pub(super) fn new(engine: StdArc<dyn Fire>, presence: &StdArc<Presence>) -> Self {
        Self { engine: Some(engine), presence: StdArc::clone(presence) }
    }

    pub(super) fn get(&self) -> &StdArc<dyn Fire> {
        self.engine.as_ref().expect("until the drop")
    }
}

impl Drop for EngineRef {
    fn drop(&mut self) {
        // The engine's handler may be dropped here, and its drop may panic.
        let _survived = survives(|| drop(self.engine.take()));
        self.presence.leave();
    }
}
