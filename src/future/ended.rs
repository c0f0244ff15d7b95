//! Tasks that wait in a tokio runtime while that runtime ends.
//!
//! A runtime that ends shuts its engine for futures down before it has dropped the last of its tasks. A task that is
//! polled in between must not take the end for a timeout. So its future stays pending, and the runtime drops the task.
//!
//! But a thread of `spawn_blocking` counts as a task, and may block on such a future. The end of the runtime waits for
//! that thread, and nobody drops the future. So the future stays pending only for the [`GRACE`]. Then it is woken once
//! more, and reports the shutdown. A destructor that blocks on a future gets the same answer if the runtime has already
//! dropped the turning task, which turns the timers. If the runtime has not, the engine still lives but does not turn,
//! and the destructor waits for ever.
//!
//! A program may also shut such an engine down itself, while its runtime goes on. Then the futures report the shutdown
//! at once.

use super::wakeup::Wakeup;
use crate::api::handle::Handle;
use crate::base::fork::{ForkLock, Generation};
use crate::base::sync::{ModelledMutexGuard, OnceLock, sleep, thread};
use crate::base::tick::Timestamp;
use crate::dispatch::survives;
use crate::system::clock::{Clock, SystemClock};
use crate::system::signals::Blocked;
use core::mem::{self, ManuallyDrop};
use core::task::Waker;
use core::time::Duration;
use tokio::runtime::{Handle as Runtime, Id};

/// The time after the end of a runtime's engine for which the futures of the runtime's tasks stay pending. A runtime
/// drops its tasks in far less time, except a task whose poll goes on. If such a task polls a future later, the future
/// reports the shutdown.
const GRACE: Duration = Duration::from_secs(1);

/// An engine for futures that has ended with its runtime.
struct Ended {
    engine: u64,
    runtime: Id,
    at: Timestamp,
}

impl Ended {
    fn is_recent(&self) -> bool {
        SystemClock::new().now() - self.at < GRACE
    }
}

/// The engines that ended at most [`GRACE`] ago, and the tasks to wake when that time is over.
struct Lately {
    /// The process whose engines and tasks these are.
    process: Generation,
    ended: Vec<Ended>,
    tasks: Vec<Waker>,
    has_thread: bool,
}

impl Default for Lately {
    fn default() -> Self {
        Self { process: Generation::current(), ended: Vec::new(), tasks: Vec::new(), has_thread: false }
    }
}

static LATELY: OnceLock<ForkLock<Lately>> = OnceLock::new();

/// Locks the record of the engines that have ended. In the child of a fork, first forgets the engines and tasks that
/// the parent has recorded: the thread that would wake the tasks is in the parent.
fn lately() -> Option<ModelledMutexGuard<'static, Lately>> {
    let mut record = LATELY.get_or_init(ForkLock::default).lock()?;
    if record.process.is_past() {
        // The tasks of the parent are leaked: a waker's drop may run code of the program.
        let _leaked = ManuallyDrop::new(mem::take(&mut *record).tasks);
    }
    Some(record)
}

/// Records that the engine of `handle` ends because `runtime` ends. The caller then shuts the engine down.
pub(super) fn note_end(handle: &Handle<Wakeup>, runtime: Id) {
    if let Some(mut record) = lately() {
        record.ended.retain(Ended::is_recent);
        let engine = handle.core().admission().engine();
        record.ended.push(Ended { engine, runtime, at: SystemClock::new().now() });
    }
}

/// Returns whether a future on the engine of `handle` stays pending, although the engine is shut down. It does if a
/// task of the engine's runtime polls the future, and the runtime ended less than [`GRACE`] ago. Then a thread wakes
/// `waker` after that time.
#[cold]
pub(super) fn stays_pending(handle: &Handle<Wakeup>, waker: &Waker) -> bool {
    let is_in_task = tokio::task::try_id().is_some();
    let Some(runtime) = Runtime::try_current().ok().filter(|_| is_in_task).map(|runtime| runtime.id()) else {
        return false;
    };
    let engine = handle.core().admission().engine();
    // Cloned outside of the lock, since this is code of the program.
    let waker = waker.clone();
    let Some(mut record) = lately() else { return false };
    let ended_with = |ended: &Ended| ended.engine == engine && ended.runtime == runtime && ended.is_recent();
    if !record.ended.iter().any(ended_with) {
        drop(record);
        return false;
    }
    // A task may poll several sleeps. The wakers keep their runtime's memory and descriptors for two graces at most.
    if !record.tasks.last().is_some_and(|last| last.will_wake(&waker)) {
        record.tasks.push(waker);
    }
    if mem::replace(&mut record.has_thread, true) {
        return true;
    }
    drop(record);
    let _no_signals = Blocked::new();
    if thread::Builder::new().name("tb-ended".to_owned()).spawn(wake_after_grace).is_ok() {
        return true;
    }
    // Nobody would wake the tasks, so this task learns of the end at once.
    let tasks = lately().map(|mut record| {
        record.has_thread = false;
        mem::take(&mut record.tasks)
    });
    wake(tasks.unwrap_or_default());
    false
}

/// Wakes the recorded tasks after each [`GRACE`]. Ends after a period in which no task was recorded.
fn wake_after_grace() {
    loop {
        sleep(GRACE);
        let tasks = {
            let Some(mut record) = lately() else { return };
            let tasks = mem::take(&mut record.tasks);
            record.has_thread = !tasks.is_empty();
            tasks
        };
        if tasks.is_empty() {
            return;
        }
        wake(tasks);
    }
}

fn wake(tasks: Vec<Waker>) {
    for task in tasks {
        let _survived = survives(|| task.wake());
    }
}
