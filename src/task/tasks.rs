//! The engine for tasks: its owner, and the handle that takes tasks.

use super::error::RepeatError;
use super::job::{Call, Job, OnDue, OnEnd, Plain, Shot, do_jobs};
use super::key::Key;
use super::named::NamedTasks;
use super::repeat::Repeat;
use super::repeating::{Body, InParallel, InTurn, Repeating, Repeats, Task};
use super::run::Run;
use super::timer::TaskTimer;
use super::wall::Wall;
use crate::builder::Builder;
use crate::driven::DrivenEngine;
use crate::engine::{Cancel, Moved, Rearmed, Unfired, ignore_poison, lend};
use crate::error::{BuildError, RescheduleError, ScheduleError, ScheduleErrorKind};
use crate::handle::{Engine, Handle, back_off};
use crate::health::Health;
use crate::stats::Stats;
use crate::sync::{Mutex, StdArc, Weak};
use crate::tick::Timestamp;
use crate::ticket::TimerId;
use crate::timer::Timer;
use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

impl Builder {
    /// Starts an engine for tasks. Closures run on the workers. With [`inline`](Self::inline) they run on the shards'
    /// threads, where they should do no more than wake or enqueue.
    ///
    /// # Errors
    ///
    /// See [`build`](Self::build).
    pub fn build_tasks(self) -> Result<TaskEngine, BuildError> {
        let engine = self.build_with(do_jobs())?;
        let tasks = Tasks::new(engine.handle().clone(), Wall::System);
        Ok(TaskEngine { engine, tasks })
    }

    /// Makes an engine for tasks without threads, on a manual clock: see [`build_driven`](Self::build_driven). The
    /// clock's origin is 1970 by the wall clock; [`build_driven_tasks_at`](Self::build_driven_tasks_at) takes another
    /// one.
    ///
    /// # Errors
    ///
    /// See [`build_driven`](Self::build_driven).
    pub fn build_driven_tasks(self) -> Result<DrivenTasks, BuildError> {
        self.build_driven_tasks_at(SystemTime::UNIX_EPOCH)
    }

    /// As [`build_driven_tasks`](Self::build_driven_tasks); the clock's origin is `time` by the wall clock.
    ///
    /// # Errors
    ///
    /// See [`build_driven`](Self::build_driven).
    pub fn build_driven_tasks_at(self, time: SystemTime) -> Result<DrivenTasks, BuildError> {
        let engine = self.build_driven_with(do_jobs())?;
        let tasks = Tasks::new(engine.handle().clone(), Wall::Since(time));
        Ok(DrivenTasks { engine, tasks })
    }
}

/// A running engine for tasks: the owner of its threads.
///
/// The engine is used through its [`handle`](Self::handle). Dropping the engine shuts it down: no closure begins any
/// more, and closures that have not run are dropped.
#[must_use = "dropping an engine shuts it down"]
pub struct TaskEngine {
    engine: Engine<Job>,
    tasks: Tasks,
}

impl TaskEngine {
    /// An engine with the defaults of [`Builder`].
    ///
    /// # Errors
    ///
    /// Fails when the system refuses a thread.
    pub fn new() -> Result<Self, BuildError> {
        Builder::new().build_tasks()
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
    pub fn clock(&self) -> &crate::clock::ManualClock {
        self.engine.clock()
    }
}

/// The handle of an engine for tasks, for any thread. Cloning is cheap; a handle does not keep the engine running.
#[derive(Clone)]
pub struct Tasks {
    shared: StdArc<Shared>,
}

struct Shared {
    handle: Handle<Job>,
    wall: Wall,
    /// The repeating tasks that have not ended, by their timers. The code that started a task need not keep it.
    repeating: Mutex<HashMap<TimerId, StdArc<dyn Repeats>>>,
    /// The listeners for the shutdown.
    at_end: Mutex<Vec<Weak<dyn OnEnd>>>,
}

impl Tasks {
    fn new(handle: Handle<Job>, wall: Wall) -> Self {
        let (repeating, at_end) = (Mutex::default(), Mutex::default());
        Self { shared: StdArc::new(Shared { handle, wall, repeating, at_end }) }
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
        self.shared.handle.schedule_at(deadline, job).map_err(|error| error.map(give_back))
    }

    /// Cancels a one-shot; its closure is dropped.
    ///
    /// # Cancellation
    ///
    /// See [`Handle::cancel`].
    pub fn cancel(&self, id: TimerId) -> Cancel<()> {
        self.shared.handle.cancel(id).map(drop)
    }

    /// As [`cancel`](Self::cancel), but waits for the end of a closure that has begun: see [`Handle::cancel_and_wait`].
    pub fn cancel_and_wait(&self, id: TimerId) -> Cancel<()> {
        self.shared.handle.cancel_and_wait(id).map(drop)
    }

