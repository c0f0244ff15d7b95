//! The engine for tasks: its owner, and the handle that takes tasks.

use super::handle::{Repeats, Task};
use super::job::{Call, Job, OnDue, OnEnd, Plain, Shot, do_job};
use super::wall::Wall;
use crate::sync::{self, Mutex, MutexGuard, StdArc, Weak};
use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;
use tourbillon::extend::{Base, WhenFull};
use tourbillon::{
    Armed, BuildError, Builder, Cancel, DrivenEngine, Engine, Handle, Health, ManualClock, Refusal,
    RescheduleError, ScheduleError, Shards, Stats, Timer, TimerId, Timestamp, Unfired,
};

/// A running engine for tasks: the owner of its tasks.
///
/// The engine is used through its [`handle`](Self::handle). Dropping the engine shuts it down: no closure begins any
/// more, and closures that have not run are dropped.
#[must_use = "dropping an engine shuts it down"]
pub struct TaskEngine {
    engine: Engine<Job>,
    tasks: Tasks,
}

impl TaskEngine {
    /// Makes an engine on the [current](Shards::current) shards, which are the process's own unless the calling thread
    /// entered others: it shares their threads with other engines and with futures.
    ///
    /// # Errors
    ///
    /// Fails as [`Engine::new`] does.
    pub fn new() -> Result<Self, BuildError> {
        Self::start(Shards::current()?.engine())
    }

    /// Starts the engine of a builder, with threads of its own, or on the shards that the builder is
    /// [on](Builder::on). Closures run on the workers. With [`inline`](Builder::inline) they run on the
    /// shards' threads, where they should do no more than wake or enqueue.
    ///
    /// # Errors
    ///
    /// See [`Builder::start`].
    pub fn start(builder: Builder) -> Result<Self, BuildError> {
        let (engine, base) = Base::start(builder, do_job)?;
        Ok(Self { engine, tasks: Tasks::new(base, Wall::System) })
    }

    /// The handle of this engine, to be cloned for other threads. The handle does not keep the engine alive: once the
    /// engine is dropped, its handles refuse tasks.
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Tasks {
        &self.tasks
    }
}

/// An engine for tasks without threads, whose time moves by explicit calls: see [`DrivenEngine`].
#[must_use = "dropping an engine shuts it down"]
pub struct DrivenTasks {
    engine: DrivenEngine<Job>,
    tasks: Tasks,
}

impl DrivenTasks {
    /// Makes an engine without threads with the defaults of [`Builder`], on a manual clock whose origin is 1970 by the
    /// wall clock.
    ///
    /// # Errors
    ///
    /// See [`start`](Self::start).
    pub fn new() -> Result<Self, BuildError> {
        Self::start(Builder::new())
    }

    /// As [`new`](Self::new), from a builder: see [`Builder::driven`].
    ///
    /// # Errors
    ///
    /// See [`Builder::driven`].
    pub fn start(builder: Builder) -> Result<Self, BuildError> {
        Self::start_at(builder, SystemTime::UNIX_EPOCH)
    }

    /// As [`start`](Self::start); the clock's origin is `time` by the wall clock.
    ///
    /// # Errors
    ///
    /// See [`Builder::driven`].
    pub fn start_at(builder: Builder, time: SystemTime) -> Result<Self, BuildError> {
        let (engine, base) = Base::driven(builder, do_job)?;
        Ok(Self { engine, tasks: Tasks::new(base, Wall::Since(time)) })
    }

    /// The handle of this engine, which does not keep the engine alive: see [`TaskEngine::handle`].
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Tasks {
        &self.tasks
    }

    /// See [`DrivenEngine::advance`].
    pub fn advance(&mut self, by: Duration) {
        self.engine.advance(by);
    }

    /// See [`DrivenEngine::advance_to`].
    pub fn advance_to(&mut self, target: Timestamp) {
        self.engine.advance_to(target);
    }

