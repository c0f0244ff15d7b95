//! Owned timers: a program arms and disarms such a timer any number of times.

use crate::api::handle::{Fired, Handle, gets_room};
use crate::base::error::ScheduleError;
use crate::base::sync::StdArc;
use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use crate::engine::{self, Anchor, Core, OwnedSlot, Rearmed};
use crate::lockfree::state::owned::Withdrawn;
use core::fmt;
use core::time::Duration;

pub use crate::base::error::ArmError;
pub use crate::engine::Armed;
pub use crate::lockfree::state::owned::Disarm;

/// A timer that the program owns and reuses. For example, a connection has a timer, arms it for each request, and
/// disarms it when the answer comes.
///
/// A timer keeps its slot as long as it lives. While a ticket of the timer is out (posted, and not yet checked by the
/// shard), arming and disarming are a store and a load each: no queue, no allocation, no cache line that another thread
/// writes. There is one exception: an arming needs a new ticket if its deadline is before the moment at which the shard
/// will check the present ticket. So a connection costs its shard a ticket for each timeout that passes, not for each
/// request.
///
/// Threads may share a timer. Any thread may make any call, and the deadline that was stored last is in force.
///
/// After a timer has fired, it is at rest and may be armed again, even by its own handler: see
/// [`Fired::timer`](crate::Fired::timer). A timer's handler never runs twice at a time.
///
/// Dropping a timer disarms it, even while its handler runs; the drop does not wait for the handler. A payload that
/// holds its own timer keeps itself and the timer alive for ever. A handler that holds timers of its own engine keeps
/// itself and the timers alive for ever. Such a payload or handler should hold its timers by weak references.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Armed, Builder, Disarm};
///
/// let mut engine = Builder::new().driven(|timer| println!("close connection {}", timer.payload))?;
/// let timeout = engine.handle().timer(17)?;
///
/// for _request in 0..1_000 {
///     assert_eq!(timeout.arm(Duration::from_secs(5))?, Armed::Pending);
///     engine.advance(Duration::from_millis(1));
///     assert_eq!(timeout.disarm(), Disarm::Disarmed);
/// }
/// assert_eq!(engine.handle().stats().owned.posted, 1);
///
/// timeout.arm(Duration::from_secs(5))?;
/// engine.advance(Duration::from_secs(5));
/// assert_eq!(engine.handle().stats().owned.fired, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a timer disarms it"]
pub struct Timer<T: Send + 'static> {
    anchor: StdArc<Anchor<T>>,
    slot: OwnedSlot,
}

impl<T: Send + 'static> Handle<T> {
    /// Makes a timer that the caller owns and may arm and disarm any number of times: see [`Timer`]. When the timer
    /// fires, the handler gets a clone of the payload.
    ///
    /// # Errors
    ///
    /// Fails if the engine is full or shut down; the error returns the payload.
    ///
    /// # Time complexity
    ///
    /// O(1). Only the first timer of a thread takes a lock. Nothing is posted before the timer is armed.
    pub fn timer(&self, payload: T) -> Result<Timer<T>, ScheduleError<T>>
    where
        T: Clone,
    {
        self.core().timers().clone_payloads_by(T::clone);
        Timer::new(self.core(), payload)
    }
}

impl<T: Send + 'static> Fired<'_, T> {
    /// Returns the [`Timer`] that fired, so that the handler can arm it again. Returns `None` if the timer is a
    /// one-shot. If a handler arms its timer, the timer fires after the handler has returned, even if the new deadline
    /// comes earlier.
    #[must_use]
    pub fn timer(&self) -> Option<TimerRef<'_, T>> {
        self.moment.owned_slot().map(|index| TimerRef::new(self.core, index))
    }
}

