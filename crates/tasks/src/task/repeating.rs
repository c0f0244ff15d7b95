//! Runs a repeating task: an owned timer, the task's progress, and its closure.
//!
//! At the end of a run, the timer is armed for the next run, under the lock of the progress. If a stop comes first, the
//! arming finds that the task has ended and does nothing. If a stop comes later, the stop disarms the timer. Closures
//! run, and are dropped, while nothing is locked.
//!
//! Arming may have to wait when a lane is full. A lane is the queue of a thread's messages to a shard, called tickets.
//! No call waits for a shard while it holds the lock of the progress. A handler on the shard's thread may need the
//! lock, and then both would wait for ever. So an arming under the lock may exceed the capacity of a lane, by one
//! ticket for each task.

use super::core::TaskCore;
use super::error::{RepeatError, RepeatErrorKind};
use super::handle::{Repeats, Stopped};
use super::job::{Call, Job, OnDue, Shot};
use super::policies::OnPanic;
use super::progress::Progress;
use super::repeat::Repeat;
use super::report::Report;
use super::run::Run;
use crate::sync::{Condvar, Losable, Mutex, MutexGuard, OnceLock, Patience, StdArc, Weak, ignore_poison};
use core::ops::Deref;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tourbillon::extend::{Moment, WhenFull};
use tourbillon::{Refusal, ScheduleError, Timer, Timestamp};

/// The closure of a repeating task. The type decides whether the task's runs may overlap. The closure is kept until the
/// task has ended.
pub(super) trait Body: Send + Sync + Sized + 'static {
    type Routine;

    /// Whether each run of the task must wait for the end of the previous run.
    const IN_TURN: bool;

    /// Begins a run whose planned moment has come.
    fn make(task: &Repeating<Self>, run: Run, moment: &Moment<'_>);

    /// Takes the closure out. Returns `None` if the closure was taken before, or if a run uses it. In the child of a
    /// fork, also returns `None` if the closure stays locked for ever.
    fn take(&self, patience: Patience) -> Option<Self::Routine>;
}

/// The closure of a task whose runs never overlap.
pub(super) struct InTurn<F> {
    /// The closure; `None` after it was taken out. The lock is held during each run.
    routine: Mutex<Option<F>>,
    call: fn(&mut F, &Run),
}

/// The closure of a task whose runs may overlap.
pub(super) struct InParallel<F>(Losable<Mutex<Option<StdArc<F>>>>);

impl<F> InTurn<F> {
    pub(super) fn new(routine: F, call: fn(&mut F, &Run)) -> Self {
        Self { routine: Mutex::new(Some(routine)), call }
    }
}

impl<F: Send + 'static> Body for InTurn<F> {
    type Routine = F;

    const IN_TURN: bool = true;

    fn make(task: &Repeating<Self>, run: Run, _: &Moment<'_>) {
        let mut run = UnderWay::new(task, run);
        let panic = {
            let InTurn { routine, call } = &task.body;
            let mut routine = ignore_poison(routine.lock());
            // The closure is `None` if a stop took it a moment ago.
            routine.as_mut().and_then(|routine| run.make(|run| call(routine, run)))
        };
        run.end(panic);
    }

    fn take(&self, _: Patience) -> Option<F> {
        self.routine.try_lock().ok()?.take()
    }
}

impl<F> InParallel<F> {
    pub(super) fn new(routine: F) -> Self {
        Self(Losable::new(Mutex::new(Some(StdArc::new(routine)))))
    }
}

impl<F: Fn(&Run) + Send + Sync + 'static> Body for InParallel<F> {
    type Routine = F;

    const IN_TURN: bool = false;

    fn make(task: &Repeating<Self>, run: Run, moment: &Moment<'_>) {
        let task = task.itself.upgrade().expect("its timer has just called it");
        let tasks = task.tasks.clone();
        let run = UnderWay::new(task, run);
        let routine = ignore_poison(run.task.body.0.lock()).clone();
        // The closure is `None` if a stop took it a moment ago.
        let Some(routine) = routine else { return };
        let beside = Box::new(Beside { routine, run });
        if tasks.has_no_other_thread() {
            return beside.fire(moment);
        }
        // Schedules the run as a one-shot that is due already, so that another worker makes it. The present worker is
        // then free for the next instant.
        match tasks.shoot(moment.deadline, beside) {
            Ok(_) => {}
            Err(ScheduleError { kind: Refusal::ShutDown | Refusal::Forked, .. }) => {}
            Err(ScheduleError { payload, .. }) => payload.fire(moment),
        }
    }

    fn take(&self, patience: Patience) -> Option<F> {
        let routine = self.0.unless_lost(patience, Mutex::lock, Mutex::try_lock)?.take();
        StdArc::into_inner(routine?)
    }
}