    /// See [`DrivenEngine::turn`].
    pub fn turn(&mut self) {
        self.engine.turn();
    }

    /// See [`DrivenEngine::next_expiry`].
    pub fn next_expiry(&mut self) -> Option<Timestamp> {
        self.engine.next_expiry()
    }

    /// The clock that the engine runs on.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        self.engine.clock()
    }
}

/// The handle of an engine for tasks, for any thread. Cloning is cheap; a handle does not keep the engine running.
#[derive(Clone)]
pub struct Tasks {
    shared: StdArc<Shared>,
}

struct Shared {
    base: Base<Job>,
    wall: Wall,
    /// The repeating tasks that have not ended, by their timers. The code that started a task need not keep it.
    repeating: Mutex<HashMap<TimerId, StdArc<dyn Repeats>>>,
    /// The listeners for the shutdown.
    at_end: Mutex<Vec<Weak<dyn OnEnd>>>,
}

impl Tasks {
    fn new(base: Base<Job>, wall: Wall) -> Self {
        let (repeating, at_end) = (Mutex::default(), Mutex::default());
        let shared = StdArc::new(Shared { base, wall, repeating, at_end });
        let ended = StdArc::downgrade(&shared);
        shared.base.at_shutdown(move || drop(ended.upgrade().inspect(|shared| shared.end())));
        Self { shared }
    }

    fn handle(&self) -> &Handle<Job> {
        self.shared.base.handle()
    }

    /// Runs `f` once, `delay` from now or later; never earlier.
    ///
    /// # Errors
    ///
    /// See [`Handle::schedule`]; the error returns the closure.
    ///
    /// # Time complexity
    ///
    /// O(1): an engine's timer, and an allocation for the captured values of the closure.
    pub fn after(
        &self,
        delay: Duration,
        f: impl FnOnce() + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        self.at(self.now() + delay, f)
    }

    /// Runs `f` once, at `deadline` or later. For a time of day, use `Repeat::on` with a calendar.
    ///
    /// # Errors
    ///
    /// See [`after`](Self::after).
    pub fn at(
        &self,
        deadline: Timestamp,
        f: impl FnOnce() + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        let job = Job::Shot(Box::new(Plain(f)));
        self.handle().schedule_at(deadline, job).map_err(|error| error.map(give_back))
    }

    /// As [`at`](Self::at), but never waits: for callers that hold a lock. [`await_room`](Self::await_room) waits once
    /// the lock is released.
    ///
    /// # Errors
    ///
    /// See [`Handle::try_schedule_at`]; the error returns the closure.
    pub fn try_at(
        &self,
        deadline: Timestamp,
        f: impl FnOnce() + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        self.try_shoot(deadline, Box::new(Plain(f))).map_err(|error| error.map(give_back))
    }

    /// Cancels a one-shot; its closure is dropped.
    ///
    /// # Cancellation
    ///
    /// See [`Handle::cancel`].
    pub fn cancel(&self, id: TimerId) -> Cancel<()> {
        self.handle().cancel(id).map(drop)
    }

    /// As [`cancel`](Self::cancel), but waits for the end of a closure that has begun: see [`Handle::cancel_and_wait`].
    pub fn cancel_and_wait(&self, id: TimerId) -> Cancel<()> {
        self.handle().cancel_and_wait(id).map(drop)
    }

    /// Moves a one-shot to `delay` from now, under a new id: see [`Handle::reschedule`].
    ///
    /// # Errors
    ///
    /// See [`Handle::reschedule`]; the error returns the closure in place of the payload.
    pub fn reschedule(&self, id: TimerId, delay: Duration) -> Result<TimerId, RescheduleError<Call>> {
        self.handle().reschedule(id, delay).map_err(|error| error.map(give_back))
    }

