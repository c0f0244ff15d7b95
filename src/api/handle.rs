//! The engine as its users see it: the owner, the handles, and the argument of a handler.

use crate::base::error::{BatchError, Refusal, RescheduleError, ScheduleError};
use crate::base::sync::{StdArc, thread};
use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use crate::base::trace;
use crate::engine::{self, Cancel, Core, DueId, Handler, Local, Payload, Settings, Timers, Unfired, lend};
use crate::report::health::Health;
use crate::report::stats::Stats;
use crate::shard::Owner;
use core::fmt;
use core::time::Duration;

/// A running timer engine for payloads of type `T`: the owner of its timers.
///
/// A program uses the engine through its [`handle`](Self::handle). Dropping the engine shuts it down and drops the
/// payloads of timers that had not fired, however many handles there are. The handler itself and the workers are
/// dropped with the last handle or job.
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
    pub(crate) fn start(owner: &StdArc<Owner>, settings: Settings, handler: Handler<T>) -> Self {
        let core = Core::start(owner, settings, handler);
        let (engine, stations) = (core.admission().engine(), core.admission().stations().all());
        trace::started(engine, stations.len(), core.tick().as_duration(), core.membership().workers());
        Self { handle: Handle { core } }
    }

    /// A handle to this engine, to be cloned for other threads. A handle does not keep the engine alive: once the
    /// engine is dropped, its handles refuse timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::{Builder, Fired};
    ///
    /// let engine = Builder::new().start(|_: Fired<'_, u32>| {})?;
    /// let timers = engine.handle().clone();
    /// drop(engine);
    /// assert!(timers.is_shut_down());
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    ///
    /// An engine has no `clone`. With such a method, this example would keep a handle of an engine that ends with the
    /// statement:
    ///
    /// ```compile_fail,E0599
    /// # use tourbillon::Builder;
    /// let timers = Builder::new().start_futures()?.clone();
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        &self.handle
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

/// A fired timer, as its handler gets it.
pub struct Fired<'a, T: Send + 'static> {
    /// The moment for which the timer was armed.
    pub deadline: Timestamp,
    /// How long after the deadline the handler began.
    pub lateness: Duration,
    /// The payload that was scheduled with the timer; for a [`Timer`](crate::Timer), a clone of its payload.
    pub payload: T,
    pub(crate) id: DueId<'a>,
    pub(crate) core: &'a StdArc<Core<T>>,
}

impl<'a, T: Send + 'static> Fired<'a, T> {
    pub(crate) fn new(due: engine::Due<'a, T>, core: &'a StdArc<Core<T>>) -> Self {
        let engine::Due { id, deadline, lateness, payload } = due;
        let payload = match payload {
            Payload::Taken(payload) => payload,
            Payload::Kept(payload) => core.timers().clone_payload(payload),
        };
        Self { deadline, lateness, payload, id, core }
    }

    /// The timer's id. That of a one-shot is stale once the handler has returned.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.id.get()
    }

    /// The engine that fired the timer, to schedule from the handler.
    ///
    /// If a handler holds a handle of its own instead, it keeps itself and the engine's memory alive for ever.
    #[must_use]
    pub fn engine(&self) -> Handle<T> {
        Handle { core: StdArc::clone(self.core) }
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Fired<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fired")
            .field("id", &self.id())
            .field("deadline", &self.deadline)
            .field("lateness", &self.lateness)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// A handle to an engine, for any thread. Cloning is cheap.
///
/// A handle does not keep the engine running: after a shutdown it refuses new timers, and earlier timers are gone.
///
/// # Which shard
///
/// A thread's timers go to one shard. The engine chooses the shard at the thread's first call: the shard that is pinned
/// to the core on which the thread runs at that moment, if there is one. On a thread that runs an event loop with a
/// [`LoopShard`](crate::LoopShard), it is the loop's shard. [`use_shard`](Self::use_shard) chooses
/// another shard.
pub struct Handle<T: Send + 'static> {
    core: StdArc<Core<T>>,
}

