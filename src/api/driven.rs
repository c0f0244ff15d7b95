//! Shards and engines without threads, driven by a manual clock.

use crate::api::handle::{Engine, Handle};
use crate::api::shards::Shards;
use crate::base::tick::Timestamp;
use crate::shard::Led;
use crate::system::clock::{Clock, ManualClock};
use core::time::Duration;

/// Shards without threads, whose time moves only when the program moves it: for tests of programs that have several
/// engines, or that use `tourbillon::future`.
///
/// Engines attach to these shards through [`shards`](Self::shards). Code that would use the process's shards uses these
/// shards inside a scope of [`Shards::enter`]. The engines' handlers run inside [`advance`](Self::advance), on the
/// calling thread.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, Engine};
///
/// let mut shards = Builder::new().driven_shards()?;
/// // This scope's engines are on these shards.
/// let _scope = shards.shards().enter();
/// let numbers = Engine::new(|timer| println!("{}", timer.payload + 1))?;
/// let words = Engine::new(|timer| println!("{}", timer.payload))?;
/// numbers.handle().schedule(Duration::from_secs(3_600), 16)?;
/// words.handle().schedule(Duration::from_secs(3_600), "an hour later")?;
/// shards.advance(Duration::from_secs(3_600));
/// assert_eq!((numbers.handle().stats().fired, words.handle().stats().fired), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DrivenShards {
    shards: Shards,
    clock: ManualClock,
}

impl DrivenShards {
    pub(crate) fn new(shards: Shards, clock: ManualClock) -> Self {
        Self { shards, clock }
    }

    /// The shards, to which engines attach.
    #[must_use]
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// The clock that the shards run on.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
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
        // Engines that handlers make are on these shards.
        let _scope = self.shards.enter();
        let now = self.clock.now();
        self.lead_each(|led| led.work(now)).for_each(drop);
    }

    /// The moment at which the next timer is due, or an earlier moment if the wheel must start to cascade many timers
    /// to a finer level before then.
    pub fn next_expiry(&mut self) -> Option<Timestamp> {
        self.lead_each(Led::next_due).flatten().min()
    }

    /// The next moment after now at which to turn.
    pub(crate) fn next_step(&mut self) -> Option<Timestamp> {
        let tick = self.shards.owner().set().settings().tick;
        let next_tick = tick.start_of(tick.current_tick(self.clock.now()).saturating_add(1));
        Some(self.next_expiry()?.max(next_tick)).filter(|&next| next > self.clock.now())
    }

    /// Calls `lead` with each shard in turn.
    fn lead_each<R>(&mut self, lead: impl Fn(&mut Led) -> R) -> impl Iterator<Item = R> {
        let shards = self.shards.owner().set().shards().iter();
        shards.filter_map(move |shard| {
            // Another thread that ends an engine has the shard for a moment. No handler calls this function, since the
            // caller borrows the shards exclusively.
            let mut led = shard.lead()?;
            shard.admit_and_dismiss(&mut led);
            let result = lead(&mut led);
            // Engines that a handler has made or ended, and engines that another thread has ended during the turn.
            shard.admit_and_dismiss(&mut led);
            Some(result)
        })
    }
}

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
/// let mut engine = Builder::new().driven(|timer| {
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
    driver: DrivenShards,
}

impl<T: Send + 'static> DrivenEngine<T> {
    pub(crate) fn new(engine: Engine<T>, driver: DrivenShards) -> Self {
        Self { engine, driver }
    }

    /// A handle to this engine. A handle does not keep the engine alive: see [`Engine::handle`].
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        self.engine.handle()
    }

    /// The shards of this engine, to which other engines may attach.
    #[must_use]
    pub fn shards(&self) -> &Shards {
        self.driver.shards()
    }

    /// See [`DrivenShards::advance`].
    pub fn advance(&mut self, by: Duration) {
        self.driver.advance(by);
    }

    /// See [`DrivenShards::advance_to`].
    pub fn advance_to(&mut self, target: Timestamp) {
        self.driver.advance_to(target);
    }

    /// See [`DrivenShards::turn`].
    pub fn turn(&mut self) {
        self.driver.turn();
    }

    /// See [`DrivenShards::next_expiry`].
    pub fn next_expiry(&mut self) -> Option<Timestamp> {
        self.driver.next_expiry()
    }

    /// The clock that the engine runs on.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        self.driver.clock()
    }
}