/// A run that may overlap other runs of the same task.
struct Beside<F: Fn(&Run) + Send + Sync + 'static> {
    routine: StdArc<F>,
    run: UnderWay<InParallel<F>, StdArc<Repeating<InParallel<F>>>>,
}

impl<F: Fn(&Run) + Send + Sync + 'static> Shot for Beside<F> {
    fn fire(self: Box<Self>, moment: &Moment<'_>) {
        let Self { routine, mut run } = *self;
        run.run.lateness = moment.now() - run.run.scheduled;
        let is_wanted = !run.task.lock().is_stopped;
        let panic = is_wanted.then(|| run.make(|run| routine(run))).flatten();
        drop(routine);
        run.end(panic);
    }

    fn unfired(self: Box<Self>) -> Option<Call> {
        None
    }
}

/// A run that has begun. If [`end`](Self::end) has not ended the run, dropping this value ends it.
struct UnderWay<B: Body, T: Deref<Target = Repeating<B>>> {
    task: T,
    run: Run,
    /// Whether the run has called the task's closure.
    is_made: bool,
    has_ended: bool,
}

impl<B: Body, T: Deref<Target = Repeating<B>>> UnderWay<B, T> {
    fn new(task: T, run: Run) -> Self {
        Self { task, run, is_made: false, has_ended: false }
    }

    /// Runs `call`, which calls the task's closure. If the closure panics, returns the payload of the panic.
    fn make(&mut self, call: impl FnOnce(&Run)) -> Option<Box<dyn Any + Send>> {
        self.is_made = true;
        catch_unwind(AssertUnwindSafe(|| call(&self.run))).err()
    }

    fn end(mut self, panic: Option<Box<dyn Any + Send>>) {
        let task = &*self.task;
        let is_over = {
            let mut state = task.lock();
            state.progress.report.panics += u64::from(panic.is_some());
            state.is_stopped |= self.run.is_last.get() || (panic.is_some() && task.on_panic == OnPanic::Stop);
            if B::IN_TURN {
                let instant = state.progress.occurrences.instant(task.tasks.true_now());
                state.progress.end(instant);
                task.arm(&mut state);
            }
            let is_over = state.has_ended() && (state.is_stopped || state.running == 1);
            if !is_over {
                task.count_end(&mut state, self.is_made);
            }
            is_over
        };
        if is_over {
            // The closure is dropped before the run counts as ended, so that a thread that waits for the run's end
            // finds the closure gone.
            task.retire();
            task.count_end(&mut task.lock(), self.is_made);
        }
        self.has_ended = true;
        drop(self);
        if let Some(panic) = panic {
            // The engine counts and reports the panic.
            resume_unwind(panic);
        }
    }
}

impl<B: Body, T: Deref<Target = Repeating<B>>> Drop for UnderWay<B, T> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let is_over = {
            // In the child of a fork, a shutdown drops runs that waited for a worker of the parent.
            let Some(mut state) = self.task.tasks.lock_unless_lost(&self.task.state) else { return };
            self.task.count_end(&mut state, self.is_made);
            // A parallel run that has begun but not called the closure must still find the closure.
            state.has_ended() && (state.is_stopped || state.running == 0)
        };
        if is_over {
            self.task.retire();
        }
    }
}

pub(super) struct Repeating<B: Body> {
    timer: OnceLock<Timer<Job>>,
    tasks: TaskCore,
    on_panic: OnPanic,
    state: Losable<Mutex<State>>,
    run_ended: Condvar,
    body: B,
    itself: Weak<Self>,
}

struct State {
    progress: Progress,
    is_stopped: bool,
    /// The number of the task's runs that are under way.
    running: usize,
    /// The number of threads that wait for the end of the runs under way.
    waiting: usize,
}

impl State {
    /// Returns whether no further run of the task begins.
    fn has_ended(&self) -> bool {
        self.is_stopped || self.progress.next().is_none()
    }
}

/// Makes the error for a task that cannot be started. The error returns the closure of `body`.
fn refused<B: Body>(kind: RepeatErrorKind, body: &B) -> RepeatError<B::Routine> {
    RepeatError { kind, task: body.take(Patience::Endless).expect("it never ran") }
}