impl<T: Send + 'static> Handle<T> {
    /// The present moment on the engine's clock, to count deadlines from. The returned moment is not before the true
    /// moment, and on the default clock at most 12 µs ahead of it (see [`MonotonicClock`](crate::MonotonicClock)).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.core.clock().now()
    }

    /// Whether `deadline` has come by the true clock, which decides when handlers begin.
    #[inline]
    #[must_use]
    pub fn has_come(&self, deadline: Timestamp) -> bool {
        self.core.clock().has_come(deadline)
    }

    /// The length of a tick: deadlines are rounded up to a whole tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.core.tick().as_duration()
    }

    /// Arms a timer that fires `delay` from now, or later; never earlier.
    ///
    /// The call waits while the shard is behind with this thread's tickets. A zero delay fires when the present tick
    /// ends. [`Duration::MAX`] means never: the end of time is 584 years after the clock's origin.
    ///
    /// # Errors
    ///
    /// Fails if the engine is full or shut down; the error returns the payload. Fails with
    /// [`LaneFull`](crate::Refusal::LaneFull) where the caller would wait for itself: in a handler that runs inline,
    /// and on an engine without threads. A handler that schedules into a full lane of another engine may wait for the
    /// other engine. If the handlers of two engines schedule on each other, they should call
    /// [`try_schedule`](Self::try_schedule).
    ///
    /// # Time complexity
    ///
    /// O(1): one clock read, no lock, and no cache line that other producers write. There are two exceptions. A
    /// thread's first call on an engine takes a lock for a few instructions, for a lane. Once for each stock of vacant
    /// slots (256, fewer in a small or nearly full engine) a call changes a word that all producers share.
    #[inline(always)]
    pub fn schedule(&self, delay: Duration, payload: T) -> Result<TimerId, ScheduleError<T>> {
        self.schedule_at(self.now() + delay, payload)
    }

    /// Arms a timer for `deadline`. A timer whose deadline is in an earlier tick fires on the shard's next turn; a
    /// timer whose deadline is in the present tick fires when that tick ends. Reads no clock.
    ///
    /// The lateness of a timer counts from its deadline, also if the deadline had passed when the timer was scheduled.
    /// [`Timestamp::ZERO`] is the clock's origin, at least a day ago on the default clock, and not the present: a timer
    /// for that moment fires at once, a day late. For a timer that is due at once, and not late, there is
    /// [`schedule`](Self::schedule) with a delay of zero.
    ///
    /// # Errors
    ///
    /// Fails as [`schedule`](Self::schedule) does.
    #[inline(always)]
    pub fn schedule_at(&self, deadline: Timestamp, payload: T) -> Result<TimerId, ScheduleError<T>> {
        match self.try_schedule_at(deadline, payload) {
            Ok(id) => Ok(id),
            Err(error) => self.wait_for_room(deadline, error),
        }
    }

    /// Like [`schedule`](Self::schedule), but never waits.
    ///
    /// # Errors
    ///
    /// Fails if the lane or the engine is full, or if the engine is shut down; the error returns the payload.
    #[inline(always)]
    pub fn try_schedule(&self, delay: Duration, payload: T) -> Result<TimerId, ScheduleError<T>> {
        self.try_schedule_at(self.now() + delay, payload)
    }

    /// Like [`schedule_at`](Self::schedule_at), but never waits.
    ///
    /// # Errors
    ///
    /// Fails as [`try_schedule`](Self::try_schedule) does.
    #[inline(always)]
    pub fn try_schedule_at(&self, deadline: Timestamp, payload: T) -> Result<TimerId, ScheduleError<T>> {
        schedule(self.core.timers(), &mut lend(self.core.admission()), deadline, payload)
    }

    /// Arms many timers with one publication and at most one wake-up of the shard. Reads the clock once.
    ///
    /// # Errors
    ///
    /// Fails if some timers were refused; the error returns these timers, and the ids of the timers that were
    /// scheduled. A batch is not split: it may fill the lane beyond its capacity.
    pub fn schedule_batch(
        &self,
        batch: impl IntoIterator<Item = (Duration, T)>,
    ) -> Result<Vec<TimerId>, BatchError<T>> {
        let now = self.now();
        self.schedule_batch_at(batch.into_iter().map(|(delay, payload)| (now + delay, payload)))
    }

    /// Like [`schedule_batch`](Self::schedule_batch), but for absolute deadlines. Reads no clock.
    ///
    /// # Errors
    ///
    /// Fails as [`schedule_batch`](Self::schedule_batch) does.
    pub fn schedule_batch_at(
        &self,
        batch: impl IntoIterator<Item = (Timestamp, T)>,
    ) -> Result<Vec<TimerId>, BatchError<T>> {
        let batch = batch.into_iter().collect();
        let timers = self.core.timers();
        batch_result(&self.core, batch, |batch| timers.schedule_batch(&mut lend(timers.admission()), batch))
    }

    /// Cancels a pending timer and returns its payload.
    ///
    /// # Cancellation
    ///
    /// After [`Cancel::Cancelled`] the handler does not run and has not begun. [`Cancel::Running`] means that the
    /// handler has begun and may not have ended; the call does not wait. [`Cancel::Gone`] covers everything else: the
    /// timer was fired, cancelled or returned before. In a race with the firing exactly one side wins, and both sides
    /// know which.
    ///
    /// # Time complexity
    ///
    /// O(1), one compare-and-swap. The slot is free at once; the 16-byte ticket is dropped when the engine next looks
    /// at it.
    #[inline(always)]
    pub fn cancel(&self, id: TimerId) -> Cancel<T> {
        self.core.timers().cancel(&mut lend(self.core.admission()), id)
    }

    /// Like [`cancel`](Self::cancel), but if the handler has begun, the call waits until the handler has ended. The
    /// call does not wait where it might wait for itself: inside a handler of this engine, inside a handler of any
    /// engine that runs inline on the same shards, and on the threads of the engine's rayon pool. There it may return
    /// [`Cancel::Running`]; elsewhere it never does. If a handler hands work to another thread and waits for the work,
    /// the work must not call this method.
    pub fn cancel_and_wait(&self, id: TimerId) -> Cancel<T> {
        let outcome = self.cancel(id);
        if !matches!(outcome, Cancel::Running) || self.core.membership().must_not_wait_here() {
            return outcome;
        }
        self.core.wait_for_end(id);
        Cancel::Gone
    }

    /// Moves a pending timer to `delay` from now, under a new id; the old id is stale. The payload stays where it is.
    /// The call waits for room in the lane as [`schedule`](Self::schedule) does.
    ///
    /// # Errors
    ///
    /// Fails if the timer runs or is gone. Fails with the payload if the engine is shut down at that moment. Fails with
    /// [`LaneFull`](RescheduleError::LaneFull) where the caller would wait for itself; the timer is then unchanged.
    pub fn reschedule(&self, id: TimerId, delay: Duration) -> Result<TimerId, RescheduleError<T>> {
        self.reschedule_at(id, self.now() + delay)
    }

    /// Like [`reschedule`](Self::reschedule), but to an absolute moment. Reads no clock.
    ///
    /// # Errors
    ///
    /// Fails as [`reschedule`](Self::reschedule) does.
    pub fn reschedule_at(&self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<T>> {
        move_when_there_is_room(&self.core, || self.try_reschedule_at(id, deadline))
    }

    /// Like [`reschedule_at`](Self::reschedule_at), but never waits.
    ///
    /// # Errors
    ///
    /// Fails as [`reschedule`](Self::reschedule) does. Fails with [`LaneFull`](RescheduleError::LaneFull) if the lane
    /// is full; the timer is then unchanged.
    pub fn try_reschedule_at(&self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<T>> {
        self.core.timers().reschedule(&mut lend(self.core.admission()), id, deadline)
    }

    /// The deadline of a pending timer; `None` if the timer is not pending.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        self.core.timers().deadline(id)
    }

    /// The time until a pending timer is due; zero if the timer is due and has not fired yet, `None` if it is not
    /// pending.
    #[must_use]
    pub fn remaining(&self, id: TimerId) -> Option<Duration> {
        Some(self.deadline(id)? - self.now())
    }

    /// The number of pending timers. It is a sum of all threads' counters. While other threads go on, the sum may be
    /// the number at no instant.
    ///
    /// # Time complexity
    ///
    /// O(threads + shards).
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.core.admission().stations().totals().pending()).unwrap_or(usize::MAX)
    }

    /// Whether no timer is pending, by the count of [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A snapshot of all counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.core)
    }

    /// The engine's condition at this moment, as one word and a reason. For history see [`stats`](Self::stats).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Condition};
    ///
    /// let mut engine = Builder::new().capacity(4).driven(|_| {})?;
    /// assert!(engine.handle().health().is_healthy());
    /// for _ in 0..4 {
    ///     engine.handle().schedule(Duration::from_secs(1), ())?;
    /// }
    /// assert_eq!(engine.handle().health().condition, Condition::Full);
    /// assert_eq!(engine.handle().health().to_string(), "full: 4 of 4 slots are in use");
    /// engine.advance(Duration::from_secs(1));
    /// assert_eq!(engine.handle().health().to_string(), "healthy: 0 of 4 slots are in use");
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
        self.core.set().shards().len()
    }

    /// Chooses the shard to which the calling thread's timers of this engine go from now on, counted modulo the number
    /// of shards.
    ///
    /// Timers that were scheduled before stay on their shard. The choice holds until the thread chooses again or ends;
    /// the choice is the calling thread's own, so it races with no other thread. A handler runs on one of the engine's
    /// threads, and a handler's choice holds for the later handlers on that thread. The call cannot fail; after a
    /// shutdown, and in the child of a fork, it has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Fired};
    ///
    /// let mut engine = Builder::new().shards(2).driven(|_: Fired<'_, u64>| {})?;
    /// let timers = engine.handle();
    /// for connection in 0..10 {
    ///     timers.use_shard(connection as usize);
    ///     timers.schedule(Duration::from_secs(30), connection)?;
    /// }
    /// engine.advance(Duration::from_secs(30));
    /// let fired: Vec<u64> = engine.handle().stats().shards.iter().map(|shard| shard.fired).collect();
    /// assert_eq!(fired, [5, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Time complexity
    ///
    /// O(1). If the shard changes, the thread gives up its lane and registers for a lane of the new shard. Both steps
    /// take a lock for a few instructions. Only such calls, a thread's first call on an engine, and threads that end
    /// take this lock.
    pub fn use_shard(&self, shard: usize) {
        let admission = self.core.admission();
        if !admission.is_shut_down() {
            lend(admission).use_shard(admission, shard % self.shards());
        }
    }

    /// Ends the engine: refuses new timers, stops the shards, waits for running handlers and returns every timer that
    /// had not fired. Afterwards `fired + cancelled + returned = scheduled`.
    ///
    /// If another call races with the shutdown, either its timer is accounted for or the call returns the payload. A
    /// second shutdown waits for the first and returns nothing. Inside a handler of this engine, inside a handler that
    /// runs inline on the engine's shards, and on the threads of the engine's rayon pool, the shutdown does not wait:
    /// running handlers end by themselves, and no further handler begins. Elsewhere it waits until each shard has
    /// dropped the engine. The caller must therefore hold no lock that an inline handler on these shards takes, and no
    /// lock that a waker takes. If a handler hands work to another thread and waits for the work, the work must not
    /// call this method.
    #[must_use = "the payloads of timers that had not fired"]
    pub fn shutdown(&self) -> Vec<Unfired<T>> {
        self.core.shut_down()
    }

    /// Whether the engine was shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.core.admission().is_shut_down()
    }

    /// Whether this process is the child of a fork that was made after the engine was built. The engine's threads are
    /// in the parent, and nothing fires in the child. Calls that schedule, move or arm timers are refused as `Forked`.
    /// Timers can be cancelled and disarmed, and [`shutdown`](Self::shutdown) returns the rest.
    /// [`is_shut_down`](Self::is_shut_down) is true as well.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.core.membership().is_forked()
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

