//! The engine as users see it: the engine itself, its handles, and the argument of a handler.

use crate::base::error::{BatchError, Refusal, RescheduleError, ScheduleError};
use crate::base::sync::{StdArc, thread};
use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use crate::base::trace;
use crate::engine::{self, Cancel, Core, Handler, Local, Moment, Payload, Settings, Timers, Unfired, lend};
use crate::report::health::Health;
use crate::report::stats::Stats;
use crate::shard::Owner;
use core::fmt;
use core::time::Duration;

/// A running timer engine for payloads of type `T`. It owns the timers.
///
/// A program uses the engine through its [`handle`](Self::handle). Dropping the engine shuts it down and drops the
/// payloads of timers that had not fired, even if handles are left. The handler and the workers are dropped with the
/// last handle or job.
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

    /// Returns a handle to this engine. A program clones the handle for other threads. A handle does not keep the
    /// engine alive: once the engine is dropped, its handles refuse timers.
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
    /// An engine has no `clone`. If it had, the following example would compile, and `timers` would be a handle of an
    /// engine that ends with the statement:
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

/// A timer that fires: the argument of the handler.
pub struct Fired<'a, T: Send + 'static> {
    /// The moment for which the timer was armed.
    pub deadline: Timestamp,
    /// The payload that was scheduled with the timer. For a [`Timer`](crate::Timer), it is a clone of the timer's
    /// payload.
    pub payload: T,
    pub(crate) moment: Moment<'a>,
    pub(crate) core: &'a StdArc<Core<T>>,
}

impl<'a, T: Send + 'static> Fired<'a, T> {
    pub(crate) fn new(due: engine::Due<'a, T>, core: &'a StdArc<Core<T>>) -> Self {
        let engine::Due { moment, payload } = due;
        let payload = match payload {
            Payload::Taken(payload) => payload,
            Payload::Kept(payload) => core.timers().clone_payload(payload),
        };
        Self { deadline: moment.deadline, payload, moment, core }
    }

    /// Returns the time that has passed since the deadline: at the start of the handler, how late the timer fires.
    /// Reads the engine's clock, so a handler that does not call this method saves the reading.
    #[must_use]
    pub fn lateness(&self) -> Duration {
        self.moment.lateness()
    }

    /// Returns the timer's id. The id of a one-shot is stale once the handler has returned.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.moment.id()
    }

    /// Returns a handle to the engine that fired the timer, so that the handler can schedule timers.
    ///
    /// A handler should not hold a handle of its own instead: such a handle would keep the handler and the engine's
    /// memory alive for ever.
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
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// A handle to an engine, for any thread. Cloning is cheap.
///
/// A handle does not keep the engine running. After a shutdown, the handle refuses new timers, and earlier timers are
/// gone.
///
/// # Which shard
///
/// A thread's timers go to one shard, which the engine chooses at the thread's first call. The engine prefers a shard
/// that is pinned to the thread's present core. If the thread runs an event loop with a
/// [`LoopShard`](crate::LoopShard), the engine chooses the loop's shard. [`use_shard`](Self::use_shard) chooses another
/// shard.
pub struct Handle<T: Send + 'static> {
    core: StdArc<Core<T>>,
}

