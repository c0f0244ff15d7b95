//! The engine as its users see it: the owner, the handles, and what a handler gets.

use crate::builder::Builder;
use crate::engine::{self, BatchOutcome, Cancel, Core, Local, Moved, Payload, Refusal, Unfired, lend};
use crate::error::{BatchError, BuildError, RescheduleError, ScheduleError, ScheduleErrorKind};
use crate::health::Health;
use crate::producer::Producer;
use crate::stats::Stats;
use crate::sync::{StdArc, thread};
use crate::tick::Timestamp;
use crate::ticket::TimerId;
use crate::timer::{Timer, TimerRef};
use core::fmt;
use core::time::Duration;

/// A running timer engine for payloads of type `T`: the owner of its threads.
///
/// It is used through its [`handle`](Self::handle). Dropping it shuts it down and drops the payloads of timers that had
/// not fired, however many handles there are. The handler itself, and the workers, go with the last handle, producer or
/// job.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::{Cancel, Engine};
///
/// let (fired, log) = mpsc::channel();
/// let engine = Engine::new(move |timer| fired.send(timer.payload).unwrap())?;
///
/// engine.handle().schedule(Duration::from_millis(5), "idle: close")?;
/// let id = engine.handle().schedule(Duration::from_secs(30), "request timed out")?;
/// assert_eq!(engine.handle().cancel(id), Cancel::Cancelled("request timed out"));
/// assert_eq!(log.recv()?, "idle: close");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping an engine shuts it down"]
pub struct Engine<T: Send + 'static> {
    handle: Handle<T>,
}

impl<T: Send + 'static> Engine<T> {
    /// An engine with the defaults of [`Builder`].
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub fn new(handler: impl Fn(Fired<'_, T>) + Send + Sync + 'static) -> Result<Self, BuildError> {
        Builder::new().build(handler)
    }

    /// The way to this engine, to be cloned for other threads. A handle does not keep the engine alive: once the engine is
    /// dropped, its handles refuse timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::{Builder, Fired};
    ///
    /// let engine = Builder::new().build(|_: Fired<'_, u32>| {})?;
    /// let timers = engine.handle().clone();
    /// drop(engine);
    /// assert!(timers.is_shut_down());
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    ///
    /// An engine has no `clone`, which would leave the handle of an engine that ends with the statement:
    ///
    /// ```compile_fail,E0599
    /// # use tourbillon::Builder;
    /// let timers = Builder::new().build_async()?.clone();
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        &self.handle
    }

    pub(crate) fn from_core(core: StdArc<Core<T>>) -> Self {
        Self { handle: Handle { core } }
    }
}

impl<T: Send + 'static> Drop for Engine<T> {
    fn drop(&mut self) {
        self.handle.core.shut_down_quietly();
    }
}

impl<T: Send + 'static> fmt::Debug for Engine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("handle", &self.handle).finish()
    }
}

/// A timer that fired, as its handler gets it.
pub struct Fired<'a, T: Send + 'static> {
    /// Its id, stale once the handler has returned.
    pub id: TimerId,
    /// The moment it was armed for.
    pub deadline: Timestamp,
    /// How long after the deadline the handler began.
    pub lateness: Duration,
    /// What was scheduled with it; of a [`Timer`], a clone of its payload.
    pub payload: T,
    /// The slot of an owned timer. Not that of `id`, which the handler may write to.
    owned: Option<u32>,
    core: &'a StdArc<Core<T>>,
}

impl<'a, T: Send + 'static> Fired<'a, T> {
    pub(crate) fn new(due: engine::Due<'_, T>, core: &'a StdArc<Core<T>>) -> Self {
        let engine::Due { id, deadline, lateness, payload } = due;
        let (payload, owned) = match payload {
            Payload::Taken(payload) => (payload, None),
            Payload::Kept(payload) => (core.clone_payload(payload), Some(id.index())),
        };
        Self { id, deadline, lateness, payload, owned, core }
    }

    /// The timer that fired, if a [`Timer`] is what it is: to be armed again. It will fire once this handler has
    /// returned, however soon it is due.
    #[must_use]
    pub fn timer(&self) -> Option<TimerRef<'_, T>> {
        self.owned.map(|index| TimerRef::new(self.core, index))
    }

    /// The engine that fired it, to schedule from the handler.
    ///
    /// A handler that holds a handle of its own instead keeps itself, and the engine's memory, alive for ever.
    #[must_use]
    pub fn engine(&self) -> Handle<T> {
        Handle { core: StdArc::clone(self.core) }
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Fired<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fired")
            .field("id", &self.id)
            .field("deadline", &self.deadline)
            .field("lateness", &self.lateness)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// A way to an engine, for any thread. Cloning is cheap.
///
/// A handle does not keep the engine running: after a shutdown it refuses timers and finds the old ones gone.
///
/// # Which shard
///
/// A thread's timers go to one shard, chosen at the thread's first call: the one pinned to the core on which it runs
/// then, if there is one. [`producer_on`](Self::producer_on) chooses explicitly.
pub struct Handle<T: Send + 'static> {
    core: StdArc<Core<T>>,
}