/// One attempt to schedule, through the lane of `local`.
#[inline(always)]
pub(crate) fn schedule<T: Send + 'static>(
    timers: &Timers<T>,
    local: &mut Local,
    deadline: Timestamp,
    payload: T,
) -> Result<TimerId, ScheduleError<T>> {
    match local.reserve(timers.admission()) {
        Ok(slot) => {
            timers.schedule(local, slot, deadline, payload).map_err(|payload| refused(timers, payload))
        }
        Err(refusal) => Err(ScheduleError { kind: refusal, payload }),
    }
}

#[cold]
fn refused<T: Send + 'static>(timers: &Timers<T>, payload: T) -> ScheduleError<T> {
    ScheduleError { kind: timers.admission().why_closed(), payload }
}

/// Repeats `attempt` until there is room in the lane, and wakes the shards after each attempt. Fails at once where a
/// wait cannot help.
#[cold]
pub(crate) fn wait_for_room<T: Send + 'static>(
    core: &Core<T>,
    mut error: ScheduleError<T>,
    mut attempt: impl FnMut(T) -> Result<TimerId, ScheduleError<T>>,
) -> Result<TimerId, ScheduleError<T>> {
    let mut rounds = 0;
    while error.kind == Refusal::LaneFull && gets_room(core, rounds) {
        rounds += 1;
        match attempt(error.payload) {
            Ok(id) => return Ok(id),
            Err(another) => error = another,
        }
    }
    Err(error)
}

