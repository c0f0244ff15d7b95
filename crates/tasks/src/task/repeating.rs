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
//!
//! # The stages of a run
//! ```text
//! runs in turn:     due ──► begun ──► ended
//! runs in parallel: due ──► queued ── a worker takes the run ──► begun ──► ended
//!                             └── a stop, or the engine drops the run ──► given up
//! ```
//! A run in parallel is queued as a one-shot, so that another worker makes it. The thread that stops the task may be
//! that worker, or the thread whose next turn passes the one-shot on. So no stop waits for a queued run.
//!
//! R1. A run begins under the lock of the state, and only if the task was not stopped. After a stop no run begins.
//! R2. A stop gives up the queued runs: they count neither as runs under way nor in the report. A stopped task has no
//!     queued run. What is left of such a run in the engine finds that the task was stopped, and does nothing.
//! R3. `stop_and_wait` waits only for runs that have begun. Each of them is on the stack of a thread. The thread that
//!     waits is not that thread, because it would then be in a handler of the engine and would not wait.
//! R4. A queued run does not hold the closure, and finds it in the task when it begins. The closure is taken out of the
//!     task by a stop, or by the end of the last run. It is dropped before the last run that has called it counts as
//!     ended. So a thread that has waited for the runs finds the closure gone.
//!
//! # Races and their legal endings
//! - stop x queued run: (a) the run is given up, and the stop does not return [`Stopped::Running`] for it; (b) the run
//!   begins first, and the stop returns [`Stopped::Running`] or waits.
//! - stop x due run, before its one-shot is scheduled: as for a queued run. In case (a) the one-shot is scheduled for
//!   nothing.
//! - stop x begun run that has not got the closure: (a) the stop takes the closure, and the run ends without a call and
//!   does not count; (b) the run calls the closure.
//! - stop x queued last run: the task has not ended before the stop, so the stop returns [`Stopped::Stopped`] in case
//!   (a).
//! - end of a run x queued last run: the closure stays in the task for the last run.
//! - drop of a queued run x end of a run: the later of the two takes the closure out, if no further run begins.

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
        let mut run = UnderWay::new(task, run, Stage::Begun);
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
        let beside = Box::new(Beside(UnderWay::new(task, run, Stage::Queued)));
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
struct Beside<F: Fn(&Run) + Send + Sync + 'static>(UnderWay<InParallel<F>, StdArc<Repeating<InParallel<F>>>>);

impl<F: Fn(&Run) + Send + Sync + 'static> Shot for Beside<F> {
    fn fire(self: Box<Self>, moment: &Moment<'_>) {
        let Self(mut run) = *self;
        if !run.begin() {
            return;
        }
        run.run.lateness = moment.now() - run.run.scheduled;
        let routine = ignore_poison(run.task.body.0.lock()).clone();
        // The closure is `None` if a stop took it a moment ago. The run gives its reference back before it ends.
        let panic = routine.and_then(|routine| run.make(|run| routine(run)));
        run.end(panic);
    }

    fn unfired(self: Box<Self>) -> Option<Call> {
        None
    }
}

/// A run whose planned moment has come. If [`end`](Self::end) has not ended the run, dropping this value ends it. A run
/// that has not begun then never begins.
struct UnderWay<B: Body, T: Deref<Target = Repeating<B>>> {
    task: T,
    run: Run,
    stage: Stage,
}

/// How far a run has come: see [the stages of a run](self#the-stages-of-a-run).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The run counts in [`State::queued`], unless the task was stopped.
    Queued,
    /// The run counts in [`State::running`].
    Begun,
    /// The run counts in [`State::running`], and has called the task's closure.
    Made,
    Ended,
}

impl<B: Body, T: Deref<Target = Repeating<B>>> UnderWay<B, T> {
    fn new(task: T, run: Run, stage: Stage) -> Self {
        Self { task, run, stage }
    }

    fn begin(&mut self) -> bool {
        let has_begun = self.task.lock().begin_queued();
        if has_begun {
            self.stage = Stage::Begun;
        }
        has_begun
    }