impl<T: Send + 'static> Timer<T> {
    pub(crate) fn new(core: &StdArc<Core<T>>, payload: T) -> Result<Self, ScheduleError<T>> {
        let (anchor, slot) = Anchor::create_timer(core, payload)?;
        Ok(Self { anchor, slot })
    }

    /// Takes a timer that [`keep`](Self::keep) has kept on this thread, for an arming for `deadline`. Its ticket may
    /// still be out. Returns `None` if the thread keeps none.
    #[cfg(feature = "async")]
    pub(crate) fn take_spare(core: &StdArc<Core<T>>, deadline: Timestamp) -> Option<Self> {
        let (anchor, slot) = Anchor::take_spare(core, deadline)?;
        Some(Self { anchor, slot })
    }

    /// Stores the timer with its payload for [`take_spare`](Self::take_spare), or drops it if there is no room. The
    /// caller has disarmed the timer, which was last armed for `deadline`, and fired for it if `has_fired`. The payload
    /// of a stored timer may never be dropped.
    #[cfg(feature = "async")]
    pub(crate) fn keep(mut self, deadline: Timestamp, has_fired: bool) {
        self.anchor.core().timers().keep(&mut self.slot, deadline, has_fired);
    }

    #[inline(always)]
    fn by_ref(&self) -> TimerRef<'_, T> {
        TimerRef::new(self.core(), self.slot.index())
    }

    pub(crate) fn core(&self) -> &StdArc<Core<T>> {
        self.anchor.core()
    }

    pub(crate) fn index(&self) -> u32 {
        self.slot.index()
    }

    #[inline(always)]
    fn withdraw(&self) -> Withdrawn {
        engine::disarm(self.anchor.slots(), self.slot.index())
    }

    /// Arms the timer: it fires `delay` from now, or later; never earlier. If the timer is armed already, the new
    /// deadline replaces the old deadline.
    ///
    /// Reading the engine's clock is most of the cost of the call. A loop that knows the time uses
    /// [`arm_at`](Self::arm_at). In all other respects the call behaves like `arm_at`.
    ///
    /// # Errors
    ///
    /// Fails as [`arm_at`](Self::arm_at) does.
    #[inline]
    pub fn arm(&self, delay: Duration) -> Result<Armed, ArmError> {
        self.arm_at(self.core().clock().now() + delay)
    }

    /// Arms the timer for `deadline`, as [`arm`](Self::arm) does. Reads no clock that the program has made. Reads the
    /// system's clock only if a ticket must be posted while the shard is awake.
    ///
    /// The call may race with the firing for an earlier deadline. Either the timer no longer fires for the earlier
    /// deadline, or its handler has begun and the call returns [`Armed::Running`]. In both cases the timer fires for
    /// the new deadline.
    ///
    /// If a ticket must be posted, the call waits while the shard is behind with this thread's tickets. In handlers
    /// that run inline, and on an engine without threads, the caller would wait for itself. There the ticket is posted
    /// beyond the lane's capacity instead.
    ///
    /// # Errors
    ///
    /// Fails if the engine is shut down, in the child of a fork, and in a handler whose [`Timer`] was dropped.
    ///
    /// # Time complexity
    ///
    /// O(1): a store and a load. The call also needs a compare-and-swap and an insertion if no ticket is out, or if the
    /// ticket that is out is for a moment after `deadline`.
    #[inline]
    pub fn arm_at(&self, deadline: Timestamp) -> Result<Armed, ArmError> {
        if self.postpone(deadline) {
            return Ok(Armed::Pending);
        }
        self.by_ref().arm_slowly(deadline)
    }

    /// Arms the timer if its present ticket comes early enough. A ticket (a request to check the timer) is early enough
    /// if it is due at `deadline` or before. Otherwise returns false, and the caller must call [`queue`](Self::queue).
    #[inline(always)]
    pub(crate) fn postpone(&self, deadline: Timestamp) -> bool {
        engine::postpone(self.anchor.slots(), self.slot.index(), deadline)
    }

    /// Completes an arming after `postpone` has returned false: posts a new ticket, a request to check the timer. Does
    /// not wait: see [`Core::queue`].
    pub(crate) fn queue(&self, deadline: Timestamp, insist: bool) -> Rearmed {
        self.core().queue(self.slot.index(), deadline, insist)
    }

    /// Returns whether a thread checks the timer or runs its handler now.
    #[cfg(feature = "async")]
    pub(crate) fn is_held(&self) -> bool {
        self.anchor.slots().owned(self.slot.index()).is_held()
    }

    /// Returns whether the engine is shut down and will not fire the timer any more.
    #[cfg(feature = "async")]
    pub(crate) fn is_shut(&self) -> bool {
        self.anchor.slots().owned(self.slot.index()).is_shut()
    }

    /// Disarms the timer, so that it does not fire. The timer may be armed again.
    ///
    /// # Cancellation
    ///
    /// After [`Disarm::Disarmed`] and [`Disarm::Idle`] no handler of this timer runs, and none begins before the timer
    /// is armed again. [`Disarm::Running`] means that a handler has begun and may not have ended; the call does not
    /// wait. [`disarm_and_wait`](Self::disarm_and_wait) also returns whether the timer was armed again after the
    /// handler had begun.
    ///
    /// If two threads disarm a timer at the same time, both may get [`Disarm::Disarmed`] for one arming.
    ///
    /// # Time complexity
    ///
    /// O(1): a store and a load. The ticket stays, for the next arming or until the shard checks it.
    #[expect(clippy::must_use_candidate, reason = "whether it was armed is often all the same")]
    #[inline]
    pub fn disarm(&self) -> Disarm {
        self.withdraw().into()
    }

    /// Disarms the timer as [`disarm`](Self::disarm) does. If a handler has begun, waits until the handler has ended.
    /// Returns [`Disarm::Disarmed`] if the call removed an arming, even an arming that came while that handler ran.
    /// Returns [`Disarm::Idle`] if there was no arming to remove: either the last arming has fired and its handler has
    /// ended, or the timer was disarmed before. There is one exception. If the call coincides with the very end of a
    /// handler that armed the timer, the call may return [`Disarm::Idle`] for that arming.
    ///
    /// In four places the call does not wait, because it might wait for itself or for ever. They are the places in
    /// which [`Handle::cancel_and_wait`](crate::Handle::cancel_and_wait) does not wait. Only there it may return
    /// [`Disarm::Running`].
    ///
    /// # Examples
    ///
    /// Go's `if !t.Stop() { <-t.C }`, for an armed timer whose handler sends on a channel:
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::{Disarm, Engine};
    ///
    /// let (sender, fired) = mpsc::channel();
    /// let engine = Engine::new(move |timer| sender.send(timer.payload).unwrap())?;
    /// let timer = engine.handle().timer("request")?;
    /// for _ in 0..3 {
    ///     timer.arm(Duration::from_millis(1))?;
    ///     if timer.disarm_and_wait() != Disarm::Disarmed {
    ///         assert_eq!(fired.recv()?, "request");
    ///     }
    /// }
    /// assert!(fired.try_recv().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::must_use_candidate, reason = "whether it was armed is often all the same")]
    pub fn disarm_and_wait(&self) -> Disarm {
        match self.withdraw() {
            Withdrawn::Running { was_armed } if !self.core().membership().must_not_wait_here() => {
                self.core().wait_for_run(self.slot.index());
                if was_armed { Disarm::Disarmed } else { Disarm::Idle }
            }
            outcome => outcome.into(),
        }
    }

    /// Returns the deadline for which the timer is armed, or `None` if the timer is not armed.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.by_ref().deadline()
    }

    /// Returns whether the timer is armed.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.deadline().is_some()
    }

    /// Returns the id that the timer's handler sees. The id names the timer for as long as the timer lives. A program
    /// cannot cancel the timer by the id.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.anchor.slots().id_of_owned(self.slot.index())
    }

    /// Returns a reference to the timer's payload.
    #[must_use]
    pub fn payload(&self) -> &T
    where
        T: Sync,
    {
        self.core().timers().payload_of(&self.slot)
    }

    /// Returns a handle to the timer's engine.
    #[must_use]
    pub fn engine(&self) -> Handle<T> {
        Handle::from_core(StdArc::clone(self.core()))
    }
}

