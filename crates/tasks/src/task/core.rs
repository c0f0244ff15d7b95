//! The part of a task engine that one-shot tasks, keyed timers and the ready-made uses share. It has access to the
//! engine's timers, the wall clock, the repeating tasks, and the listeners for the shutdown.

use super::handle::Repeats;
use super::job::{Call, Job, OnDue, OnEnd, Plain, Shot, give_back};
use super::wall::Wall;
use crate::sync::{Losable, Mutex, MutexGuard, Patience, StdArc, Weak};
use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tourbillon::extend::{Base, WhenFull};
use tourbillon::{Armed, Handle, Refusal, RescheduleError, ScheduleError, Timer, TimerId, Timestamp};

/// The shared part of a task engine. Clones refer to the same engine, and do not keep the engine running.
#[derive(Clone)]
pub(crate) struct TaskCore {
    shared: StdArc<Shared>,
}

struct Shared {
    base: Base<Job>,
    wall: Wall,
    /// The repeating tasks that have not ended, by the ids of their timers. This map keeps a task alive even if its
    /// caller drops the handle.
    repeating: Losable<Mutex<HashMap<TimerId, StdArc<dyn Repeats>>>>,
    /// The listeners to call when the engine shuts down.
    at_end: Losable<Mutex<Living<Weak<dyn OnEnd>>>>,
}

impl TaskCore {
    pub(super) fn new(base: Base<Job>, wall: Wall) -> Self {
        let (repeating, at_end) = (Losable::default(), Losable::default());
        let shared = StdArc::new(Shared { base, wall, repeating, at_end });
        let ended = StdArc::downgrade(&shared);
        shared.base.at_shutdown(move || drop(ended.upgrade().inspect(|shared| shared.end())));
        Self { shared }
    }

    #[inline]
    pub(crate) fn handle(&self) -> &Handle<Job> {
        self.shared.base.handle()
    }

