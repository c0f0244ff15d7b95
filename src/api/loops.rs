//! Shards that the event loops of a program turn.

use crate::api::handle::{Handle, schedule, wait_for_room};
use crate::api::shards::Shards;
use crate::api::timer::Timer;
use crate::base::error::{ArmError, RescheduleError, ScheduleError};
use crate::base::sync::StdArc;
use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use crate::dispatch::survives;
use crate::engine::{Armed, Core, come_home, follow_a_loop, lend};
use crate::lockfree::roster::Waking;
use crate::shard::{LoopLeft, Seat, ShardSet};
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

/// A shard that an event loop of the program turns, in place of a thread. It is for servers that have a loop for each
/// core.
///
/// [`Builder::loops`](crate::Builder::loops) makes a set of [`Shards`] with a `LoopShard` for each loop. Engines are
/// made on the set as on any other set. Handlers run inside [`turn`](Self::turn), on the loop's thread; the set has no
/// threads. Timers that the loop's thread schedules or arms go to the loop's shard, from the loop's first
/// [`next_deadline`](Self::next_deadline) or turn on. Other threads use the engine as if the shards had threads: they
/// schedule, move and cancel timers, and [`Handle::on`](crate::Handle::on) chooses the loop.
///
/// A thread may turn several loops of a set. Then the thread's timers go to the loop with the lowest
/// [`index`](Self::index). After that loop was dropped, or turned on another thread, they go to the thread's loop with
/// the next lowest index. If another thread dropped or turned the loop, the change takes effect at this thread's next
/// call of `next_deadline` or `turn`.
///
/// # The loop
///
/// ```text
/// let timeout = shard.timeout(now);           when must I be awake?
/// poll(timeout);                              wakes at once when `wake_by`'s function is called
/// now = Instant::now();
/// ... handle the events, arm and disarm ...
/// shard.turn(now, 256);                       fires what is due
/// ```
/// Before each poll, the loop asks for [`next_deadline`](Self::next_deadline) or [`timeout`](Self::timeout), after its
/// last call that arms a timer. The loop turns after each poll. A turn at which nothing is due takes no lock. If
/// another thread arms a timer that is earlier than the last `next_deadline`, that thread calls the function of
/// [`wake_by`](Self::wake_by). The function must make the present or the next poll return at once. It is called again
/// only for a timer that is earlier still. A task of an asynchronous runtime turns the shard by `turn_as_task` (feature
/// `async`).
///
/// # Time
///
/// `turn` takes the present moment as the argument `now`. A one-shot fires if its deadline is not after `now`, so a
/// `now` in the future fires one-shots early. An owned [`Timer`] fires only if its deadline has passed by the set's
/// clock, too. If `now` is before the `now` of an earlier turn, no timer fires until `now` has caught up with that
/// earlier turn. [`health`](crate::Handle::health) reports a shard that is ahead of the clock.
///
/// # The end
///
/// A `LoopShard` may move to another thread, and is not shared. If it is dropped, no timer is lost: the timers of the
/// shard stay pending. They can be cancelled, [`shutdown`](crate::Handle::shutdown) returns them, or another loop takes
/// the shard by [`Shards::take_loop`] and fires them. Until then [`health`](crate::Handle::health) reports the shard as
/// late. A shard whose loop does not turn is reported as late, too.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use tourbillon::{Builder, Fired, LoopLeft};
///
/// let (shards, mut loops) = Builder::new().loops(2)?;
/// let engine = shards.engine().start(|timer: Fired<'_, &str>| println!("{}", timer.payload))?;
/// let mut shard = loops.remove(0);
///
/// // On the thread of the loop:
/// let mut now = Instant::now();
/// assert_eq!(shard.turn(now, 256), LoopLeft::Nothing);
/// engine.handle().schedule_at((now + Duration::from_millis(5)).into(), "idle: close")?;
/// while engine.handle().stats().fired == 0 {
///     if let Some(timeout) = shard.timeout(now) {
///         std::thread::sleep(timeout);
///     }
///     now = Instant::now();
///     while shard.turn(now, 256) == LoopLeft::More {}
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LoopShard {
    shards: Shards,
    seat: Seat,
    /// The number of departures of the set's loops from their threads, at the last call.
    departures: Cell<u64>,
    is_not_shared: PhantomData<Cell<()>>,
}

impl LoopShard {
    /// Makes the `LoopShard` for the shard with this number. Returns `None` if another loop has that shard.
    fn take(shards: &Shards, index: usize) -> Option<Self> {
        let set = shards.owner().set();
        (!set.is_forked() && set.settings().roster.take_place(index)).then(|| Self {
            shards: shards.clone(),
            seat: Seat::new(index),
            departures: Cell::new(set.settings().roster.departures()),
            is_not_shared: PhantomData,
        })
    }

    fn set(&self) -> &ShardSet {
        self.shards.owner().set()
    }

    /// Returns the number of the shard, for [`Handle::on`](crate::Handle::on).
    #[must_use]
    pub fn index(&self) -> usize {
        self.seat.index()
    }