/// Makes room in the calling thread's lane, or lets the shards do so. Returns false where neither can help.
pub(crate) fn gets_room<T: Send + 'static>(core: &Core<T>, round: u32) -> bool {
    if core.set().is_of_loops() {
        core.set().drain_loops();
        // If there is no room after it, the lane is that of a loop in a turn.
        if round == 0 {
            return true;
        }
    }
    let may_wait = core.membership().may_wait_for_shards();
    if may_wait {
        back_off(core, round);
    }
    may_wait
}

/// Lets the shards run: yields in the first rounds, sleeps in later rounds. It does not park, since parking would take
/// a token that another thread left for the caller; a `block_on` relies on that token.
fn back_off<T: Send + 'static>(core: &Core<T>, round: u32) {
    for station in core.admission().stations().all() {
        station.parker.wake_if_asleep();
    }
    if round < 16 {
        thread::yield_now();
    } else {
        crate::base::sync::sleep(Duration::from_micros(100));
    }
}

pub(crate) fn batch_result<T: Send + 'static>(
    core: &Core<T>,
    mut batch: Vec<(Timestamp, T)>,
    mut attempt: impl FnMut(Vec<(Timestamp, T)>) -> Result<Vec<TimerId>, BatchError<T>>,
) -> Result<Vec<TimerId>, BatchError<T>> {
    let mut rounds = 0;
    loop {
        match attempt(batch) {
            // A batch that finds no room is refused as a whole.
            Err(error) if error.kind == Refusal::LaneFull && gets_room(core, rounds) => {
                batch = error.refused;
            }
            outcome => return outcome,
        }
        rounds += 1;
    }
}

pub(crate) fn move_when_there_is_room<T: Send + 'static>(
    core: &Core<T>,
    mut attempt: impl FnMut() -> Result<TimerId, RescheduleError<T>>,
) -> Result<TimerId, RescheduleError<T>> {
    let mut rounds = 0;
    loop {
        match attempt() {
            Err(RescheduleError::LaneFull) if gets_room(core, rounds) => {}
            outcome => return outcome,
        }
        rounds += 1;
    }
}
