//! Starts and stops repeating tasks by name.

use super::core::TaskCore;
use super::error::RepeatErrorKind;
use super::handle::{Stopped, Task};
use super::key::{IfPresent, Key};
use super::repeat::Repeat;
use super::repeating::{InTurn, Repeating};
use super::run::Run;
use crate::map::LockedMap;
use crate::sync::{AtomicU64, Ordering, StdArc, Weak};
use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;

/// A set of repeating tasks with names. Each name has at most one task. Clones share the names.
///
/// A name is free again when its task has ended ([`Task::has_ended`]), by itself or by a stop. At that moment, the
/// task's last run may still be under way. Tasks go on when the last clone is dropped.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::{DrivenTasks, IfPresent, Repeat};
///
/// let mut tasks = DrivenTasks::new()?;
/// let jobs = tasks.handle().named();
/// let minutely = Repeat::every(Duration::from_secs(60));
/// jobs.start(IfPresent::Replace, "clean-up", minutely.clone(), |_| println!("cleaned"))?;
/// let again = jobs.start(IfPresent::Reject, "clean-up", minutely, |_| println!("twice"));
/// assert_eq!(again.unwrap_err().key, "clean-up");
///
/// tasks.advance(Duration::from_secs(600));
/// assert_eq!(jobs.get("clean-up").unwrap().report().runs, 10);
/// assert!(jobs.stop("clean-up").is_some() && jobs.get("clean-up").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NamedTasks<K: Key> {
    shared: StdArc<Shared<K>>,
}

struct Shared<K: Key> {
    tasks: TaskCore,
    entries: LockedMap<K, Named>,
    generations: AtomicU64,
}

struct Named {
    generation: u64,
    task: Task,
}

/// The outcome of starting a task by name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Started {
    /// The name was free. The name now belongs to the new task.
    New(Task),
    /// The name had another task, which the call has ended. The last run of that task may still be under way.
    Replaced {
        /// The task to which the name now belongs.
        task: Task,
        /// The outcome of stopping the earlier task. It is [`Stopped::Running`] if a run of that task is under way.
        before: Stopped,
    },
    /// The name keeps its task, which is returned here. The new closure was dropped.
    Kept(Task),
}

impl<K: Key> NamedTasks<K> {
    pub(super) fn new(tasks: &TaskCore) -> Self {
        let shared = Shared {
            tasks: tasks.clone(),
            entries: LockedMap::with_shards(1),
            generations: AtomicU64::new(0),
        };
        Self { shared: StdArc::new(shared) }
    }

