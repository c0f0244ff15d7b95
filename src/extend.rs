//! The interface for layers, the *seam*. It has the calls that a layer on the engine needs and a plain user does not
//! need.
//!
//! A *layer* brings payloads and a handler of its own to an engine, and offers another interface to its users:
//! closures, timers by key, queues. The crate `tourbillon-tasks` is a layer. A layer uses the public interface like
//! every other program. Beyond that, a layer has these needs, which the functions of [`Base`] meet:
//!
//! | need | function |
//! |---|---|
//! | a handler that gets its payload by reference: owned timers whose payloads are not `Clone` | [`Base::start`], [`Base::driven`], [`Base::timer`] |
//! | armings that never wait, for a layer that holds a lock of its own | [`Base::try_arm_at`]; for one-shots [`Handle::try_schedule_at`] and [`Handle::try_reschedule_at`] |
//! | a wait for room, once that lock is released | [`Base::await_room`] |
//! | a check whether the calling thread would wait for itself | [`Base::may_wait_for_shards`], [`Base::may_wait_for_handlers`] |
//! | a check whether another process may have locked the layer's locks for ever | [`Base::is_in_child`] |
//! | the clock that decides whether a deadline has come | [`Base::true_now`] |
//! | the time for which a thread may sleep itself, in place of a timer | [`Base::sleep_for`] |
//! | a call at the end of the engine, to wake threads and tasks that wait | [`Base::at_shutdown`] |
//!
//! With the feature `async`, the function `sleep_outside_of_runtimes` is for layers of futures on any executor.
//!
//! # Examples
//!
//! A layer: switches that trip unless they are fed in time.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//! use tourbillon::extend::{Base, Due, Payload};
//! use tourbillon::{BuildError, Builder, DrivenEngine, ScheduleError, Timer};
//!
//! /// The payload of a switch. It cannot be cloned.
//! type Alarm = Box<dyn Fn() + Send>;
//!
//! /// A switch that trips when it was not fed for a while.
//! struct Switch {
//!     timer: Timer<Alarm>,
//!     patience: Duration,
//! }
//!
//! impl Switch {
//!     /// Returns false if the switch can trip no more, because the engine was shut down.
//!     fn feed(&self) -> bool {
//!         self.timer.arm(self.patience).is_ok()
//!     }
//! }
//!
//! /// The layer: an engine for switches.
//! struct Switches {
//!     engine: DrivenEngine<Alarm>,
//!     base: Base<Alarm>,
//! }
//!
//! impl Switches {
//!     fn new() -> Result<Self, BuildError> {
//!         let trip = |due: Due<'_, Alarm>| match due.payload {
//!             Payload::Kept(alarm) => alarm(),
//!             Payload::Taken(_) => unreachable!("no switch is a one-shot"),
//!         };
//!         let (engine, base) = Base::driven(Builder::new(), trip)?;
//!         Ok(Self { engine, base })
//!     }
//!
//!     fn switch(&self, patience: Duration, alarm: Alarm) -> Result<Switch, ScheduleError<Alarm>> {
//!         Ok(Switch { timer: self.base.timer(alarm)?, patience })
//!     }
//! }
//!
//! let log = Arc::new(Mutex::new(Vec::new()));
//! let say = |what: &'static str| {
//!     let log = Arc::clone(&log);
//!     Box::new(move || log.lock().unwrap().push(what))
//! };
//!
//! let mut switches = Switches::new()?;
//! switches.base.at_shutdown(say("nobody watches any more"));
//! let driver = switches.switch(Duration::from_secs(10), say("the driver sleeps"))?;
//! for _ in 0..10 {
//!     assert!(driver.feed());
//!     switches.engine.advance(Duration::from_secs(9));
//! }
//! assert!(log.lock().unwrap().is_empty());
//! switches.engine.advance(Duration::from_secs(1));
//! drop(switches);
//! assert!(!driver.feed());
//! assert_eq!(*log.lock().unwrap(), ["the driver sleeps", "nobody watches any more"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::api::builder::Builder;
use crate::api::driven::DrivenEngine;
use crate::api::handle::{Engine, Handle, gets_room};
use crate::api::timer::{Armed, Timer};
use crate::base::error::{ArmError, BuildError, Refusal, ScheduleError};
use crate::base::tick::Timestamp;
use crate::engine::Handler;
use core::fmt;
use core::time::Duration;