    /// Returns the set of shards to which this shard belongs.
    #[must_use]
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Sends the calling thread's timers to a loop that runs on this thread, if a loop has left its thread since the
    /// last call.
    #[inline]
    fn follow_departures(&self) {
        let set = self.set();
        let departures = set.settings().roster.departures();
        if self.departures.replace(departures) != departures && !set.is_forked() {
            follow_a_loop_here(set);
        }
    }

    /// Sends the calling thread's timers to the first loop on this thread, because loop `index` has come to the thread.
    /// Sets `departures` to the present number, since the choice takes all departures until now into account.
    fn come_home(set: &ShardSet, index: usize, departures: &Cell<u64>) {
        departures.set(set.settings().roster.departures());
        come_home(set.id(), set.loop_here().unwrap_or(index));
    }

    /// Sets the function that wakes the loop out of its poll, for example by a write to an `eventfd` or a pipe, or by
    /// `mio::Waker::wake`. If a thread arms a timer for an earlier moment than the last
    /// [`next_deadline`](Self::next_deadline), that thread calls the function. So the function should neither block nor
    /// take long. A panic of the function is caught and traced, and has no other effect: the timer is armed, and fires
    /// at the loop's next turn after its deadline. Without a function, another thread's timer does not end the poll,
    /// and may fire late, in the first turn after the poll.
    pub fn wake_by(&mut self, wake: impl Fn() + Send + Sync + 'static) {
        self.be_woken(wake, false);
    }

    /// Sets the function that wakes a loop that is a task of an asynchronous runtime. Other tasks run on the loop's
    /// thread after the loop has asked for its next deadline. If such a task arms an earlier timer, the engine calls
    /// the function, too. The function of [`wake_by`](Self::wake_by) is not called in this case.
    #[cfg(feature = "async")]
    pub(crate) fn wake_task_by(&mut self, wake: impl Fn() + Send + Sync + 'static) {
        self.be_woken(wake, true);
    }

    /// Returns a moment by the clock of the set of shards: the present moment, or a little earlier.
    #[cfg(feature = "async")]
    pub(crate) fn true_now(&self) -> Timestamp {
        self.set().settings().clock.true_now()
    }

    #[cfg(feature = "async")]
    pub(crate) fn is_forked(&self) -> bool {
        self.set().is_forked()
    }

    /// Returns for how long a task that turns the shard may sleep before its next turn. Returns `None` if the task may
    /// sleep until it is woken: no timer is pending, or the clock moves in steps.
    #[cfg(feature = "async")]
    pub(crate) fn rest(&self) -> Option<Duration> {
        let (deadline, clock) = (self.next_deadline()?, &self.set().settings().clock);
        let now = clock.true_now();
        if deadline <= now { Some(Duration::ZERO) } else { clock.as_dyn().sleep_for(now, deadline) }
    }

    fn be_woken(&mut self, wake: impl Fn() + Send + Sync + 'static, is_of_task: bool) {
        if !self.set().is_forked() {
            let wake = WakeFn(Some(wake));
            let waking = Waking { function: StdArc::new(move || wake.call()), is_of_task };
            self.set().settings().roster.wake_by(self.index(), waking);
        }
    }

    /// Returns the moment at which the loop should turn at the latest. If the loop should turn at once, the moment is
    /// in the past. Returns `None` if nothing is pending. `Instant::from` converts the moment.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.follow_departures();
        let set = self.set();
        self.seat.next_look(set, || Self::come_home(set, self.index(), &self.departures))
    }

    /// Returns the time from `now` until [`next_deadline`](Self::next_deadline), for the timeout of a poll. Returns
    /// `None` if nothing is pending.
    #[must_use]
    pub fn timeout(&self, now: impl Into<Timestamp>) -> Option<Duration> {
        self.next_deadline().map(|deadline| deadline - now.into())
    }

    /// Fires the timers that are due at `now`. A turn handles at most `budget` timers of each engine, or a few dozen
    /// more. If the turn returns [`LoopLeft::More`], [`next_deadline`](Self::next_deadline) then returns a moment in
    /// the past. Handlers run inside this call, unless their engine has an executor.
    pub fn turn(&mut self, now: impl Into<Timestamp>, budget: usize) -> LoopLeft {
        self.follow_departures();
        let (set, index) = (self.shards.owner().set(), self.seat.index());
        self.seat.turn(set, now.into(), budget, || Self::come_home(set, index, &self.departures))
    }
}

/// Sends the calling thread's timers to the first loop that runs on this thread. If no loop does, the timers keep their
/// shard.
#[cold]
fn follow_a_loop_here(set: &ShardSet) {
    if let Some(shard) = set.loop_here() {
        follow_a_loop(set.id(), shard);
    }
}

impl Drop for LoopShard {
    fn drop(&mut self) {
        // In the child of a fork, a thread that does not exist there may hold the lock of the loop's place.
        if !self.set().is_forked() {
            self.set().settings().roster.leave_place(self.index());
            follow_a_loop_here(self.set());
        }
    }
}

/// A function of the program that wakes an event loop. The last thread that uses the function drops it. Panics of the
/// function and of its drop are caught.
struct WakeFn<F: Fn()>(Option<F>);