    /// Starts a task under a name, as [`Tasks::repeat`](crate::Tasks::repeat) does.
    ///
    /// The name decides first. A call that does not replace the task of the name needs neither a valid plan nor room in
    /// the engine. A call that replaces the task needs both: the last run of the earlier task may still be under way
    /// when the new task begins, so the two tasks have a timer each.
    ///
    /// # Errors
    ///
    /// Fails with [`Present`](NamedErrorKind::Present) if the name has a task and the mode is [`IfPresent::Reject`].
    /// Otherwise fails as [`Tasks::repeat`](crate::Tasks::repeat) does. The error returns the name and the closure. The
    /// name keeps the task that it has, unless the engine was shut down.
    pub fn start<F: FnMut(&Run) + Send + 'static>(
        &self,
        mode: IfPresent,
        key: K,
        plan: Repeat,
        f: F,
    ) -> Result<Started, NamedError<K, F>> {
        match self.get_in_this_process(&key).map(|task| (mode, task)) {
            Some((IfPresent::Keep, task)) => return Ok(Started::Kept(task)),
            Some((IfPresent::Reject, _)) => {
                return Err(NamedError::new(NamedErrorKind::Present, key, f));
            }
            Some((IfPresent::Replace, _)) | None => {}
        }
        // Ordering: Relaxed. The numbers only have to differ. They publish nothing.
        let generation = self.shared.generations.fetch_add(1, Ordering::Relaxed);
        let leave = Leave { shared: StdArc::downgrade(&self.shared), key: key.clone(), generation };
        let body = InTurn::new((f, leave), |(f, _): &mut (F, Leave<K>), run| f(run));
        let made = Repeating::make(&self.shared.tasks, &plan, body);
        let repeating = match made {
            Ok(repeating) => repeating,
            Err(error) => {
                return Err(NamedError::new(NamedErrorKind::NotStarted(error.kind), key, error.task.0));
            }
        };
        let task = Task::new(StdArc::clone(&repeating) as _);
        // The task enters the map before its first run. It is launched after all locks are released. Another thread may
        // have started a task under the name since the first look.
        let mut entry = self.shared.entries.entry(&key);
        let before = match (entry.get(&key), mode) {
            (None, _) => {
                entry.insert(key.clone(), Named { generation, task: task.clone() });
                None
            }
            (Some(named), mode) if mode == IfPresent::Replace || named.task.has_ended() => {
                let new = Named { generation, task: task.clone() };
                let old = core::mem::replace(named, new);
                drop(entry);
                Some(old.task)
            }
            (Some(named), IfPresent::Keep | IfPresent::Replace) => {
                let kept = named.task.clone();
                drop(entry);
                return Ok(Started::Kept(kept));
            }
            (Some(_), IfPresent::Reject) => {
                drop(entry);
                return Err(match repeating.take_back() {
                    Some((f, _)) => NamedError::new(NamedErrorKind::Present, key, f),
                    None => unreachable!("nobody else has it"),
                });
            }
        };
        let before = before.map(|task| task.stop());
        match repeating.launch() {
            Ok(()) => Ok(match before {
                Some(before) => Started::Replaced { task, before },
                None => Started::New(task),
            }),
            // Dropping the closure removes the name from the map.
            Err(error) => Err(NamedError::new(NamedErrorKind::NotStarted(error.kind), key, error.task.0)),
        }
    }

    /// Works as [`get`](Self::get). In the child of a fork, where no task can be started, does not wait for the lock of
    /// the names, which may stay locked for ever.
    fn get_in_this_process(&self, key: &K) -> Option<Task> {
        if self.shared.tasks.is_forked() { None } else { self.get(key) }
    }

    /// Stops the task of a name, as [`Task::stop`] does. Returns `None` when the name has no task. If the task has
    /// ended but its last run is still under way, returns [`Stopped::Running`].
    pub fn stop<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Stopped>
    where
        K: Borrow<Q>,
    {
        let (_, named) = self.shared.entries.remove_if(key, |_| true)?;
        Some(named.task.stop())
    }

    /// Returns the task of a name; `None` if the name has no task, or if its task has ended.
    #[must_use]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Task>
    where
        K: Borrow<Q>,
    {
        self.shared.entries.read(key, |named| named.task.clone()).filter(|task| !task.has_ended())
    }

    /// Returns the names whose tasks have not ended.
    #[must_use]
    pub fn keys(&self) -> Vec<K> {
        let mut keys = Vec::new();
        self.shared.entries.for_each(|key, named| {
            if !named.task.has_ended() {
                keys.push(key.clone());
            }
        });
        keys
    }
}

/// A guard that is dropped together with a task's closure. Its drop frees the name, if the name still belongs to that
/// task.
struct Leave<K: Key> {
    shared: Weak<Shared<K>>,
    key: K,
    generation: u64,
}

impl<K: Key> Drop for Leave<K> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let is_ours = |named: &mut Named| named.generation == self.generation;
            let patience = shared.tasks.patience();
            drop(shared.entries.remove_if_unless_lost(patience, &self.key, is_ours));
        }
    }
}

impl<K: Key> Clone for NamedTasks<K> {
    fn clone(&self) -> Self {
        Self { shared: StdArc::clone(&self.shared) }
    }
}

impl<K: Key> fmt::Debug for NamedTasks<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedTasks").field("tasks", &self.shared.tasks).finish_non_exhaustive()
    }
}

/// The reason why a named task was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamedErrorKind {
    /// The name has a task, and the caller has passed [`IfPresent::Reject`].
    Present,
    /// The task cannot be started.
    NotStarted(RepeatErrorKind),
}

impl fmt::Display for NamedErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("the name has a task"),
            Self::NotStarted(kind) => kind.fmt(f),
        }
    }
}

/// The error for a named task that was not started. The error returns the name and the closure.
pub struct NamedError<K, F> {
    /// The reason why the task was not started.
    pub kind: NamedErrorKind,
    /// The name under which the task would have started.
    pub key: K,
    /// The closure that would have run.
    pub task: F,
}

impl<K, F> NamedError<K, F> {
    fn new(kind: NamedErrorKind, key: K, task: F) -> Self {
        Self { kind, key, task }
    }
}

impl<K, F> fmt::Debug for NamedError<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<K, F> fmt::Display for NamedError<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<K, F> std::error::Error for NamedError<K, F> {}