    /// Moves a one-shot to `delay` from now, under a new id: see [`Handle::reschedule`].
    ///
    /// # Errors
    ///
    /// See [`Handle::reschedule`]; the error returns the closure in place of the payload.
    pub fn reschedule(&self, id: TimerId, delay: Duration) -> Result<TimerId, RescheduleError<Call>> {
        self.shared.handle.reschedule(id, delay).map_err(|error| error.map(give_back))
    }

    /// Makes an owned timer that runs `f` whenever it is due, and that can be armed and disarmed any number of times.
    ///
    /// # Errors
    ///
    /// Fails when the engine is full or shut down; the error returns the closure.
    pub fn timer<F: Fn() + Send + Sync + 'static>(&self, f: F) -> Result<TaskTimer, ScheduleError<F>> {
        TaskTimer::new(self, f)
    }

    /// Runs `f` every `period`, first one period from now, until the task is stopped: [`repeat`](Self::repeat) with the
    /// defaults of [`Repeat::every`].
    ///
    /// # Errors
    ///
    /// See [`repeat`](Self::repeat).
    pub fn every<F: FnMut() + Send + 'static>(&self, period: Duration, f: F) -> Result<Task, RepeatError<F>> {
        self.start(&Repeat::every(period), InTurn::new(f, |f, _| f()))
    }

    /// Runs `f` repeatedly, by `plan`. Runs never overlap.
    ///
    /// # Errors
    ///
    /// Fails when the plan cannot be followed, and when the engine is full or shut down; the error returns the closure.
    pub fn repeat<F: FnMut(&Run) + Send + 'static>(
        &self,
        plan: Repeat,
        f: F,
    ) -> Result<Task, RepeatError<F>> {
        self.start(&plan, InTurn::new(f, |f, run| f(run)))
    }

    /// As [`repeat`](Self::repeat), but a run that is longer than its period has the next run beside it. Each run
    /// begins at its instant, on another worker. The plan's overlap policy does not apply.
    ///
    /// Each run is a one-shot of its own, which the task's timer begins. [`stats`](Self::stats) counts both timers; the
    /// number of runs is in [`Report`](super::Report). If the engine has no room for the one-shot, or if handlers run
    /// inline, the next run waits. A pause is from the start of a run to the start of the next one.
    ///
    /// # Errors
    ///
    /// See [`repeat`](Self::repeat).
    pub fn repeat_in_parallel<F: Fn(&Run) + Send + Sync + 'static>(
        &self,
        plan: Repeat,
        f: F,
    ) -> Result<Task, RepeatError<F>> {
        self.start(&plan, InParallel::new(f))
    }

    fn start<B: Body>(&self, plan: &Repeat, body: B) -> Result<Task, RepeatError<B::Routine>> {
        let task = Repeating::make(self, plan, body)?;
        task.launch()?;
        Ok(Task::new(task))
    }

    /// Makes a set of repeating tasks by name, on this engine.
    #[must_use]
    pub fn named<K: Key>(&self) -> NamedTasks<K> {
        NamedTasks::new(self)
    }

    /// The repeating tasks that have not ended, in no order.
    ///
    /// # Time complexity
    ///
    /// O(n) in the number of tasks; tasks that start or end wait meanwhile.
    #[must_use]
    pub fn repeating(&self) -> Vec<Task> {
        let kept: Vec<Task> = {
            let registry = ignore_poison(self.shared.repeating.lock());
            registry.values().map(|task| Task::new(StdArc::clone(task))).collect()
        };
        // A task in its last run is still in the registry, but has ended.
        kept.into_iter().filter(|task| !task.has_ended()).collect()
    }

    /// The present moment on the engine's clock, to count deadlines from: see [`Handle::now`].
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.handle.now()
    }

    /// Whether `deadline` has come by the true clock: see [`Handle::has_come`].
    #[inline]
    #[must_use]
    pub fn has_come(&self, deadline: Timestamp) -> bool {
        self.shared.handle.has_come(deadline)
    }

    /// The moment that decides whether a deadline has come.
    pub(super) fn true_now(&self) -> Timestamp {
        self.shared.handle.core().true_now()
    }

    /// The length of a tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.shared.handle.tick()
    }

    /// The deadline of a one-shot; `None` when the one-shot is not pending.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        self.shared.handle.deadline(id)
    }

    /// A snapshot of the engine's counters. A run of a repeating task counts as a firing of an owned timer, and a run
    /// in parallel counts as a firing of a one-shot as well.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.handle.stats()
    }

    /// The state of the engine at this moment: see [`Handle::health`].
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.handle.health()
    }

    /// Shuts the engine down: see [`Handle::shutdown`]. Returns the one-shots that have not run. Repeating tasks end,
    /// and their closures are dropped.
    #[must_use = "the closures that have not run"]
    pub fn shutdown(&self) -> Vec<Unfired<Call>> {
        let unfired = self.shared.handle.shutdown();
        self.end_repeating();
        self.tell_of_end();
        let give_back = |Unfired { id, deadline, payload }: Unfired<Job>| {
            Some(Unfired { id, deadline, payload: survive(|| payload.unfired()).flatten()? })
        };
        unfired.into_iter().filter_map(give_back).collect()
    }

    /// Whether the engine was shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.shared.handle.is_shut_down()
    }

    /// Schedules a one-shot.
    #[inline]
    pub(crate) fn shoot(
        &self,
        deadline: Timestamp,
        shot: Box<dyn Shot>,
    ) -> Result<TimerId, ScheduleError<Job>> {
        self.shared.handle.schedule_at(deadline, Job::Shot(shot))
    }

    /// As [`shoot`](Self::shoot), but never waits.
    #[inline]
    pub(crate) fn try_shoot(
        &self,
        deadline: Timestamp,
        shot: Box<dyn Shot>,
    ) -> Result<TimerId, ScheduleError<Job>> {
        self.shared.handle.try_schedule_at(deadline, Job::Shot(shot))
    }

    /// Moves a one-shot to another deadline, under a new id. The one-shot keeps its slot. Never waits.
    #[inline]
    pub(crate) fn try_move(&self, id: TimerId, deadline: Timestamp) -> Moved<Job> {
        let core = self.shared.handle.core();
        core.reschedule(&mut lend(core), id, deadline)
    }

    /// Waits for the shards to make room in their lanes, round after round. Returns false where the caller would wait
    /// for itself.
    pub(crate) fn wait_for_room(&self, rounds: &mut u32) -> bool {
        let core = self.shared.handle.core();
        let may_wait = core.may_wait_for_shards();
        if may_wait {
            back_off(core, *rounds);
            *rounds += 1;
        }
        may_wait
    }

    /// Makes an owned timer that calls `owner`.
    pub(crate) fn own_timer(&self, owner: Weak<dyn OnDue>) -> Result<Timer<Job>, ScheduleErrorKind> {
        Timer::new(self.shared.handle.core(), Job::Owned(Box::new(owner))).map_err(|error| error.kind)
    }

    /// As [`Timer::arm_at`], but never waits. If the lane is full, the ticket goes beyond the lane's capacity, or,
    /// without `insist`, nothing is armed. The caller ensures that the timer of this id was not dropped.
    #[inline]
    pub(crate) fn try_arm(&self, timer: TimerId, deadline: Timestamp, insist: bool) -> Rearmed {
        let (core, index) = (self.shared.handle.core(), timer.index());
        match core.rearm(index, deadline) {
            Rearmed::NoRoom if insist => core.queue(index, deadline, true),
            other => other,
        }
    }

    /// Registers `who` as a listener for the engine's shutdown. If the engine is shut down already, `who` is called at
    /// once.
    pub(crate) fn at_end(&self, who: Weak<dyn OnEnd>) {
        {
            let mut told = ignore_poison(self.shared.at_end.lock());
            told.retain(|who| who.strong_count() > 0);
            told.push(who);
        }
        if self.is_shut_down() {
            self.tell_of_end();
        }
    }

    pub(super) fn wall(&self) -> Wall {
        self.shared.wall
    }

    /// Whether the calling thread itself fires the timers that are scheduled here: in a handler that runs inline, and
    /// in an engine without threads.
    pub(super) fn has_no_other_thread(&self) -> bool {
        !self.shared.handle.core().may_wait_for_shards()
    }

    pub(super) fn must_not_wait_here(&self) -> bool {
        self.shared.handle.core().must_not_wait_here()
    }

    /// Keeps a repeating task under its timer's id until the task has ended.
    pub(super) fn keep(&self, timer: TimerId, task: StdArc<dyn Repeats>) {
        ignore_poison(self.shared.repeating.lock()).insert(timer, task);
    }

    pub(super) fn forget(&self, timer: TimerId) -> Option<StdArc<dyn Repeats>> {
        ignore_poison(self.shared.repeating.lock()).remove(&timer)
    }

    fn shut_down_quietly(&self) {
        self.shared.handle.core().shut_down_quietly();
        self.end_repeating();
        self.tell_of_end();
    }

    fn tell_of_end(&self) {
        let told = core::mem::take(&mut *ignore_poison(self.shared.at_end.lock()));
        for who in told.iter().filter_map(Weak::upgrade) {
            // A listener may wake user code, which may panic.
            survive(|| who.on_end());
        }
    }

    fn end_repeating(&self) {
        let tasks = core::mem::take(&mut *ignore_poison(self.shared.repeating.lock()));
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

impl Drop for TaskEngine {
    fn drop(&mut self) {
        self.tasks.shut_down_quietly();
    }
}

impl Drop for DrivenTasks {
    fn drop(&mut self) {
        self.tasks.shut_down_quietly();
    }
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
        f.debug_struct("Tasks").field("handle", &self.shared.handle).finish_non_exhaustive()
    }
}