    /// Runs `call`, which calls the task's closure. If the closure panics, returns the payload of the panic.
    fn make(&mut self, call: impl FnOnce(&Run)) -> Option<Box<dyn Any + Send>> {
        self.stage = Stage::Made;
        catch_unwind(AssertUnwindSafe(|| call(&self.run))).err()
    }

    fn end(mut self, panic: Option<Box<dyn Any + Send>>) {
        let task = &*self.task;
        let is_over = {
            let mut state = task.lock();
            state.progress.report.panics += u64::from(panic.is_some());
            if self.run.is_last.get() || (panic.is_some() && task.on_panic == OnPanic::Stop) {
                state.stop();
            }
            if B::IN_TURN {
                let instant = state.progress.occurrences.instant(task.tasks.true_now());
                state.progress.end(instant);
                task.arm(&mut state);
            }
            let is_over = state.has_ended() && (state.is_stopped || state.running == 1);
            if !is_over {
                task.count_end(&mut state, self.stage);
            }
            is_over
        };
        if is_over {
            // The closure is dropped before the run counts as ended, so that a thread that waits for the run's end
            // finds the closure gone.
            task.retire();
            task.count_end(&mut task.lock(), self.stage);
        }
        self.stage = Stage::Ended;
        drop(self);
        if let Some(panic) = panic {
            // The engine counts and reports the panic.
            resume_unwind(panic);
        }
    }
}

impl<B: Body, T: Deref<Target = Repeating<B>>> Drop for UnderWay<B, T> {
    fn drop(&mut self) {
        if self.stage == Stage::Ended {
            return;
        }
        let is_over = {
            // In the child of a fork, a shutdown drops runs that waited for a worker of the parent.
            let Some(mut state) = self.task.tasks.lock_unless_lost(&self.task.state) else { return };
            if self.stage == Stage::Queued {
                state.give_up_queued();
            } else {
                self.task.count_end(&mut state, self.stage);
            }
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
    /// The number of runs that wait for a worker. It is 0 in a stopped task.
    queued: u64,
    /// The number of runs that have begun and not ended.
    running: usize,
    /// The number of threads that wait for the end of the runs under way.
    waiting: usize,
}

impl State {
    /// Returns whether no further run of the task begins.
    fn has_ended(&self) -> bool {
        self.is_stopped || (self.queued == 0 && self.progress.next().is_none())
    }

    /// Ends the task. Its queued runs, which wait for a worker, never begin and count no more.
    fn stop(&mut self) {
        self.is_stopped = true;
        self.progress.report.runs -= self.queued;
        self.queued = 0;
    }

    /// Begins a queued run. Returns false if the task was stopped.
    fn begin_queued(&mut self) -> bool {
        if self.is_stopped {
            return false;
        }
        self.queued -= 1;
        self.running += 1;
        true
    }

    /// Removes a queued run that will never begin from the counts, unless a stop has done so.
    fn give_up_queued(&mut self) {
        if !self.is_stopped {
            self.queued -= 1;
            self.progress.report.runs -= 1;
        }
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
            state: Losable::new(Mutex::new(State {
                progress,
                is_stopped: false,
                queued: 0,
                running: 0,
                waiting: 0,
            })),
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
            if armed.is_some_and(|armed| armed.is_err()) {
                state.stop();
            }
            state.is_stopped
        };
        if is_stopped {
            // The stop may have come before the timer was armed.
            timer.disarm();
            drop(self.tasks.forget(timer.id()));
            // If a caller stopped the task, that caller has taken the closure. A shutdown may have left the closure in
            // the task.
            if let Some(kind) = self.tasks.refusal()
                && let Some(task) = self.take_back()
            {
                return Err(RepeatError { kind: RepeatErrorKind::Refused(kind), task });
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
    fn count_end(&self, state: &mut State, stage: Stage) {
        state.running -= 1;
        state.progress.report.runs -= u64::from(stage != Stage::Made);
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
        if armed.is_err() {
            state.stop();
        }
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
            if B::IN_TURN {
                state.running += 1;
            } else {
                state.queued += 1;
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
                    state.stop();
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
        // In the child of a fork, no further run begins.
        self.tasks.is_forked() || self.lock().has_ended()
    }

    fn report(&self) -> Report {
        self.lock().progress.report
    }
}