impl<T: Send + 'static> Handle<T> {
    /// The present moment on the engine's clock, to count deadlines from: not before the true one, and on the default
    /// clock at most 5 µs ahead of it (see [`MonotonicClock`](crate::MonotonicClock)).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.core.now()
    }

    /// Whether `deadline` has come by the true clock, as it has for a handler.
    #[inline]
    #[must_use]
    pub fn has_come(&self, deadline: Timestamp) -> bool {
        self.core.has_come(deadline)
    }

    /// The length of a tick: deadlines are rounded up to a whole one.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.core.tick().as_duration()
    }

    /// Arms a timer that fires `delay` from now, or later; never earlier.
    ///
    /// Waits while the shard is behind with this thread's tickets. A zero delay fires when the present tick ends;
    /// [`Duration::MAX`] means never: the end of time is 584 years after the clock's origin.
    ///
    /// # Errors
    ///
    /// When the engine is full or shut down; the payload comes back. Also with
    /// [`LaneFull`](crate::ScheduleErrorKind::LaneFull) where waiting would be for oneself: in a handler that runs
    /// inline, and without threads. A handler that schedules into a full lane of another engine may wait for that one; where
    /// two engines' handlers do so to each other, use [`try_schedule`](Self::try_schedule).
    ///
    /// # Time complexity
    ///
    /// O(1): one clock read, no lock, no line that other producers write.
    #[inline(always)]
    pub fn schedule(&self, delay: Duration, payload: T) -> Result<TimerId, ScheduleError<T>> {
        self.schedule_at(self.now() + delay, payload)
    }

    /// Arms a timer for `deadline`. One in an earlier tick fires on the shard's next turn, one in the present tick when
    /// that ends. Reads no clock.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    #[inline(always)]
    pub fn schedule_at(&self, deadline: Timestamp, payload: T) -> Result<TimerId, ScheduleError<T>> {
        match self.try_schedule_at(deadline, payload) {
            Ok(id) => Ok(id),
            Err(error) => self.wait_for_room(deadline, error),
        }
    }

    /// As [`schedule`](Self::schedule), but never waits.
    ///
    /// # Errors
    ///
    /// When the lane or the engine is full or the engine shut down; the payload comes back.
    #[inline(always)]
    pub fn try_schedule(&self, delay: Duration, payload: T) -> Result<TimerId, ScheduleError<T>> {
        self.try_schedule_at(self.now() + delay, payload)
    }

    /// As [`schedule_at`](Self::schedule_at), but never waits.
    ///
    /// # Errors
    ///
    /// As [`try_schedule`](Self::try_schedule).
    #[inline(always)]
    pub fn try_schedule_at(&self, deadline: Timestamp, payload: T) -> Result<TimerId, ScheduleError<T>> {
        schedule(&self.core, &mut lend(&self.core), deadline, payload)
    }

    /// Arms many timers with one publication and at most one wake of the shard. Reads the clock once.
    ///
    /// # Errors
    ///
    /// When some were refused; they come back, and the ids of those that were not. A batch is not cut: it may fill
    /// the lane beyond its capacity.
    pub fn schedule_batch(
        &self,
        batch: impl IntoIterator<Item = (Duration, T)>,
    ) -> Result<Vec<TimerId>, BatchError<T>> {
        let now = self.now();
        let batch = batch.into_iter().map(|(delay, payload)| (now + delay, payload)).collect();
        batch_result(&self.core, batch, |batch| self.core.schedule_batch(&mut lend(&self.core), batch))
    }

    /// A timer of one's own, to be armed and disarmed any number of times: see [`Timer`]. Each time that it fires, the
    /// handler gets a clone of the payload.
    ///
    /// # Errors
    ///
    /// When the engine is full or shut down; the payload comes back.
    ///
    /// # Time complexity
    ///
    /// O(1), and no lock but for the first timer of a thread; nothing is posted before it is armed.
    pub fn timer(&self, payload: T) -> Result<Timer<T>, ScheduleError<T>>
    where
        T: Clone,
    {
        self.core.clone_payloads_by(T::clone);
        Timer::new(&self.core, payload)
    }

    /// Takes a pending timer back.
    ///
    /// # Cancellation
    ///
    /// After [`Cancel::Cancelled`] the handler does not run and has not begun. [`Cancel::Running`] means that it has
    /// begun and may not have ended; nothing is waited for. [`Cancel::Gone`] is everything else: fired, cancelled or
    /// returned before. In a race with the firing one side wins, and both hear which.
    ///
    /// # Time complexity
    ///
    /// O(1), one compare-and-swap. The slot is free at once; the 16-byte ticket goes when it is next looked at.
    #[inline(always)]
    pub fn cancel(&self, id: TimerId) -> Cancel<T> {
        self.core.cancel(&mut lend(&self.core), id)
    }

    /// As [`cancel`](Self::cancel), but waits until a handler that has begun has ended: it never answers
    /// [`Cancel::Running`], except inside a handler of this engine and on the threads of its rayon pool, where it does not
    /// wait for fear of waiting for itself. Work that a handler hands to another thread and waits for must not call it.
    pub fn cancel_and_wait(&self, id: TimerId) -> Cancel<T> {
        let outcome = self.cancel(id);
        if !matches!(outcome, Cancel::Running) || self.core.must_not_wait_here() {
            return outcome;
        }
        self.core.wait_for_end(id);
        Cancel::Gone
    }

    /// Moves a pending timer to `delay` from now, under a new id; the old one is stale. The payload stays where it is.
    /// Waits for room in the lane as [`schedule`](Self::schedule) does.
    ///
    /// # Errors
    ///
    /// When the timer runs or is gone; when the engine is shut down at that moment, with the payload; and with
    /// [`LaneFull`](RescheduleError::LaneFull) where waiting would be for oneself, the timer being as it was.
    pub fn reschedule(&self, id: TimerId, delay: Duration) -> Result<TimerId, RescheduleError<T>> {
        self.reschedule_at(id, self.now() + delay)
    }

    /// As [`reschedule`](Self::reschedule), to an absolute moment. Reads no clock.
    ///
    /// # Errors
    ///
    /// As [`reschedule`](Self::reschedule).
    pub fn reschedule_at(&self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<T>> {
        move_when_there_is_room(&self.core, || self.core.reschedule(&mut lend(&self.core), id, deadline))
    }

    /// The deadline of a pending timer, `None` when it is not pending.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        self.core.deadline(id)
    }

    /// How long a pending timer still has; zero when it is due and not yet fired, `None` when it is not pending.
    #[must_use]
    pub fn remaining(&self, id: TimerId) -> Option<Duration> {
        Some(self.deadline(id)? - self.now())
    }

    /// Pending timers. Counted over all threads' counters, so not of one instant while they go on.
    ///
    /// # Time complexity
    ///
    /// O(threads + shards).
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.core.totals().pending()).unwrap_or(usize::MAX)
    }

    /// Whether no timer is pending, as [`len`](Self::len) counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A snapshot of all counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.core)
    }

    /// How the engine is at this moment: in one word what is wrong, and why. It tells nothing of what has passed; that is in
    /// [`stats`](Self::stats).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Condition};
    ///
    /// let mut engine = Builder::new().capacity(4).build_driven(|_| {})?;
    /// assert!(engine.handle().health().is_well());
    /// for _ in 0..4 {
    ///     engine.handle().schedule(Duration::from_secs(1), ())?;
    /// }
    /// assert_eq!(engine.handle().health().condition, Condition::Full);
    /// assert_eq!(engine.handle().health().to_string(), "full: 4 of 4 slots are in use");
    /// engine.advance(Duration::from_secs(1));
    /// assert_eq!(engine.handle().health().to_string(), "well: 0 of 4 slots are in use");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Time complexity
    ///
    /// O(threads + shards).
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.core)
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.core.shards().len()
    }

    /// A producer for the calling thread's home shard: no thread-local look-up per call.
    #[must_use]
    pub fn producer(&self) -> Producer<T> {
        Producer::new(self.clone(), engine::home_of_current_thread(&self.core))
    }

    /// A producer for shard `shard`, counted modulo the number of shards.
    #[must_use]
    pub fn producer_on(&self, shard: usize) -> Producer<T> {
        Producer::new(self.clone(), shard % self.shards())
    }

    /// Ends the engine: refuses new timers, stops the shards, waits for running handlers and returns every timer that
    /// had not fired. Afterwards `fired + cancelled + returned = scheduled`.
    ///
    /// A call that races with it either gets its timer accounted for or its payload back. A second shutdown waits for the
    /// first and returns nothing. Inside a handler of this engine, and on the threads of its rayon pool, nothing is waited
    /// for: handlers that run end by themselves, and none begins. Work that a handler hands to another thread and waits for
    /// must not call it.
    #[must_use = "the payloads of timers that had not fired"]
    pub fn shutdown(&self) -> Vec<Unfired<T>> {
        self.core.shut_down()
    }

    /// Whether the engine was shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.core.is_shut_down()
    }

    /// Whether this process is the child of a fork, made after the engine was built: its threads are in the parent, and
    /// nothing fires here. Every call is refused; [`is_shut_down`](Self::is_shut_down) is true as well.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.core.is_forked()
    }

    #[cold]
    fn wait_for_room(
        &self,
        deadline: Timestamp,
        error: ScheduleError<T>,
    ) -> Result<TimerId, ScheduleError<T>> {
        wait_for_room(&self.core, error, |payload| self.try_schedule_at(deadline, payload))
    }

    pub(crate) fn from_core(core: StdArc<Core<T>>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &StdArc<Core<T>> {
        &self.core
    }
}

