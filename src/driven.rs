//! An engine without threads, driven by a manual clock.

use crate::clock::{Clock, ManualClock};
use crate::engine::Core;
use crate::handle::{Engine, Handle};
use crate::shard::{Next, Shard};
use crate::sync::StdArc;
use crate::tick::Timestamp;
use core::time::Duration;

/// An engine without threads, whose time moves only when the program moves it: for tests, examples and simulations.
///
/// A driven engine has all parts of an [`Engine`], runs on one thread and is deterministic: the same calls fire the
/// same timers in the same order. Handlers run inside [`advance`](Self::advance). No thread drains the lanes between
/// two advances, so the lanes may fill: scheduling more than `lane_capacity` timers between two advances is refused
/// (arming a [`Timer`](crate::Timer) is not).
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

    /// A handle to this engine. A handle does not keep the engine alive: see [`Engine::handle`].
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        self.engine.handle()
    }

    /// Moves time on by `by`. The clock stops on the way at each tick at which a timer is due, so that each handler
    /// sees the time of its own timer. A timer that a handler schedules fires too if it is due within `by`; a timer
    /// with a zero delay fires one tick later.
    pub fn advance(&mut self, by: Duration) {
        self.advance_to(self.clock.now() + by);
    }

    /// Moves time on to `target`. If `target` has passed, the time stays where it is.
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

    /// Fires the timers that are due now, without moving the time.
    pub fn turn(&mut self) {
        let now = self.clock.now();
        for shard in &mut self.shards {
            // Drained once, so that a timer which a handler schedules for now fires in the next turn.
            shard.drain();
            while self.engine.handle().core().work(shard, now) == Next::Turn {}
        }
    }

    /// The moment at which a timer is due next, or an earlier moment where many timers have to be moved ahead of their
    /// time.
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
