//! An engine without threads, driven by a manual clock.

use crate::clock::{Clock, ManualClock};
use crate::engine::Core;
use crate::handle::{Engine, Handle};
use crate::shard::{Next, Shard};
use crate::sync::StdArc;
use crate::tick::Timestamp;
use core::time::Duration;

/// An engine that has no threads and whose time moves when it is told to: for tests, examples and simulations.
///
/// It is the engine with all its parts, on one thread and deterministic: the same calls fire the same timers in the
/// same order. Handlers run inside [`advance`](Self::advance). With nobody to drain them meanwhile, lanes may fill:
/// scheduling more than `lane_capacity` timers between two advances is refused (arming a [`Timer`](crate::Timer) is not).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let mut engine = Builder::new().build_driven(|timer| {
///     if timer.payload > 0 {
///         let again = timer.engine().schedule(Duration::from_secs(1), timer.payload - 1);
///         again.expect("a driven engine with room");
///     }
/// })?;
/// engine.handle().schedule(Duration::from_secs(1), 2)?;
/// engine.advance(Duration::from_secs(10));
/// assert_eq!(engine.handle().stats().fired, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping an engine shuts it down"]
pub struct DrivenEngine<T: Send + 'static> {
    engine: Engine<T>,
    shards: Vec<Shard>,
    clock: ManualClock,
}

impl<T: Send + 'static> DrivenEngine<T> {
    pub(crate) fn from_core(core: StdArc<Core<T>>, shards: Vec<Shard>, clock: ManualClock) -> Self {
        Self { engine: Engine::from_core(core), shards, clock }
    }

    /// The way to this engine; it does not keep the engine alive: see [`Engine::handle`].
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        self.engine.handle()
    }

    /// Moves time on by `by`, stopping on the way at each tick at which a timer is due, so that handlers see their own
    /// time. What a handler schedules fires too if it is due within `by`, a zero delay one tick later.
    pub fn advance(&mut self, by: Duration) {
        self.advance_to(self.clock.now() + by);
    }

    /// Moves time on to `target`; a moment that has passed leaves it where it is.
    pub fn advance_to(&mut self, target: Timestamp) {
        self.turn();
        while let Some(due) = self.next_step().filter(|&due| due <= target) {
            self.clock.set(due);
            self.turn();
        }
        if self.clock.now() < target {
            self.clock.set(target);
            self.turn();
        }
    }

    /// Fires what is due now, without moving the time.
    pub fn turn(&mut self) {
        let now = self.clock.now();
        for shard in &mut self.shards {
            // Drained once, so that handlers which schedule for now find their timers fired next time.
            shard.drain();
            while self.engine.handle().core().work(shard, now) == Next::Turn {}
        }
    }

    /// When something is due next, or sooner where many timers want to be moved ahead of their time.
    pub fn next_expiry(&mut self) -> Option<Timestamp> {
        let tick = self.engine.handle().core().tick();
        let due = self.shards.iter_mut().filter_map(|shard| {
            shard.drain();
            shard.next_due()
        });
        due.min().map(|due| tick.start_of(due))
    }

    /// The next moment after the present one at which to turn.
    fn next_step(&mut self) -> Option<Timestamp> {
        let tick = self.engine.handle().core().tick();
        let next_tick = tick.start_of(tick.current_tick(self.clock.now()).saturating_add(1));
        Some(self.next_expiry()?.max(next_tick)).filter(|&next| next > self.clock.now())
    }

    /// The clock that the engine runs on.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }
}