    /// Returns the present moment of the engine's clock, from which to count deadlines.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.handle().now()
    }

    /// Returns whether `deadline` has come by the engine's true clock, which decides when handlers begin. The true
    /// clock is never ahead of the real time, while [`now`](Self::now) may be a little ahead.
    #[inline]
    pub(crate) fn has_come(&self, deadline: Timestamp) -> bool {
        self.handle().has_come(deadline)
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.handle().is_shut_down()
    }

    /// Returns whether this process is the child of a fork, and the engine's threads are in the parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.handle().is_forked()
    }

    /// Returns the reason why the engine refuses everything; `None` if the engine is open.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let reason = if self.is_forked() { Refusal::Forked } else { Refusal::ShutDown };
        self.is_shut_down().then_some(reason)
    }

    /// Waits a little after a call has failed with [`LaneFull`](Refusal::LaneFull) because the calling thread's lane
    /// (its queue to the shard, the thread that runs the engine's timers) was full. Then the caller can try again.
    /// `rounds` counts the waits of the caller. The first waits only yield the processor, and later waits sleep.
    /// Returns false at once if trying again is of no use. This is the case if the engine was shut down, or if the
    /// calling thread can neither empty the lane itself nor wait until the shard has done so.
    pub(crate) fn await_room(&self, rounds: &mut u32) -> bool {
        self.shared.base.await_room(rounds)
    }

    /// Returns the repeating tasks that have not ended, in no order.
    pub(super) fn repeating(&self) -> Vec<StdArc<dyn Repeats>> {
        let kept = self.lock_unless_lost(&self.shared.repeating);
        kept.map(|kept| kept.values().cloned().collect()).unwrap_or_default()
    }

    /// Returns the present moment of the engine's true clock, which decides whether a deadline has come. The true clock
    /// is never ahead of the real time, while [`now`](Self::now) may be a little ahead.
    pub(crate) fn true_now(&self) -> Timestamp {
        self.shared.base.true_now()
    }

    /// Returns for how long a thread must sleep from now in order to be awake at `deadline`. Returns `None` if the
    /// clock moves only by explicit calls.
    pub(crate) fn sleep_for(&self, deadline: Timestamp) -> Option<Duration> {
        self.shared.base.sleep_for(deadline)
    }

    /// Schedules a job that runs once at `deadline`. The call may wait while the calling thread's lane (its queue to
    /// the shard, the thread that runs the engine's timers) is full.
    #[inline]
    pub(crate) fn shoot(
        &self,
        deadline: Timestamp,
        shot: Box<dyn Shot>,
    ) -> Result<TimerId, ScheduleError<Job>> {
        self.handle().schedule_at(deadline, Job::Shot(shot))
    }

    #[inline]
    pub(crate) fn try_shoot(
        &self,
        deadline: Timestamp,
        shot: Box<dyn Shot>,
    ) -> Result<TimerId, ScheduleError<Job>> {
        self.handle().try_schedule_at(deadline, Job::Shot(shot))
    }

    /// Schedules a closure that runs once. Never waits. An error returns the closure.
    pub(crate) fn try_at(
        &self,
        deadline: Timestamp,
        f: impl FnOnce() + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        self.try_shoot(deadline, Box::new(Plain(f))).map_err(|error| error.map(give_back))
    }

    /// Moves a one-shot to another deadline, under a new id. The one-shot keeps its memory slot. Never waits.
    #[inline]
    pub(crate) fn try_move(&self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<Job>> {
        self.handle().try_reschedule_at(id, deadline)
    }

    /// Makes an owned timer that calls `owner` each time it is due.
    pub(crate) fn own_timer(&self, owner: Weak<dyn OnDue>) -> Result<Timer<Job>, Refusal> {
        self.shared.base.timer(Job::Owned(Box::new(owner))).map_err(|error| error.kind)
    }

    #[inline]
    pub(crate) fn try_arm(
        &self,
        timer: &Timer<Job>,
        deadline: Timestamp,
        when_full: WhenFull,
    ) -> Result<Armed, Refusal> {
        self.shared.base.try_arm_at(timer, deadline, when_full)
    }

    /// Registers a listener for the engine's shutdown. Calls the listener at once if the engine has shut down already.
    pub(crate) fn at_end(&self, listener: Weak<dyn OnEnd>) {
        if let Some(mut listeners) = self.lock_unless_lost(&self.shared.at_end) {
            listeners.push(listener, |listener| listener.strong_count() > 0);
        }
        if self.is_shut_down() {
            self.shared.call_listeners();
        }
    }

    pub(super) fn wall(&self) -> Wall {
        self.shared.wall
    }

    /// Returns whether only the calling thread can fire the timers that it schedules. That is true in a handler that
    /// runs inline, and in an engine without threads.
    pub(super) fn has_no_other_thread(&self) -> bool {
        !self.shared.base.may_wait_for_shards()
    }

    pub(super) fn must_not_wait_here(&self) -> bool {
        !self.shared.base.may_wait_for_handlers()
    }

    /// Keeps a repeating task alive, under its timer's id, until the task has ended.
    pub(super) fn keep(&self, timer: TimerId, task: StdArc<dyn Repeats>) {
        if let Some(mut repeating) = self.lock_unless_lost(&self.shared.repeating) {
            repeating.insert(timer, task);
        }
    }

    pub(super) fn forget(&self, timer: TimerId) -> Option<StdArc<dyn Repeats>> {
        self.lock_unless_lost(&self.shared.repeating)?.remove(&timer)
    }

    /// Locks a mutex. Returns `None` if the mutex stays locked for ever in the child of a fork.
    pub(crate) fn lock_unless_lost<'a, T>(&self, lock: &'a Losable<Mutex<T>>) -> Option<MutexGuard<'a, T>> {
        self.shared.lock_unless_lost(lock)
    }

    /// Returns how long a drop waits for a lock that the child of a fork may have lost.
    pub(crate) fn patience(&self) -> Patience {
        self.shared.patience()
    }
}

