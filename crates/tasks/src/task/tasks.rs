//! The handle through which callers give tasks to an engine.

use super::core::{TaskCore, survive};
use super::error::RepeatError;
use super::handle::Task;
use super::job::{Call, Job, Plain, give_back};
use super::key::Key;
use super::named::NamedTasks;
use super::repeat::Repeat;
use super::repeating::{Body, InParallel, InTurn, Repeating};
use super::run::Run;
use super::timer::TaskTimer;
use super::with_moment::WithMoment;
use crate::sync::StdArc;
use core::fmt;
use core::time::Duration;
use tourbillon::extend::Moment;
use tourbillon::{
    Cancel, Health, Refusal, RescheduleError, ScheduleError, Stats, TimerId, Timestamp, Unfired,
};

/// A handle of an engine for tasks. Any thread may use a handle. Cloning a handle is cheap. A handle does not keep the
/// engine running.
#[derive(Clone)]
pub struct Tasks {
    core: TaskCore,
}

impl Tasks {
    pub(super) fn new(core: TaskCore) -> Self {
        Self { core }
    }

    /// Returns the [`TaskCore`]: the part of the engine that this handle shares with keyed timers, and with ready-made
    /// uses such as the delay queue.
    pub(crate) fn core(&self) -> &TaskCore {
        &self.core
    }

    /// Runs `f` once, no earlier than `delay` from now.
    ///
    /// # Errors
    ///
    /// See [`Handle::schedule`](tourbillon::Handle::schedule); the error returns the closure.
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