impl<T: Send + 'static> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self { core: StdArc::clone(&self.core) }
    }
}

impl<T: Send + 'static> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

/// One attempt to schedule, on whosever lane.
#[inline(always)]
pub(crate) fn schedule<T: Send + 'static>(
    core: &Core<T>,
    local: &mut Local,
    deadline: Timestamp,
    payload: T,
) -> Result<TimerId, ScheduleError<T>> {
    match core.reserve(local) {
        Ok(slot) => core.schedule(local, slot, deadline, payload).map_err(|payload| refused(core, payload)),
        Err(refusal) => Err(ScheduleError { kind: refusal.into(), payload }),
    }
}

#[cold]
fn refused<T: Send + 'static>(core: &Core<T>, payload: T) -> ScheduleError<T> {
    let kind = if core.is_forked() { ScheduleErrorKind::Forked } else { ScheduleErrorKind::ShutDown };
    ScheduleError { kind, payload }
}

/// Tries again until there is room in the lane, waking the shards meanwhile, where waiting can help.
#[cold]
pub(crate) fn wait_for_room<T: Send + 'static>(
    core: &Core<T>,
    mut error: ScheduleError<T>,
    mut attempt: impl FnMut(T) -> Result<TimerId, ScheduleError<T>>,
) -> Result<TimerId, ScheduleError<T>> {
    let mut rounds = 0;
    while error.kind == ScheduleErrorKind::LaneFull && core.may_wait_for_shards() {
        back_off(core, rounds);
        rounds += 1;
        match attempt(error.payload) {
            Ok(id) => return Ok(id),
            Err(another) => error = another,
        }
    }
    Err(error)
}

