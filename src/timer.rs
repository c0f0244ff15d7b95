//! Timers that a handle owns: armed and disarmed any number of times.

use crate::engine::{Core, OwnedSlot, Rearmed};
use crate::error::ScheduleError;
use crate::handle::{Handle, back_off};
use crate::sync::StdArc;
use crate::tick::Timestamp;
use crate::ticket::TimerId;
use core::fmt;
use core::time::Duration;

pub use crate::state::owned::Disarm;

/// How an arming ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The timer fires for this deadline, and not before.
    Pending,
    /// Its handler has begun, for an earlier deadline or for this very one if that had come already. Unless for this one,
    /// it fires again for it once that has returned.
    Running,
}

/// Why a timer was not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArmError {
    /// The engine was shut down.
    ShutDown,
    /// This process is the child of a fork, and the engine's threads are in the parent.
    Forked,
    /// The [`Timer`] was dropped while its handler ran, which tried to arm it again.
    Dropped,
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShutDown => "the engine was shut down",
            Self::Forked => "the engine was built before a fork, and its threads are in the parent process",
            Self::Dropped => "the timer was dropped",
        })
    }
}

impl std::error::Error for ArmError {}

/// A timer of one's own: one for each connection, armed for each request, disarmed when the answer comes.
///
/// It keeps its slot as long as it lives. Arming and disarming are a store and a load while a ticket is out, unless the
/// new deadline is before the moment at which that ticket is looked at: no queue, no allocation, no line that another
/// thread writes. A connection costs its shard a ticket for each timeout that passes, not for each
/// request.
///
/// It may be shared: each call may be made from any thread, and the last deadline that was stored is in force.
///
/// Firing leaves it at rest, to be armed again, also by its own handler: [`Fired::timer`](crate::Fired::timer). Its
/// handler never runs twice at a time.
///
/// Dropping it disarms it, even while its handler runs, which is not waited for. A payload that has its own timer keeps
/// both alive for ever, and so does a handler that has timers of its own engine: let it have them weakly.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Armed, Builder, Disarm};
///
/// let mut engine = Builder::new().build_driven(|timer| println!("close connection {}", timer.payload))?;
/// let timeout = engine.timer(17)?;
///
/// for _request in 0..1_000 {
///     assert_eq!(timeout.arm(Duration::from_secs(5))?, Armed::Pending);
///     engine.advance(Duration::from_millis(1));
///     assert_eq!(timeout.disarm(), Disarm::Disarmed);
/// }
/// assert_eq!(engine.stats().owned.posted, 1);
///
/// timeout.arm(Duration::from_secs(5))?;
/// engine.advance(Duration::from_secs(5));
/// assert_eq!(engine.stats().owned.fired, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a timer disarms it"]
pub struct Timer<T: Send + 'static> {
    core: StdArc<Core<T>>,
    slot: OwnedSlot,
}

