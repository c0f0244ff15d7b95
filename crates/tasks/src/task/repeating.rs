//! A task that repeats: an owned timer, a course, and a closure.
//!
//! The timer is armed for the next run when a run has ended, under the lock of the course. If a stop comes before, the
//! arming finds the task ended and arms nothing. If a stop comes after, the stop disarms. Closures run, and are
//! dropped, where nothing is locked.

use super::course::Course;
use super::error::{RepeatError, RepeatErrorKind};
use super::job::{Call, Job, Moment, OnDue, Shot};
use super::repeat::{OnPanic, Repeat};
use super::run::{Report, Run};
use super::tasks::Tasks;
use crate::sync::{Condvar, Mutex, MutexGuard, OnceLock, StdArc, Weak, ignore_poison};
use core::fmt;
use core::ops::Deref;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tourbillon::{Refusal, ScheduleError, Timer, Timestamp};

/// A repeating task that was started. Clones refer to the same task; the task goes on when all of them are dropped.
#[derive(Clone)]
pub struct Task {
    repeats: StdArc<dyn Repeats>,
}

/// The outcome of stopping a task. In every case no run begins any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a run may not have ended"]
pub enum Stopped {
    /// No run of the task is under way.
    Stopped,
    /// A run has begun and may not have ended.
    Running,
    /// The task had ended before, by itself or by another call, and no run is under way.
    Gone,
}

impl Task {
    pub(super) fn new(repeats: StdArc<dyn Repeats>) -> Self {
        Self { repeats }
    }

    /// Ends the task: no run begins any more. The call does not wait for a run that is under way.
    pub fn stop(&self) -> Stopped {
        self.repeats.stop()
    }

    /// As [`stop`](Self::stop), but waits until runs that are under way have ended. It never returns
    /// [`Stopped::Running`], except inside a task of its engine, where the call does not wait because it might wait for
    /// itself.
    pub fn stop_and_wait(&self) -> Stopped {
        self.repeats.stop_and_wait()
    }

    /// The moment of the next run, on the engine's clock; `None` when the task has ended, and while a run lasts that
    /// the next run waits for. For a calendar: the moment of the next look at the wall clock.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.repeats.next()
    }

    /// Whether the task has ended: no run begins any more. The last run may still be under way.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.repeats.has_ended()
    }

    /// The counts of the task so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.repeats.report()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("next", &self.next()).field("report", &self.report()).finish()
    }
}

/// A task, whatever the type of its closure.
pub(super) trait Repeats: Send + Sync {
    fn stop(&self) -> Stopped;
    fn stop_and_wait(&self) -> Stopped;
    fn next(&self) -> Option<Timestamp>;
    fn has_ended(&self) -> bool;
    fn report(&self) -> Report;
}

/// The closure of a task, held until the task has ended.
pub(super) trait Body: Send + Sync + Sized + 'static {
    type Routine;

    /// Whether the next instant waits for the run that is under way.
    const IN_TURN: bool;

    /// Makes a run whose instant has come.
    fn make(task: &Repeating<Self>, run: Run, moment: &Moment);

    /// Takes the closure, unless it was taken before or a run has it.
    fn take(&self) -> Option<Self::Routine>;
}

/// Runs that follow each other.
pub(super) struct InTurn<F> {
    /// Locked for as long as a run lasts.
    routine: Mutex<Option<F>>,
    call: fn(&mut F, &Run),
}

/// Runs that may overlap.
pub(super) struct InParallel<F>(Mutex<Option<StdArc<F>>>);

impl<F> InTurn<F> {
    pub(super) fn new(routine: F, call: fn(&mut F, &Run)) -> Self {
        Self { routine: Mutex::new(Some(routine)), call }
    }
}

impl<F: Send + 'static> Body for InTurn<F> {
    type Routine = F;

    const IN_TURN: bool = true;

    fn make(task: &Repeating<Self>, run: Run, _: &Moment) {
        let mut run = UnderWay::new(task, run);
        let panic = {
            let InTurn { routine, call } = &task.body;
            let mut routine = ignore_poison(routine.lock());
            // `None` if the task was stopped just now.
            routine.as_mut().and_then(|routine| run.make(|run| call(routine, run)))
        };
        run.end(panic);
    }

    fn take(&self) -> Option<F> {
        self.routine.try_lock().ok()?.take()
    }
}

impl<F> InParallel<F> {
    pub(super) fn new(routine: F) -> Self {
        Self(Mutex::new(Some(StdArc::new(routine))))
    }
}