impl Shared {
    /// Ends the repeating tasks, and calls the listeners. The engine calls this once, at its shutdown.
    fn end(&self) {
        self.end_repeating();
        self.call_listeners();
    }

    fn call_listeners(&self) {
        let listeners = self.take_all(&self.at_end);
        for listener in listeners.entries.iter().filter_map(Weak::upgrade) {
            // A listener may wake user code, and that code may panic.
            survive(|| listener.on_end());
        }
    }

    /// Empties a list and returns its entries. If the list stays locked for ever in the child of a fork, returns an
    /// empty list.
    fn take_all<T: Default>(&self, list: &Losable<Mutex<T>>) -> T {
        self.lock_unless_lost(list).map(|mut list| core::mem::take(&mut *list)).unwrap_or_default()
    }

    fn lock_unless_lost<'a, T>(&self, lock: &'a Losable<Mutex<T>>) -> Option<MutexGuard<'a, T>> {
        lock.unless_lost(self.patience(), Mutex::lock, Mutex::try_lock)
    }

    fn patience(&self) -> Patience {
        match self.base.is_in_child() {
            false => Patience::Endless,
            true if self.base.handle().is_forked() => Patience::Short,
            true => Patience::Long,
        }
    }

    fn end_repeating(&self) {
        let tasks = self.take_all(&self.repeating);
        for task in tasks.into_values() {
            // A task whose drop panics does not affect the other tasks.
            survive(move || {
                let _ = task.stop();
            });
        }
    }
}

/// A list of entries that may die, such as weak references to objects that are dropped. A push removes the dead entries
/// when the list has doubled since the last removal. So a push looks at two entries at most on average, and the list
/// grows only with its living entries.
struct Living<T> {
    entries: Vec<T>,
    /// The length at which the next push removes the dead entries.
    full: usize,
}

impl<T> Living<T> {
    const SHORT: usize = 16;

    fn push(&mut self, entry: T, is_alive: impl FnMut(&T) -> bool) {
        if self.entries.len() >= self.full {
            self.entries.retain(is_alive);
            self.full = (2 * self.entries.len()).max(Self::SHORT);
        }
        self.entries.push(entry);
    }
}

impl<T> Default for Living<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), full: Self::SHORT }
    }
}

/// Runs `f` and catches a panic. At the end of an engine, nobody is left to report a panic to.
pub(super) fn survive<R>(f: impl FnOnce() -> R) -> Option<R> {
    // The panic's payload is leaked, since its drop may panic, too.
    catch_unwind(AssertUnwindSafe(f)).map_err(Box::leak).ok()
}

impl fmt::Debug for TaskCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskCore").field("handle", self.handle()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    /// Pushes `count` entries, of which each `n`th stays alive. Returns the number of looks at an entry, and the
    /// longest length of the list.
    fn push(count: usize, n: usize) -> (usize, usize) {
        let (mut list, mut looks, mut longest) = (Living::default(), 0, 0);
        for entry in 0..count {
            list.push(entry, |entry| {
                looks += 1;
                entry % n == 0
            });
            longest = longest.max(list.entries.len());
        }
        assert!((0..count).step_by(n).all(|entry| list.entries.contains(&entry)), "a living entry is gone");
        (looks, longest)
    }

    #[test]
    fn a_list_of_the_living_looks_at_a_few_entries_for_each_push() {
        let (looks, longest) = push(4_000, 1);
        assert!(looks <= 2 * 4_000 && longest == 4_000, "{looks} {longest}");
    }

    #[test]
    fn a_list_of_the_living_does_not_grow_with_the_dead() {
        let (looks, longest) = push(4_000, 1_000);
        assert!(looks <= 2 * 4_000 && longest <= 16, "{looks} {longest}");
        let (looks, longest) = push(4_000, 10);
        assert!(looks <= 2 * 4_000 && longest <= 2 * 400, "{looks} {longest}");
    }
}
