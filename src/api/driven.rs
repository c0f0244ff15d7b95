//! Shards and engines without threads. The program moves their time.

use crate::api::handle::{Engine, Handle};
use crate::api::shards::Shards;
use crate::base::tick::Timestamp;
use crate::shard::Led;
use crate::system::clock::{Clock, ManualClock};
use core::time::Duration;

/// Shards without threads. Their time moves only when the program moves it. They are for tests of programs that have
/// several engines, or that use `tourbillon::future`.
///
/// Engines are made on these shards through [`shards`](Self::shards). Code that would use the process's own shards uses
/// these shards inside a scope of [`Shards::enter`]. The engines' handlers run inside [`advance`](Self::advance), on
/// the calling thread.
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

    /// Returns the shards, on which a program makes engines.
    #[must_use]
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Returns the clock of the shards.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Moves time forward by `by`, and fires the timers that come due. The clock stops at each tick at which a timer is
    /// due, so that each handler sees the time of its own timer. If a handler schedules a timer that is due within
    /// `by`, that timer fires, too. A timer with a zero delay fires one tick later.
    pub fn advance(&mut self, by: Duration) {
        self.advance_to(self.clock.now() + by);
    }

    /// Moves time forward to `target`, as [`advance`](Self::advance) does. If `target` has passed, the time stays as it
    /// is.
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
        // In this scope, engines that handlers make are on these shards.
        let _scope = self.shards.enter();
        let now = self.clock.now();
        self.lead_each(|led| led.work(now)).for_each(drop);
    }

    /// Returns the moment at which the program must turn the shards next: the moment at which the next timer is due.
    /// Before that, many timers may have to move to a finer level of the timing wheel; then the moment is earlier.
    /// Returns `None` if no timer is pending.
    pub fn next_expiry(&mut self) -> Option<Timestamp> {
        self.lead_each(Led::next_due).flatten().min()
    }

    /// Returns the next moment, after now, at which the shards must turn. Returns `None` if there is no such moment.
    pub(crate) fn next_step(&mut self) -> Option<Timestamp> {
        let tick = self.shards.owner().set().settings().tick;
        let next_tick = tick.start_of(tick.current_tick(self.clock.now()).saturating_add(1));
        Some(self.next_expiry()?.max(next_tick)).filter(|&next| next > self.clock.now())
    }

    /// Locks one shard after another. Calls `lead` with the locked data of each shard.
    fn lead_each<R>(&mut self, lead: impl Fn(&mut Led) -> R) -> impl Iterator<Item = R> {
        let shards = self.shards.owner().set().shards().iter();
        shards.filter_map(move |shard| {
            // Another thread that ends an engine may lead the shard for a moment. No handler calls this function, since
            // the caller borrows the shards exclusively.
            let mut led = shard.lead()?;
            shard.admit_and_dismiss(&mut led);
            let result = lead(&mut led);
            // This admits engines that a handler has made, and drops the stations of engines that were ended during the
            // turn.
            shard.admit_and_dismiss(&mut led);
            Some(result)
        })
    }
}

/// An engine without threads. Its time moves only when the program moves it. It is for tests, examples and simulations.
///
/// A driven engine has all parts of an [`Engine`], runs on one thread and is deterministic: the same calls fire the
/// same timers in the same order. Handlers run inside [`advance`](Self::advance). No thread drains the lanes (threads'
/// queues to the shard) between two advances, so the lanes may fill. If a thread schedules more than `lane_capacity`
/// timers between two advances, the further timers are refused. Armings of a [`Timer`](crate::Timer) are never refused
/// for this reason.
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

    /// Returns a handle to this engine. A handle does not keep the engine alive: see [`Engine::handle`].
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        self.engine.handle()
    }

    /// Returns the shards of this engine. Other engines may be made on these shards, too.
    #[must_use]
    pub fn shards(&self) -> &Shards {
        self.driver.shards()
    }

    /// Moves time forward by `by`, and fires the timers that come due: see [`DrivenShards::advance`].
    pub fn advance(&mut self, by: Duration) {
        self.driver.advance(by);
    }

    /// Moves time forward to `target`, and fires the timers that come due: see [`DrivenShards::advance_to`].
    pub fn advance_to(&mut self, target: Timestamp) {
        self.driver.advance_to(target);
    }

    /// Fires the timers that are due now, without moving the time: see [`DrivenShards::turn`].
    pub fn turn(&mut self) {
        self.driver.turn();
    }

    /// Returns the moment at which the next timer is due: see [`DrivenShards::next_expiry`].
    pub fn next_expiry(&mut self) -> Option<Timestamp> {
        self.driver.next_expiry()
    }

    /// Returns the clock of the engine.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        self.driver.clock()
    }
}