impl<T: Send + 'static> Drop for Timer<T> {
    fn drop(&mut self) {
        // The payload is dropped here, while no part of the engine is borrowed: the payload's drop may use the engine.
        drop(self.anchor.core().timers().release(&mut self.slot));
    }
}

impl<T: Send + 'static> fmt::Debug for Timer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("id", &self.id()).field("deadline", &self.deadline()).finish()
    }
}

/// A reference to a [`Timer`] for the timer's running handler: see [`Fired::timer`](crate::Fired::timer).
pub struct TimerRef<'a, T: Send + 'static> {
    core: &'a StdArc<Core<T>>,
    index: u32,
}

impl<'a, T: Send + 'static> TimerRef<'a, T> {
    #[inline(always)]
    pub(crate) fn new(core: &'a StdArc<Core<T>>, index: u32) -> Self {
        Self { core, index }
    }

    /// Arms the timer for `delay` from now: see [`Timer::arm`].
    ///
    /// # Errors
    ///
    /// Fails as [`Timer::arm`] does.
    #[inline]
    pub fn arm(self, delay: Duration) -> Result<Armed, ArmError> {
        self.arm_at(self.core.clock().now() + delay)
    }

    /// Arms the timer for `deadline`: see [`Timer::arm_at`].
    ///
    /// # Errors
    ///
    /// Fails as [`Timer::arm_at`] does.
    #[inline]
    pub fn arm_at(self, deadline: Timestamp) -> Result<Armed, ArmError> {
        if engine::postpone(self.core.timers().slots(), self.index, deadline) {
            return Ok(Armed::Pending);
        }
        self.arm_slowly(deadline)
    }

    #[cold]
    fn arm_slowly(self, deadline: Timestamp) -> Result<Armed, ArmError> {
        let mut rounds = 0;
        let mut insist = false;
        loop {
            if let Some(armed) = self.core.queue(self.index, deadline, insist)? {
                return Ok(armed);
            }
            insist = !gets_room(self.core, rounds);
            rounds += 1;
        }
    }

    /// Disarms the timer, without waiting: see [`Timer::disarm`].
    #[expect(clippy::must_use_candidate, reason = "whether it was armed is often all the same")]
    #[inline]
    pub fn disarm(self) -> Disarm {
        engine::disarm(self.core.timers().slots(), self.index).into()
    }

    /// Returns the deadline for which the timer is armed: see [`Timer::deadline`].
    #[must_use]
    pub fn deadline(self) -> Option<Timestamp> {
        self.core.timers().armed_for(self.index)
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

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use crate::api::builder::Builder;
    use crate::api::handle::Engine;
    use crate::base::sync::thread;

    fn engine() -> Engine<u32> {
        Builder::new().shards(1).inline().unpinned().start(|_| ()).unwrap()
    }

    fn holders(engine: &Engine<u32>) -> usize {
        StdArc::strong_count(engine.handle().core())
    }

    /// Makes a timer on another thread, and waits for the end of that thread. Before, that thread makes and drops
    /// another timer.
    fn made_elsewhere(engine: &Engine<u32>) -> Timer<u32> {
        let handle: Handle<u32> = engine.handle().clone();
        let make = move || {
            drop(handle.timer(1).unwrap());
            handle.timer(2).unwrap()
        };
        thread::spawn(make).join().unwrap()
    }

    #[test]
    fn a_thread_that_makes_and_drops_timers_writes_no_count_that_others_write() {
        let engine = engine();
        let before = holders(&engine);
        let timers: Vec<_> = (0..100).map(|n| engine.handle().timer(n).unwrap()).collect();
        assert_eq!(holders(&engine), before + 1, "the thread's own anchor");
        let anchor = StdArc::downgrade(&timers[0].anchor);
        drop(timers);
        let again = engine.handle().timer(0).unwrap();
        assert!(
            StdArc::ptr_eq(&anchor.upgrade().unwrap(), &again.anchor),
            "the next timer takes the same anchor"
        );
        assert!(!StdArc::ptr_eq(&made_elsewhere(&engine).anchor, &again.anchor));
    }

    #[test]
    fn a_thread_that_has_ended_holds_its_engine_no_more() {
        let engine = engine();
        let before = holders(&engine);
        let timer = made_elsewhere(&engine);
        assert_eq!((StdArc::strong_count(&timer.anchor), holders(&engine)), (1, before + 1));
        drop(timer);
        assert_eq!(holders(&engine), before);
    }

    #[test]
    fn an_engine_goes_with_its_last_timer_though_the_threads_that_made_some_live_on() {
        let (first, second) = (engine(), engine());
        drop(first.handle().timer(1).unwrap());
        let timer = second.handle().timer(2).unwrap();
        let cores = [&first, &second].map(|engine| StdArc::downgrade(engine.handle().core()));
        drop((first, second));
        assert_eq!(cores.each_ref().map(|core| core.strong_count()), [0, 1]);
        assert!(timer.arm(Duration::ZERO).is_err());
        drop(timer);
        assert_eq!(cores.each_ref().map(|core| core.strong_count()), [0, 0]);
    }
}