impl<F: Fn()> WakeFn<F> {
    fn call(&self) {
        let _survived = survives(|| self.0.iter().for_each(|wake| wake()));
    }
}

impl<F: Fn()> Drop for WakeFn<F> {
    fn drop(&mut self) {
        let wake = self.0.take();
        let _survived = survives(|| drop(wake));
    }
}

impl fmt::Debug for LoopShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopShard").field("index", &self.index()).finish_non_exhaustive()
    }
}

impl Shards {
    /// Returns the [`LoopShard`] of a shard whose former `LoopShard` was dropped. The new loop fires the timers that
    /// are pending at the shard. Returns `None` if a loop has the shard, if no shard has this number, or if the shards
    /// have threads.
    #[must_use]
    pub fn take_loop(&self, index: usize) -> Option<LoopShard> {
        LoopShard::take(self, index)
    }

    pub(crate) fn take_loops(&self) -> Vec<LoopShard> {
        (0..self.count()).filter_map(|index| self.take_loop(index)).collect()
    }
}

/// A handle that sends its timers to a chosen shard: see [`Handle::on`].
pub struct On<'a, T: Send + 'static> {
    core: &'a StdArc<Core<T>>,
    shard: usize,
}

impl<T: Send + 'static> Handle<T> {
    /// Returns a handle that sends its timers to shard `shard`, counted modulo the number of shards. A thread uses it
    /// to make timers for another thread's loop, or to move a connection's timer from one loop to another. The calling
    /// thread's other timers still go to the thread's own shard.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::{Builder, Fired};
    ///
    /// let (shards, loops) = Builder::new().loops(2)?;
    /// let engine = shards.engine().start(|_: Fired<'_, u64>| {})?;
    /// // Another thread accepts connections, and gives them to the loops in turn.
    /// for connection in 0..10 {
    ///     let deadline = engine.handle().now() + Duration::from_secs(30);
    ///     engine.handle().on(connection as usize).schedule_at(deadline, connection)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on(&self, shard: usize) -> On<'_, T> {
        On { core: self.core(), shard: shard % self.shards() }
    }
}

impl<T: Send + 'static> On<'_, T> {
    /// Arms a timer on this shard that fires after `delay`: see [`Handle::schedule`].
    ///
    /// # Errors
    ///
    /// Fails as [`Handle::schedule`] does.
    pub fn schedule(self, delay: Duration, payload: T) -> Result<TimerId, ScheduleError<T>> {
        self.schedule_at(self.core.clock().now() + delay, payload)
    }

    /// Arms a timer on this shard: see [`Handle::schedule_at`].
    ///
    /// # Errors
    ///
    /// Fails as [`Handle::schedule_at`] does.
    pub fn schedule_at(self, deadline: Timestamp, payload: T) -> Result<TimerId, ScheduleError<T>> {
        let attempt = |payload| {
            let (timers, admission) = (self.core.timers(), self.core.admission());
            lend(admission)
                .on_shard(admission, self.shard, |local| schedule(timers, local, deadline, payload))
        };
        attempt(payload).or_else(|error| wait_for_room(self.core, error, attempt))
    }

    /// Moves a pending timer to this shard and to `deadline`. Returns its new id: see [`Handle::reschedule_at`].
    ///
    /// # Errors
    ///
    /// Fails as [`Handle::reschedule_at`] does.
    pub fn reschedule_at(self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<T>> {
        crate::api::handle::move_when_there_is_room(self.core, || {
            let (timers, admission) = (self.core.timers(), self.core.admission());
            lend(admission).on_shard(admission, self.shard, |local| timers.reschedule(local, id, deadline))
        })
    }

    /// Arms an owned timer for `deadline`, and moves the timer to this shard. A later [`Timer::arm_at`] may move the
    /// timer again, to the shard of the calling thread. A later call of this function for this shard keeps the timer at
    /// this shard. In a rare case another loop may take it ("Known limits" in `src/DESIGN.md`).
    ///
    /// If the timer's present shard is checking the timer at this moment, the timer stays at that shard. Then the call
    /// returns [`Armed::Stays`], or [`Armed::Running`] if the handler has begun.
    ///
    /// # Errors
    ///
    /// Fails as [`Timer::arm_at`] does.
    ///
    /// # Panics
    ///
    /// Panics if the timer belongs to another engine.
    pub fn arm_at(self, timer: &Timer<T>, deadline: Timestamp) -> Result<Armed, ArmError> {
        assert!(StdArc::ptr_eq(self.core, timer.core()), "the timer is of this engine");
        let _covered = timer.postpone(deadline);
        // The ticket may go beyond the lane's capacity, so that the timer is armed when the call returns.
        let armed = self.core.queue_on(self.shard, timer.index(), deadline, true)?;
        Ok(armed.unwrap_or(Armed::Pending))
    }
}

impl<T: Send + 'static> Clone for On<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static> Copy for On<'_, T> {}

impl<T: Send + 'static> fmt::Debug for On<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("On").field("shard", &self.shard).finish_non_exhaustive()
    }
}