impl<B: Body> Repeating<B> {
    /// Makes a repeating task. [`launch`](Self::launch) arms its timer.
    pub(super) fn make(
        tasks: &TaskCore,
        plan: &Repeat,
        body: B,
    ) -> Result<StdArc<Self>, RepeatError<B::Routine>> {
        let progress = match plan.begin(tasks.wall(), tasks.now(), tasks.handle().tick()) {
            Ok(progress) => progress,
            Err(kind) => return Err(refused(kind, &body)),
        };
        let task = StdArc::new_cyclic(|itself| Self {
            timer: OnceLock::new(),
            tasks: tasks.clone(),
            on_panic: plan.on_panic,
            state: Losable::new(Mutex::new(State { progress, is_stopped: false, running: 0, waiting: 0 })),
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

    /// Arms the task's timer for the first run, unless the task was already stopped.
    pub(super) fn launch(self: &StdArc<Self>) -> Result<(), RepeatError<B::Routine>> {
        let Some(timer) = self.timer.get() else { return Ok(()) };
        self.tasks.keep(timer.id(), StdArc::clone(self) as StdArc<dyn Repeats>);
        let first = {
            let state = self.lock();
            let next = state.progress.next().filter(|_| !state.is_stopped);
            next.map(|next| state.progress.occurrences.deadline(next, || self.tasks.now()))
        };
        // No lock is held here, since arming may wait for a shard. The shard's thread may run a handler that needs the
        // lock.
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
            // If a caller stopped the task, that caller has taken the closure. A shutdown may have left the closure in
            // the task.
            if let Some(task) = self.tasks.is_shut_down().then(|| self.take_back()).flatten() {
                let kind = RepeatErrorKind::Refused(Refusal::ShutDown);
                return Err(RepeatError { kind, task });
            }
        }
        Ok(())
    }

    /// Takes the task's closure out. Returns `None` if a run uses the closure.
    pub(super) fn take_back(&self) -> Option<B::Routine> {
        self.body.take(self.tasks.patience())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        ignore_poison(self.state.lock())
    }

    /// Counts the end of a run. A run that has not called the closure does not count: the task was stopped, or the
    /// engine shut down.
    fn count_end(&self, state: &mut State, is_made: bool) {
        state.running -= 1;
        state.progress.report.runs -= u64::from(!is_made);
        // A call of `notify_all` is a system call, even if no thread waits.
        if state.waiting > 0 {
            self.run_ended.notify_all();
        }
    }

    /// Arms the task's timer for the coming run, if a further run comes. Never waits.
    fn arm(&self, state: &mut State) {
        let next = state.progress.next().filter(|_| !state.is_stopped);
        let (Some(next), Some(timer)) = (next, self.timer.get()) else { return };
        let deadline = state.progress.occurrences.deadline(next, || self.tasks.now());
        let armed = self.tasks.try_arm(timer, deadline, WhenFull::Exceed);
        // If the engine refuses, no further run is possible.
        state.is_stopped |= armed.is_err();
    }

    /// Drops the closure of an ended task, and the engine's reference to the task.
    fn retire(&self) {
        let kept = self.timer.get().and_then(|timer| self.tasks.forget(timer.id()));
        drop((kept, self.take_back()));
    }
}

impl<B: Body> OnDue for Repeating<B> {
    fn on_due(&self, moment: &Moment<'_>) {
        // The timer's deadline has come, even if the clock stepped back since.
        let now = self.tasks.true_now().max(moment.deadline);
        let run = {
            let mut state = self.lock();
            if state.is_stopped {
                return;
            }
            let instant = state.progress.occurrences.instant(now);
            let Some(begun) = state.progress.begin(instant) else {
                // By the wall clock, the instant may not have come yet.
                return self.arm(&mut state);
            };
            state.running += 1;
            if !B::IN_TURN {
                self.arm(&mut state);
            }
            Run::new(&begun, &state.progress.occurrences, instant, now)
        };
        B::make(self, run, moment);
    }
}

impl<B: Body> Repeats for Repeating<B> {
    fn stop(&self) -> Stopped {
        let (had_ended, is_running) = {
            match self.tasks.lock_unless_lost(&self.state) {
                Some(mut state) => {
                    let had_ended = state.has_ended();
                    state.is_stopped = true;
                    (had_ended, state.running > 0)
                }
                // The lock is lost in the child of a fork. The task counts as ended, whether or not it still runs.
                None => (true, false),
            }
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
        state.waiting += 1;
        while state.running > 0 {
            state = ignore_poison(self.run_ended.wait(state));
        }
        state.waiting -= 1;
        Stopped::Stopped
    }

    fn next(&self) -> Option<Timestamp> {
        if self.has_ended() { None } else { self.timer.get()?.deadline() }
    }

    fn has_ended(&self) -> bool {
        self.lock().has_ended()
    }

    fn report(&self) -> Report {
        self.lock().progress.report
    }
}