impl<T: Send + 'static> Timer<T> {
    pub(crate) fn new(core: &StdArc<Core<T>>, payload: T) -> Result<Self, ScheduleError<T>> {
        match core.make_timer(payload) {
            Ok(slot) => Ok(Self { core: StdArc::clone(core), slot }),
            Err((refusal, payload)) => Err(ScheduleError { kind: refusal.into(), payload }),
        }
    }

    #[inline(always)]
    fn by_ref(&self) -> TimerRef<'_, T> {
        TimerRef::new(&self.core, self.slot.index())
    }

    /// Arms it: it fires `delay` from now, or later; never earlier. One that is armed gets the new deadline instead of
    /// the old one.
    ///
    /// Reads the engine's clock, which is most of what it costs: a loop that knows the time uses
    /// [`arm_at`](Self::arm_at). Otherwise as that.
    ///
    /// # Errors
    ///
    /// As [`arm_at`](Self::arm_at).
    #[inline]
    pub fn arm(&self, delay: Duration) -> Result<Armed, ArmError> {
        self.by_ref().arm(delay)
    }

    /// Arms it for `deadline`, as [`arm`](Self::arm) does. Reads no clock.
    ///
    /// In a race with the firing for an earlier deadline, either nothing fires for that one any more, or its handler has
    /// begun and [`Armed::Running`] says so; it fires for the new one in both cases.
    ///
    /// Waits, while the shard is behind with this thread's tickets, if a ticket must be posted. Where waiting would be for
    /// oneself, in handlers that run inline and without threads, the ticket goes beyond the lane's capacity instead.
    ///
    /// # Errors
    ///
    /// When the engine is shut down; and in a handler whose [`Timer`] was dropped.
    ///
    /// # Time complexity
    ///
    /// O(1): a store and a load. With a deadline before the one that its ticket is out for, or none out: a
    /// compare-and-swap and a posting.
    #[inline]
    pub fn arm_at(&self, deadline: Timestamp) -> Result<Armed, ArmError> {
        self.by_ref().arm_at(deadline)
    }

    /// Disarms it; it may be armed again.
    ///
    /// # Cancellation
    ///
    /// After [`Disarm::Disarmed`] and [`Disarm::Idle`] no handler of this timer runs, nor begins before it is armed again.
    /// [`Disarm::Running`] means that one has begun and may not have ended; nothing is waited for.
    ///
    /// # Time complexity
    ///
    /// O(1): a store and a load. The ticket stays, for the next arming or until it is looked at.
    #[expect(clippy::must_use_candidate, reason = "whether it was armed is often all the same")]
    #[inline]
    pub fn disarm(&self) -> Disarm {
        self.by_ref().disarm()
    }

    /// As [`disarm`](Self::disarm), but waits until a handler that has begun has ended: it never answers
    /// [`Disarm::Running`], except inside a handler of this engine and on the threads of its rayon pool, where it does not
    /// wait for fear of waiting for itself.
    #[expect(clippy::must_use_candidate, reason = "whether it was armed is often all the same")]
    pub fn disarm_and_wait(&self) -> Disarm {
        let outcome = self.disarm();
        if outcome != Disarm::Running || self.core.must_not_wait_here() {
            return outcome;
        }
        self.core.wait_for_run(self.slot.index());
        Disarm::Idle
    }

    /// The deadline for which it is armed; `None` when it is at rest.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.by_ref().deadline()
    }

    /// Whether it is armed.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.deadline().is_some()
    }

    /// The id that its handler sees. It names the timer for as long as it lives, and cannot be cancelled by.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.core.id_of_owned(self.slot.index())
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &T
    where
        T: Sync,
    {
        self.core.payload_of(&self.slot)
    }

    /// Its engine.
    #[must_use]
    pub fn engine(&self) -> Handle<T> {
        Handle::from_core(StdArc::clone(&self.core))
    }
}

impl<T: Send + 'static> Drop for Timer<T> {
    fn drop(&mut self) {
        // The payload is dropped here, where nothing is lent: its drop may use the engine.
        drop(self.core.release_timer(&mut self.slot));
    }
}

impl<T: Send + 'static> fmt::Debug for Timer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("id", &self.id()).field("deadline", &self.deadline()).finish()
    }
}

/// A [`Timer`] whose handler runs, as that sees it: [`Fired::timer`](crate::Fired::timer).
pub struct TimerRef<'a, T: Send + 'static> {
    core: &'a StdArc<Core<T>>,
    index: u32,
}

impl<'a, T: Send + 'static> TimerRef<'a, T> {
    #[inline(always)]
    pub(crate) fn new(core: &'a StdArc<Core<T>>, index: u32) -> Self {
        Self { core, index }
    }

    /// See [`Timer::arm`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn arm(self, delay: Duration) -> Result<Armed, ArmError> {
        self.arm_at(self.core.now() + delay)
    }

    /// See [`Timer::arm_at`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn arm_at(self, deadline: Timestamp) -> Result<Armed, ArmError> {
        match self.core.rearm(self.index, deadline) {
            Rearmed::Pending => Ok(Armed::Pending),
            other => self.arm_slowly(deadline, other),
        }
    }

    #[cold]
    fn arm_slowly(self, deadline: Timestamp, mut outcome: Rearmed) -> Result<Armed, ArmError> {
        let mut rounds = 0;
        loop {
            match outcome {
                Rearmed::Pending => return Ok(Armed::Pending),
                Rearmed::Running => return Ok(Armed::Running),
                Rearmed::ShutDown if self.core.is_forked() => return Err(ArmError::Forked),
                Rearmed::ShutDown => return Err(ArmError::ShutDown),
                Rearmed::Dropped => return Err(ArmError::Dropped),
                Rearmed::NoRoom => {}
            }
            let may_wait = self.core.may_wait_for_shards();
            if may_wait {
                back_off(self.core, rounds);
                rounds += 1;
            }
            outcome = self.core.list(self.index, deadline, !may_wait);
        }
    }

    /// See [`Timer::disarm`].
    #[expect(clippy::must_use_candidate, reason = "whether it was armed is often all the same")]
    #[inline]
    pub fn disarm(self) -> Disarm {
        self.core.disarm(self.index)
    }

    /// See [`Timer::deadline`].
    #[must_use]
    pub fn deadline(self) -> Option<Timestamp> {
        self.core.armed_for(self.index)
    }
}

impl<T: Send + 'static> Clone for TimerRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static> Copy for TimerRef<'_, T> {}

impl<T: Send + 'static> fmt::Debug for TimerRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerRef").field("deadline", &self.deadline()).finish()
    }
}