    /// Runs `f` once, no earlier than `deadline`. For a time of day, use `Repeat::on` with a calendar.
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
        self.core.handle().schedule_at(deadline, job).map_err(|error| error.map(give_back))
    }

    /// Works as [`at`](Self::at), but never waits. If the calling thread's queue to the engine (its lane) is full, this
    /// method fails with [`LaneFull`](tourbillon::Refusal::LaneFull). So a caller that holds a lock can release the
    /// lock, call [`await_room`](Self::await_room), and try again.
    ///
    /// # Errors
    ///
    /// See [`Handle::try_schedule_at`](tourbillon::Handle::try_schedule_at); the error returns the closure.
    pub fn try_at(
        &self,
        deadline: Timestamp,
        f: impl FnOnce() + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        self.core.try_at(deadline, f)
    }

    /// Works as [`at`](Self::at), but calls `f` with the moment at which the timer fired. If the timer does not fire,
    /// an error or [`shutdown`](Self::shutdown) returns the closure as a [`Call`]. If the caller then runs the
    /// [`Call`], `f` gets `None` instead of a moment.
    ///
    /// # Errors
    ///
    /// See [`at`](Self::at).
    pub fn at_with(
        &self,
        deadline: Timestamp,
        f: impl FnOnce(Option<&Moment<'_>>) + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        self.core.shoot(deadline, Box::new(WithMoment(f))).map_err(|error| error.map(give_back))
    }

    /// Works as [`at_with`](Self::at_with), but never waits for room in the calling thread's queue to the engine (its
    /// lane): see [`try_at`](Self::try_at).
    ///
    /// # Errors
    ///
    /// See [`Handle::try_schedule_at`](tourbillon::Handle::try_schedule_at).
    pub fn try_at_with(
        &self,
        deadline: Timestamp,
        f: impl FnOnce(Option<&Moment<'_>>) + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        self.core.try_shoot(deadline, Box::new(WithMoment(f))).map_err(|error| error.map(give_back))
    }

    /// Cancels a one-shot, and drops its closure.
    ///
    /// # Cancellation
    ///
    /// See [`Handle::cancel`](tourbillon::Handle::cancel).
    pub fn cancel(&self, id: TimerId) -> Cancel<()> {
        self.core.handle().cancel(id).map(drop)
    }

    /// Works as [`cancel`](Self::cancel), but waits for the end of a closure that has begun: see
    /// [`Handle::cancel_and_wait`](tourbillon::Handle::cancel_and_wait).
    pub fn cancel_and_wait(&self, id: TimerId) -> Cancel<()> {
        self.core.handle().cancel_and_wait(id).map(drop)
    }

    /// Moves a one-shot to `delay` from now, under a new id: see
    /// [`Handle::reschedule`](tourbillon::Handle::reschedule).
    ///
    /// # Errors
    ///
    /// See [`Handle::reschedule`](tourbillon::Handle::reschedule); the error returns the closure in place of the
    /// payload.
    pub fn reschedule(&self, id: TimerId, delay: Duration) -> Result<TimerId, RescheduleError<Call>> {
        self.core.handle().reschedule(id, delay).map_err(|error| error.map(give_back))
    }

    /// Moves a one-shot to `deadline`, under a new id, and never waits: see
    /// [`Handle::try_reschedule_at`](tourbillon::Handle::try_reschedule_at).
    ///
    /// # Errors
    ///
    /// See [`Handle::try_reschedule_at`](tourbillon::Handle::try_reschedule_at); the error returns the closure in place
    /// of the payload.
    pub fn try_reschedule_at(
        &self,
        id: TimerId,
        deadline: Timestamp,
    ) -> Result<TimerId, RescheduleError<Call>> {
        self.core.try_move(id, deadline).map_err(|error| error.map(give_back))
    }

    /// Returns the deadline of a one-shot; `None` when the one-shot is not pending.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        self.core.handle().deadline(id)
    }

    /// Waits a little for room in the calling thread's queue to the engine (its lane), and returns true. A caller whose
    /// [`try_at`](Self::try_at) has failed with [`LaneFull`](tourbillon::Refusal::LaneFull) calls this method, and then
    /// tries again. `rounds` starts at 0 and counts the waits. The first waits only yield the processor, and later
    /// waits sleep.
    ///
    /// Returns false at once if trying again is of no use. This is the case if the engine was shut down, or if no other
    /// thread empties the calling thread's queue and the calling thread cannot do so itself at present.
    pub fn await_room(&self, rounds: &mut u32) -> bool {
        self.core.await_room(rounds)
    }

    /// Runs `f` every `period` until the task is stopped. The first run begins one period from now. Works as
    /// [`repeat`](Self::repeat) with the defaults of [`Repeat::every`].
    ///
    /// # Errors
    ///
    /// See [`repeat`](Self::repeat).
    pub fn every<F: FnMut() + Send + 'static>(&self, period: Duration, f: F) -> Result<Task, RepeatError<F>> {
        self.start(&Repeat::every(period), InTurn::new(f, |f, _| f()))
    }

    /// Runs `f` repeatedly, as `plan` says. Runs never overlap.
    ///
    /// # Errors
    ///
    /// Fails if the plan cannot be followed, or if the engine is full or shut down. The error returns the closure.
    pub fn repeat<F: FnMut(&Run) + Send + 'static>(
        &self,
        plan: Repeat,
        f: F,
    ) -> Result<Task, RepeatError<F>> {
        self.start(&plan, InTurn::new(f, |f, run| f(run)))
    }

    /// Works as [`repeat`](Self::repeat), but runs may overlap: each run begins at its planned moment, on another
    /// worker. The plan's overlap policy does not apply.
    ///
    /// The task has its own timer. At each planned moment, this timer schedules a one-shot, which calls `f`. So
    /// [`stats`](Self::stats) counts two firings for each run, and [`Report`](super::Report) has the number of runs. If
    /// the engine is full, or if handlers run inline, the task's own timer calls `f` without a one-shot, and the next
    /// run waits for the end of this call. If the plan has a pause between runs, the pause counts from the start of a
    /// run to the start of the next run.
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
        let task = Repeating::make(&self.core, plan, body)?;
        task.launch()?;
        Ok(Task::new(task))
    }

    /// Returns the repeating tasks that have not ended, in no order.
    ///
    /// # Time complexity
    ///
    /// O(n) in the number of tasks. The call holds a lock for which a task that starts or ends must wait.
    #[must_use]
    pub fn repeating(&self) -> Vec<Task> {
        // A task in its last run is still kept, but has ended.
        self.core.repeating().into_iter().map(Task::new).filter(|task| !task.has_ended()).collect()
    }

    /// Makes an empty set for repeating tasks that have names. The tasks run on this engine.
    #[must_use]
    pub fn named<K: Key>(&self) -> NamedTasks<K> {
        NamedTasks::new(&self.core)
    }

    /// Makes an owned timer that runs `f` whenever it is due. The timer can be armed and disarmed any number of times.
    ///
    /// # Errors
    ///
    /// Fails if the engine is full or shut down. The error returns the closure.
    pub fn timer<F: Fn() + Send + Sync + 'static>(&self, f: F) -> Result<TaskTimer, ScheduleError<F>> {
        TaskTimer::new(&self.core, f)
    }

    /// Works as [`timer`](Self::timer), but calls `f` with the moment at which the timer fired.
    ///
    /// # Errors
    ///
    /// Fails if the engine is full or shut down.
    pub fn timer_with(&self, f: impl Fn(&Moment<'_>) + Send + Sync + 'static) -> Result<TaskTimer, Refusal> {
        TaskTimer::of(&self.core, StdArc::new(WithMoment(f)))
    }

    /// Returns the present moment of the engine's clock, from which to count deadlines: see
    /// [`Handle::now`](tourbillon::Handle::now).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.core.handle().now()
    }

    /// Returns whether `deadline` has come by the engine's true clock. This clock is never ahead of the real time,
    /// while [`now`](Self::now) may be a little ahead. See [`Handle::has_come`](tourbillon::Handle::has_come).
    #[inline]
    #[must_use]
    pub fn has_come(&self, deadline: Timestamp) -> bool {
        self.core.handle().has_come(deadline)
    }

    /// Returns the length of the engine's tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.core.handle().tick()
    }

    /// Returns a snapshot of the engine's counters. A run of a repeating task counts as a firing of an owned timer. A
    /// run in parallel also counts as a firing of a one-shot. An entry of a [`Keyed`](crate::keyed::Keyed) that is
    /// replaced, moved or cancelled just when its timer fires also counts as fired, although its handler does not run.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.handle().stats()
    }

    /// Returns the state of the engine at this moment: see [`Handle::health`](tourbillon::Handle::health).
    #[must_use]
    pub fn health(&self) -> Health {
        self.core.handle().health()
    }

    /// Shuts the engine down: see [`Handle::shutdown`](tourbillon::Handle::shutdown). Returns the one-shots that have
    /// not run. Ends repeating tasks, and drops their closures.
    #[must_use = "the closures that have not run"]
    pub fn shutdown(&self) -> Vec<Unfired<Call>> {
        let unfired = self.core.handle().shutdown();
        let give_back = |Unfired { id, deadline, payload }: Unfired<Job>| {
            Some(Unfired { id, deadline, payload: survive(|| payload.unfired()).flatten()? })
        };
        unfired.into_iter().filter_map(give_back).collect()
    }

    /// Returns whether the engine was shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.core.handle().is_shut_down()
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("handle", self.core.handle()).finish_non_exhaustive()
    }
}