impl<F: Fn(&Run) + Send + Sync + 'static> Body for InParallel<F> {
    type Routine = F;

    const IN_TURN: bool = false;

    fn make(task: &Repeating<Self>, run: Run, moment: &Moment) {
        let task = task.itself.upgrade().expect("its timer has just told it");
        let tasks = task.tasks.clone();
        let run = UnderWay::new(task, run);
        let routine = ignore_poison(run.task.body.0.lock()).clone();
        // `None` if the task was stopped just now.
        let Some(routine) = routine else { return };
        let beside = Box::new(Beside { routine, run, told: moment.now() });
        if tasks.has_no_other_thread() {
            return beside.fire(moment);
        }
        // The run goes to a worker of its own, with the shard's next turn; the present worker goes on to the next
        // instant.
        match tasks.shoot(moment.deadline, beside) {
            Ok(_) => {}
            Err(ScheduleError { kind: Refusal::ShutDown | Refusal::Forked, .. }) => {}
            Err(ScheduleError { payload, .. }) => payload.fire(moment),
        }
    }

    fn take(&self) -> Option<F> {
        StdArc::into_inner(ignore_poison(self.0.lock()).take()?)
    }
}

/// A run beside others.
struct Beside<F: Fn(&Run) + Send + Sync + 'static> {
    routine: StdArc<F>,
    run: UnderWay<InParallel<F>, StdArc<Repeating<InParallel<F>>>>,
    /// The moment at which the task's timer fired.
    told: Timestamp,
}

impl<F: Fn(&Run) + Send + Sync + 'static> Shot for Beside<F> {
    fn fire(self: Box<Self>, moment: &Moment) {
        let Self { routine, mut run, told } = *self;
        run.run.lateness += moment.now() - told;
        let is_wanted = !run.task.lock().is_stopped;
        let panic = is_wanted.then(|| run.make(|run| routine(run))).flatten();
        drop(routine);
        run.end(panic);
    }

    fn unfired(self: Box<Self>) -> Option<Call> {
        None
    }
}

/// A run that has begun; dropping this value ends the run.
struct UnderWay<B: Body, T: Deref<Target = Repeating<B>>> {
    task: T,
    run: Run,
    /// Whether the closure was called.
    is_made: bool,
}

impl<B: Body, T: Deref<Target = Repeating<B>>> UnderWay<B, T> {
    fn new(task: T, run: Run) -> Self {
        Self { task, run, is_made: false }
    }

    /// Calls the closure; returns its panic, if any.
    fn make(&mut self, call: impl FnOnce(&Run)) -> Option<Box<dyn Any + Send>> {
        self.is_made = true;
        catch_unwind(AssertUnwindSafe(|| call(&self.run))).err()
    }

    fn end(self, panic: Option<Box<dyn Any + Send>>) {
        let task = &*self.task;
        let is_over = {
            let mut state = task.lock();
            state.course.report.panics += u64::from(panic.is_some());
            state.is_stopped |= self.run.is_last.get() || (panic.is_some() && task.on_panic == OnPanic::Stop);
            if B::IN_TURN {
                let instant = state.course.row.instant(task.tasks.true_now());
                state.course.end(instant);
                task.arm(&mut state);
            }
            state.has_ended() && (state.is_stopped || state.running == 1)
        };
        if is_over {
            // The closure is gone before the run counts as ended, so that a thread that waits for the run's end finds
            // it gone.
            task.retire();
        }
        drop(self);
        if let Some(panic) = panic {
            // The engine counts and reports the panic.
            resume_unwind(panic);
        }
    }
}

impl<B: Body, T: Deref<Target = Repeating<B>>> Drop for UnderWay<B, T> {
    fn drop(&mut self) {
        let is_over = {
            let mut state = self.task.lock();
            state.running -= 1;
            // A run is not made if its task was stopped, or if its engine was shut down.
            state.course.report.runs -= u64::from(!self.is_made);
            self.task.run_ended.notify_all();
            // Another run that has begun in parallel has yet to take the closure.
            state.has_ended() && (state.is_stopped || state.running == 0)
        };
        if is_over {
            self.task.retire();
        }
    }
}

pub(super) struct Repeating<B: Body> {
    timer: OnceLock<Timer<Job>>,
    tasks: Tasks,
    on_panic: OnPanic,
    state: Mutex<State>,
    run_ended: Condvar,
    body: B,
    itself: Weak<Self>,
}

struct State {
    course: Course,
    is_stopped: bool,
    /// Runs that are under way.
    running: usize,
}

impl State {
    /// Whether no run begins any more.
    fn has_ended(&self) -> bool {
        self.is_stopped || self.course.next().is_none()
    }
}

/// The error for a task that no other code has seen.
fn refused<B: Body>(kind: RepeatErrorKind, body: &B) -> RepeatError<B::Routine> {
    RepeatError { kind, task: body.take().expect("it never ran") }
}