impl<T: Send + 'static> Handle<T> {
    /// Returns the present moment on the engine's clock, from which a program counts deadlines. The returned moment is
    /// not before the true moment. On the default clock it is at most 12 µs ahead (see
    /// [`MonotonicClock`](crate::MonotonicClock)).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.core.clock().now()
    }

    /// Returns whether `deadline` has come by the true clock, which decides when handlers begin.
    #[inline]
    #[must_use]
    pub fn has_come(&self, deadline: Timestamp) -> bool {
        self.core.clock().has_come(deadline)
    }

    /// Returns the length of a tick. Deadlines are rounded up to a whole tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.core.tick().as_duration()
    }

    /// Arms a timer that fires `delay` from now, or later; never earlier.
    ///
    /// The call waits while this thread's lane (its queue to the shard) is full. A zero delay fires when the present
    /// tick ends. [`Duration::MAX`] means never: the end of time is 584 years after the clock's origin.
    ///
    /// # Errors
    ///
    /// Fails if the engine is full or shut down. The error returns the payload. If the lane is full and the caller
    /// would wait for itself, the call fails with [`LaneFull`](crate::Refusal::LaneFull): in a handler that runs
    /// inline, and on an engine without threads. A handler that schedules into a full lane of another engine may wait
    /// for that engine. If the handlers of two engines schedule on each other's engine, they should call
    /// [`try_schedule`](Self::try_schedule).
    ///
    /// # Time complexity
    ///
    /// O(1): one clock read, no lock, and no cache line that other producers write. There are two exceptions. A
    /// thread's first call on an engine takes a lock for a few instructions, to get a lane. When a thread's stock of
    /// vacant slots is used up (256 slots, fewer in a small or nearly full engine), the call changes a word that all
    /// producers share.
    #[inline(always)]
    pub fn schedule(&self, delay: Duration, payload: T) -> Result<TimerId, ScheduleError<T>> {
        self.schedule_at(self.now() + delay, payload)
    }

    /// Arms a timer for `deadline`. If the deadline is in an earlier tick, the timer fires in the shard's next turn. If
    /// the deadline is in the present tick, the timer fires when that tick ends. The call reads no clock.
    ///
    /// The lateness of a timer counts from its deadline, even if the deadline had passed when the timer was scheduled.
    /// [`Timestamp::ZERO`] is not the present: on the default clock it is at least a day ago, so a timer for it fires
    /// at once and a day late. To fire a timer at once without lateness, call [`schedule`](Self::schedule) with a delay
    /// of zero.
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

    /// Arms a timer as [`schedule`](Self::schedule) does, but never waits.
    ///
    /// # Errors
    ///
    /// Fails if the lane or the engine is full, or if the engine is shut down. The error returns the payload.
    #[inline(always)]
    pub fn try_schedule(&self, delay: Duration, payload: T) -> Result<TimerId, ScheduleError<T>> {
        self.try_schedule_at(self.now() + delay, payload)
    }

    /// Arms a timer as [`schedule_at`](Self::schedule_at) does, but never waits.
    ///
    /// # Errors
    ///
    /// Fails as [`try_schedule`](Self::try_schedule) does.
    #[inline(always)]
    pub fn try_schedule_at(&self, deadline: Timestamp, payload: T) -> Result<TimerId, ScheduleError<T>> {
        schedule(self.core.timers(), &mut lend(self.core.admission()), deadline, payload)
    }

    /// Arms many timers, each with a delay from now. Publishes all timers at once, with at most one wake-up of the
    /// shard. Reads the clock once.
    ///
    /// # Errors
    ///
    /// Fails if some timers were refused. The error returns these timers, and the ids of the timers that were
    /// scheduled. A full lane does not split a batch: the batch may fill the lane beyond its capacity.
    pub fn schedule_batch(
        &self,
        batch: impl IntoIterator<Item = (Duration, T)>,
    ) -> Result<Vec<TimerId>, BatchError<T>> {
        let now = self.now();
        self.schedule_batch_at(batch.into_iter().map(|(delay, payload)| (now + delay, payload)))
    }

    /// Arms many timers as [`schedule_batch`](Self::schedule_batch) does, but for absolute deadlines. Reads no clock.
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

    /// Cancels a pending timer and returns its payload. `id` must come from this engine: an id of another engine may
    /// name a timer of this one.
    ///
    /// # Cancellation
    ///
    /// After [`Cancel::Cancelled`] the handler does not run and has not begun. [`Cancel::Running`] means that the
    /// handler has begun and may not have ended; the call does not wait. [`Cancel::Gone`] means that the timer was
    /// fired, cancelled or returned before. If a cancel races with the firing, exactly one of the two happens.
    ///
    /// # Time complexity
    ///
    /// O(1), one compare-and-swap. The slot is free at once. The timer's 8-byte ticket (its entry at the shard) stays
    /// until the shard checks the ticket.
    #[inline(always)]
    pub fn cancel(&self, id: TimerId) -> Cancel<T> {
        self.core.timers().cancel(&mut lend(self.core.admission()), id)
    }

    /// Cancels a pending timer as [`cancel`](Self::cancel) does. If the handler has begun, waits until the handler has
    /// ended.
    ///
    /// In four places the call does not wait, because it might wait for itself or for ever: inside a handler of this
    /// engine, on a thread that runs a shard of this engine at that moment, on the threads of the engine's rayon pool,
    /// and in the child of a fork. Only there it may return [`Cancel::Running`]. A thread runs a shard inside a handler
    /// of any engine that runs inline on these shards, in an [`Executor`](crate::Executor) that a shard calls, and in
    /// the turn of a [loop](crate::LoopShard). If a handler hands work to another thread and waits for the work, the
    /// work must not call this method.
    pub fn cancel_and_wait(&self, id: TimerId) -> Cancel<T> {
        let outcome = self.cancel(id);
        if !matches!(outcome, Cancel::Running) || self.core.membership().must_not_wait_here() {
            return outcome;
        }
        self.core.wait_for_end(id);
        Cancel::Gone
    }

    /// Moves a pending timer to `delay` from now. Returns the timer's new id; the old id is stale. The payload is not
    /// moved in memory. The call waits for room in the lane as [`schedule`](Self::schedule) does.
    ///
    /// # Errors
    ///
    /// Fails if the timer's handler has begun or the timer is gone. If the engine is shut down, fails with the payload.
    /// If the lane is full and the caller would wait for itself, fails with [`LaneFull`](RescheduleError::LaneFull);
    /// the timer is then unchanged.
    pub fn reschedule(&self, id: TimerId, delay: Duration) -> Result<TimerId, RescheduleError<T>> {
        self.reschedule_at(id, self.now() + delay)
    }

    /// Moves a pending timer as [`reschedule`](Self::reschedule) does, but to an absolute moment. Reads no clock.
    ///
    /// # Errors
    ///
    /// Fails as [`reschedule`](Self::reschedule) does.
    pub fn reschedule_at(&self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<T>> {
        move_when_there_is_room(&self.core, || self.try_reschedule_at(id, deadline))
    }

    /// Moves a pending timer as [`reschedule_at`](Self::reschedule_at) does, but never waits.
    ///
    /// # Errors
    ///
    /// Fails as [`reschedule`](Self::reschedule) does. If the lane is full, fails with
    /// [`LaneFull`](RescheduleError::LaneFull); the timer is then unchanged.
    pub fn try_reschedule_at(&self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<T>> {
        self.core.timers().reschedule(&mut lend(self.core.admission()), id, deadline)
    }

    /// Returns the deadline of a pending timer, or `None` if the timer is not pending.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        self.core.timers().deadline(id)
    }

    /// Returns the time until a pending timer is due. Returns zero if the timer is due and has not fired yet, and
    /// `None` if the timer is not pending.
    #[must_use]
    pub fn remaining(&self, id: TimerId) -> Option<Duration> {
        Some(self.deadline(id)? - self.now())
    }

    /// Returns the number of pending timers: a sum over the counters of all threads. While other threads schedule and
    /// cancel, the sum may be slightly wrong.
    ///
    /// # Time complexity
    ///
    /// O(threads + shards).
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.core.admission().stations().totals().pending()).unwrap_or(usize::MAX)
    }

    /// Returns whether no timer is pending, by the count of [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a snapshot of all counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.core)
    }

    /// Returns the engine's condition at this moment, as one word and a reason. [`stats`](Self::stats) has the counts
    /// since the start.
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

    /// Returns the number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.core.set().shards().len()
    }

    /// Chooses the shard to which the calling thread's timers of this engine go from now on. `shard` counts modulo the
    /// number of shards.
    ///
    /// Timers that were scheduled before stay on their shard. The choice holds until the thread chooses again or ends.
    /// The choice affects only the calling thread. A handler runs on one of the engine's threads, so a handler's choice
    /// holds for later handlers on that thread, too. The call cannot fail. After a shutdown, and in the child of a
    /// fork, it has no effect.
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
    /// If a call that schedules a timer races with the shutdown, either the timer is in this account or the call
    /// returns the payload. A second shutdown waits for the first and returns nothing.
    ///
    /// In four places the shutdown does not wait, because it might wait for itself or for ever. They are the places in
    /// which [`cancel_and_wait`](Self::cancel_and_wait) does not wait. Then running handlers end later, and no further
    /// handler begins. Elsewhere the shutdown waits until each shard has dropped the engine. So the caller must hold no
    /// lock that an inline handler on these shards takes, and no lock that a waker takes. If a handler hands work to
    /// another thread and waits for the work, the work must not call this method.
    #[must_use = "the payloads of timers that had not fired"]
    pub fn shutdown(&self) -> Vec<Unfired<T>> {
        self.core.shut_down()
    }

    /// Returns whether the engine was shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.core.admission().is_shut_down()
    }

    /// Returns whether this process is the child of a fork, and the engine was built before the fork. The engine's
    /// threads are in the parent, so nothing fires in the child. In the child, calls that schedule, move or arm timers
    /// are refused as `Forked`. Timers can be cancelled and disarmed, and [`shutdown`](Self::shutdown) returns the
    /// rest. [`is_shut_down`](Self::is_shut_down) returns true, too.
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

/// Makes one attempt to schedule a timer, through the lane of the calling thread. `local` is this thread's part of the
/// engine. Does not wait.
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

/// Repeats `attempt` until the calling thread's lane has room. After each failed attempt, wakes the shards to drain the
/// lane. Fails at once if the calling thread would wait for itself.
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

/// Makes room in the calling thread's lane, or waits a little for the shards to make room. Returns false if the thread
/// can neither make room nor wait.
pub(crate) fn gets_room<T: Send + 'static>(core: &Core<T>, round: u32) -> bool {
    if core.set().is_of_loops() {
        core.set().drain_loops();
        // If the lane has no room afterwards, it is the lane of a loop that is in a turn.
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

/// Wakes the shards and lets them run: yields in the first rounds, and sleeps in later rounds. The function does not
/// park, because a park would consume an unpark that is meant for the caller. For example, a `block_on` on this thread
/// may wait for it.
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