pub use crate::engine::{Due, Moment, Payload};

/// A handle to the engine on which a layer (a crate such as `tourbillon-tasks`) builds. That engine passes the payload
/// of an owned timer to the layer's handler by reference. Cloning is cheap. A base does not keep the engine running.
pub struct Base<T: Send + 'static> {
    handle: Handle<T>,
}

/// Decides what happens if an arming needs a ticket (a request to check a timer) while the calling thread's lane (its
/// queue to the shard) is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The call fails. Until another arming succeeds, the timer may fire for the new deadline late or not at all.
    Fail,
    /// The ticket is posted to the lane beyond the lane's capacity. This variant is for a layer whose deadline must be
    /// in force when the call returns.
    Exceed,
}

impl<T: Send + 'static> Base<T> {
    /// Starts an engine that calls `handler` for each timer that fires. The handler gets the payload of an owned timer
    /// by reference.
    ///
    /// # Errors
    ///
    /// Fails as [`Builder::start`] does.
    pub fn start(
        builder: Builder,
        handler: impl Fn(Due<'_, T>) + Send + Sync + 'static,
    ) -> Result<(Engine<T>, Self), BuildError> {
        let engine = builder.build_with(in_place(handler))?;
        let handle = engine.handle().clone();
        Ok((engine, Self { handle }))
    }

    /// Makes an engine without threads, on a manual clock: see [`Builder::driven`]. The handler gets the payload of an
    /// owned timer by reference.
    ///
    /// # Errors
    ///
    /// Fails as [`Builder::driven`] does.
    pub fn driven(
        builder: Builder,
        handler: impl Fn(Due<'_, T>) + Send + Sync + 'static,
    ) -> Result<(DrivenEngine<T>, Self), BuildError> {
        let engine = builder.build_driven_with(in_place(handler))?;
        let handle = engine.handle().clone();
        Ok((engine, Self { handle }))
    }

    /// Returns the handle of the engine.
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        &self.handle
    }

    /// Makes an owned timer, as [`Handle::timer`] does, for a payload that need not be `Clone`.
    ///
    /// # Errors
    ///
    /// Fails as [`Handle::timer`] does. The error returns the payload.
    ///
    /// # Time complexity
    ///
    /// The same as [`Handle::timer`].
    pub fn timer(&self, payload: T) -> Result<Timer<T>, ScheduleError<T>> {
        Timer::new(self.handle.core(), payload)
    }

    /// Arms a timer as [`Timer::arm_at`] does, but never waits.
    ///
    /// # Errors
    ///
    /// Fails if the engine is shut down. If `when_full` is [`WhenFull::Fail`], the arming needs a ticket and the lane
    /// is full, fails with [`LaneFull`](Refusal::LaneFull). Then the caller releases its locks, calls
    /// [`await_room`](Self::await_room) and tries again.
    ///
    /// # Synchronisation
    ///
    /// If a call returns [`Armed::Pending`] after a run of the timer's handler, the call has seen the end of that run.
    /// So after an acquire fence, the caller sees everything that the handler did. This holds for [`Timer::arm_at`],
    /// too.
    ///
    /// # Time complexity
    ///
    /// The same as [`Timer::arm_at`].
    #[inline]
    pub fn try_arm_at(
        &self,
        timer: &Timer<T>,
        deadline: Timestamp,
        when_full: WhenFull,
    ) -> Result<Armed, Refusal> {
        if timer.postpone(deadline) { Ok(Armed::Pending) } else { self.queue(timer, deadline, when_full) }
    }

    #[cold]
    fn queue(&self, timer: &Timer<T>, deadline: Timestamp, when_full: WhenFull) -> Result<Armed, Refusal> {
        match timer.queue(deadline, when_full == WhenFull::Exceed) {
            Ok(Some(armed)) => Ok(armed),
            Ok(None) => Err(Refusal::LaneFull),
            Err(ArmError::Forked) => Err(Refusal::Forked),
            // The caller has the timer, so it was not dropped.
            Err(ArmError::ShutDown | ArmError::Dropped) => Err(Refusal::ShutDown),
        }
    }

    /// Waits a little until the shards have made room in their lanes. A layer calls this function after a call has
    /// failed with [`LaneFull`](Refusal::LaneFull). `rounds` counts the calls from zero. Each call waits longer than
    /// the call before. The caller must hold no lock that a handler may take. If the calling thread would wait for
    /// itself, returns false at once.
    ///
    /// On shards of loops ([`LoopShard`](crate::LoopShard)) the calling thread makes the room itself, even on the
    /// loop's own thread. Inside a turn of that loop, the thread cannot make room.
    pub fn await_room(&self, rounds: &mut u32) -> bool {
        let core = self.handle.core();
        let goes_on = !core.admission().is_shut_down() && gets_room(core, *rounds);
        if goes_on {
            *rounds = rounds.saturating_add(1);
        }
        goes_on
    }

    /// Returns whether another thread fires the timers that the calling thread schedules at this moment. Returns false
    /// in a handler that runs inline, in an engine without threads, in an engine that was shut down, and in the child
    /// of a fork.
    #[must_use]
    pub fn may_wait_for_shards(&self) -> bool {
        let core = self.handle.core();
        !core.admission().is_shut_down() && core.membership().may_wait_for_shards()
    }

    /// Returns whether the calling thread may wait for the end of a handler. Returns false in the places in which
    /// [`Handle::cancel_and_wait`] does not wait: inside a handler of this engine, on a thread that runs a shard of
    /// this engine at that moment, on the threads of the engine's rayon pool, and in the child of a fork.
    #[must_use]
    pub fn may_wait_for_handlers(&self) -> bool {
        !self.handle.core().membership().must_not_wait_here()
    }

    /// Returns whether this process is the child of a fork, and the engine was started before the fork. If another
    /// thread of the parent held a lock of the layer at the fork, the lock stays locked in the child for ever. So
    /// functions of the layer that run at the end of the child must not wait for such a lock: they try it for a moment,
    /// and then leave its contents behind. An engine without threads can be used in the child; the function returns
    /// true for it, too, but [`Handle::is_forked`] returns false. There the lock may also be held by another thread of
    /// the child, so the functions should try it for longer.
    #[must_use]
    pub fn is_in_child(&self) -> bool {
        self.handle.core().membership().is_in_child()
    }

    /// Returns the present moment, by which the engine decides whether a deadline has come. The moment is never ahead
    /// of the true time, but [`Handle::now`] may be: see [`Clock`](crate::Clock).
    #[must_use]
    pub fn true_now(&self) -> Timestamp {
        self.handle.core().clock().true_now()
    }

    /// Returns how long a thread may sleep from now on in order to be awake at `deadline`. Returns `None` if the clock
    /// moves only in steps: see [`Clock::sleep_for`](crate::Clock::sleep_for).
    #[must_use]
    pub fn sleep_for(&self, deadline: Timestamp) -> Option<Duration> {
        self.handle.core().clock().sleep_until(deadline)
    }

    /// Calls `hook` once when the engine has been shut down, by a call or by a drop. At that moment nothing can be
    /// armed any more, no handler begins, and every pending timer has been taken out. If the engine has already been
    /// shut down, or if this process is the child of a fork, `hook` runs at once. A panic of `hook` is caught, and
    /// reported like a handler's panic.
    ///
    /// A hook runs on the thread that shuts the engine down. It must not wait for a handler: if a handler shuts the
    /// engine down, other handlers may still run. The engine keeps the hook until the engine ends, so a hook should
    /// hold the layer by a weak reference.
    pub fn at_shutdown(&self, hook: impl FnOnce() + Send + 'static) {
        self.handle.core().at_shutdown(Box::new(hook));
    }
}

/// Returns a future that completes `delay` from now, as [`sleep`](crate::future::sleep) does. With the feature `tokio`,
/// a task of the runtime turns the timers of `sleep`. Those timers stand still while the runtime stands still. The
/// timer of this future does not depend on a runtime.
///
/// The function is for layers that work with any executor. For example, a program may wait for the future by an
/// executor of its own, on the only thread of a runtime.
///
/// # Panics
///
/// Panics as [`global`](crate::future::global) does.
#[cfg(feature = "async")]
pub fn sleep_outside_of_runtimes(delay: Duration) -> crate::future::Sleep {
    crate::future::sleep_outside_of_runtimes(delay)
}

fn in_place<T: Send + 'static>(handler: impl Fn(Due<'_, T>) + Send + Sync + 'static) -> Handler<T> {
    Box::new(move |due: Due<'_, T>, _| handler(due))
}

impl<T: Send + 'static> Clone for Base<T> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone() }
    }
}

impl<T: Send + 'static> fmt::Debug for Base<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}