impl<B: Body> Repeating<B> {
    /// Makes a task whose timer is not yet armed.
    pub(super) fn make(
        tasks: &Tasks,
        plan: &Repeat,
        body: B,
    ) -> Result<StdArc<Self>, RepeatError<B::Routine>> {
        let course = match plan.begin(tasks.wall(), tasks.now(), tasks.tick()) {
            Ok(course) => course,
            Err(kind) => return Err(refused(kind, &body)),
        };
        let task = StdArc::new_cyclic(|itself| Self {
            timer: OnceLock::new(),
            tasks: tasks.clone(),
            on_panic: plan.on_panic,
            state: Mutex::new(State { course, is_stopped: false, running: 0 }),
            run_ended: Condvar::new(),
            body,
            itself: Weak::clone(itself),
        });
        match tasks.own_timer(StdArc::downgrade(&task) as Weak<dyn OnDue>) {
            Ok(timer) => drop(task.timer.set(timer)),
            Err(kind) => return Err(refused(RepeatErrorKind::Refused(kind), &task.body)),
        }
        Ok(task)
    }

    /// Arms the timer for the first run. The task may have been stopped before.
    pub(super) fn launch(self: &StdArc<Self>) -> Result<(), RepeatError<B::Routine>> {
        let Some(timer) = self.timer.get() else { return Ok(()) };
        self.tasks.keep(timer.id(), StdArc::clone(self) as StdArc<dyn Repeats>);
        let first = {
            let state = self.lock();
            let next = state.course.next().filter(|_| !state.is_stopped);
            next.map(|next| state.course.row.deadline(next, self.tasks.now()))
        };
        // Armed without the lock: arming may wait for a shard, in whose thread a handler may look at this task.
        let armed = first.map(|first| timer.arm_at(first));
        let is_stopped = {
            let mut state = self.lock();
            state.is_stopped |= armed.is_some_and(|armed| armed.is_err());
            state.is_stopped
        };
        if is_stopped {
            // The stop may have come before the timer was armed.
            timer.disarm();
            drop(self.tasks.forget(timer.id()));
            // A caller that stopped the task has taken the closure, too; the engine's end may not have.
            if let Some(task) = self.tasks.is_shut_down().then(|| self.body.take()).flatten() {
                let kind = RepeatErrorKind::Refused(Refusal::ShutDown);
                return Err(RepeatError { kind, task });
            }
        }
        Ok(())
    }

    /// Takes the closure back from a task that was never launched.
    pub(super) fn take_back(&self) -> Option<B::Routine> {
        self.body.take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        ignore_poison(self.state.lock())
    }

    /// Arms the timer for the coming run, if there is one.
    fn arm(&self, state: &mut State) {
        let next = state.course.next().filter(|_| !state.is_stopped);
        let (Some(next), Some(timer)) = (next, self.timer.get()) else { return };
        let armed = timer.arm_at(state.course.row.deadline(next, self.tasks.now()));
        // Without an engine there is no further run.
        state.is_stopped |= armed.is_err();
    }

    /// Releases the engine's reference to the task, and drops the closure.
    fn retire(&self) {
        let kept = self.timer.get().and_then(|timer| self.tasks.forget(timer.id()));
        drop((kept, self.body.take()));
    }
}

impl<B: Body> OnDue for Repeating<B> {
    fn on_due(&self, moment: &Moment) {
        // The timer's deadline has come, even if the clock stepped back since.
        let now = self.tasks.true_now().max(moment.deadline);
        let run = {
            let mut state = self.lock();
            if state.is_stopped {
                return;
            }
            let instant = state.course.row.instant(now);
            let Some(begun) = state.course.begin(instant) else {
                // By the wall clock the instant has not come yet.
                return self.arm(&mut state);
            };
            state.running += 1;
            if !B::IN_TURN {
                self.arm(&mut state);
            }
            Run::new(&begun, &state.course.row, instant, now)
        };
        B::make(self, run, moment);
    }
}

impl<B: Body> Repeats for Repeating<B> {
    fn stop(&self) -> Stopped {
        let (had_ended, is_running) = {
            let mut state = self.lock();
            let had_ended = state.has_ended();
            state.is_stopped = true;
            (had_ended, state.running > 0)
        };
        if let Some(timer) = self.timer.get() {
            timer.disarm();
        }
        self.retire();
        match (is_running, had_ended) {
            (true, _) => Stopped::Running,
            (false, true) => Stopped::Gone,
            (false, false) => Stopped::Stopped,
        }
    }

    fn stop_and_wait(&self) -> Stopped {
        let outcome = self.stop();
        if outcome != Stopped::Running || self.tasks.must_not_wait_here() {
            return outcome;
        }
        let mut state = self.lock();
        while state.running > 0 {
            state = ignore_poison(self.run_ended.wait(state));
        }
        Stopped::Stopped
    }

    fn next(&self) -> Option<Timestamp> {
        if self.has_ended() { None } else { self.timer.get()?.deadline() }
    }

    fn has_ended(&self) -> bool {
        self.lock().has_ended()
    }

    fn report(&self) -> Report {
        self.lock().course.report
    }
}
