//! The core of a task engine: the common part of tasks, timers by key and the ready-made uses. It knows the engine's
//! timers, the wall clock, the repeating tasks and the listeners for the end.

use super::handle::Repeats;
use super::job::{Call, Job, OnDue, OnEnd, Plain, Shot, give_back};
use super::wall::Wall;
use crate::sync::{self, Mutex, MutexGuard, StdArc, Weak};
use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tourbillon::extend::{Base, WhenFull};
use tourbillon::{Armed, Handle, Refusal, RescheduleError, ScheduleError, Timer, TimerId, Timestamp};

/// The core of a task engine. Clones refer to the same engine, and do not keep it running.
#[derive(Clone)]
pub(crate) struct TaskCore {
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

impl TaskCore {
    pub(super) fn new(base: Base<Job>, wall: Wall) -> Self {
        let (repeating, at_end) = (Mutex::default(), Mutex::default());
        let shared = StdArc::new(Shared { base, wall, repeating, at_end });
        let ended = StdArc::downgrade(&shared);
        shared.base.at_shutdown(move || drop(ended.upgrade().inspect(|shared| shared.end())));
        Self { shared }
    }

    #[inline]
    pub(crate) fn handle(&self) -> &Handle<Job> {
        self.shared.base.handle()
    }

    /// The present moment on the engine's clock, to count deadlines from.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.handle().now()
    }

    /// Whether `deadline` has come by the true clock.
    #[inline]
    pub(crate) fn has_come(&self, deadline: Timestamp) -> bool {
        self.handle().has_come(deadline)
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.handle().is_shut_down()
    }

    /// Waits a little, and longer in later `rounds`, for room in the lane that a call found full. Returns false at once
    /// where the caller would wait for itself.
    pub(crate) fn await_room(&self, rounds: &mut u32) -> bool {
        self.shared.base.await_room(rounds)
    }

    /// The repeating tasks that are kept, in no order.
    pub(super) fn repeating(&self) -> Vec<StdArc<dyn Repeats>> {
        let kept = self.lock_unless_lost(&self.shared.repeating);
        kept.map(|kept| kept.values().cloned().collect()).unwrap_or_default()
    }

    /// The moment that decides whether a deadline has come.
    pub(crate) fn true_now(&self) -> Timestamp {
        self.shared.base.true_now()
    }

    /// The time that a thread may sleep to be awake at `deadline`; `None` if no sleep helps.
    pub(crate) fn sleep_for(&self, deadline: Timestamp) -> Option<Duration> {
        self.shared.base.sleep_for(deadline)
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

    /// Schedules a closure. Never waits; the error returns the closure.
    pub(crate) fn try_at(
        &self,
        deadline: Timestamp,
        f: impl FnOnce() + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        self.try_shoot(deadline, Box::new(Plain(f))).map_err(|error| error.map(give_back))
    }

    /// Moves a one-shot to another deadline, under a new id. The one-shot keeps its slot. Never waits.
    #[inline]
    pub(crate) fn try_move(&self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<Job>> {
        self.handle().try_reschedule_at(id, deadline)
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
    /// Ends the repeating tasks, and calls the listeners. Called once, by the engine.
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

    /// Takes the entries of a list. In the child of a fork the list may be out of reach: its contents stay where they
    /// are.
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
pub(super) fn survive<R>(f: impl FnOnce() -> R) -> Option<R> {
    // The panic's payload is leaked, since its drop may panic in turn.
    catch_unwind(AssertUnwindSafe(f)).map_err(Box::leak).ok()
}

impl fmt::Debug for TaskCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskCore").field("handle", self.handle()).finish_non_exhaustive()
    }
}