/// Lets the shards run: yields at first, sleeps then. Not by parking, which would take the token that somebody left for the
/// caller: a `block_on` lives by it.
pub(crate) fn back_off<T: Send + 'static>(core: &Core<T>, round: u32) {
    for shard in core.shards() {
        shard.parker.wake_if_asleep();
    }
    if round < 16 {
        thread::yield_now();
    } else {
        crate::sync::sleep(Duration::from_micros(100));
    }
}

pub(crate) fn batch_result<T: Send + 'static>(
    core: &Core<T>,
    mut batch: Vec<(Timestamp, T)>,
    mut attempt: impl FnMut(Vec<(Timestamp, T)>) -> BatchOutcome<T>,
) -> Result<Vec<TimerId>, BatchError<T>> {
    let mut rounds = 0;
    loop {
        match attempt(batch) {
            (ids, None) => return Ok(ids),
            (_, Some((Refusal::LaneFull, refused))) if core.may_wait_for_shards() => batch = refused,
            (scheduled, Some((refusal, refused))) => {
                return Err(BatchError { kind: refusal.into(), scheduled, refused });
            }
        }
        back_off(core, rounds);
        rounds += 1;
    }
}

pub(crate) fn move_when_there_is_room<T: Send + 'static>(
    core: &Core<T>,
    mut attempt: impl FnMut() -> Moved<T>,
) -> Result<TimerId, RescheduleError<T>> {
    let mut rounds = 0;
    loop {
        match attempt() {
            Moved::To(id) => return Ok(id),
            Moved::Running => return Err(RescheduleError::Running),
            Moved::Gone => return Err(RescheduleError::Gone),
            Moved::CutOff(payload) if core.is_forked() => return Err(RescheduleError::Forked(payload)),
            Moved::CutOff(payload) => return Err(RescheduleError::ShutDown(payload)),
            // A shutdown is on its way, and returns the timer.
            Moved::Not(Refusal::ShutDown) => return Err(RescheduleError::Gone),
            Moved::Not(_) if !core.may_wait_for_shards() => return Err(RescheduleError::LaneFull),
            Moved::Not(_) => {}
        }
        back_off(core, rounds);
        rounds += 1;
    }
}