    /// The repeating tasks that have not ended, in no order.
    ///
    /// # Time complexity
    ///
    /// O(n) in the number of tasks; tasks that start or end wait meanwhile.
    #[must_use]
    pub fn repeating(&self) -> Vec<Task> {
        let kept: Vec<Task> = match self.lock_unless_lost(&self.shared.repeating) {
            Some(registry) => registry.values().map(|task| Task::new(StdArc::clone(task))).collect(),
            None => Vec::new(),
        };
        // A task in its last run is still in the registry, but has ended.
        kept.into_iter().filter(|task| !task.has_ended()).collect()
    }

    /// The present moment on the engine's clock, to count deadlines from: see [`Handle::now`].
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.handle().now()
    }

    /// Whether `deadline` has come by the true clock: see [`Handle::has_come`].
    #[inline]
    #[must_use]
    pub fn has_come(&self, deadline: Timestamp) -> bool {
        self.handle().has_come(deadline)
    }

    /// The moment that decides whether a deadline has come.
    pub(crate) fn true_now(&self) -> Timestamp {
        self.shared.base.true_now()
    }

    /// The time that a thread may sleep to be awake at `deadline`; `None` if no sleep helps.
    pub(crate) fn sleep_for(&self, deadline: Timestamp) -> Option<Duration> {
        self.shared.base.sleep_for(deadline)
    }

    /// The length of a tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.handle().tick()
    }

    /// The deadline of a one-shot; `None` when the one-shot is not pending.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        self.handle().deadline(id)
    }

    /// A snapshot of the engine's counters. A run of a repeating task counts as a firing of an owned timer, and a run
    /// in parallel counts as a firing of a one-shot as well.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle().stats()
    }

    /// The state of the engine at this moment: see [`Handle::health`].
    #[must_use]
    pub fn health(&self) -> Health {
        self.handle().health()
    }

    /// Shuts the engine down: see [`Handle::shutdown`]. Returns the one-shots that have not run. Repeating tasks end,
    /// and their closures are dropped.
    #[must_use = "the closures that have not run"]
    pub fn shutdown(&self) -> Vec<Unfired<Call>> {
        let unfired = self.handle().shutdown();
        let give_back = |Unfired { id, deadline, payload }: Unfired<Job>| {
            Some(Unfired { id, deadline, payload: survive(|| payload.unfired()).flatten()? })
        };
        unfired.into_iter().filter_map(give_back).collect()
    }

    /// Whether the engine was shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.handle().is_shut_down()
    }

    /// Schedules a one-shot.
    #[inline]
    pub(crate) fn shoot(
        &self,
        deadline: Timestamp,
        shot: Box<dyn Shot>,
    ) -> Result<TimerId, ScheduleError<Job>> {
        self.handle().schedule_at(deadline, Job::Shot(shot))
    }

    /// As [`shoot`](Self::shoot), but never waits.
    #[inline]
    pub(crate) fn try_shoot(
        &self,
        deadline: Timestamp,
        shot: Box<dyn Shot>,
    ) -> Result<TimerId, ScheduleError<Job>> {
        self.handle().try_schedule_at(deadline, Job::Shot(shot))
    }

    /// Moves a one-shot to another deadline, under a new id. The one-shot keeps its slot. Never waits.
    #[inline]
    pub(crate) fn try_move(&self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<Job>> {
        self.handle().try_reschedule_at(id, deadline)
    }

    /// Waits a little, and longer in later `rounds`, for room in the lane that [`try_at`](Self::try_at) found full.
    /// Returns false at once where the caller would wait for itself.
    pub fn await_room(&self, rounds: &mut u32) -> bool {
        self.shared.base.await_room(rounds)
    }

    /// Makes an owned timer that calls `owner`.
    pub(crate) fn own_timer(&self, owner: Weak<dyn OnDue>) -> Result<Timer<Job>, Refusal> {
        self.shared.base.timer(Job::Owned(Box::new(owner))).map_err(|error| error.kind)
    }

    /// As [`Timer::arm_at`], but never waits.
    #[inline]
    pub(crate) fn try_arm(
        &self,
        timer: &Timer<Job>,
        deadline: Timestamp,
        when_full: WhenFull,
    ) -> Result<Armed, Refusal> {
        self.shared.base.try_arm_at(timer, deadline, when_full)
    }

    /// Registers a listener for the engine's shutdown. If the engine is shut down already, the listener is called at
    /// once.
    pub(crate) fn at_end(&self, listener: Weak<dyn OnEnd>) {
        if let Some(mut listeners) = self.lock_unless_lost(&self.shared.at_end) {
            listeners.retain(|listener| listener.strong_count() > 0);
            listeners.push(listener);
        }
        if self.is_shut_down() {
            self.shared.call_listeners();
        }
    }

    pub(super) fn wall(&self) -> Wall {
        self.shared.wall
    }

    /// Whether the calling thread itself fires the timers that are scheduled here: in a handler that runs inline, and
    /// in an engine without threads.
    pub(super) fn has_no_other_thread(&self) -> bool {
        !self.shared.base.may_wait_for_shards()
    }

    pub(super) fn must_not_wait_here(&self) -> bool {
        !self.shared.base.may_wait_for_handlers()
    }

    /// Keeps a repeating task under its timer's id until the task has ended.
    pub(super) fn keep(&self, timer: TimerId, task: StdArc<dyn Repeats>) {
        if let Some(mut repeating) = self.lock_unless_lost(&self.shared.repeating) {
            repeating.insert(timer, task);
        }
    }

    pub(super) fn forget(&self, timer: TimerId) -> Option<StdArc<dyn Repeats>> {
        self.lock_unless_lost(&self.shared.repeating)?.remove(&timer)
    }

    /// Locks a lock of a layer: see [`lock_unless_lost`](sync::lock_unless_lost).
    pub(crate) fn lock_unless_lost<'a, T>(&self, lock: &'a Mutex<T>) -> Option<MutexGuard<'a, T>> {
        self.shared.lock_unless_lost(lock)
    }

    /// Whether this process is the child of a fork, and the engine was started before the fork.
    pub(crate) fn is_in_child(&self) -> bool {
        self.shared.base.is_in_child()
    }
}

impl Shared {
    /// Ends what the engine's end leaves. Called once, by the engine.
    fn end(&self) {
        self.end_repeating();
        self.call_listeners();
    }

    fn call_listeners(&self) {
        let listeners = self.take_all(&self.at_end);
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            // A listener may wake user code, which may panic.
            survive(|| listener.on_end());
        }
    }

    /// Takes what a list has. In the child of a fork the list may be out of reach: its contents stay where they are.
    fn take_all<T: Default>(&self, list: &Mutex<T>) -> T {
        self.lock_unless_lost(list).map(|mut list| core::mem::take(&mut *list)).unwrap_or_default()
    }

    fn lock_unless_lost<'a, T>(&self, lock: &'a Mutex<T>) -> Option<MutexGuard<'a, T>> {
        sync::lock_unless_lost(self.base.is_in_child(), || lock.lock(), || lock.try_lock())
    }

    fn end_repeating(&self) {
        let tasks = self.take_all(&self.repeating);
        for task in tasks.into_values() {
            // A task whose drop panics does not affect the others.
            survive(move || {
                let _ = task.stop();
            });
        }
    }
}

/// Runs `f`, catching a panic: at the end of an engine there is no caller left to report the panic to.
fn survive<R>(f: impl FnOnce() -> R) -> Option<R> {
    // The panic's payload is leaked, since its drop may panic in turn.
    catch_unwind(AssertUnwindSafe(f)).map_err(Box::leak).ok()
}

/// The closure of a job that will not be done.
pub(super) fn give_back(job: Job) -> Call {
    job.unfired().unwrap_or_else(|| Box::new(|| {}))
}

impl fmt::Debug for TaskEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskEngine").field("engine", &self.engine).finish()
    }
}

impl fmt::Debug for DrivenTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrivenTasks").field("engine", &self.engine).finish()
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("handle", self.handle()).finish_non_exhaustive()
    }
}
